//! A broker's facts about a message: its number, its sender, the owner of its queue, and the reason why it is dead.
//! Anybody may have written any of these.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_brokers::rabbitmq::{names, read_dead_letter};
use sealbus_brokers::{DeadLetter, OrderStamp};
use sealbus_seal::PlatformName;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(stamp) = OrderStamp::parse(text) {
            assert_eq!(stamp.to_string(), text);
            assert!(stamp.base >= 1 && stamp.base <= stamp.number);
        }
        let platform = PlatformName::new("factory").unwrap();
        if let Some((identity, address)) = names::identity_of_user(text, &platform) {
            let user = names::user_of(&identity, address).unwrap();
            assert_eq!(
                names::identity_of_user(&user, &platform),
                Some((identity, address))
            );
        }
        if let Some(queue) = names::queue_of_name(text) {
            assert_eq!(names::queue(&queue), text);
        }
    }
    if let Ok(message) = serde_json::from_slice(bytes) {
        let platform = PlatformName::new("factory").unwrap();
        let letter = read_dead_letter(&message, false, &platform);
        let left = read_dead_letter(&message, true, &platform);
        // Nothing but the reason depends on whether the receiver ended.
        assert_eq!(
            DeadLetter {
                death: letter.death.clone(),
                ..left
            },
            letter
        );
    }
});
