//! Any bytes from the exchange of another process: an error, or a frame that is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_channels::frame::Frame;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Frame::decode(bytes) else {
        return;
    };
    assert_eq!(frame.to_bytes(), bytes);
    if let Frame::Event { targets, .. } = frame {
        assert_eq!(targets.is_all(), targets.iter().next().is_none());
    }
});
