//! The nodes of a platform, as operators see them.

use sealbus_manifest::isolation::Isolation;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's name.
    pub name: String,
    /// Whether it is alive.
    pub state: NodeState,
    /// The node's address.
    pub address: String,
    /// The machine's name.
    pub host: String,
    /// The number of the node's processors.
    pub processors: u32,
    /// The strongest isolation that its programs get, if it can isolate them.
    pub isolation: Option<Isolation>,
    /// The number of processes placed on it.
    pub processes: u32,
    /// The number of agents placed on it.
    pub agents: u32,
    /// When it was last heard.
    pub heard: UnixMillis,
}

/// A node that did not answer, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentNode {
    /// The node's name.
    pub node: String,
    /// The reason, as far as it is known.
    pub why: String,
}

/// Whether a node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// The node sends heartbeats.
    Alive,
    /// The node was there before the Master was restarted, or before the Master was cut off from all nodes. It has some
    /// time to come back.
    Expected,
    /// The node stopped sending heartbeats. Its agents were placed elsewhere.
    Dead,
    /// The node ends its processes in order to leave.
    Leaving,
    /// The node left. Its agents were placed elsewhere.
    Left,
}

impl NodeState {
    /// Whether the node can receive requests and notices.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Alive | Self::Leaving)
    }

    /// The reason why the node cannot receive requests, if it cannot.
    pub const fn absence(self) -> Option<&'static str> {
        match self {
            Self::Alive | Self::Leaving => None,
            Self::Expected => {
                Some("it was not heard since the Master was started again or cut off")
            }
            Self::Dead => Some("it is dead"),
            Self::Left => Some("it has left"),
        }
    }

    /// Whether the node is gone, and can only come back by enrolment.
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Left)
    }

    /// The state's name for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Expected => "expected",
            Self::Dead => "dead",
            Self::Leaving => "leaving",
            Self::Left => "left",
        }
    }
}
