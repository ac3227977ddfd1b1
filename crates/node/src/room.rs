//! How much room the folders of programs take on the node's disk, and which of them takes too much. A program may run
//! meanwhile, and change its folder in any way. No path in it is followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use super::ownership::{MOST_DEEP, open_folder};

/// A file takes at least so many bytes, however short it is: it takes an inode.
const FILE: u64 = 4096;
/// A name without a file of its own takes so many bytes. Without this, hard links would make a search endless.
const NAME: u64 = 512;
/// The unit in which the system counts a file's blocks, in bytes.
const BLOCK: u64 = 512;
/// Most open files of a program that are looked at.
const MOST_OPEN: usize = 1 << 20;

/// The room that a folder takes, in bytes. It is at least `most`, and the search is over, once it is more than that. None
/// if the folder hides some of it: folders in it are closed to the node, or more than [`MOST_DEEP`] lie in each other.
///
/// # Errors
/// The system's, for other reasons.
pub(crate) fn room_of(folder: &Path, most: u64) -> io::Result<Option<u64>> {
    let mut search = Search {
        most,
        found: 0,
        linked: HashSet::new(),
    };
    let searched = match open_folder(CWD, folder) {
        Ok(None) => return Ok(Some(0)),
        Ok(Some(opened)) => search.add_all(&opened, MOST_DEEP),
        Err(error) => Err(error),
    };
    match searched {
        Ok(()) => Ok(Some(search.found)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

struct Search {
    most: u64,
    found: u64,
    /// The files with several names that were counted, by their numbers.
    linked: HashSet<u64>,
}

impl Search {
    fn add_all(&mut self, folder: &OwnedFd, deepest: usize) -> io::Result<()> {
        let Some(deepest) = deepest.checked_sub(1) else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let inner = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => {
                    self.add(&about);
                    FileType::from_raw_mode(about.st_mode) == FileType::Directory
                }
                // It is gone meanwhile.
                Err(Errno::NOENT) => {
                    self.found = self.found.saturating_add(NAME);
                    false
                }
                Err(error) => return Err(error.into()),
            };
            if self.found > self.most {
                return Ok(());
            }
            if inner && let Some(inner) = open_folder(folder, name)? {
                self.add_all(&inner, deepest)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, about: &Stat) {
        let is_known = about.st_nlink > 1
            && FileType::from_raw_mode(about.st_mode) != FileType::Directory
            && !self.linked.insert(about.st_ino);
        let bytes = match is_known {
            true => NAME,
            // A file with holes takes what it has in it.
            false => size(u64::try_from(about.st_blocks).unwrap_or_default()),
        };
        self.found = self.found.saturating_add(bytes);
    }
}

fn size(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK).max(FILE)
}

/// The room of removed files that these processes still hold open on the disk of a folder, as far as the node may look.
pub(crate) fn removed_by(processes: impl Iterator<Item = u32>, folder: &Path) -> u64 {
    let Ok(disk) = fs::metadata(folder).map(|about| about.dev()) else {
        return 0;
    };
    let open = processes.flat_map(|pid| {
        let listed = fs::read_dir(format!("/proc/{pid}/fd"));
        listed.into_iter().flatten().flatten()
    });
    let about = open
        .take(MOST_OPEN)
        .filter_map(|entry| fs::metadata(entry.path()).ok());
    let removed = about.filter(|it| it.is_file() && it.nlink() == 0 && it.dev() == disk);
    let by_number: HashMap<u64, u64> = removed.map(|it| (it.ino(), size(it.blocks()))).collect();
    by_number.values().sum()
}

/// The room of a program, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// In its folder.
    pub(crate) held: u64,
    /// In [removed files](removed_by). Nobody looks for them as long as the disk has room.
    pub(crate) removed: u64,
}

impl Room {
    fn all(self) -> u64 {
        self.held.saturating_add(self.removed)
    }
}

/// The rooms of programs at the time when the disk last had room, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    before: HashMap<String, u64>,
    /// Whether the disk was nearly full at the last look.
    was_full: bool,
}

impl Rooms {
    /// The program that is to write no more, if the disk is nearly full: the one that wrote most since it was not.
    pub(crate) fn look(
        &mut self,
        (free, reserve): (u64, u64),
        now: &BTreeMap<String, Room>,
    ) -> Option<String> {
        if !is_nearly_full(free, reserve) {
            let held = now.iter().map(|(name, room)| (name.clone(), room.held));
            self.before = held.collect();
            self.was_full = false;
            return None;
        }
        for (name, room) in now {
            let former = self.before.get_mut(name);
            match former {
                // These may have been removed long ago.
                Some(former) if !self.was_full => *former = former.saturating_add(room.removed),
                Some(_) => {}
                None => _ = self.before.insert(name.clone(), room.all()),
            }
        }
        self.was_full = true;
        let grown = now
            .iter()
            .map(|(name, room)| (self.growth(name, room.all()), name));
        let (most, name) = grown.max()?;
        (most >= much(reserve)).then(|| name.clone())
    }

    /// Whether a program may not begin again, because its folder made the disk nearly full.
    pub(crate) fn is_filler(&self, (free, reserve): (u64, u64), name: &str, bytes: u64) -> bool {
        is_nearly_full(free, reserve) && self.growth(name, bytes) >= much(reserve)
    }

    fn growth(&self, name: &str, bytes: u64) -> u64 {
        let before = self.before.get(name).copied().unwrap_or(bytes);
        bytes.saturating_sub(before)
    }
}

