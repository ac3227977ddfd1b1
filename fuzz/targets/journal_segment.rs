//! Any bytes as a segment file of a journal: what is whole in it is found, and is found again without what follows.
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
