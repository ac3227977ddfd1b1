//! Any bytes as the file with the acts of a CA that the store lacks: an error that names the line, or acts that are written as they
//! were read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_master::fuzzing::check_file;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = check_file(bytes) {
        assert!(error.to_string().starts_with("line "), "{error}");
    }
});
