//! What a broker says of a message: its number, who sent it, whose queue it was in, and why it is dead. Any of it may be
//! anybody's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_brokers::rabbitmq::{DeadLetter, Stamp, names};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(stamp) = Stamp::parse(text) {
            assert_eq!(stamp.to_string(), text);
            assert!(stamp.base >= 1 && stamp.base <= stamp.number);
        }
        if let Some((name, address)) = names::agent_of_user(text) {
            let user = names::user(name, address);
            assert_eq!(names::agent_of_user(&user), Some((name, address)));
        }
        if let Some(agent) = names::agent_of_queue(text) {
            assert_eq!(names::queue(agent), text);
        }
    }
    if let Ok(message) = serde_json::from_slice(bytes) {
        let letter = DeadLetter::read(&message, "operator");
        let again = DeadLetter::read(&message, "operator");
        assert_eq!(letter, again);
    }
});
