//! The end of a process, as its node reports it.

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Exit {
    /// The process exited by itself.
    Code {
        /// The process's exit code; 0 is success.
        code: i32,
    },
    /// A signal ended it.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel ended it because memory ran out.
    OutOfMemory {
        /// Whether it used more than its own limit. If not, all programs of its node, or the machine, used too much.
        own: bool,
    },
    /// Its node ended it because its folder there took too much room.
    OutOfDisk {
        /// The bytes in the folder, at least. `None`: the folder hides some of them from the node.
        held: Option<u64>,
        /// The most bytes that the folder may have. `None`: the node's disk is nearly full, and this folder grew most.
        most: Option<u64>,
    },
    /// The process could not be started.
    NotStarted {
        /// The reason.
        error: String,
    },
    /// A program with a ticket went away, or a process was lost while the node was down.
    Lost,
    /// A program with a ticket went away after all its agents had ended.
    Detached,
    /// The process's node ended it in order to leave.
    NodeLeft,
}

impl Exit {
    /// Whether the process must be restarted if its policy is to restart on failure.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Code { code: 0 } | Self::Detached)
    }

    /// Whether the process ended because of its node, and not by itself.
    pub fn is_of_its_node(&self) -> bool {
        matches!(self, Self::Lost | Self::NodeLeft)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code { code } => write!(f, "exit code {code}"),
            Self::Signal { signal } => write!(f, "signal {signal}"),
            Self::OutOfMemory { own: true } => f.write_str("used more than its `memory`"),
            Self::OutOfMemory { own: false } => {
                f.write_str("ended because its node has no more memory for programs")
            }
            Self::OutOfDisk { held: None, .. } => f.write_str(
                "its folder cannot be measured: folders in it stay closed to its node, or more than 100 lie in each other",
            ),
            Self::OutOfDisk {
                held: Some(held),
                most: Some(most),
            } => write!(
                f,
                "used more than its `disk`: its folder has at least {}, and may have {}; remove files there, or write `disk = \"{}\"`",
                size(*held),
                size(*most),
                size(held.saturating_add(held / 2))
            ),
            Self::OutOfDisk {
                held: Some(held),
                most: None,
            } => write!(
                f,
                "the disk of its node is nearly full, and its folder, which has {}, grew most: make room there",
                size(*held)
            ),
            Self::NotStarted { error } => write!(f, "not started: {error}"),
            Self::Lost => f.write_str("lost"),
            Self::Detached => f.write_str("left in order"),
            Self::NodeLeft => f.write_str("its node left"),
        }
    }
}

/// A size, written as in the manifest.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_073_741_824 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{} GiB", bytes.div_ceil(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_for_a_disk_names_the_line_of_the_manifest_that_helps() {
        let ended = |held, most| Exit::OutOfDisk { held, most }.to_string();
        let told = ended(Some(70 << 20), Some(64 << 20));
        assert!(
            told.contains("at least 70 MiB, and may have 64 MiB"),
            "{told}"
        );
        assert!(told.ends_with("write `disk = \"105 MiB\"`"), "{told}");
        let told = ended(Some((1 << 30) + 1), Some(1 << 30));
        assert!(told.ends_with("write `disk = \"2 GiB\"`"), "{told}");
        assert!(ended(Some(1), None).contains("make room"));
        assert!(ended(None, Some(1)).contains("cannot be measured"));
    }
}
