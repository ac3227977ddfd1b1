//! Any metadata of a message: on whose behalf it asks, and the ACL message in it, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::acl;
use sealbus_a2a::extensions::read_chain;
use sealbus_bus::{MOST_ASKERS, ReceivedMessage};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(serde_json::Value::Object(metadata)) = serde_json::from_slice(bytes) {
        if let Ok(chain) = read_chain(Some(&metadata), "factory") {
            assert!(chain.askers().len() <= MOST_ASKERS);
        }
        if let Ok(Some(data)) = acl::read(Some(&metadata))
            && let Some(whole) = data.whole
        {
            assert_eq!(whole.performative, data.performative);
            let again = ReceivedMessage::shared(whole.into(), sealbus_bus::Provenance::Claimed);
            let _ = again.to_bytes();
        }
    }
});
