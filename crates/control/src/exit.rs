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
        /// Whether it used more than its own limit. Otherwise all programs of its node, or the machine, used too much.
        own: bool,
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
            Self::NotStarted { error } => write!(f, "not started: {error}"),
            Self::Lost => f.write_str("lost"),
            Self::Detached => f.write_str("left in order"),
            Self::NodeLeft => f.write_str("its node left"),
        }
    }
}
