//! What the Master knows: nodes, the process groups the manifest asks for, and where each process
//! is. Plain data; [`crate`] decides on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use sealbus_control::admin::NodeState;
use sealbus_control::{AgentState, NodeDescription, ProcessContact, UnixMillis};
use sealbus_manifest::RestartPolicy;

/// A node that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its own description.
    pub description: NodeDescription,
    /// The name of its process.
    pub process: String,
    /// Where its agent `node-N` is.
    pub contact: Option<ProcessContact>,
    /// Where programs with tickets attach.
    pub attachment: Option<SocketAddr>,
    /// When it was last heard of.
    #[serde(skip)]
    pub heard: UnixMillis,
    /// Whether it is alive. Of what is kept, a Master that is started again believes only that the node is gone.
    #[serde(default = "expected")]
    pub state: NodeState,
}

fn expected() -> NodeState {
    NodeState::Expected
}

/// One process the manifest, a ticket or the platform itself asks for, over all its starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Local names of its agents.
    pub agents: Vec<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// The node it must run on.
    pub pin: Option<String>,
    /// Nodes it must not run on.
    pub forbid: Vec<String>,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Whether it is to run.
    pub wanted: bool,
    /// How often it was started.
    pub starts: u32,
    /// How often in a row it failed soon after its start.
    pub failures: u32,
    /// Its process, if it has one.
    pub process: Option<Process>,
    /// The process it moves away from, and where to.
    pub moving: Option<Move>,
    /// Processes its agents have moved away from, which have some time to leave.
    #[serde(default)]
    pub leaving: Vec<Process>,
    /// When it is to be started (again).
    pub start_at: Option<UnixMillis>,
    /// The obstacle, or the outcome.
    pub note: Option<String>,
    /// The node its latest process was placed on, which has its log.
    pub last_node: Option<String>,
    /// When its row was last written.
    #[serde(skip)]
    pub saved: Option<UnixMillis>,
}

/// Where a group comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "kebab-case")]
pub enum Origin {
    /// Started by a node.
    Program {
        /// Program and arguments.
        command: Vec<String>,
        /// Directory it is started in.
        directory: Option<String>,
        /// Variables for its environment.
        environment: BTreeMap<String, String>,
    },
    /// A program that comes with a ticket.
    Ticket,
    /// The Master's own process, with the system agents.
    System,
}

/// One run of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its name, unique over all time.
    pub id: String,
    /// The node it is placed on.
    pub node: String,
    /// Its id on that machine.
    pub pid: Option<u32>,
    /// Whether it is known to run, also when its id is not.
    #[serde(default)]
    pub begun: bool,
    /// Where it listens.
    pub address: Option<SocketAddr>,
    /// When it was placed.
    pub since: UnixMillis,
    /// When its certificates are revoked if it has not ended before: it was told to stop.
    pub stop_by: Option<UnixMillis>,
    /// Its agents' lives.
    pub agents: BTreeMap<String, Life>,
    /// Agents that get no certificate any more: an operator revoked theirs.
    #[serde(default)]
    pub barred: BTreeSet<String>,
}

/// The life of an agent in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "life", rename_all = "kebab-case")]
pub enum Life {
    /// Nothing was heard of it yet.
    #[default]
    Unborn,
    /// It is there.
    State {
        /// In this state.
        state: AgentState,
    },
    /// It ended by itself.
    Ended,
    /// It ended by an error.
    Failed {
        /// The error.
        error: String,
    },
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Where to.
    pub destination: String,
    /// When it is given up.
    pub give_up: UnixMillis,
    /// The process it moves from, once the new one is placed; until then it is the group's.
    pub source: Option<Process>,
    /// Whether the source process is gone already.
    pub source_gone: bool,
}

impl Group {
    /// All processes of the group: the present one, the one it moves away from, those that leave.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let source = self
            .moving
            .as_ref()
            .and_then(|moving| moving.source.as_ref());
        self.process.iter().chain(source).chain(&self.leaving)
    }
}

impl Process {
    /// A process of these agents, just placed.
    pub fn placed(id: String, node: &str, agents: &[String], now: UnixMillis) -> Self {
        Self {
            id,
            node: node.to_owned(),
            pid: None,
            begun: false,
            address: None,
            since: now,
            stop_by: None,
            agents: agents
                .iter()
                .map(|agent| (agent.clone(), Life::Unborn))
                .collect(),
            barred: BTreeSet::new(),
        }
    }

    /// How it is reached, once it listens.
    pub fn contact(&self) -> Option<ProcessContact> {
        Some(ProcessContact {
            node: self.node.clone(),
            process: self.id.clone(),
            address: self.address?,
        })
    }

    /// Whether an operator revoked all its agents.
    pub fn is_barred(&self) -> bool {
        !self.barred.is_empty() && self.agents.keys().all(|agent| self.barred.contains(agent))
    }

    /// Whether every agent in it has come to life, and can be reached or has ended again.
    pub fn is_settled(&self) -> bool {
        self.address.is_some() && self.agents.values().all(|life| *life != Life::Unborn)
    }
}
