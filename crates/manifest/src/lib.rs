//! `platform.toml`: the description of a platform.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sealbus_bus::GATEWAY;
use sealbus_gateways::GatewayConfig;
use sealbus_seal::SignatureAlgorithm;
use sealbus_seal::permission::Policy;
use serde::{Deserialize, Serialize};

mod broker;
pub mod callers;
mod confinement;
mod difference;
mod evidence;
mod identity;
pub mod isolation;
mod issuer;
mod mcp;
pub mod neighbours;
mod problem;
pub mod program;
mod read;
mod rules;
mod signatures;
mod store;
mod tap;
mod telemetry;
mod text;
mod values;
mod witness;

use callers::CallersEntry;
use isolation::{Confinement, Isolation};
use neighbours::NeighbourEntry;

pub use broker::BrokerEntry;
pub use difference::{ChangedProcess, Difference};
pub use evidence::EvidenceEntry;
pub use identity::IDENTITY_VARIABLE;
pub use problem::{ManifestError, ManifestProblem, ReadError};
pub use store::StoreEntry;
pub use tap::TapEntry;
pub use telemetry::TelemetryEntry;
pub use witness::WitnessEntry;

/// The variable with the gateway's configuration in JSON. The node sets it for the gateway's process.
pub const GATEWAY_VARIABLE: &str = "SEALBUS_GATEWAY";

/// The process, and the agent, that serves hosts of language models.
pub const MCP_AGENT: &str = "mcp";

/// The process, and the agent, that serves A2A clients.
pub const A2A_AGENT: &str = "a2a";

/// The process, and the agent, that tells of the neighbours. The agents that stand for them run in it, too.
pub const NEIGHBOURS_AGENT: &str = "neighbours";

/// A platform's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The platform itself.
    pub platform: PlatformEntry,
    /// The platform's agents.
    pub agents: Vec<AgentEntry>,
    /// Permissions.
    #[serde(default)]
    pub permission: Policy,
    /// The broker of the platform, a member with the name of its kind. Without a broker the platform uses the mesh.
    #[serde(
        flatten,
        serialize_with = "broker::write",
        deserialize_with = "broker::read"
    )]
    pub broker: Option<BrokerEntry>,
    /// The channels with settings other than the defaults.
    #[serde(default)]
    pub channels: Vec<ChannelEntry>,
    /// The way to other platforms, if there is one.
    #[serde(default)]
    pub gateway: Option<GatewayEntry>,
    /// The witnesses of the issuance log besides the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnesses: Vec<WitnessEntry>,
    /// The agents whose received messages are recorded with their proofs.
    #[serde(default, skip_serializing_if = "EvidenceEntry::is_empty")]
    pub evidence: EvidenceEntry,
    /// The agents of which watchers see less.
    #[serde(default, skip_serializing_if = "TapEntry::is_empty")]
    pub tap: TapEntry,
    /// The numbers for Prometheus.
    #[serde(default)]
    pub telemetry: TelemetryEntry,
    /// The place of the platform's state. By default, the Master's state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreEntry>,
}

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEntry {
    /// The node on which its process must run.
    pub node: Option<String>,
    /// The directory in which the process starts. By default, that of the manifest.
    pub directory: Option<String>,
    /// The weakest isolation that is good enough for its process. By default, that of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// `[gateway.http]`, and `[gateway.iiop]` within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<GatewayConfig>,
    /// `[gateway.mcp]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<CallersEntry>,
    /// `[gateway.a2a]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<CallersEntry>,
    /// `[gateway.neighbours]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<String, NeighbourEntry>,
}

impl GatewayEntry {
    /// The processes that run the gateway. `program` is the sealbus command.
    pub fn agents(&self, program: &str) -> Vec<AgentEntry> {
        let fipa = self.http.as_ref().map(|http| {
            let config = serde_json::to_string(http).unwrap_or_default();
            let agents = ProcessAgents::Count(1);
            self.process(
                GATEWAY,
                [program, "gateway", "run"],
                agents,
                config,
                self.files(http),
            )
        });
        let doors = self.doors().map(|(name, door)| {
            let config = serde_json::to_string(door).unwrap_or_default();
            let own = name.to_owned();
            let agents = std::iter::once(&own).chain(door.agents()).cloned();
            let agents = ProcessAgents::Named(agents.collect());
            let files = self.absolute(door.files().map(PathBuf::as_path));
            self.process(name, [program, "gateway", name], agents, config, files)
        });
        let neighbours = (!self.neighbours.is_empty()).then(|| self.neighbours(program));
        fipa.into_iter().chain(doors).chain(neighbours).collect()
    }

    /// The process of the neighbours. It reads the files that they name.
    fn neighbours(&self, program: &str) -> AgentEntry {
        let config = serde_json::to_string(&self.neighbours).unwrap_or_default();
        let own = NEIGHBOURS_AGENT.to_owned();
        let agents = std::iter::once(&own).chain(self.neighbours.keys()).cloned();
        let files = self.neighbours.values().flat_map(NeighbourEntry::files);
        self.process(
            NEIGHBOURS_AGENT,
            [program, "gateway", NEIGHBOURS_AGENT],
            ProcessAgents::Named(agents.collect()),
            config,
            self.absolute(files.map(Path::new)),
        )
    }

    /// The doors for callers: the name of each process, which is that of its agent and of its section, and the section.
    pub fn doors(&self) -> impl Iterator<Item = (&'static str, &CallersEntry)> {
        let mcp = self.mcp.iter().map(|door| (MCP_AGENT, door));
        let a2a = self.a2a.iter().map(|door| (A2A_AGENT, door));
        mcp.chain(a2a)
    }

