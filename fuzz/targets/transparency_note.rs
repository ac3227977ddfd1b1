//! Any text as a signed note, a checkpoint, a key and a witness's request: an error, or a value that is written and
//! read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_transparency::{AddCheckpoint, Checkpoint, Note, NoteKey};

fuzz_target!(|text: &str| {
    if let Ok(note) = Note::parse(text) {
        assert_eq!(Note::parse(&note.to_string()).as_ref(), Ok(&note));
        // A checkpoint has one text.
        if let Ok(checkpoint) = Checkpoint::parse(note.text()) {
            assert!(note.text().contains(&format!("\n{}\n", checkpoint.size)));
        }
    }
    if let Ok(key) = text.parse::<NoteKey>() {
        assert_eq!(key.to_string().parse().as_ref(), Ok(&key));
    }
    if let Ok(request) = AddCheckpoint::parse(text) {
        assert_eq!(
            AddCheckpoint::parse(&request.to_string()).as_ref(),
            Ok(&request)
        );
    }
});
