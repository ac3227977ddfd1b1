//! A node's stored state: its identity and its processes. With it, a restarted node comes back as the same node, and
//! takes its processes over again. Each process has a file of its own, so that the bytes written for one process do not
//! grow with the number of processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sealbus_seal::token::SecretHash;
use sealbus_seal::{CertificateChain, Credential, KeyPair};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use sealbus_control::node::{Exit, Launch};
use sealbus_control::{Blob, Term, UnixMillis};
use sealbus_enrolment::Enrolment;
use sealbus_files::{folder, write_private};

const IDENTITY: &str = "node.json";
/// The folder with a file for each process.
const PROCESSES: &str = "processes";
/// The extension of these files. Any others there are drafts of an interrupted write.
const ROW: &str = "json";
/// The single list in which earlier versions kept all processes.
const PROCESS_LIST: &str = "processes.json";
const PORT: &str = "port.json";
const TERM: &str = "term.json";
/// Where the kernel names this run of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// A start time that no process has.
const NEVER: u64 = u64::MAX;

/// A node's state directory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    directory: PathBuf,
}

/// The record of a node that joined.
#[derive(Serialize, Deserialize)]
struct Identity {
    name: String,
    enrolment: Enrolment,
    #[serde(with = "secret_text")]
    key: Zeroizing<String>,
    chain: Blob,
}

/// A text that is overwritten in memory when it is dropped.
mod secret_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use zeroize::Zeroizing;

    pub(super) fn serialize<S: Serializer>(
        text: &Zeroizing<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Zeroizing<String>, D::Error> {
        String::deserialize(deserializer).map(Zeroizing::new)
    }
}

/// A node that joined before.
pub(crate) struct FormerNode {
    pub(crate) name: String,
    pub(crate) enrolment: Enrolment,
    pub(crate) credential: Credential,
}

/// A process of a node, as it is noted on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) launch: Launch,
    /// The process's id and its start time by the system. The time distinguishes it from a later process with the same
    /// id.
    pub(crate) pid: Option<(u32, u64)>,
    /// The run of the machine in which the process began. The start time counts from the beginning of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
    /// The user that only this process and its descendants have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<u32>,
    /// The folder of the process's control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) control_group: Option<PathBuf>,
    /// The ticket that the process has not shown yet, and when the ticket expires.
    pub(crate) ticket: Option<(SecretHash, UnixMillis)>,
    /// Either of these secrets lets the process attach again.
    pub(crate) reattach: Vec<SecretHash>,
    /// Whether its agents use channels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) channels: bool,
    /// The number of the freeze in which the process handed in its agents, which may live elsewhere since. `None` if no
    /// move is in progress, or the process has handed in nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handed_in: Option<u64>,
    /// The folder of a program that the node started without unix sockets. The program attaches over the network, and
    /// the node recognises it by its mark in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<PathBuf>,
    /// How the process ended, if the Master does not know that yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Exit>,
}

impl Remembered {
    /// A process that has not begun.
    pub(crate) fn new(launch: Launch) -> Self {
        Self {
            launch,
            pid: None,
            boot: None,
            slot: None,
            control_group: None,
            ticket: None,
            reattach: Vec::new(),
            channels: false,
            handed_in: None,
            folder: None,
            ended: None,
        }
    }

    /// Whether this is the hash of its ticket, or of a secret for attaching again.
    pub(crate) fn has_secret(&self, hash: SecretHash) -> bool {
        let is_ticket = self.ticket.is_some_and(|(ticket, _)| ticket == hash);
        is_ticket || self.reattach.contains(&hash)
    }

    /// The same process, as seen in this run of the machine. In another run, a stranger may have its id and its start time.
    fn seen_in(mut self, boot: Option<&str>) -> Self {
        if self.boot.is_some() && self.boot.as_deref() != boot {
            self.pid = self.pid.map(|(pid, _)| (pid, NEVER));
        }
        self
    }
}

/// The name of this run of the machine, if the system tells.
pub(crate) fn boot() -> Option<String> {
    let told = fs::read_to_string(BOOT).ok()?;
    Some(told.trim().to_owned())
}