    fn process(
        &self,
        name: &str,
        command: [&str; 3],
        agents: ProcessAgents,
        config: String,
        read: Vec<String>,
    ) -> AgentEntry {
        AgentEntry {
            name: name.to_owned(),
            command: command.map(str::to_owned).to_vec(),
            directory: self.directory.clone(),
            replicas: 1,
            agents,
            node: self.node.clone(),
            forbid: Vec::new(),
            environment: BTreeMap::from([(GATEWAY_VARIABLE.to_owned(), config)]),
            restart: RestartPolicy::OnFailure,
            confinement: Confinement {
                isolation: self.isolation,
                read,
                // The process itself bounds the data of each caller.
                disk: Some(1 << 50),
                ..Confinement::default()
            },
        }
    }

    /// The gateway reads the certificates that its configuration names.
    fn files(&self, http: &GatewayConfig) -> Vec<String> {
        let tls = http.tls.iter();
        let tls = tls.flat_map(|tls| [&tls.certificate, &tls.key, &tls.clients]);
        let files = tls.flatten().chain(&http.trust);
        self.absolute(files.map(PathBuf::as_path))
    }

    fn absolute<'a>(&self, files: impl Iterator<Item = &'a Path>) -> Vec<String> {
        let folder = Path::new(self.directory.as_deref().unwrap_or("."));
        let files = files.map(|file| folder.join(file).display().to_string());
        files.collect()
    }
}

/// `[platform]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformEntry {
    /// The platform's name (`hap`).
    pub name: String,
    /// Security level: `none`, `tls` or `auth` (default).
    pub level: String,
    /// The algorithm of the root's and the CAs' signatures. By default, that of the existing platform, or Ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signatures: Option<SignatureAlgorithm>,
    /// Lifetime of an agent's certificate in seconds; 3600 by default.
    pub certificate_lifetime: u64,
    /// The URL by which workload tokens name their issuer. Without it there are no workload tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_issuer: Option<String>,
    /// Address on which the Master and the local nodes listen; loopback by default.
    pub address: IpAddr,
    /// Port for joining. With 0 the system chooses a port once, and the platform keeps it.
    pub enrolment_port: u16,
    /// Port of the Master's agents. With 0 the system chooses a port once, and the platform keeps it.
    pub port: u16,
    /// Nodes to start together with the Master; 1 by default.
    pub nodes: u32,
    /// Largest ACL message in bytes; 16 MiB by default.
    pub max_message: u64,
    /// The weakest isolation that is good enough for agents whose entries name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// `[[agent]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEntry {
    /// Name of the agent and of its process. Replicas add `-1`, `-2`, ….
    pub name: String,
    /// Program and arguments. A program with a slash is relative to the manifest.
    pub command: Vec<String>,
    /// The directory in which the program starts. By default, that of the manifest.
    #[serde(default)]
    pub directory: Option<String>,
    /// Processes to start; 1 by default.
    pub replicas: u32,
    /// Agents of each process. The default is one, with the process's name.
    pub agents: ProcessAgents,
    /// The node on which it must run.
    #[serde(default)]
    pub node: Option<String>,
    /// Nodes on which it must not run.
    #[serde(default)]
    pub forbid: Vec<String>,
    /// Variables for its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// When the process is started again.
    pub restart: RestartPolicy,
    /// The isolation of its processes.
    #[serde(default)]
    pub confinement: Confinement,
}

/// `[[channel]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelEntry {
    /// The path of a channel, or a pattern for many, such as `/dates/**`. The first entry that fits a channel applies.
    pub path: String,
    /// The quality of service as a text; see [`Qos`](sealbus_channels::Qos).
    #[serde(default)]
    pub qos: String,
    /// How much of a persistent channel is kept, at most.
    #[serde(default)]
    pub retention: RetentionEntry,
}

/// Limits on the kept events of a persistent channel. Every limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionEntry {
    /// Most seconds since an event was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Most events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Most bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The agents of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProcessAgents {
    /// This number of agents, `NAME-1`, `NAME-2`, …. A single agent is called `NAME`.
    Count(u32),
    /// Agents with these names. Replicas add `-1`, `-2`, … to each.
    Named(Vec<String>),
}

/// When a process that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// After an exit code other than 0, a signal, or the death of the process's node.
    #[default]
    OnFailure,
    /// After every end.
    Always,
    /// Never.
    Never,
}

impl AgentEntry {
    /// The name of each process that this entry asks for, with the local names of its agents.
    pub fn processes(&self) -> Vec<(String, Vec<String>)> {
        if self.replicas == 1 {
            return vec![(self.name.clone(), self.agents_of(&self.name, ""))];
        }
        (1..=self.replicas)
            .map(|replica| {
                let suffix = format!("-{replica}");
                let process = format!("{}{suffix}", self.name);
                let agents = self.agents_of(&process, &suffix);
                (process, agents)
            })
            .collect()
    }

    /// The local names of all agents that this entry asks for.
    pub fn local_names(&self) -> Vec<String> {
        self.processes()
            .into_iter()
            .flat_map(|(_, agents)| agents)
            .collect()
    }

    /// How many agents this entry asks for.
    pub(crate) fn count(&self) -> u64 {
        let of_each = match &self.agents {
            ProcessAgents::Count(count) => u64::from(*count),
            ProcessAgents::Named(names) => names.len() as u64,
        };
        u64::from(self.replicas) * of_each
    }

    fn agents_of(&self, process: &str, suffix: &str) -> Vec<String> {
        match &self.agents {
            ProcessAgents::Count(1) => vec![process.to_owned()],
            ProcessAgents::Count(count) => (1..=*count)
                .map(|number| format!("{process}-{number}"))
                .collect(),
            ProcessAgents::Named(names) => {
                names.iter().map(|name| format!("{name}{suffix}")).collect()
            }
        }
    }
}
