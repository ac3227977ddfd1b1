//! The notes of a node on disk: a file for each process, so that the node knows its processes after a restart.

use super::memory::Memory;
use super::processes::Processes;

impl Processes {
    /// Notes on disk the present facts about a process. The disk may be slow: others go on meanwhile.
    pub(super) async fn note(&self, process: &str, memory: &Memory) {
        let Ok(noting) = self.with(process, |entry| entry.noting.clone()) else {
            return;
        };
        // The last writer writes the facts of that moment.
        let _turn = noting.lock().await;
        let Ok(remembered) = self.with(process, |entry| entry.remembered.clone()) else {
            return;
        };
        let keeper = memory.clone();
        let written = tokio::task::spawn_blocking(move || keeper.keep_process(&remembered)).await;
        if let Ok(Err(error)) = written {
            tracing::error!(%error, "a process could not be noted: after a restart the node would not know it as it is");
        }
        // The process may have ended meanwhile, and is then forgotten.
        if !self.entries.lock().contains_key(process) {
            forget(process, memory);
        }
    }
}

/// Removes a process that has ended from disk.
pub(super) fn forget(process: &str, memory: &Memory) {
    if let Err(error) = memory.forget_process(process) {
        tracing::error!(%error, "a process that has ended is still noted: after a restart it counts as lost");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use sealbus_control::clock::now;
    use sealbus_control::node::Launch;
    use sealbus_seal::token::Secret;

    use super::super::memory::Remembered;
    use super::super::peer::Peer;
    use super::super::processes::Entry;
    use super::*;

    fn launch(process: String) -> Launch {
        Launch {
            group: process.clone(),
            agents: vec![process.clone()],
            process,
            command: Vec::new(),
            directory: None,
            environment: BTreeMap::new(),
            confinement: Default::default(),
            inherits: None,
        }
    }

    /// The size of each file below a folder, by its inode: a file that is written again has another.
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

    /// The number and the bytes of the files that one admission writes, with this many other processes.
    async fn written(others: usize) -> (usize, u64) {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        let processes = Processes::default();
        let ticket = Secret::random().unwrap();
        let there = (0..others).map(|number| (format!("other-{number}"), None));
        for (name, ticket) in there.chain([("newcomer".to_owned(), Some(ticket.hash()))]) {
            let remembered = Remembered {
                launch: launch(name.clone()),
                pid: None,
                slot: None,
                control_group: None,
                ticket: ticket.map(|ticket| (ticket, now() + 1_000_000)),
                reattach: Vec::new(),
                channels: false,
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
        let remembered = Remembered {
            launch: launch("a".to_owned()),
            pid: None,
            slot: None,
            control_group: None,
            ticket: None,
            reattach: Vec::new(),
            channels: false,
        };
        let entry = Entry::new(remembered);
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
}
