//! Logs of processes. Each process writes to its file by itself, so that nothing is lost when the node ends. The node
//! keeps files from growing without limit, and reads pieces of them. It also keeps its own log from growing, if that is
//! in its state directory.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use sealbus_control::UnixMillis;
use sealbus_control::node::LogPosition;

use crate::log_times::LogTimes;

/// The log of a node itself, in its state directory. It is there only if whoever starts the node writes it there.
pub fn log_of(directory: &Path) -> PathBuf {
    directory.join("node.log")
}

/// Sets aside a log that has grown too large. Its writers append, so they go on at the start of the emptied file. Lines
/// written at that moment may be lost.
///
/// # Errors
/// The system's error. The log may have been emptied nevertheless.
pub fn set_aside(path: &Path) -> io::Result<()> {
    cut(path, |_| ())?.map_or(Ok(()), |(_, copied)| copied)
}

/// Empties a log that has grown too large, after its length was noted. Returns this length, and whether its end was copied.
fn cut(path: &Path, note: impl FnOnce(u64)) -> io::Result<Option<(u64, io::Result<()>)>> {
    let length = match fs::metadata(path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if length <= LARGEST {
        return Ok(None);
    }
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.seek(SeekFrom::Start(length - LARGEST))?;
    let mut aside = File::create(path.with_extension("log.1"))?;
    let copied = io::copy(&mut (&file).take(LARGEST), &mut aside);
    note(length);
    // A full disk keeps no copy. Cutting the log makes room again, so it is cut nevertheless.
    file.set_len(0)?;
    Ok(Some((length, copied.map(drop))))
}

/// A log larger than this is set aside: its end, at most this large, becomes `NAME.log.1`.
const LARGEST: u64 = 16 * 1024 * 1024;
/// How many bytes back lines are searched for.
const LOOK_BACK: u64 = 1024 * 1024;
/// How many bytes back the beginning of one line is searched for.
const LONGEST_LINE: u64 = 64 * 1024;

/// The logs of a node.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
    /// The node's own log.
    own: PathBuf,
    /// The bytes that were set aside before the beginning of the present file.
    set_aside: Mutex<HashMap<String, u64>>,
    /// When the logs grew.
    times: Mutex<LogTimes>,
}

impl Logs {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let own = log_of(directory);
        let directory = directory.join("logs");
        sealbus_files::folder(&directory)?;
        Ok(Self {
            times: Mutex::new(LogTimes::new(&directory)),
            directory,
            own,
            set_aside: Mutex::default(),
        })
    }

    fn path(&self, log: &str) -> PathBuf {
        self.directory.join(format!("{log}.log"))
    }

    fn base(&self, log: &str) -> u64 {
        if let Some(base) = self.set_aside.lock().get(log) {
            return *base;
        }
        let kept = fs::read_to_string(self.base_path(log)).unwrap_or_default();
        let mut numbers = kept.split_whitespace().map(|it| it.parse().unwrap_or(0));
        let (before, cut): (u64, u64) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        let length = fs::metadata(self.path(log)).map_or(0, |file| file.len());
        // The node may have been killed before or after the cut that it noted.
        let base = match length < cut {
            true => before.saturating_add(cut),
            false => before,
        };
        self.set_aside.lock().insert(log.to_owned(), base);
        base
    }

    fn base_path(&self, log: &str) -> PathBuf {
        self.directory.join(format!("{log}.base"))
    }

    /// Notes how many bytes were set aside, and the length of the log that is about to be cut. The note replaces the
    /// former one and takes as much room, so that it also succeeds on a full disk.
    fn keep_base(&self, log: &str, base: u64, cut: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let mut file = options.open(self.base_path(log))?;
        file.write_all(format!("{base:020} {cut:020}\n").as_bytes())
    }

    /// The file for a process's output. `heading` is written first. A log that has grown too large is cut by
    /// [`tend`](Self::tend) alone: the caller may be the node's only thread, which cannot wait for the copy.
    pub(crate) fn writer(&self, log: &str, heading: &str) -> io::Result<File> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(log))?;
        file.write_all(heading.as_bytes())?;
        if !self.base_path(log).exists() {
            self.keep_base(log, self.base(log), 0)?;
        }
        Ok(file)
    }

    /// [Sets aside](set_aside) a log that has grown too large. No lock is held during the copy: [`tend`](Self::tend)
    /// handles one log after another, so nobody else cuts this log meanwhile, or notes its length.
    fn rotate(&self, log: &str) -> io::Result<()> {
        let base = self.base(log);
        // If this fails, the note after the cut counts.
        let note = |length| drop(self.keep_base(log, base, length));
        let Some((length, copied)) = cut(&self.path(log), note)? else {
            return Ok(());
        };
        let base = base + length;
        self.set_aside.lock().insert(log.to_owned(), base);
        self.keep_base(log, base, 0)?;
        copied
    }

    /// Sets aside logs that have grown too large, and notes which logs have grown until now, including those of ended
    /// processes. A log that cannot be handled does not hold up others.
    pub(crate) fn tend(&self, now: UnixMillis) -> io::Result<()> {
        let mut failed = set_aside(&self.own).err();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "log")
                && let Some(log) = path.file_stem().and_then(|it| it.to_str())
                && let Err(error) = self.rotate(log).and_then(|()| self.note_time(log, now))
            {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn note_time(&self, log: &str, now: UnixMillis) -> io::Result<()> {
        let mut times = self.times.lock();
        let length = fs::metadata(self.path(log))?.len();
        times.note(log, self.base(log) + length, now)
    }

    /// A piece of a log, in whole lines if possible, and the offset of the next piece.
    pub(crate) fn read(
        &self,
        log: &str,
        from: LogPosition,
        limit: u32,
        now: UnixMillis,
    ) -> io::Result<(String, u64)> {
        let base = self.base(log);
        let mut file = match File::open(self.path(log)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((String::new(), base));
            }
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        let start = match from {
            LogPosition::Offset { offset } => offset.saturating_sub(base).min(length),
            LogPosition::LastLines { lines } => last_lines(&mut file, length, lines)?,
            LogPosition::Since { ago } => {
                let offset = self.times.lock().offset(log, now.saturating_sub(ago))?;
                line_start(&mut file, offset.saturating_sub(base).min(length))?
            }
        };
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(u64::from(limit)).read_to_end(&mut bytes)?;
        // An incomplete line or character at the end is left to the next piece, if there is one.
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n')
            && start + (bytes.len() as u64) < length
        {
            bytes.truncate(end + 1);
        }
        let next = base + start + bytes.len() as u64;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), next))
    }
}