/// Why a node's state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `make`, `remove`, `keep`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The contents of a file are damaged.
    #[error("{} is damaged ({problem}): remove it and join again with a new token", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

impl Memory {
    /// Opens a state directory. If there is none, it is made for its owner only.
    pub(crate) fn open(directory: &Path) -> Result<Self, MemoryError> {
        let memory = Self {
            directory: directory.to_owned(),
        };
        let rows = memory.directory.join(PROCESSES);
        for made in [&memory.directory, &rows] {
            folder(made).map_err(file_error("make", made))?;
        }
        memory.divide_list()?;
        Ok(memory)
    }

    /// Gives each process in the list of an earlier version a file of its own.
    fn divide_list(&self) -> Result<(), MemoryError> {
        let Some(list) = self.load::<Vec<Remembered>>(PROCESS_LIST)? else {
            return Ok(());
        };
        // Files beside the list are older: the list is removed when all its processes have files.
        for path in self.rows()? {
            remove(&path)?;
        }
        for process in &list {
            self.keep_process(process)?;
        }
        remove(&self.directory.join(PROCESS_LIST))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn load<T: for<'de> Deserialize<'de>>(&self, file: &str) -> Result<Option<T>, MemoryError> {
        read(self.directory.join(file))
    }

    fn keep(&self, file: &str, value: &impl Serialize) -> Result<(), MemoryError> {
        let path = self.directory.join(file);
        // The key of the node may be in it.
        let bytes = Zeroizing::new(serde_json::to_vec(value).unwrap_or_default());
        write_private(&path, &bytes).map_err(file_error("write", &path))
    }

    /// The identity of this node, if it has joined before.
    pub(crate) fn known(&self) -> Result<Option<FormerNode>, MemoryError> {
        let Some(identity) = self.load::<Identity>(IDENTITY)? else {
            return Ok(None);
        };
        let damaged = |problem: String| MemoryError::Damaged {
            path: self.directory.join(IDENTITY),
            problem,
        };
        let key =
            KeyPair::from_pkcs8_pem(&identity.key).map_err(|error| damaged(error.to_string()))?;
        let chain = CertificateChain::decode(&identity.chain.0)
            .map_err(|error| damaged(error.to_string()))?;
        let credential = Credential::new(key, chain).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(FormerNode {
            name: identity.name,
            enrolment: identity.enrolment,
            credential,
        }))
    }

    pub(crate) fn keep_identity(
        &self,
        name: &str,
        enrolment: &Enrolment,
        credential: &Credential,
    ) -> Result<(), MemoryError> {
        let mut chain = Vec::new();
        credential.chain().encode(&mut chain);
        let identity = Identity {
            name: name.to_owned(),
            enrolment: enrolment.clone(),
            key: credential.key().to_pkcs8_pem(),
            chain: chain.into(),
        };
        self.keep(IDENTITY, &identity)
    }

    /// The port at which programs with tickets attach; 0 if there is none yet.
    pub(crate) fn port(&self) -> Result<u16, MemoryError> {
        Ok(self.load(PORT)?.unwrap_or_default())
    }

    pub(crate) fn keep_port(&self, port: u16) -> Result<(), MemoryError> {
        self.keep(PORT, &port)
    }

    /// The highest term of a Master that the node has heard of.
    pub(crate) fn term(&self) -> Result<Option<Term>, MemoryError> {
        self.load(TERM)
    }

    pub(crate) fn keep_term(&self, term: Term) -> Result<(), MemoryError> {
        self.keep(TERM, &term)
    }

