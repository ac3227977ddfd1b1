//! Any bytes as a backup, and any bytes between the beginning and the end of a real one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_store::backup::{BackupReader, BackupWriter, Description, MAGIC, Part};

fn read(bytes: &[u8]) -> Option<(Description, Vec<Part>)> {
    let mut reader = BackupReader::new(bytes).ok()?;
    let mut parts = Vec::new();
    while let Some(part) = reader.next_part().ok()? {
        parts.push(part);
    }
    Some((reader.description().clone(), parts))
}

fuzz_target!(|bytes: &[u8]| {
    let _ = read(bytes);
    let _ = read(&[MAGIC, bytes].concat());
    let description = Description {
        platform: "factory".to_owned(),
        made: 1,
        version: String::new(),
        has_keys: false,
    };
    let mut writer = BackupWriter::new(Vec::new(), &description).unwrap();
    writer.row("key", bytes).unwrap();
    writer.file("file", bytes).unwrap();
    let whole = writer.finish().unwrap();
    let row = Part::Row {
        key: "key".to_owned(),
        value: bytes.to_vec(),
    };
    let file = Part::File {
        path: "file".to_owned(),
        contents: bytes.to_vec(),
    };
    let parts = vec![row, file];
    assert_eq!(read(&whole), Some((description, parts)));
    assert_eq!(read(&whole[..bytes.len().min(whole.len() - 1)]), None);
});
