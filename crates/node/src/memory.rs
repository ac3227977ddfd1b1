//! A node's stored state: its identity and its processes. With it the node comes back after a restart as the same node,
//! and takes its processes over again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sealbus_seal::token::SecretHash;
use sealbus_seal::{CertificateChain, Credential, KeyPair};
use serde::{Deserialize, Serialize};

use sealbus_control::node::{Exit, Launch};
use sealbus_control::private::{folder, write_private};
use sealbus_control::{Blob, UnixMillis};
use sealbus_enrolment::Enrolment;

const IDENTITY: &str = "node.json";
const PROCESSES: &str = "processes.json";
const ENDS: &str = "ended.json";
const PORT: &str = "port.json";

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
    key: String,
    chain: Blob,
}

/// A node that joined before.
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) enrolment: Enrolment,
    pub(crate) credential: Credential,
}

/// A process that a node runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) launch: Launch,
    /// The process's id and its start time by the system. The time distinguishes it from a later process with the same
    /// id.
    /// id.
    pub(crate) pid: Option<(u32, u64)>,
    /// The user that only this process and those that it starts have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<u32>,
    /// The ticket that it has not shown yet, and when the ticket expires.
    pub(crate) ticket: Option<(SecretHash, UnixMillis)>,
    /// Either of these secrets lets it attach again.
    pub(crate) reattach: Vec<SecretHash>,
}

/// A node's state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `make`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has damaged contents.
    #[error("{} is damaged ({problem}): remove it and join again with a new token", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
}

impl Memory {
    /// Opens a state directory. A missing directory is made, for its owner only.
    pub(crate) fn open(directory: &Path) -> Result<Self, MemoryError> {
        folder(directory).map_err(|source| MemoryError::File {
            action: "make",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn load<T: for<'de> Deserialize<'de>>(&self, file: &str) -> Result<Option<T>, MemoryError> {
        let path = self.directory.join(file);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(MemoryError::File {
                    action: "read",
                    path,
                    source,
                });
            }
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| MemoryError::Damaged {
                path,
                problem: error.to_string(),
            })
    }

    fn keep(&self, file: &str, value: &impl Serialize) -> Result<(), MemoryError> {
        let path = self.directory.join(file);
        let bytes = serde_json::to_vec(value).unwrap_or_default();
        write_private(&path, &bytes).map_err(|source| MemoryError::File {
            action: "write",
            path,
            source,
        })
    }

    /// The identity of this node, if it joined before.
    pub(crate) fn known(&self) -> Result<Option<Known>, MemoryError> {
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
        Ok(Some(Known {
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
            key: credential.key().to_pkcs8_pem().to_string(),
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

    pub(crate) fn processes(&self) -> Result<Vec<Remembered>, MemoryError> {
        Ok(self.load(PROCESSES)?.unwrap_or_default())
    }

    /// The ends of processes that the Master did not know of yet.
    pub(crate) fn ends(&self) -> Result<BTreeMap<String, Exit>, MemoryError> {
        Ok(self.load(ENDS)?.unwrap_or_default())
    }

    pub(crate) fn keep_ends(&self, ends: &BTreeMap<String, Exit>) -> Result<(), MemoryError> {
        self.keep(ENDS, ends)
    }

    pub(crate) fn keep_processes(&self, processes: &[Remembered]) -> Result<(), MemoryError> {
        self.keep(PROCESSES, &processes)
    }
}
