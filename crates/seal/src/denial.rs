//! When and why something was revoked.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// Why a certificate was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The agent was killed.
    Killed,
    /// The agent moved to another node and got a new certificate there.
    Moved,
    /// The node was lost.
    NodeLost,
    /// An operator ordered it.
    ByOperator,
    /// A new certificate took its place.
    Superseded,
    /// The agent or its process ended.
    Ended,
}

/// When and why something was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// When it was revoked.
    pub at: Timestamp,
    /// Why.
    pub reason: Reason,
}

impl Denial {
    /// This denial, or the other one if only the other is by an operator. Code that excuses the certificate of an agent
    /// that ended in order must not miss an operator's denial.
    pub(crate) fn or_graver(self, other: Self) -> Self {
        let is_graver = |it: Self| it.reason == Reason::ByOperator;
        match is_graver(other) && !is_graver(self) {
            true => other,
            false => self,
        }
    }
}

impl Reason {
    /// All reasons, in the order of their numbers in a signed deny list.
    pub(crate) const ALL: [Self; 6] = [
        Self::Killed,
        Self::Moved,
        Self::NodeLost,
        Self::ByOperator,
        Self::Superseded,
        Self::Ended,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Killed => "the agent was killed",
            Self::Moved => "the agent moved to another node",
            Self::NodeLost => "its node was lost",
            Self::ByOperator => "by order of an operator",
            Self::Superseded => "a new certificate took its place",
            Self::Ended => "the agent ended",
        })
    }
}
