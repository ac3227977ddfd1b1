//! The readers of rows in etcd, for the fuzz target. A row may be of any instance, of any version, or of somebody else.

use prost::Message;

use super::pieces::{Listed, Pieces, is_long, list_row};
use super::plan::CommitPart;
use super::role::instance_row;
use super::wire::KeyValue;
use super::{Keys, after};

/// Reads a row in each of the ways in which rows are read.
///
/// # Panics
/// If a value that was read is written and read again as another value.
pub fn check_row(key: &[u8], value: &[u8]) {
    let keys = Keys {
        prefix: "/sealbus/factory/".to_owned(),
        instance: "one".to_owned(),
    };
    let row = KeyValue {
        key: key.to_vec(),
        written: 7,
        value: value.to_vec(),
        ..KeyValue::default()
    };
    if let Ok(found) = keys.of_row(&row) {
        assert_eq!(keys.row(&found), key);
    }
    if let Ok(read) = instance_row(&row) {
        let again = [read.instance.as_bytes(), b"\n", &read.value].concat();
        assert_eq!(again, value);
    }
    if let Ok(Some(pieces)) = Pieces::read(value) {
        assert!(is_long(value));
        assert_eq!(Pieces::read(&pieces.row()), Ok(Some(pieces.clone())));
        check_pieces(&keys, &pieces, key);
    }
    if let Ok(listed) = Listed::of(Some(&row)) {
        let again = KeyValue {
            value: list_row(&listed.rows),
            ..row.clone()
        };
        let again = Listed::of(Some(&again)).map(|again| again.rows);
        assert_eq!(again.ok(), Some(listed.rows));
    }
    if let Ok(part) = CommitPart::decode(value) {
        assert_eq!(
            CommitPart::decode(part.encode_to_vec().as_slice()),
            Ok(part)
        );
    }
    check_end(key);
}

/// The pieces of a row are its value, whole and in their order, or a fault.
fn check_pieces(keys: &Keys, pieces: &Pieces, bytes: &[u8]) {
    let found: Vec<KeyValue> = bytes
        .chunks(4)
        .enumerate()
        .map(|(number, piece)| KeyValue {
            key: keys.piece(&pieces.folder, number),
            written: 7,
            value: piece.to_vec(),
            ..KeyValue::default()
        })
        .collect();
    let mut reversed = found.clone();
    reversed.reverse();
    if let Ok(whole) = pieces.join(found) {
        assert_eq!(whole, bytes);
        assert!(reversed.len() < 2 || pieces.join(reversed).is_err());
    }
}

/// All keys that begin with a prefix come before the end of their range, and no others do.
fn check_end(prefix: &[u8]) {
    let end = after(prefix);
    assert_eq!(end.is_empty(), prefix.iter().all(|byte| *byte == u8::MAX));
    let last = [prefix, &[u8::MAX; 8]].concat();
    assert!(end.is_empty() || (last < end && !end.starts_with(prefix)));
}