/// Whether a disk is close to its reserve.
pub(crate) fn is_nearly_full(free: u64, reserve: u64) -> bool {
    free < reserve.saturating_mul(2)
}

/// The growth for which a program is ended on a disk that is nearly full.
fn much(reserve: u64) -> u64 {
    (reserve / 16).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    use super::*;

    const MUCH: u64 = 1 << 40;

    fn write(path: &Path, bytes: usize) {
        let mut file = File::create(path).unwrap();
        file.write_all(&vec![b'x'; bytes]).unwrap();
        // Some file systems give blocks only then.
        file.sync_all().unwrap();
    }

    fn room(folder: &Path) -> u64 {
        room_of(folder, MUCH).unwrap().unwrap()
    }

    #[test]
    fn a_folder_takes_what_its_files_take_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (own, foreign) = (place.path().join("own"), place.path().join("foreign"));
        assert_eq!(room_of(&own, MUCH).unwrap(), Some(0));
        fs::create_dir_all(own.join("inner")).unwrap();
        write(&foreign, 1 << 20);
        symlink(&foreign, own.join("link")).unwrap();
        symlink("/", own.join("inner/root")).unwrap();
        let empty = room(&own);
        assert!(empty < 1 << 16, "{empty}");
        write(&own.join("inner/file"), 1 << 20);
        let with_file = room(&own);
        assert!((1 << 20..1 << 21).contains(&(with_file - empty)));
        // A further name takes nearly nothing, and a hole takes nothing.
        fs::hard_link(own.join("inner/file"), own.join("again")).unwrap();
        let sparse = File::create(own.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        assert!(room(&own) - with_file < 1 << 16);
        // Its search is over when it has found enough.
        let some = room_of(&own, 1 << 16).unwrap().unwrap();
        assert!(some > 1 << 16);
    }

    #[test]
    fn many_empty_files_take_room() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..100 {
            write(&place.path().join(number.to_string()), 0);
        }
        assert!(room(place.path()) >= 100 * FILE);
        fs::remove_file(place.path().join("0")).unwrap();
        for number in 1..100 {
            let (one, other) = (number.to_string(), format!("{number}-again"));
            fs::hard_link(place.path().join(one), place.path().join(other)).unwrap();
        }
        assert!(room(place.path()) >= 99 * (FILE + NAME));
    }

    #[test]
    fn what_a_folder_hides_is_no_room() {
        let place = tempfile::tempdir().unwrap();
        let closed = place.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let found = room_of(place.path(), MUCH).unwrap();
        // Nothing is closed to root.
        assert_eq!(found.is_none(), fs::read_dir(&closed).is_err());
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let mut deep = place.path().to_owned();
        for _ in 0..MOST_DEEP {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        assert_eq!(room_of(place.path(), MUCH).unwrap(), None);
    }

    #[test]
    fn a_removed_file_that_is_open_is_found() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let fill = "dd if=/dev/zero bs=1048576 count=1 conv=fsync status=none >&9";
        let script = format!("exec 9>f && rm f && {fill} && echo && read _");
        command.args(["-c", &script]).current_dir(place.path());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = piped.spawn().unwrap();
        let mut said = [0];
        let output = program.stdout.as_mut().unwrap();
        io::Read::read_exact(output, &mut said).unwrap();
        let found = removed_by([program.id()].into_iter(), place.path());
        assert!((1 << 20..1 << 21).contains(&found), "{found}");
        assert_eq!(removed_by([u32::MAX].into_iter(), place.path()), 0);
        drop(program.stdin.take());
        program.wait().unwrap();
        assert!(room(place.path()) < 1 << 16);
    }

    #[test]
    fn on_a_disk_that_is_nearly_full_the_program_that_fills_it_ends_and_no_other() {
        let reserve = 64 << 20;
        let (calm, nearly) = ((3 * reserve, reserve), (2 * reserve - 1, reserve));
        let room = |held, removed| Room { held, removed };
        let rooms_of =
            |one, other| BTreeMap::from([("one".to_owned(), one), ("other".to_owned(), other)]);
        let sizes = |one, other| rooms_of(room(one, 0), room(other, 0));
        let mut rooms = Rooms::default();
        assert_eq!(rooms.look(calm, &sizes(900 << 20, 1 << 20)), None);
        // Others may have filled it.
        assert_eq!(rooms.look(nearly, &sizes(900 << 20, 2 << 20)), None);
        assert!(!rooms.is_filler(nearly, "other", 2 << 20));
        let filled = sizes(901 << 20, 6 << 20);
        assert_eq!(rooms.look(nearly, &filled), Some("other".to_owned()));
        // It does not begin again before there is room.
        assert!(rooms.is_filler(nearly, "other", 6 << 20));
        assert!(!rooms.is_filler(calm, "other", 6 << 20));
        assert!(!rooms.is_filler(nearly, "new", 6 << 20));
        assert_eq!(rooms.look(calm, &filled), None);
        assert!(!rooms.is_filler(nearly, "other", 6 << 20));
        // So it is with files that it has removed and holds open, since the disk is nearly full.
        let removed = |bytes| rooms_of(room(901 << 20, 100 << 20), room(6 << 20, bytes));
        assert_eq!(rooms.look(nearly, &removed(1 << 20)), None);
        let other = Some("other".to_owned());
        assert_eq!(rooms.look(nearly, &removed(9 << 20)), other);
    }
}
