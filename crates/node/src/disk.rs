//! The watch over the disk. It ends a program whose folder takes too much of the disk, so that the node can still
//! write. It needs no quota of the file system. A program that writes fast exceeds its limit for some seconds.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::descendants::descendants;
use super::room::{Room, is_nearly_full, removed_by, room_of};
use super::shared::Shared;
use sealbus_control::node::{Exit, Launch};
use sealbus_keeping::free_and_reserve;

/// The pause between two checks of the folders, if the checks take no time.
const LOOK: Duration = Duration::from_secs(2);
/// The pause is at least so many times as long as the check before it, because the folders may have very many files.
const SHARE: u32 = 10;
/// If this fraction of the disk's reserve has been written, the next check comes early.
const WRITTEN: u64 = 4;
/// The multiple of its limit up to which a folder is measured.
const FAR: u64 = 4;

/// Watches the disk for ever.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        let (looking, since) = (shared.clone(), Instant::now());
        let looked = tokio::task::spawn_blocking(move || looking.look_at_folders()).await;
        for (process, exit) in looked.unwrap_or_default() {
            shared.end_for_its_disk(&process, exit);
        }
        pause(shared.sealing.work(), since.elapsed() * SHARE).await;
    }
}

/// Waits, but not until the disk is full, because somebody may be writing fast.
async fn pause(folder: &Path, long: Duration) {
    let before = free_and_reserve(folder);
    let since = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let is_urgent = match (&before, free_and_reserve(folder)) {
            (Ok((before, reserve)), Ok((now, _))) => before.saturating_sub(now) > reserve / WRITTEN,
            _ => false,
        };
        if is_urgent || since.elapsed() >= long {
            return;
        }
    }
}

/// The bytes in the folder of a program with this limit. Counting stops far beyond the limit.
pub(super) fn held_in(folder: &Path, limit: u64) -> io::Result<Option<u64>> {
    room_of(folder, limit.saturating_mul(FAR))
}

impl Shared {
    /// The processes whose folders take too much, and how they end.
    pub(super) fn look_at_folders(&self) -> Vec<(String, Exit)> {
        let work = self.sealing.work();
        // If the disk does not tell how full it is, it counts as having room.
        let disk = free_and_reserve(work).unwrap_or((u64::MAX, 0));
        let (free, reserve) = disk;
        let mut rooms = BTreeMap::<String, Room>::new();
        let mut ended = HashMap::new();
        let running = self.processes.started();
        for (process, group, pid, most) in &running {
            let folder = work.join(group);
            let held = match held_in(&folder, *most) {
                Ok(held) => held,
                Err(error) => {
                    tracing::debug!(process = %group, %error, "its folder cannot be measured now");
                    continue;
                }
            };
            let Some(held) = held.filter(|held| held <= most) else {
                let most = Some(*most);
                ended.insert(process.clone(), Exit::OutOfDisk { held, most });
                continue;
            };
            let room = rooms.entry(group.clone()).or_default();
            room.held = held;
            if is_nearly_full(free, reserve) {
                let processes = descendants(*pid).into_iter().chain([*pid]);
                room.removed = room.removed.saturating_add(removed_by(processes, &folder));
            }
        }
        if let Some(filler) = self.rooms.lock().look(disk, &rooms) {
            let held = rooms.get(&filler).map(|room| room.held);
            let exit = Exit::OutOfDisk { held, most: None };
            let of_it = running.iter().filter(|(_, group, ..)| *group == filler);
            ended.extend(of_it.map(|(process, ..)| (process.clone(), exit.clone())));
        }
        ended.into_iter().collect()
    }

    /// Ends a program by force, because it may write faster than it would end in order.
    pub(super) fn end_for_its_disk(&self, process: &str, exit: Exit) {
        let program = self.processes.with(process, |entry| {
            entry.verdict = Some(exit);
            entry.remembered.pid
        });
        if let Ok(Some(program)) = program {
            self.force(process, program);
        }
    }

    /// Checks that a program may begin with this many bytes in its folder.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(super) fn check_folder(
        &self,
        launch: &Launch,
        folder: &Path,
        held: Option<u64>,
    ) -> Result<(), String> {
        let most = launch.confinement.room();
        let most = match held {
            Some(held) if held <= most => {
                let disk = free_and_reserve(folder).unwrap_or((u64::MAX, 0));
                if !self.rooms.lock().is_filler(disk, &launch.group, held) {
                    return Ok(());
                }
                None
            }
            _ => Some(most),
        };
        Err(Exit::OutOfDisk { held, most }.to_string())
    }
}

#[cfg(test)]
mod tests;
