//! A row with a log's file: its path, a line feed and its contents. A row is written as it was read, no path has two
//! spellings, and no bundle two readings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_transparency::{LogFile, read_bundle};

fuzz_target!(|row: &[u8]| {
    let Some((file, bytes)) = LogFile::from_row(row) else {
        return;
    };
    assert_eq!(file.to_row(bytes), row);
    if let Ok(entries) = read_bundle(file, bytes) {
        let length: usize = entries.iter().map(|entry| 2 + entry.len()).sum();
        assert_eq!(length, bytes.len());
    }
});
