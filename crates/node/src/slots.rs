//! Users for programs, one for each. A user belongs to a program's folder as long as the folder exists, and for a while
//! longer, on the whole machine: nodes note in a common place which users are taken, and when they were last used.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;

/// Where the nodes of this machine note the users. A restart of the machine, which ends all programs, empties it.
const NOTES: &str = "/run/sealbus/uids";

/// A user is not given again before this time has passed since its last use. The former program may have left files or
/// a port elsewhere, which would then belong to the next program.
const QUARANTINE: Duration = Duration::from_secs(3600);

/// Whether a user belongs to the program with this folder.
pub(crate) fn is_of(uid: u32, folder: &Path) -> bool {
    is_noted(Path::new(NOTES), uid, folder)
}

fn is_noted(notes: &Path, uid: u32, folder: &Path) -> bool {
    let owner = fs::read(notes.join(uid.to_string()));
    owner.is_ok_and(|owner| owner == folder.as_os_str().as_encoded_bytes())
}

/// The user for a probe, which ends all processes of that user. No other probe on the machine gets it until this value
/// is dropped.
pub(crate) struct ProbeUser {
    uid: u32,
    _lock: fs::File,
}

impl ProbeUser {
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

/// The users that a node may give to programs.
pub(crate) struct Slots {
    range: RangeInclusive<u32>,
    notes: PathBuf,
}

impl Slots {
    /// The users in `range`.
    pub(crate) fn open(range: RangeInclusive<u32>) -> io::Result<Self> {
        Self::noted_in(range, Path::new(NOTES))
    }

    fn noted_in(range: RangeInclusive<u32>, notes: &Path) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(notes)?;
        let notes = notes.to_owned();
        Ok(Self { range, notes })
    }

    /// The user of the program with this folder: the one that it had before, or a new one.
    ///
    /// # Errors
    /// If all users are taken, or the notes cannot be written.
    pub(crate) fn of(&self, folder: &Path) -> io::Result<u32> {
        let lock = fs::File::create(self.notes.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let owner = folder.as_os_str().as_encoded_bytes();
        let mut free = None;
        // The last one is the user for probes.
        for uid in *self.range.start()..*self.range.end() {
            match fs::read(self.note(uid)) {
                Ok(taken) if taken == owner => {
                    self.used(uid)?;
                    return Ok(uid);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    free = Some(uid);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let uid = match free {
            Some(uid) => uid,
            None => self.forsaken()?,
        };
        fs::write(self.note(uid), owner)?;
        Ok(uid)
    }

    /// The user for probes, once no other node of this machine is trying its isolation.
    ///
    /// # Errors
    /// If the user belongs to a program of a node with another range.
    pub(crate) fn for_probe(&self) -> io::Result<ProbeUser> {
        let lock = fs::File::create(self.notes.join("probe"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let uid = *self.range.end();
        match self.note(uid).exists() {
            false => Ok(ProbeUser { uid, _lock: lock }),
            true => Err(io::Error::other(format!(
                "user {uid}, the last of this node's, belongs to a program of another node: give the nodes of a machine the \
                 same users with --uids, or different ones"
            ))),
        }
    }

    fn note(&self, uid: u32) -> PathBuf {
        self.notes.join(uid.to_string())
    }

    /// Notes that a program has this user now, or has just ended.
    pub(crate) fn used(&self, uid: u32) -> io::Result<()> {
        let note = fs::File::options().write(true).open(self.note(uid))?;
        note.set_modified(SystemTime::now())
    }

    /// A user without processes that was last used long ago and whose program's folder is gone.
    fn forsaken(&self) -> io::Result<u32> {
        let living = living_users()?;
        let is_forsaken = |uid: &u32| {
            let folder = fs::read_to_string(self.note(*uid)).unwrap_or_default();
            let used = fs::metadata(self.note(*uid)).and_then(|note| note.modified());
            // A clock that was set back must not shorten it.
            let is_over = |used: SystemTime| used.elapsed().is_ok_and(|since| since >= QUARANTINE);
            !Path::new(&folder).exists() && !living.contains(uid) && used.is_ok_and(is_over)
        };
        let mut all = *self.range.start()..*self.range.end();
        all.find(is_forsaken).ok_or_else(|| {
            let (first, last) = (self.range.start(), self.range.end());
            io::Error::other(format!(
                "all users from {first} to {last} are taken, or were used within the last hour: give the node more with --uids"
            ))
        })
    }
}

/// The users that have processes now.
fn living_users() -> io::Result<Vec<u32>> {
    let processes = fs::read_dir("/proc")?.flatten();
    let about = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let users = about.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().next()?.parse().ok()
    });
    Ok(users.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_stays_with_its_folder_and_is_given_again_only_when_the_folder_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let notes = place.path().join("notes");
        // No process on this machine has one of these users.
        let range = 4_000_000_001..=4_000_000_003;
        let slots = Slots::noted_in(range.clone(), &notes).unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let first = slots.of(&folder("a")).unwrap();
        let second = slots.of(&folder("b")).unwrap();
        assert_ne!(first, second);
        assert!(is_noted(&notes, first, &folder("a")));
        assert!(!is_noted(&notes, first, &folder("b")));
        // Another node of the machine knows them, too.
        let other = Slots::noted_in(range, &notes).unwrap();
        assert_eq!(other.of(&folder("b")).unwrap(), second);
        let full = other.of(&folder("c")).unwrap_err();
        assert!(full.to_string().contains("are taken"), "{full}");
        fs::remove_dir(folder("a")).unwrap();
        // Its program may have ended just now.
        other.used(first).unwrap();
        assert!(other.of(&folder("c")).is_err());
        let note = fs::File::options().write(true).open(other.note(first));
        let long_ago = SystemTime::now() - QUARANTINE;
        note.unwrap().set_modified(long_ago).unwrap();
        assert_eq!(other.of(&folder("c")).unwrap(), first);
        assert!(!is_noted(&notes, first, &place.path().join("a")));
    }

    /// A probe ends all processes of its user.
    #[test]
    fn a_probes_user_is_no_other_probes_and_no_programs() {
        let place = tempfile::tempdir().unwrap();
        let slots = Slots::noted_in(7..=8, place.path()).unwrap();
        let lock = fs::File::create(place.path().join("probe")).unwrap();
        let try_lock = || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let user = slots.for_probe().unwrap();
        assert_eq!(user.uid(), 8);
        try_lock().unwrap_err();
        drop(user);
        try_lock().unwrap();
        rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
        let other = Slots::noted_in(8..=9, place.path()).unwrap();
        assert_eq!(other.of(place.path()).unwrap(), 8);
        let taken = slots.for_probe().err().unwrap();
        assert!(taken.to_string().contains("--uids"), "{taken}");
    }
}
