//! The notes of a node on disk: a file for each process, so that the node knows its processes after a restart.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::memory::{Memory, MemoryError, Remembered};
use super::processes::{End, Ends, Processes};

/// The pause before a file that could not be written is written again.
const AGAIN: Duration = Duration::from_secs(1);

impl Processes {
    /// Notes on disk the present facts about a process. The disk may be slow, so others go on meanwhile.
    pub(super) async fn note(&self, process: &str, memory: &Memory) {
        let Ok(noting) = self.with(process, |entry| entry.noting.clone()) else {
            return;
        };
        // The last writer writes the facts of that moment.
        let _turn = noting.lock().await;
        let Ok(remembered) = self.with(process, |entry| entry.remembered.clone()) else {
            return;
        };
        if let Err(error) = write(&remembered, memory).await {
            tracing::error!(%error, "a process could not be noted: after a restart the node would not know it as it is");
        }
        // The process may have ended in the meantime. If the Master does not know that yet, its end is noted next.
        let runs = self.entries.lock().contains_key(process);
        if !runs && !self.ended.lock().unreported.contains_key(process) {
            forget(process, memory);
        }
    }
}

/// Notes on disk how a process ended, unless the Master learns it first. On a full disk, this waits until there is room.
pub(super) async fn note_end(end: End, ended: Arc<Mutex<Ends>>, memory: Memory) {
    let _turn = end.noting.lock().await;
    let process = &end.row.launch.process;
    let is_known = || !ended.lock().unreported.contains_key(process);
    let mut is_told = false;
    while !is_known() {
        let Err(error) = write(&end.row, &memory).await else {
            break;
        };
        if !std::mem::replace(&mut is_told, true) {
            tracing::error!(%error, "how a process ended cannot be noted yet: after a restart of the node it would count as lost");
        }
        tokio::time::sleep(AGAIN).await;
    }
    if is_known() {
        forget(process, &memory);
    }
}

async fn write(row: &Remembered, memory: &Memory) -> Result<(), MemoryError> {
    let (row, memory) = (row.clone(), memory.clone());
    let written = tokio::task::spawn_blocking(move || memory.keep_process(&row)).await;
    // The task fails only if the runtime ends.
    written.unwrap_or(Ok(()))
}

/// Removes a process that has ended from disk.
pub(super) fn forget(process: &str, memory: &Memory) {
    if let Err(error) = memory.forget_process(process) {
        tracing::error!(%error, "a process that has ended is still noted: after a restart the node reports its end again");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use sealbus_control::clock::now;
    use sealbus_control::node::Exit;
    use sealbus_seal::token::Secret;

    use super::super::memory::tests::remembered;
    use super::super::peer::Peer;
    use super::super::processes::Entry;
    use super::*;

    /// The size of each file below a folder, by inode. A file that is rewritten gets another inode.
    fn files(folder: &Path) -> BTreeMap<u64, u64> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                found.extend(files(&entry.path()));
            } else {
                found.insert(about.ino(), about.len());
            }
        }
        found
    }

    /// The number and the bytes of the files that one admission writes, if there are this many other processes.
    async fn written(others: usize) -> (usize, u64) {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        let processes = Processes::default();
        let ticket = Secret::random().unwrap();
        let there = (0..others).map(|number| (format!("other-{number}"), None));
        for (name, ticket) in there.chain([("newcomer".to_owned(), Some(ticket.hash()))]) {
            let remembered = Remembered {
                ticket: ticket.map(|ticket| (ticket, now() + 1_000_000)),
                ..remembered(&name)
            };
            let entry = Entry::new(remembered);
            processes.entries.lock().insert(name.clone(), entry);
            processes.note(&name, &memory).await;
        }
        let before = files(directory.path());
        let next = Secret::random().unwrap();
        let (launch, first) = processes.admit(&ticket, &next, &Peer::default()).unwrap();
        processes.note(&launch.process, &memory).await;
        assert!(first && launch.process == "newcomer");
        let mut after = files(directory.path());
        after.retain(|inode, _| !before.contains_key(inode));
        let kept = memory.processes().unwrap();
        assert_eq!(kept.len(), others + 1);
        let newcomer = kept.iter().find(|it| it.launch.process == "newcomer");
        assert!(newcomer.unwrap().reattach.contains(&next.hash()));
        (after.len(), after.values().sum())
    }

    #[tokio::test]
    async fn an_admission_writes_as_much_however_many_processes_there_are() {
        let alone = written(0).await;
        assert_eq!(alone.0, 1);
        assert_eq!(written(300).await, alone);
    }

    #[tokio::test]
    async fn a_process_that_ends_while_it_is_noted_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        let processes = Processes::default();
        let entry = Entry::new(remembered("a"));
        let noting = entry.noting.clone();
        processes.entries.lock().insert("a".to_owned(), entry);
        let before = noting.lock().await;
        let note = processes.note("a", &memory);
        let end = async {
            processes.entries.lock().remove("a");
            forget("a", &memory);
            drop(before);
        };
        tokio::join!(note, end);
        assert!(memory.processes().unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_end_is_noted_until_the_master_knows_of_it_on_a_full_disk_too() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        memory.keep_process(&remembered("a")).unwrap();
        let (ended, exit) = (Arc::<Mutex<Ends>>::default(), Exit::Code { code: 0 });
        let end = End::of(&remembered("a"), exit.clone(), Arc::default());
        ended.lock().unreported.insert("a".to_owned(), exit.clone());
        let in_the_way = directory.path().join("processes/a.draft");
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(write(&end.row, &memory).await.is_err());
        let make_room = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::fs::remove_dir(&in_the_way).unwrap();
        };
        let note = note_end(end.clone(), ended.clone(), memory.clone());
        tokio::join!(note, make_room);
        assert_eq!(memory.processes().unwrap()[0].ended, Some(exit));
        ended.lock().unreported.clear();
        note_end(end, ended, memory.clone()).await;
        assert!(memory.processes().unwrap().is_empty());
    }

    /// A note that is written while the process ends does not say that it ended, so it is written again after that.
    #[tokio::test]
    async fn a_note_does_not_undo_that_of_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        let (processes, exit) = (Processes::default(), Exit::Code { code: 0 });
        let entry = Entry::new(remembered("a"));
        let noting = entry.noting.clone();
        processes.entries.lock().insert("a".to_owned(), entry);
        let end = End::of(&remembered("a"), exit.clone(), noting);
        let ended = processes.ended.clone();
        let note = processes.note("a", &memory);
        let end = async {
            processes.entries.lock().remove("a");
            ended.lock().unreported.insert("a".to_owned(), exit.clone());
            note_end(end, ended.clone(), memory.clone()).await;
        };
        tokio::join!(note, end);
        assert_eq!(memory.processes().unwrap()[0].ended, Some(exit.clone()));
    }
}
