//! Any bytes: an error, or an envelope that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_fipa::envelope::{EnvelopeRepresentation, json};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((envelope, end)) = json::Json.decode(bytes, &Limits::DEFAULT) {
        assert!(end <= bytes.len());
        let _ = envelope.current();
        let mut again = Vec::new();
        if json::Json.encode(&envelope, &mut again).is_ok() {
            let read = json::Json.decode(&again, &Limits::DEFAULT);
            let length = again.len();
            assert_eq!(format!("{read:?}"), format!("Ok(({envelope:?}, {length}))"));
        }
    }
});
