//! Any bytes: an error, or a message that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::{Limits, Representation, json};

fuzz_target!(|bytes: &[u8]| {
    let _ = json::Json.explain(bytes, &Limits::DEFAULT).to_string();
    if let Ok(message) = json::Json.decode(bytes, &Limits::DEFAULT) {
        let mut again = Vec::new();
        if json::Json.encode(&message, &mut again).is_ok() {
            let read = json::Json.decode(&again, &Limits::DEFAULT);
            assert_eq!(format!("{read:?}"), format!("Ok({message:?})"));
        }
    }
});
