//! Any bytes: an error, or a message that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::{Limits, Representation, bitefficient};

fuzz_target!(|bytes: &[u8]| {
    let _ = bitefficient::BitEfficient
        .explain(bytes, &Limits::DEFAULT)
        .to_string();
    if let Ok(message) = bitefficient::BitEfficient.decode(bytes, &Limits::DEFAULT) {
        let mut again = Vec::new();
        if bitefficient::BitEfficient
            .encode(&message, &mut again)
            .is_ok()
        {
            let read = bitefficient::BitEfficient.decode(&again, &Limits::DEFAULT);
            assert_eq!(format!("{read:?}"), format!("Ok({message:?})"));
        }
        let view = bitefficient::decode_ref(bytes, &Limits::DEFAULT).map(|view| view.to_owned());
        assert_eq!(format!("{view:?}"), format!("Ok({message:?})"));
    }
    // In a row, a message is read as it is read alone: here its parts of different lengths, and itself again.
    let mut checker = bitefficient::Checker::new(Limits::DEFAULT);
    for part in [bytes, &bytes[..bytes.len() / 2], bytes, bytes] {
        let checked = checker
            .check(part)
            .map(|(message, _)| message.message().to_owned());
        let alone = bitefficient::decode(part, &Limits::DEFAULT);
        assert_eq!(format!("{checked:?}"), format!("{alone:?}"));
    }
});
