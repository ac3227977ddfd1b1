//! Any bytes as a file of `sniff --record`: errors, or incidents, which are written so that they are read again as they
//! were.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sealbus_window::{Seen, read_from};

fuzz_target!(|bytes: &[u8]| {
    let Ok(lines) = read_from(Path::new("it"), bytes) else {
        return;
    };
    let mut number = 0;
    for seen in lines {
        number += 1;
        assert!(number <= bytes.len(), "more lines than bytes");
        if let Ok(seen) = seen {
            let written = serde_json::to_string(&seen).expect("it has a form");
            assert_eq!(serde_json::from_str::<Seen>(&written).ok(), Some(seen));
        }
    }
});