fn last_lines(file: &mut File, length: u64, lines: u32) -> io::Result<u64> {
    let start = length.saturating_sub(LOOK_BACK);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LOOK_BACK).read_to_end(&mut bytes)?;
    let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let mut ends = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    Ok(match lines.checked_sub(1) {
        None => length,
        Some(before) => match ends.nth(before as usize) {
            Some((end, _)) => start + end as u64 + 1,
            None => start,
        },
    })
}

/// The beginning of the line at this offset.
fn line_start(file: &mut File, place: u64) -> io::Result<u64> {
    let from = place.saturating_sub(LONGEST_LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(place - from).read_to_end(&mut bytes)?;
    Ok(match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => from + end as u64 + 1,
        None if from == 0 => 0,
        None => place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs() -> (tempfile::TempDir, Logs) {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::open(directory.path()).unwrap();
        (directory, logs)
    }

    #[test]
    fn the_last_lines_and_what_follows() {
        let (_directory, logs) = logs();
        let mut file = logs.writer("a", "one\n").unwrap();
        file.write_all(b"two\nthree\n").unwrap();
        let (text, next) = logs
            .read("a", LogPosition::LastLines { lines: 2 }, 1000, 0)
            .unwrap();
        assert_eq!(text, "two\nthree\n");
        file.write_all(b"four\n").unwrap();
        let (text, _) = logs
            .read("a", LogPosition::Offset { offset: next }, 1000, 0)
            .unwrap();
        assert_eq!(text, "four\n");
        let (all, _) = logs
            .read("a", LogPosition::LastLines { lines: 100 }, 1000, 0)
            .unwrap();
        assert_eq!(all, "one\ntwo\nthree\nfour\n");
        let (none, _) = logs
            .read("unknown", LogPosition::LastLines { lines: 1 }, 10, 0)
            .unwrap();
        assert_eq!(none, "");
    }

    /// The node's only thread begins and ends processes. The copy may take long, and another log may be copied just then.
    #[test]
    fn whoever_writes_to_a_log_neither_copies_it_nor_waits_for_a_copy() {
        let (directory, logs) = logs();
        let file = logs.writer("a", "").unwrap();
        // The hole takes no room on the disk.
        file.set_len(LARGEST + 1).unwrap();
        // As if growth were being noted.
        let times = logs.times.lock();
        std::thread::scope(|scope| {
            let (written, is_written) = std::sync::mpsc::channel();
            let logs = &logs;
            scope.spawn(move || written.send(logs.writer("a", "ended\n").is_ok()));
            let is_written = is_written.recv_timeout(std::time::Duration::from_secs(120));
            drop(times);
            assert_eq!(is_written, Ok(true));
        });
        assert_eq!(file.metadata().unwrap().len(), LARGEST + 1 + 6);
        assert!(!directory.path().join("logs/a.log.1").exists());
        logs.tend(0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(directory.path().join("logs/a.log.1").exists());
    }

    #[test]
    fn offsets_go_on_over_a_rotation() {
        let (_directory, logs) = logs();
        let mut file = logs.writer("a", "").unwrap();
        let line = [b'x'; 1023]
            .iter()
            .chain(b"\n")
            .copied()
            .collect::<Vec<_>>();
        for _ in 0..=(LARGEST / 1024) {
            file.write_all(&line).unwrap();
        }
        let (_, before) = logs
            .read("a", LogPosition::LastLines { lines: 1 }, 2000, 0)
            .unwrap();
        logs.rotate("a").unwrap();
        file.write_all(b"after\n").unwrap();
        let (text, next) = logs
            .read("a", LogPosition::Offset { offset: before }, 2000, 0)
            .unwrap();
        assert_eq!(text, "after\n");
        assert_eq!(next, before + 6);
    }

    /// The node is killed while it sets a log aside, before or after the log is cut.
    #[test]
    fn offsets_go_on_over_a_rotation_that_was_interrupted() {
        for is_cut in [false, true] {
            let (directory, logs) = logs();
            let mut file = logs.writer("a", "").unwrap();
            let offset = LARGEST + 1;
            file.set_len(offset).unwrap();
            if is_cut {
                let note = |length| {
                    assert_eq!(file.metadata().unwrap().len(), length);
                    logs.keep_base("a", 0, length).unwrap();
                };
                cut(&logs.path("a"), note).unwrap();
            } else {
                logs.keep_base("a", 0, offset).unwrap();
            }
            file.write_all(b"after\n").unwrap();
            let again = Logs::open(directory.path()).unwrap();
            let piece = again.read("a", LogPosition::Offset { offset }, 1000, 0);
            assert_eq!(piece.unwrap(), ("after\n".to_owned(), offset + 6));
            // The next cut is not interrupted.
            file.set_len(offset).unwrap();
            again.rotate("a").unwrap();
            file.write_all(b"late\n").unwrap();
            let offset = if is_cut { 2 * offset } else { offset };
            for logs in [again, Logs::open(directory.path()).unwrap()] {
                let piece = logs.read("a", LogPosition::Offset { offset }, 1000, 0);
                assert_eq!(piece.unwrap(), ("late\n".to_owned(), offset + 5));
            }
        }
    }

    #[test]
    fn the_end_of_a_log_that_grew_fast_is_set_aside() {
        let (directory, logs) = logs();
        let mut file = logs.writer("a", "").unwrap();
        // The hole takes no room on the disk.
        file.set_len(5 * LARGEST).unwrap();
        file.write_all(b"last\n").unwrap();
        logs.tend(0).unwrap();
        let aside = directory.path().join("logs/a.log.1");
        assert_eq!(fs::metadata(&aside).unwrap().len(), LARGEST);
        assert!(fs::read(&aside).unwrap().ends_with(b"\0last\n"));
        file.write_all(b"after\n").unwrap();
        let offset = 5 * LARGEST + 5;
        let piece = logs.read("a", LogPosition::Offset { offset }, 2000, 0);
        assert_eq!(piece.unwrap(), ("after\n".to_owned(), offset + 6));
    }

    #[test]
    fn the_nodes_own_log_is_bounded_too() {
        let (directory, logs) = logs();
        logs.tend(0).unwrap();
        let log = log_of(directory.path());
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        file.write_all(b"first\n").unwrap();
        logs.tend(0).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"first\n");
        file.set_len(5 * LARGEST).unwrap();
        file.write_all(b"last\n").unwrap();
        logs.tend(0).unwrap();
        file.write_all(b"after\n").unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"after\n");
        let aside = fs::read(directory.path().join("node.log.1")).unwrap();
        assert!(aside.len() as u64 == LARGEST && aside.ends_with(b"\0last\n"));
    }

    #[test]
    fn lines_since_a_time_are_whole_and_go_on_over_a_rotation() {
        let (_directory, logs) = logs();
        let mut file = logs.writer("a", "early\nhal").unwrap();
        logs.tend(1_000).unwrap();
        file.write_all(b"f\nlate\n").unwrap();
        let since = |ago, now| {
            let piece = logs.read("a", LogPosition::Since { ago }, 1000, now);
            piece.unwrap().0
        };
        assert_eq!(since(500, 2_000), "half\nlate\n");
        assert_eq!(since(5_000, 2_000), "early\nhalf\nlate\n");
        logs.tend(3_000).unwrap();
        assert_eq!(since(500, 4_000), "");
        file.write_all(&vec![b'x'; LARGEST as usize]).unwrap();
        logs.tend(5_000).unwrap();
        file.write_all(b"after\n").unwrap();
        logs.tend(6_000).unwrap();
        for (ago, now, text) in [
            (100, 5_500, "after\n"),
            (9_000, 9_000, "after\n"),
            (0, 6_000, ""),
        ] {
            assert_eq!(since(ago, now), text, "{now}");
        }
    }
}
