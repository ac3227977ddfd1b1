//! Any bytes from a peer: an error, not enough, or a frame that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_mesh::frame::{Frame, LONGEST_BODY, LONGEST_FIRST_BODY, parse};

fuzz_target!(|bytes: &[u8]| {
    let _ = parse(bytes, LONGEST_FIRST_BODY);
    let Ok(Some(parsed)) = parse(bytes, LONGEST_BODY) else {
        return;
    };
    assert!(parsed.length <= bytes.len());
    // Texts for people are cut when they are written.
    if let Frame::Goodbye { text, .. } | Frame::Refused { text, .. } = parsed.frame
        && text.len() > 1000
    {
        return;
    }
    let mut again = Vec::new();
    parsed.frame.encode(u64::from(parsed.sequence), &mut again);
    let read = parse(&again, LONGEST_BODY);
    let read = read
        .expect("what was written is a frame")
        .expect("and it is whole");
    assert_eq!(read.frame, parsed.frame);
    if parsed.frame.kind().is_counted() {
        assert_eq!(read.sequence, parsed.sequence);
    }
});
