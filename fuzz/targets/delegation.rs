//! Any bytes as an ACL message: an error, or the agents on whose behalf it asks, which a message on their behalf names again.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sealbus_bus::{Delegation, LONGEST_ASKER, MOST_ASKERS, aid_of};
use sealbus_fipa::{AclMessage, Limits, Performative, bitefficient};

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = bitefficient::decode_ref(bytes, &Limits::default()) else {
        return;
    };
    let Ok(chain) = Delegation::of(&message) else {
        return;
    };
    assert!(chain.askers().len() <= MOST_ASKERS);
    assert!(
        chain
            .askers()
            .iter()
            .all(|name| name.len() <= LONGEST_ASKER)
    );
    let next = AclMessage::new(Performative::Request).with_receiver(aid_of("next asked@factory"));
    let next = chain.put_into(Arc::new(next));
    assert_eq!(Delegation::of(&next.view()).as_ref(), Ok(&chain));
    if let Some(sender) = message.sender() {
        let _ = Delegation::from_sender(&message, sender.name());
        let by = Delegation::by(&message);
        assert!(
            by.is_empty()
                || by
                    .askers()
                    .last()
                    .is_some_and(|last| *last == *sender.name())
        );
    }
});
