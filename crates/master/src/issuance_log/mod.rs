//! The published issuance log: files, with a checkpoint that witnesses cosign.

mod publisher;
pub(crate) mod shared;
mod witnesses;

use std::path::Path;

use sealbus_transparency::{Checkpoint, Folder, LogFile, Note, TILE_WIDTH, Tiles};

pub(crate) use publisher::Publisher;
pub use shared::SharedLogError;
pub use witnesses::OutsideWitness;

/// The folder of the logs, in the Master's state folder.
pub(crate) const LOGS: &str = "log";

/// Longest name of a CA, and most logs.
const NAME_LENGTH: usize = 64;
const MOST_LOGS: usize = 256;

/// The folder of a CA's issuance log.
pub(crate) fn folder_in(directory: &Path, authority: &str) -> Folder {
    Folder::new(directory.join(LOGS).join(authority))
}

/// Whether this may be the name of a log's folder.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= NAME_LENGTH && name.bytes().all(is_plain)
}

/// The CAs whose logs are in the state folder, `first` before the others.
pub(crate) fn names_in(directory: &Path, first: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory.join(LOGS))
        .into_iter()
        .flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut others: Vec<String> = names
        .filter(|name| name != first && is_name(name))
        .take(MOST_LOGS)
        .collect();
    others.sort();
    others.insert(0, first.to_owned());
    others
}

/// The files that belong to a log's latest checkpoint alone, and that its CA makes anew with the next one.
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
