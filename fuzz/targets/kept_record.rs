//! Any bytes as the record of a kept message: key, attributes and payload, each but the last after its length. A channel's log,
//! a mailbox and the record of what agents received open it, or leave it out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_keeping::channel_log::fuzzing::check_record;

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((key, rest)) = part(bytes) else {
        return;
    };
    let Some((attributes, payload)) = part(rest) else {
        return;
    };
    check_record(key, attributes, payload);
});
