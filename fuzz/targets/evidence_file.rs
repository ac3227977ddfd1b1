//! Any bytes as a file of evidence, and any lines with the right hash at their end: an error that names the line, or a
//! report about the messages of the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_proof::{Demands, EvidenceLine, disclose, inspect, write_file};

fuzz_target!(|bytes: &[u8]| {
    let demands = Demands::default();
    let _ = inspect(bytes, &demands);
    let _ = disclose(bytes, &[]);
    // The hash would stop nearly all changes: it is made anew.
    let lines: Vec<EvidenceLine> = bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .filter(|line| !matches!(line, EvidenceLine::Sha256(_)))
        .collect();
    let file = write_file(&lines).expect("lines are JSON");
    let messages = lines
        .iter()
        .filter(|line| matches!(line, EvidenceLine::Message(_)))
        .count();
    match inspect(&file, &demands) {
        Ok(report) => assert_eq!(report.messages.len(), messages),
        Err(error) => assert!(error.line <= lines.len() + 1),
    }
});
