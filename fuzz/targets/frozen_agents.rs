//! Any bytes as the agents that move to a process: an error, or agents whose unread messages are read or refused. They are
//! written so that they are read again as they were.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_bus::ForeignOrigin;
use sealbus_control::{FrozenAgent, WaitingProvenance};
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_seal::Identity;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frozen) = serde_json::from_slice::<Vec<FrozenAgent>>(bytes) else {
        return;
    };
    let written = serde_json::to_vec(&frozen).expect("it has a form");
    let again: Vec<FrozenAgent> = serde_json::from_slice(&written).expect("it was written");
    assert_eq!(again, frozen);
    for waiting in frozen.into_iter().flat_map(|agent| agent.mailbox) {
        let Ok(message) = EncodedMessage::new(waiting.message.0, &Limits::default()) else {
            continue;
        };
        match waiting.provenance {
            WaitingProvenance::Foreign => drop(ForeignOrigin::read(&message.message())),
            WaitingProvenance::SameProcess { identity }
            | WaitingProvenance::Proved { identity, .. }
            | WaitingProvenance::Signed { identity, .. } => drop(identity.parse::<Identity>()),
            WaitingProvenance::Claimed | WaitingProvenance::Platform => {}
        }
    }
});
