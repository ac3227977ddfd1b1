//! Any bytes: an error, or a message that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::{Limits, Representation, string};

fuzz_target!(|bytes: &[u8]| {
    let _ = string::StringRepresentation
        .explain(bytes, &Limits::DEFAULT)
        .to_string();
    if let Ok(message) = string::StringRepresentation.decode(bytes, &Limits::DEFAULT) {
        let mut again = Vec::new();
        if string::StringRepresentation
            .encode(&message, &mut again)
            .is_ok()
        {
            let read = string::StringRepresentation.decode(&again, &Limits::DEFAULT);
            assert_eq!(format!("{read:?}"), format!("Ok({message:?})"));
        }
        let view = string::decode_ref(bytes, &Limits::DEFAULT).map(|view| view.to_owned());
        assert_eq!(format!("{view:?}"), format!("Ok({message:?})"));
    }
});
