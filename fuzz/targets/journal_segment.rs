//! Any bytes as a segment file of a journal: the whole records in it are found, and are found again without the bytes
//! behind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_journal::fuzzing::check_segment;

fuzz_target!(|bytes: &[u8]| {
    let Some((records, whole)) = check_segment(bytes) else {
        return;
    };
    assert!(whole <= bytes.len());
    assert_eq!(check_segment(&bytes[..whole]), Some((records, whole)));
});
