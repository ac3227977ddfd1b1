//! Any row of etcd, its key before the first line feed: as a row of the store, its pieces, their list, a part of a commit, the role
//! and an instance, an error or a value that is written as it was read. As the row of the term, an error or a later term.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_master::fuzzing::check_instance;
use sealbus_seal::Term;
use sealbus_store::etcd::fuzzing::check_row;
use sealbus_store::{Batch, TERM_ROW, restore_term};

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (key, value) = bytes.split_at(end.unwrap_or(bytes.len()));
    let value = value.get(1..).unwrap_or_default();
    check_row(key, value);
    check_instance(value);
    let mut batch = Batch::new();
    if let Ok(later) = restore_term(Some(value), 1_800_000_000, &mut batch) {
        let read = |row: &[u8]| serde_json::from_slice::<Term>(row).expect("a term");
        assert!(later > read(value));
        let written: Vec<_> = batch.changes().collect();
        assert_eq!(written.len(), 1);
        let (row, term) = written[0];
        assert_eq!((row, term.map(read)), (TERM_ROW, Some(later)));
    }
});
