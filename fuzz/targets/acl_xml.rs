//! Any bytes: an error, or a message that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::{Limits, Representation, xml};

fuzz_target!(|bytes: &[u8]| {
    let _ = xml::Xml.explain(bytes, &Limits::DEFAULT).to_string();
    if let Ok(message) = xml::Xml.decode(bytes, &Limits::DEFAULT) {
        let mut again = Vec::new();
        if xml::Xml.encode(&message, &mut again).is_ok() {
            let read = xml::Xml.decode(&again, &Limits::DEFAULT);
            assert_eq!(format!("{read:?}"), format!("Ok({message:?})"));
        }
    }
});
