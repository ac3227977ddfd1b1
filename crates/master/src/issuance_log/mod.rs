//! The published issuance log: files, with a checkpoint that witnesses cosign.

mod publisher;
pub(crate) mod shared;
mod witnesses;

use std::path::Path;

use sealbus_enrolment::MOST_LOGS;
use sealbus_transparency::{Checkpoint, Folder, LogFile, Note, TILE_WIDTH, Tiles};

pub(crate) use publisher::Publisher;
pub(crate) use sealbus_enrolment::is_log_name as is_name;
pub use shared::SharedLogError;
pub use witnesses::OutsideWitness;

/// The folder of the logs, in the Master's state folder.
pub(crate) const LOGS: &str = "log";

/// The folder of a CA's issuance log.
pub(crate) fn folder_in(directory: &Path, authority: &str) -> Folder {
    Folder::new(directory.join(LOGS).join(authority))
}

/// The CAs whose logs are in the state folder, `first` before the others. There are at most as many as a reader takes.
pub(crate) fn names_in(directory: &Path, first: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory.join(LOGS))
        .into_iter()
        .flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut others: Vec<String> = names
        .filter(|name| name != first && is_name(name))
        .take(MOST_LOGS - 1)
        .collect();
    others.sort();
    others.insert(0, first.to_owned());
    others
}

/// The files that belong to a log's latest checkpoint alone. The CA makes them anew with the next one.
pub(crate) fn edge_of(folder: &Folder) -> Vec<LogFile> {
    let checkpoint = folder.read(LogFile::Checkpoint).ok();
    let size = checkpoint.and_then(|bytes| {
        let note = Note::parse(std::str::from_utf8(&bytes).ok()?).ok()?;
        Some(Checkpoint::parse(note.text()).ok()?.size)
    });
    let Some(size) = size else {
        return Vec::new();
    };
    let mut files: Vec<LogFile> = Tiles::partial_of(size).collect();
    let (index, rest) = (size / u64::from(TILE_WIDTH), size % u64::from(TILE_WIDTH));
    files.extend((rest > 0).then_some(LogFile::Entries {
        index,
        width: rest as u16,
    }));
    // The checkpoint comes last, as it is written.
    files.extend([LogFile::Authority, LogFile::Witnesses, LogFile::Checkpoint]);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_logs_are_named_than_a_reader_takes() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..MOST_LOGS + 9 {
            let folder = place.path().join(LOGS).join(format!("ca-{number}"));
            std::fs::create_dir_all(folder).unwrap();
        }
        let names = names_in(place.path(), "ca-7");
        assert_eq!((names.len(), names[0].as_str()), (MOST_LOGS, "ca-7"));
    }
}
