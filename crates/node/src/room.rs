//! How much room the folders of programs take on the node's disk, and which folder takes too much. A program may run
//! meanwhile, and change its folder in any way. No path in it is followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, Stat, fchmod, fstat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::ownership::{MOST_DEEP, open_folder};

/// The least bytes that a file counts as, however short it is: it takes an inode.
const FILE: u64 = 4096;
/// The bytes of a name without a file of its own. Without this, hard links would make a search endless.
const NAME: u64 = 512;
/// The unit in which the system counts a file's blocks, in bytes.
const BLOCK: u64 = 512;
/// The most open files of a program that are looked at.
const MOST_OPEN: usize = 1 << 20;

/// The rights to a folder that a search needs.
const SEARCH: Mode = Mode::RUSR.union(Mode::XUSR);

/// The room that a folder takes, in bytes. The search stops as soon as it has found more than `most`. `None` if the
/// folder hides some of its contents: folders in it are closed to the node and belong to others, were closed during the
/// search, or are nested deeper than [`MOST_DEEP`].
///
/// # Errors
/// The system's error, for any other reason.
pub(crate) fn room_of(folder: &Path, most: u64) -> io::Result<Option<u64>> {
    let mut search = Search {
        most,
        found: 0,
        linked: HashSet::new(),
    };
    let about = match statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Some(0)),
        about => about?,
    };
    match search.enter(CWD, folder, &about, MOST_DEEP) {
        Ok(()) => Ok(Some(search.found)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// A folder that is open for a search. If its program had closed it, it is closed again afterwards.
struct SearchedFolder {
    folder: OwnedFd,
    /// The mode that it had before, if it was closed.
    closed: Option<Mode>,
}

impl Drop for SearchedFolder {
    fn drop(&mut self) {
        let Some(closed) = self.closed else { return };
        // If the program has chosen another mode in the meantime, that stays.
        let is_ours = |about: Stat| Mode::from_raw_mode(about.st_mode) == closed | SEARCH;
        if fstat(&self.folder).is_ok_and(is_ours) {
            let _ = fchmod(&self.folder, closed);
        }
    }
}

/// Opens a folder for a search. A program with the node's own user may have closed the folder to that user, to hide its
/// contents from the node. As its owner, the node may still open it. `about`: what is known about the folder.
fn open(
    around: impl AsFd,
    name: impl rustix::path::Arg,
    about: &Stat,
) -> io::Result<Option<SearchedFolder>> {
    let is_closed = !Mode::from_raw_mode(about.st_mode).contains(SEARCH);
    if is_closed && about.st_uid == geteuid().as_raw() {
        return open_closed(around, name);
    }
    let folder = open_folder(around, name)?;
    let closed = None;
    Ok(folder.map(|folder| SearchedFolder { folder, closed }))
}

#[cfg(target_os = "linux")]
fn open_closed(
    around: impl AsFd,
    name: impl rustix::path::Arg,
) -> io::Result<Option<SearchedFolder>> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{OFlags, chmod, openat};

    // The program may put something else in its place meanwhile, and the rights of that must not change.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(around, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let mode = Mode::from_raw_mode(fstat(&found)?.st_mode);
    let opened = format!("/proc/self/fd/{}", found.as_raw_fd());
    chmod(&opened, mode | SEARCH)?;
    let closed = Some(mode);
    match open_folder(&found, c".") {
        Ok(Some(folder)) => Ok(Some(SearchedFolder { folder, closed })),
        // The node may have too many open files.
        failed => {
            let _ = chmod(&opened, mode);
            failed.map(|_| None)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn open_closed(_: impl AsFd, _: impl rustix::path::Arg) -> io::Result<Option<SearchedFolder>> {
    Err(io::ErrorKind::PermissionDenied.into())
}

struct Search {
    most: u64,
    found: u64,
    /// The files with several names that were counted, by inode.
    linked: HashSet<u64>,
}

impl Search {
    fn enter(
        &mut self,
        around: impl AsFd,
        name: impl rustix::path::Arg,
        about: &Stat,
        deepest: usize,
    ) -> io::Result<()> {
        match open(around, name, about)? {
            Some(opened) => self.add_all(&opened.folder, deepest),
            None => Ok(()),
        }
    }

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
            let about = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => {
                    self.add(&about);
                    Some(about)
                }
                // It is gone in the meantime.
                Err(Errno::NOENT) => {
                    self.found = self.found.saturating_add(NAME);
                    None
                }
                Err(error) => return Err(error.into()),
            };
            if self.found > self.most {
                return Ok(());
            }
            let is_folder = |it: &Stat| FileType::from_raw_mode(it.st_mode) == FileType::Directory;
            if let Some(about) = about.filter(is_folder) {
                self.enter(folder, name, &about, deepest)?;
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
            // A file with holes takes only the room of its contents.
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
    /// The room in its folder.
    pub(crate) held: u64,
    /// The room in [removed files](removed_by). Nobody looks for them as long as the disk has room.
    pub(crate) removed: u64,
}

impl Room {
    fn all(self) -> u64 {
        self.held.saturating_add(self.removed)
    }
}

/// The room of each program when the disk last had room, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    before: HashMap<String, u64>,
    /// Whether the disk was nearly full at the last look.
    was_full: bool,
}

impl Rooms {
    /// The program that must stop writing, if the disk is nearly full: the one that has written most since it was not.
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
                // These files may have been removed long ago.
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

    /// Whether a program may not begin again, because its folder has made the disk nearly full.
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

/// The growth for which a program is ended when the disk is nearly full.
fn much(reserve: u64) -> u64 {
    (reserve / 16).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    #[cfg(target_os = "linux")]
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::*;

    const MUCH: u64 = 1 << 40;

    fn write(path: &Path, bytes: usize) {
        let mut file = File::create(path).unwrap();
        file.write_all(&vec![b'x'; bytes]).unwrap();
        // Some file systems allocate blocks only then.
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
        // The search is over when it has found enough.
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

    /// Nothing is closed to root, so the test gives up that right.
    #[cfg(target_os = "linux")]
    fn as_mere_owner<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        std::thread::scope(|scope| {
            let of_this_thread = scope.spawn(move || {
                set_capabilities(None, none).unwrap();
                work()
            });
            of_this_thread.join().unwrap()
        })
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_program_closes_to_its_own_user_is_measured_and_stays_closed() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        let inner = own.join("inner");
        fs::create_dir_all(&inner).unwrap();
        write(&inner.join("file"), 1 << 20);
        let set = |folder: &Path, mode| {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        for closed in [0o000, 0o300, 0o400] {
            set(&inner, closed);
            set(&own, closed);
            let found = as_mere_owner(|| room_of(&own, MUCH)).unwrap();
            assert_eq!(mode(&own), closed);
            set(&own, 0o700);
            assert_eq!(mode(&inner), closed);
            set(&inner, 0o700);
            assert!(found.is_some_and(|found| found > 1 << 20), "{closed:o}");
        }
    }

    /// The limit of open files applies to a whole process, so this runs in one of its own.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_searched_stays_closed() {
        use std::os::fd::AsRawFd;

        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        const ALONE: &str = "SEALBUS_TEST_ALONE";
        const NAME: &str = "room::tests::a_folder_that_cannot_be_searched_stays_closed";
        if std::env::var_os(ALONE).is_none() {
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let ran = alone.args([NAME, "--exact"]).env(ALONE, "1").output();
            let ran = ran.unwrap();
            let told = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o300)).unwrap();
        // One more file can be opened, but no second one.
        let next = File::open("/dev/null").unwrap().as_raw_fd();
        let before = getrlimit(Resource::Nofile);
        let one_more = Rlimit {
            current: Some(next as u64 + 1),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, one_more).unwrap();
        let found = as_mere_owner(|| room_of(&own, MUCH));
        setrlimit(Resource::Nofile, before).unwrap();
        let error = found.unwrap_err().raw_os_error();
        assert_eq!(error, Some(Errno::MFILE.raw_os_error()));
        let mode = fs::metadata(&own).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o300);
    }

    #[test]
    fn what_a_folder_hides_is_no_room() {
        let place = tempfile::tempdir().unwrap();
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
        // It must not begin again before there is room.
        assert!(rooms.is_filler(nearly, "other", 6 << 20));
        assert!(!rooms.is_filler(calm, "other", 6 << 20));
        assert!(!rooms.is_filler(nearly, "new", 6 << 20));
        assert_eq!(rooms.look(calm, &filled), None);
        assert!(!rooms.is_filler(nearly, "other", 6 << 20));
        // The same holds for files that it has removed and still holds open, since the disk became nearly full.
        let removed = |bytes| rooms_of(room(901 << 20, 100 << 20), room(6 << 20, bytes));
        assert_eq!(rooms.look(nearly, &removed(1 << 20)), None);
        let other = Some("other".to_owned());
        assert_eq!(rooms.look(nearly, &removed(9 << 20)), other);
    }
}
