//! The Master's knowledge of nodes, of the process groups in the manifest, and of the place of each process. This is
//! plain data. The rest of the [`crate`] decides.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use sealbus_control::admin::NodeState;
use sealbus_control::node::Exit;
use sealbus_control::{NodeDescription, PlacedState, ProcessContact, UnixMillis};
use sealbus_manifest::isolation::{Confinement, Isolation};
use sealbus_manifest::{GATEWAY_VARIABLE, RestartPolicy};

/// A node that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node's own description.
    pub description: NodeDescription,
    /// The name of its process.
    pub process: String,
    /// The contact of its agent `node-N`.
    pub contact: Option<ProcessContact>,
    /// The address at which programs with tickets attach.
    pub attachment: Option<SocketAddr>,
    /// When the Master last heard from the node.
    #[serde(skip)]
    pub heard: UnixMillis,
    /// Whether the node is alive. A restarted Master believes the stored value only if it says that the node is gone.
    #[serde(default = "expected")]
    pub state: NodeState,
}

fn expected() -> NodeState {
    NodeState::Expected
}

/// One process that the manifest, a ticket or the platform itself asks for, over all its starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Local names of its agents.
    pub agents: Vec<String>,
    /// The origin of the group.
    pub origin: GroupOrigin,
    /// The node on which it must run.
    pub pin: Option<String>,
    /// Nodes on which it must not run.
    pub forbid: Vec<String>,
    /// When it is restarted.
    pub restart: RestartPolicy,
    /// Whether the group should run.
    pub wanted: bool,
    /// How often the group was started.
    pub starts: u32,
    /// How many times in a row the group failed soon after its start.
    pub failures: u32,
    /// The group's process, if it has one.
    pub process: Option<Process>,
    /// The move in progress, if any.
    pub moving: Option<Move>,
    /// Processes that its agents have left by a move. They have some time to end.
    #[serde(default)]
    pub leaving: Vec<Process>,
    /// When the group must be started or restarted.
    pub start_at: Option<UnixMillis>,
    /// The obstacle, or the outcome.
    pub note: Option<String>,
    /// The node of the group's latest process. That node has the process's log.
    pub last_node: Option<String>,
    /// When its row was last written.
    #[serde(skip)]
    pub saved: Option<UnixMillis>,
}

/// The origin of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "kebab-case")]
pub enum GroupOrigin {
    /// A node starts the program.
    Program {
        /// Program and arguments.
        command: Vec<String>,
        /// Directory in which it is started.
        directory: Option<String>,
        /// Variables for its environment.
        environment: BTreeMap<String, String>,
        /// The isolation of its process.
        #[serde(default)]
        confinement: Box<Confinement>,
    },
    /// A program that comes with a ticket.
    Ticket,
    /// The Master's own process, with the system agents.
    System,
}

impl GroupOrigin {
    /// The weakest isolation that is good enough. Without it, every mode that isolates is good enough. Nodes isolate
    /// only the programs that they start.
    pub fn isolation(&self) -> Option<Isolation> {
        match self {
            Self::Program { confinement, .. } => confinement.isolation,
            Self::Ticket | Self::System => Some(Isolation::None),
        }
    }

    /// Whether this is one of the manifest's gateways.
    pub fn is_gateway(&self) -> bool {
        match self {
            Self::Program { environment, .. } => environment.contains_key(GATEWAY_VARIABLE),
            Self::Ticket | Self::System => false,
        }
    }
}

/// One run of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process's name, which is never used again.
    pub id: String,
    /// The node it is placed on.
    pub node: String,
    /// The process's id on the node's machine.
    pub pid: Option<u32>,
    /// Whether the process is known to run, even if its process id is not known.
    #[serde(default)]
    pub begun: bool,
    /// The address on which it listens.
    pub address: Option<SocketAddr>,
    /// Whether its agents use channels. Such processes are told about each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub channels: bool,
    /// When it was placed.
    pub since: UnixMillis,
    /// When the process's certificates are revoked if it has not ended before. Set when it was told to stop.
    pub stop_by: Option<UnixMillis>,
    /// The lives of the process's agents.
    pub agents: BTreeMap<String, Life>,
}

/// The life of an agent in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "life", rename_all = "kebab-case")]
pub enum Life {
    /// No report about the agent has come yet.
    #[default]
    Unborn,
    /// The agent is there.
    State {
        /// The agent's state.
        state: PlacedState,
    },
    /// The agent ended by itself.
    Ended,
    /// The agent ended with an error.
    Failed {
        /// The error.
        error: String,
    },
}

/// A move in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The destination node.
    pub destination: String,
    /// When the move is given up.
    pub give_up: UnixMillis,
    /// The process from which the agents move, once the new one is placed. Until then, that is the group's process.
    pub source: Option<Process>,
    /// Whether the source process has already ended.
    pub source_gone: bool,
    /// How the source process ended. Kept until its node has said whether the process had handed in its agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_exit: Option<Exit>,
    /// Whether the first process at the destination, and the source process, ended before the former took over.
    #[serde(default)]
    pub is_second_try: bool,
}

impl Group {
    /// All processes of the group: the present one, the one from which it moves until that has ended, and those that
    /// leave.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let moving = self.moving.iter().filter(|moving| !moving.source_gone);
        let source = moving.filter_map(|moving| moving.source.as_ref());
        self.process.iter().chain(source).chain(&self.leaving)
    }

    /// Whether this is a gateway, and the agent stands for somebody outside: a caller or a neighbour. The gateway serves all
    /// others without it.
    pub fn serves_without(&self, agent: &str) -> bool {
        let own = self.agents.first();
        self.origin.is_gateway() && own.is_some_and(|own| own != agent)
    }
}

impl Process {
    /// A newly placed process of these agents.
    pub fn placed(id: String, node: &str, agents: &[String], now: UnixMillis) -> Self {
        Self {
            id,
            node: node.to_owned(),
            pid: None,
            begun: false,
            address: None,
            channels: false,
            since: now,
            stop_by: None,
            agents: agents
                .iter()
                .map(|agent| (agent.clone(), Life::Unborn))
                .collect(),
        }
    }

    /// The process's contact, once it listens.
    pub fn contact(&self) -> Option<ProcessContact> {
        Some(ProcessContact {
            node: self.node.clone(),
            process: self.id.clone(),
            address: self.address?,
        })
    }

    /// Whether every agent in the process has come to life, and can be reached or has ended again.
    pub fn is_settled(&self) -> bool {
        self.address.is_some() && self.agents.values().all(|life| *life != Life::Unborn)
    }
}
