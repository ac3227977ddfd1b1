//! Any line or body of a host of a language model: a session that it opens is counted, and the platform's own tools take no other
//! arguments than their schemas have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_mcp::fuzzing::check_message;

fuzz_target!(|bytes: &[u8]| {
    check_message(bytes);
});
