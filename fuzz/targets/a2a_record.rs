//! Any file of a task: a gateway that starts reads it, or names the line that is wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::record::fuzzing::read;

fuzz_target!(|bytes: &[u8]| {
    if let Err(bad) = read(bytes) {
        assert!((1..=bytes.len()).contains(&bad.line), "{bad}");
    }
});
