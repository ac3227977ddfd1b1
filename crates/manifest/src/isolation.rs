//! The isolation of a program: its distance from its node and from other programs, and the files that it may touch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The modes of isolation, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// No isolation. The program has all the rights of its node's user.
    None,
    /// The kernel limits the files, sockets and processes that the program reaches (Landlock and seccomp).
    Landlock,
    /// The program also has its own view of the file system, and shared memory of its own.
    Namespace,
    /// The program also has a user of its own.
    Uid,
}

impl Isolation {
    /// All modes, from the strongest to the weakest.
    pub const ALL: [Self; 4] = [Self::Uid, Self::Namespace, Self::Landlock, Self::None];

    /// The mode's name in the manifest.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Namespace => "namespace",
            Self::Uid => "uid",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// There is no isolation mode of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no isolation \"{0}\": write uid, namespace, landlock or none")]
pub struct UnknownIsolation(String);

impl FromStr for Isolation {
    type Err = UnknownIsolation;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| UnknownIsolation(text.to_owned()))
    }
}

/// The isolation that a program needs, and its exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// The weakest mode that is good enough. By default, every mode but [`Isolation::None`] is good enough.
    /// [`Isolation::None`] isolates nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Further files and folders that the program may read and execute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Further files and folders that the program may read and change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Whether the program may open unix sockets in every mode. The mode `landlock` cannot choose among sockets.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unix_sockets: bool,
    /// Most bytes of memory of all the program's processes together. If the node has no controller of memory, most
    /// bytes of data of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Most processes and threads. If the node has no controller of processes, the kernel counts them in the mode `uid`
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Most processors that it may use, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Most open files of each of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Most bytes in its own folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

/// Most bytes in the own folder of a program, if the manifest says nothing.
const DISK: u64 = 1 << 30;

impl Confinement {
    /// Whether there is a limit that the kernel enforces.
    pub fn has_limits(&self) -> bool {
        let limits = [self.memory, self.processes, self.cpu, self.files];
        limits.iter().any(Option::is_some)
    }

    /// Most bytes in its own folder, which its node measures.
    pub fn room(&self) -> u64 {
        self.disk.unwrap_or(DISK)
    }
}

/// The keys of an `[[agent]]` that [`Confinement`] holds.
pub(super) const KEYS: [&str; 9] = [
    "isolation",
    "read",
    "write",
    "unix-sockets",
    "memory",
    "processes",
    "cpu",
    "files",
    "disk",
];

/// The values of `isolation`, for errors.
pub(super) const MODES: &str = "uid, namespace, landlock or none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_are_ordered_by_their_strength_and_named_as_in_the_manifest() {
        let mut modes = Isolation::ALL;
        modes.sort();
        modes.reverse();
        assert_eq!(modes, Isolation::ALL);
        for mode in modes {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
    }
}
