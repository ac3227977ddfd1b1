//! When logs grew. Processes write their lines without a time, so the node sometimes notes how long each log is.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use sealbus_control::UnixMillis;

/// A note: a time and an offset, eight bytes each.
const NOTE: usize = 16;
/// If a log has more notes, every second one is dropped.
const MOST: usize = 32_768;

/// The notes for all logs of a node, in one file `NAME.times` for each log.
#[derive(Debug)]
pub(crate) struct LogTimes {
    directory: PathBuf,
    /// For each log, the number of notes and the offset of the last one.
    noted: HashMap<String, (usize, u64)>,
}

impl LogTimes {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            noted: HashMap::new(),
        }
    }

    /// Notes that a log now ends at `end`.
    pub(crate) fn note(&mut self, log: &str, end: u64, now: UnixMillis) -> io::Result<()> {
        let (count, last) = match self.noted.get(log) {
            Some(noted) => *noted,
            None => self.take_up(log)?,
        };
        if last == end {
            return Ok(());
        }
        let mut notes = [(now, end)].map(bytes).concat();
        let mut whole = OpenOptions::new();
        if count < MOST {
            whole.append(true);
        } else {
            let kept = self.notes(log)?.into_iter().step_by(2).map(bytes);
            notes = kept
                .collect::<Vec<_>>()
                .concat()
                .into_iter()
                .chain(notes)
                .collect();
            whole.write(true).truncate(true);
        }
        let mut file = whole.create(true).open(self.path(log))?;
        file.write_all(&notes)?;
        let count = if count < MOST { count } else { 0 } + notes.len() / NOTE;
        self.noted.insert(log.to_owned(), (count, end));
        Ok(())
    }

    /// An offset: everything that was written after this time lies behind it. The first lines may be older.
    pub(crate) fn offset(&self, log: &str, time: UnixMillis) -> io::Result<u64> {
        let notes = self.notes(log)?;
        // If a clock was set back, too much is shown rather than too little.
        let later = notes.iter().position(|(noted, _)| *noted > time);
        let before = later.unwrap_or(notes.len()).checked_sub(1);
        Ok(before.map_or(0, |before| notes[before].1))
    }

    /// Continues the notes of an earlier node, without a note that is only half written.
    fn take_up(&self, log: &str) -> io::Result<(usize, u64)> {
        let notes = self.notes(log)?;
        if let Some((_, last)) = notes.last() {
            let file = OpenOptions::new().write(true).open(self.path(log))?;
            file.set_len((notes.len() * NOTE) as u64)?;
            return Ok((notes.len(), *last));
        }
        match fs::remove_file(self.path(log)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok((0, 0)),
        }
    }

    fn notes(&self, log: &str) -> io::Result<Vec<(UnixMillis, u64)>> {
        let bytes = match fs::read(self.path(log)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let (notes, _) = bytes.as_chunks::<NOTE>();
        Ok(notes.iter().map(note).collect())
    }

    fn path(&self, log: &str) -> PathBuf {
        self.directory.join(format!("{log}.times"))
    }
}

fn bytes((time, offset): (UnixMillis, u64)) -> [u8; NOTE] {
    (u128::from(time) << 64 | u128::from(offset)).to_be_bytes()
}

fn note(bytes: &[u8; NOTE]) -> (UnixMillis, u64) {
    let note = u128::from_be_bytes(*bytes);
    ((note >> 64) as u64, note as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> (tempfile::TempDir, LogTimes) {
        let directory = tempfile::tempdir().unwrap();
        let times = LogTimes::new(directory.path());
        (directory, times)
    }

    #[test]
    fn what_was_written_after_a_time_begins_at_the_note_before_it() {
        let (_directory, mut times) = times();
        assert_eq!(times.offset("a", 5).unwrap(), 0);
        for (now, end) in [(10, 100), (11, 100), (20, 200)] {
            times.note("a", end, now).unwrap();
        }
        for (time, offset) in [(9, 0), (10, 100), (19, 100), (20, 200), (99, 200)] {
            assert_eq!(times.offset("a", time).unwrap(), offset, "{time}");
        }
        assert_eq!(times.offset("b", 99).unwrap(), 0);
        // The clock is set back.
        times.note("a", 300, 15).unwrap();
        assert_eq!(times.offset("a", 16).unwrap(), 100);
    }

    #[test]
    fn notes_go_on_after_a_restart_and_a_torn_write() {
        let (directory, mut times) = times();
        times.note("a", 100, 10).unwrap();
        let path = directory.path().join("a.times");
        let mut torn = fs::read(&path).unwrap();
        torn.extend_from_slice(b"half");
        fs::write(&path, torn).unwrap();
        let mut again = LogTimes::new(directory.path());
        again.note("a", 100, 20).unwrap();
        again.note("a", 200, 30).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 2 * NOTE);
        assert_eq!(again.offset("a", 29).unwrap(), 100);
        fs::write(&path, b"half").unwrap();
        let mut new = LogTimes::new(directory.path());
        new.note("a", 7, 40).unwrap();
        assert_eq!(new.offset("a", 40).unwrap(), 7);
    }

    #[test]
    fn notes_become_rarer_but_reach_as_far_back() {
        let (directory, mut times) = times();
        let all = (MOST + 10) as u64;
        for number in 1..=all {
            times.note("a", number * 10, number).unwrap();
        }
        let kept = fs::read(directory.path().join("a.times")).unwrap().len() / NOTE;
        assert!(kept < MOST, "{kept}");
        assert_eq!(times.offset("a", 1).unwrap(), 10);
        assert_eq!(times.offset("a", all).unwrap(), all * 10);
        let middle = all / 2;
        let found = times.offset("a", middle).unwrap();
        assert!(
            found == middle * 10 || found == (middle - 1) * 10,
            "{found}"
        );
    }
}
