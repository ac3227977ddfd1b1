//! Any bytes: an error, or an envelope that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_fipa::envelope::{EnvelopeRepresentation, bitefficient};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((envelope, end)) = bitefficient::BitEfficient.decode(bytes, &Limits::DEFAULT) {
        assert!(end <= bytes.len());
        let _ = envelope.current();
        let mut again = Vec::new();
        if bitefficient::BitEfficient
            .encode(&envelope, &mut again)
            .is_ok()
        {
            let read = bitefficient::BitEfficient.decode(&again, &Limits::DEFAULT);
            let length = again.len();
            assert_eq!(format!("{read:?}"), format!("Ok(({envelope:?}, {length}))"));
        }
    }
});
