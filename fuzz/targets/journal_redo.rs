//! Any bytes as a file of a journal's redo log: its entries are found, and so are those of the file without its end.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use sealbus_journal::fuzzing::read_log;

fuzz_target!(|bytes: &[u8]| {
    for is_newest in [true, false] {
        let entries = |bytes: &[u8]| {
            let mut entries = Vec::new();
            let damage = read_log(Cursor::new(bytes), is_newest, |place, content| {
                entries.push((place, content.to_vec()));
                Ok(())
            });
            (entries, damage.expect("memory can be read"))
        };
        let (found, damage) = entries(bytes);
        assert!(
            found
                .iter()
                .map(|(_, content)| content.len())
                .sum::<usize>()
                <= bytes.len()
        );
        if let Some((offset, _)) = damage {
            assert!(offset <= bytes.len() as u64);
            let (before, _) = entries(&bytes[..offset as usize]);
            assert!(found.starts_with(&before));
        }
    }
});
