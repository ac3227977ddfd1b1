//! The files of a caller's tasks, one for each.
//!
//! A change is in its file before anybody hears of it, so tasks outlive the gateway's process. Nobody waits for the disk: a machine
//! without power loses the latest changes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sealbus_files::{Private, make_folder, write_private};

use crate::record::{Recorded, read, without_parts};

/// Longest file of a task, in bytes.
pub(crate) const LONGEST_FILE: usize = 32 << 20;
const EXTENSION: &str = "task";
/// Files of forgotten tasks, which new tasks take over. ext4 looks at each file that was removed in the last minutes before it makes
/// another one.
const SPARE: &str = "spare";
const MOST_SPARE: usize = 1_024;

/// The folder of one caller's tasks.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    /// Empty files.
    spare: Mutex<Vec<PathBuf>>,
}

impl Shelf {
    /// Opens the folder of a caller, below that of all tasks.
    pub(crate) fn open(all: &Path, caller: &str) -> io::Result<Self> {
        let name = utf8_percent_encode(caller, NON_ALPHANUMERIC).to_string();
        let folder = all.join(name);
        make_folder(&folder)?;
        let spare = Mutex::default();
        Ok(Self { folder, spare })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id).with_extension(EXTENSION)
    }

    /// Adds a line to the file of a task, which is made for the first line.
    pub(crate) fn add(&self, id: &str, line: &[u8], is_first: bool) -> io::Result<()> {
        let path = self.path(id);
        let spare = is_first.then(|| self.spare.lock().pop()).flatten();
        if let Some(spare) = spare {
            // If it is gone, the file is made anew.
            let _ = fs::rename(spare, &path);
        }
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).private().open(path)?;
        if is_first {
            file.set_len(0)?;
        }
        file.write_all(line)
    }

    /// Takes the parts of a task's result out of its file. Returns the length of the rest.
    pub(crate) fn drop_parts(&self, id: &str) -> io::Result<usize> {
        let path = self.path(id);
        let rest = without_parts(&whole(&path)?).map_err(io::Error::other)?;
        write_private(&path, &rest)?;
        Ok(rest.len())
    }

    /// Forgets a task.
    pub(crate) fn remove(&self, id: &str) {
        let path = self.path(id);
        let mut spare = self.spare.lock();
        let removed = if spare.len() < MOST_SPARE {
            let empty = path.with_extension(SPARE);
            let emptied = File::options().write(true).truncate(true).open(&path);
            let put_by = emptied.and_then(|_| fs::rename(&path, &empty));
            put_by.map(|()| spare.push(empty))
        } else {
            fs::remove_file(&path)
        };
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(task = id, %error, "the file of a task cannot be removed; remove it by hand");
        }
    }

    /// The tasks of earlier runs. A file that cannot be read stays, and the log names it.
    pub(crate) fn tasks(&self) -> Vec<Recorded> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                let folder = self.folder.display();
                tracing::error!(%folder, %error, "the tasks of a caller cannot be read: make the folder readable and start the gateway again");
                return Vec::new();
            }
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let has = |path: &PathBuf, extension| path.extension().is_some_and(|it| it == extension);
        let (tasks, others): (Vec<_>, Vec<_>) = paths.partition(|path| has(path, EXTENSION));
        let spare = others.into_iter().filter(|path| has(path, SPARE));
        self.spare.lock().extend(spare);
        tasks.iter().filter_map(|path| self.task(path)).collect()
    }

    fn task(&self, path: &Path) -> Option<Recorded> {
        let file = path.display();
        let recorded = whole(path).and_then(|bytes| {
            let recorded = read(&bytes).map_err(io::Error::other)?;
            let whole = recorded.as_ref().map_or(0, |it| it.whole);
            if whole < bytes.len() {
                let file = File::options().write(true).open(path)?;
                file.set_len(whole as u64)?;
            }
            Ok(recorded)
        });
        match recorded {
            Ok(Some(recorded)) if self.path(&recorded.opening.head.id) == path => Some(recorded),
            Ok(Some(_)) => {
                tracing::error!(%file, "a task is given up: the file has the name of another one; remove it");
                None
            }
            Ok(None) => {
                // Nobody heard of the task.
                let _ = fs::remove_file(path);
                None
            }
            Err(error) => {
                tracing::error!(%file, %error, "a task is given up: its file cannot be read; put it right and start the gateway again, or remove it");
                None
            }
        }
    }
}

/// The content of a file, which is not longer than a task's.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = LONGEST_FILE as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST_FILE {
        return Err(io::Error::other(format!(
            "it has more than {LONGEST_FILE} bytes"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_task_takes_over_the_file_of_a_forgotten_one() {
        let all = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(all.path().join("alice")).unwrap();
            let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let shelf = Shelf::open(all.path(), "alice").unwrap();
        shelf.add("one", b"a\n", true).unwrap();
        shelf.add("one", b"b\n", false).unwrap();
        assert_eq!(whole(&shelf.path("one")).unwrap(), b"a\nb\n");
        shelf.remove("one");
        shelf.remove("one");
        assert_eq!(names(), ["one.spare"]);
        // Also after the gateway began anew.
        let shelf = Shelf::open(all.path(), "alice").unwrap();
        assert!(shelf.tasks().is_empty());
        shelf.add("two", b"c\n", true).unwrap();
        assert_eq!(names(), ["two.task"]);
        assert_eq!(whole(&shelf.path("two")).unwrap(), b"c\n");
        // A spare file that somebody removed is not missed.
        shelf.remove("two");
        fs::remove_file(all.path().join("alice/two.spare")).unwrap();
        shelf.add("three", b"d\n", true).unwrap();
        assert_eq!(whole(&shelf.path("three")).unwrap(), b"d\n");
    }

    #[test]
    fn few_spare_files_are_kept() {
        let all = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(all.path(), "alice").unwrap();
        let ids: Vec<_> = (0..MOST_SPARE + 2).map(|it| it.to_string()).collect();
        for id in &ids {
            shelf.add(id, b"a\n", true).unwrap();
        }
        for id in &ids {
            shelf.remove(id);
        }
        let left = fs::read_dir(&shelf.folder).unwrap().count();
        assert_eq!(left, MOST_SPARE);
    }
}