    /// The path of a process's file, below the directory.
    fn row_of(process: &str) -> Result<String, MemoryError> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
        if !process.is_empty() && process.bytes().all(is_plain) {
            return Ok(format!("{PROCESSES}/{process}.{ROW}"));
        }
        let why = "the process has no name that a file may have";
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        Err(file_error("keep", Path::new(process))(source))
    }

    /// The files of all processes.
    fn rows(&self) -> Result<Vec<PathBuf>, MemoryError> {
        let folder = self.directory.join(PROCESSES);
        let listed = fs::read_dir(&folder).and_then(|entries| {
            let paths = entries.map(|entry| entry.map(|entry| entry.path()));
            paths.collect::<io::Result<Vec<_>>>()
        });
        let mut paths = listed.map_err(file_error("read", &folder))?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == ROW));
        paths.sort();
        Ok(paths)
    }

    pub(crate) fn processes(&self) -> Result<Vec<Remembered>, MemoryError> {
        let boot = boot();
        let rows = self.rows()?.into_iter().map(read::<Remembered>);
        let rows = rows.filter_map(Result::transpose);
        rows.map(|row| row.map(|row| row.seen_in(boot.as_deref())))
            .collect()
    }

    /// Notes a process.
    pub(crate) fn keep_process(&self, process: &Remembered) -> Result<(), MemoryError> {
        self.keep(&Self::row_of(&process.launch.process)?, process)
    }

    /// Forgets a process.
    pub(crate) fn forget_process(&self, process: &str) -> Result<(), MemoryError> {
        remove(&self.directory.join(Self::row_of(process)?))
    }
}

fn file_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> MemoryError {
    let path = path.to_owned();
    move |source| MemoryError::File {
        action,
        path: path.clone(),
        source,
    }
}

/// The value in a file, if there is one.
fn read<T: for<'de> Deserialize<'de>>(path: PathBuf) -> Result<Option<T>, MemoryError> {
    let bytes = match fs::read(&path) {
        // The key of the node may be in it.
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error("read", &path)(error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| MemoryError::Damaged {
            path,
            problem: error.to_string(),
        })
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), MemoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn remembered(process: &str) -> Remembered {
        Remembered::new(Launch {
            process: process.to_owned(),
            group: process.to_owned(),
            agents: vec![process.to_owned()],
            command: Vec::new(),
            directory: None,
            environment: Default::default(),
            confinement: Default::default(),
            inherits: None,
        })
    }

    fn names(memory: &Memory) -> Vec<String> {
        let processes = memory.processes().unwrap();
        processes.into_iter().map(|it| it.launch.process).collect()
    }

    #[test]
    fn each_process_is_kept_and_forgotten_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        for name in ["a", "b", "c"] {
            memory.keep_process(&remembered(name)).unwrap();
        }
        memory.forget_process("b").unwrap();
        memory.forget_process("never-there").unwrap();
        // A write that a crash interrupted.
        fs::write(directory.path().join("processes/d.draft"), "{").unwrap();
        assert_eq!(names(&Memory::open(directory.path()).unwrap()), ["a", "c"]);
        for name in ["../node", "", "a/b", "a.json"] {
            assert!(memory.keep_process(&remembered(name)).is_err(), "{name}");
        }
    }

    /// Start times count from the start of the machine, and ids begin anew, too.
    #[test]
    fn after_a_restart_of_the_machine_no_process_is_taken_for_one_from_before() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        let own = (std::process::id(), 1234);
        let seen = |boot: Option<String>| {
            let mut process = remembered("a");
            (process.pid, process.boot) = (Some(own), boot);
            memory.keep_process(&process).unwrap();
            memory.processes().unwrap().remove(0).pid
        };
        assert_eq!(seen(boot()), Some(own));
        assert_eq!(seen(Some("another".to_owned())), Some((own.0, NEVER)));
        // An earlier version did not note the run.
        assert_eq!(seen(None), Some(own));
    }

    #[test]
    fn the_list_of_an_earlier_version_becomes_files() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::open(directory.path()).unwrap();
        memory.keep_process(&remembered("older")).unwrap();
        let list = directory.path().join(PROCESS_LIST);
        let all = [remembered("a"), remembered("b")];
        fs::write(&list, serde_json::to_vec(&all).unwrap()).unwrap();
        for _ in 0..2 {
            let memory = Memory::open(directory.path()).unwrap();
            assert_eq!(names(&memory), ["a", "b"]);
            assert!(!list.exists());
        }
    }
}
