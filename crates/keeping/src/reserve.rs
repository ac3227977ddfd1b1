//! The reserve of a node's disk. Letters and events may fill the disk up to it. The rest is for the platform's own
//! writes: certificates, notes of taken messages, and the state of the node. Without it, a full disk would lock out the
//! reader that could empty it.

use std::io;
use std::path::{Path, PathBuf};

use sealbus_control::{Fault, FaultCode};

/// The bounds of the reserve of a large disk, in bytes.
const BOUNDS: (u64, u64) = (64 << 20, 1 << 30);

/// The bytes of a disk: the free ones, and all.
pub(crate) type Space = (u64, u64);

/// Looks up how much of the disk is free.
type Look = Box<dyn Fn(&Path) -> io::Result<Space> + Send + Sync>;

/// The reserve of the disk on which a folder lies.
pub(crate) struct Reserve {
    folder: PathBuf,
    look: Look,
}

impl Reserve {
    /// The reserve of the disk of this folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self::seen_by(folder, Box::new(look))
    }

    fn seen_by(folder: &Path, look: Look) -> Self {
        Self {
            folder: folder.to_owned(),
            look,
        }
    }

    /// Checks whether something new may be kept on the disk of this node.
    ///
    /// # Errors
    /// [`FaultCode::Full`], with the disk and the space that is left.
    pub(crate) fn check(&self, node: &str) -> Result<(), Fault> {
        // If a disk does not tell how full it is, a write will show it.
        let Ok((free, all)) = (self.look)(&self.folder) else {
            return Ok(());
        };
        let reserve = reserve_of(all);
        if free > reserve {
            return Ok(());
        }
        let message = format!(
            "{node} keeps nothing new: its disk ({}) has {} MiB free, and the last {} MiB are for the platform itself",
            self.folder.display(),
            free >> 20,
            reserve >> 20
        );
        let advice = "free space on that disk, or send again when its agents have taken what waits";
        Err(Fault::new(FaultCode::Full, message).advise(advice))
    }
}

/// The bytes that are free on the disk of a folder, and the reserve of that disk.
///
/// # Errors
/// If the system does not tell.
pub fn free_and_reserve(folder: &Path) -> io::Result<(u64, u64)> {
    let (free, all) = look(folder)?;
    Ok((free, reserve_of(all)))
}

/// The reserve of a disk of this size: a hundredth, within bounds, and at most a tenth.
fn reserve_of(all: u64) -> u64 {
    (all / 100).clamp(BOUNDS.0, BOUNDS.1).min(all / 10)
}

#[cfg(unix)]
fn look(folder: &Path) -> io::Result<Space> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok((
        disk.f_bavail.saturating_mul(disk.f_frsize),
        disk.f_blocks.saturating_mul(disk.f_frsize),
    ))
}

/// On this system, only unsafe code could tell.
#[cfg(not(unix))]
fn look(_: &Path) -> io::Result<Space> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    impl Reserve {
        /// The reserve of a disk of 10 GiB of which this much is free.
        pub(crate) fn with_free(free: &Arc<AtomicU64>) -> Self {
            let free = free.clone();
            let look = move |_: &Path| Ok((free.load(Ordering::SeqCst), 10 << 30));
            Self::seen_by(Path::new("/the/disk"), Box::new(look))
        }
    }

    #[test]
    fn the_reserve_fits_the_disk() {
        assert_eq!(reserve_of(100 << 20), 10 << 20);
        assert_eq!(reserve_of(2 << 30), 64 << 20);
        assert_eq!(reserve_of(50 << 30), (50 << 30) / 100);
        assert_eq!(reserve_of(10 << 40), 1 << 30);
    }

    #[test]
    fn a_fault_names_the_disk_and_what_is_free() {
        let free = Arc::new(AtomicU64::new(3 << 20));
        let reserve = Reserve::with_free(&free);
        let fault = reserve.check("node-1").unwrap_err();
        assert_eq!(fault.code, FaultCode::Full);
        let text = fault.to_string();
        assert!(
            text.contains("/the/disk") && text.contains("3 MiB free"),
            "{text}"
        );
        free.store(1 << 30, Ordering::SeqCst);
        reserve.check("node-1").unwrap();
    }

    #[test]
    fn a_real_disk_says_how_full_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (free, all) = look(folder.path()).unwrap();
        assert!(free <= all && all > 0);
    }
}
