//! A line with the path of a log's file, and bytes as its contents: no path has two spellings, and no bundle two readings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_transparency::{LogFile, read_bundle};

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (path, bytes) = (&input[..end], &input[end + 1..]);
    let Ok(path) = str::from_utf8(path) else {
        return;
    };
    let Ok(file) = path.parse::<LogFile>() else {
        return;
    };
    assert_eq!(file.to_string(), path);
    if let Ok(entries) = read_bundle(file, bytes) {
        let length: usize = entries.iter().map(|entry| 2 + entry.len()).sum();
        assert_eq!(length, bytes.len());
    }
});
