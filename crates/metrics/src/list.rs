//! All metrics.

/// The way a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until its source is started again.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// The place that serves a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The Master alone.
    Master,
    /// Each node.
    Node,
    /// Each node, and the Master for the processes of the platform's own agents.
    Both,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, for a counter without the ending `_total`.
    pub(crate) stem: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// The place that serves it.
    pub place: ServedBy,
    /// Its meaning.
    pub help: &'static str,
}

impl Metric {
    /// Its name in Prometheus.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.stem),
            Kind::Gauge => self.stem.to_owned(),
        }
    }
}

macro_rules! metrics {
    ($(#[doc = $help:literal] $name:ident = $kind:ident $stem:literal [$($label:literal),*] of $place:ident;)*) => {
        $(
            #[doc = $help]
            pub static $name: Metric = Metric {
                stem: $stem,
                kind: Kind::$kind,
                labels: &[$($label),*],
                place: ServedBy::$place,
                help: $help,
            };
        )*
        /// All metrics.
        pub static ALL: &[&Metric] = &[$(&$name),*];
    };
}

metrics! {
    /// Always 1. The labels name the version of Sealbus, the platform, and the Master or node that answers.
    BUILD_INFO = Gauge "sealbus_build_info" ["version", "platform", "name"] of Both;

    /// Messages that were accepted from the agents of a process, once for each receiver.
    MESSAGES_SENT = Counter "sealbus_messages_sent" ["process"] of Both;
    /// Messages that arrived for the agents of a process.
    MESSAGES_RECEIVED = Counter "sealbus_messages_received" ["process"] of Both;
    /// Messages that came back to the agents of a process as failures.
    MESSAGES_UNDELIVERABLE = Counter "sealbus_messages_undeliverable" ["process"] of Both;
    /// Messages that came back to a process because their receiver was moving, and were sent after it.
    MESSAGES_RETURNED = Counter "sealbus_messages_returned" ["process"] of Both;
    /// Attempts that a process refused, handshakes included. A reason that has not occurred is left out.
    REFUSALS = Counter "sealbus_refusals" ["process", "reason"] of Both;
    /// Agents of a process.
    PROCESS_AGENTS = Gauge "sealbus_process_agents" ["process"] of Both;
    /// Messages that wait in the mailboxes of a process.
    MAILBOX_MESSAGES = Gauge "sealbus_mailbox_messages" ["process"] of Both;
    /// Bytes of the messages that wait in the mailboxes of a process.
    MAILBOX_BYTES = Gauge "sealbus_mailbox_bytes" ["process"] of Both;
    /// Connected links of a process to other processes. Only the mesh has links.
    LINKS = Gauge "sealbus_links" ["process"] of Both;
    /// Bytes that a process gave to its links and that the other ends have not acknowledged. Only the mesh has links.
    LINKS_UNACKNOWLEDGED_BYTES = Gauge "sealbus_links_unacknowledged_bytes" ["process"] of Both;

    /// Messages that were accepted from an agent, once for each receiver.
    AGENT_MESSAGES_SENT = Counter "sealbus_agent_messages_sent" ["agent"] of Node;
    /// Messages that arrived for an agent.
    AGENT_MESSAGES_RECEIVED = Counter "sealbus_agent_messages_received" ["agent"] of Node;
    /// Messages that wait in an agent's mailbox.
    AGENT_MAILBOX_MESSAGES = Gauge "sealbus_agent_mailbox_messages" ["agent"] of Node;

    /// Events that agents of a process put on a channel.
    CHANNEL_PUBLISHED = Counter "sealbus_channel_published" ["process", "channel"] of Node;
    /// Events on a channel that came to a process from other processes.
    CHANNEL_RECEIVED = Counter "sealbus_channel_received" ["process", "channel"] of Node;
    /// Best-effort events on a channel that were not sent to another process because there was no room.
    CHANNEL_DROPPED = Counter "sealbus_channel_dropped" ["process", "channel"] of Node;
    /// How often a filter on a channel could not be evaluated.
    CHANNEL_FILTER_ERRORS = Counter "sealbus_channel_filter_errors" ["process", "channel"] of Node;
    /// Subscriptions of a process to a channel.
    CHANNEL_SUBSCRIPTIONS = Gauge "sealbus_channel_subscriptions" ["process", "channel"] of Node;

    /// Processes, agents and channels that have no numbers of their own here, because there are too many.
    LEFT_OUT = Gauge "sealbus_left_out" ["what"] of Both;

    /// Processes that are attached to the node.
    NODE_PROCESSES = Gauge "sealbus_node_processes" [] of Node;
    /// Processes that are attached to the node and did not report their traffic. They are busy or hang.
    NODE_SILENT_PROCESSES = Gauge "sealbus_node_silent_processes" [] of Node;
    /// Agents in the node's copy of the directory: all of the platform, or those of its slices and those that it follows.
    NODE_DIRECTORY_AGENTS = Gauge "sealbus_node_directory_agents" [] of Node;
    /// Whether the node is on the bus: 1 if it is, 0 if the platform does not reach it.
    NODE_PRESENT = Gauge "sealbus_node_present" [] of Node;

    /// Version of the deny list in force. A node whose version stays below the Master's still accepts certificates that have since been revoked.
    DENY_LIST_VERSION = Gauge "sealbus_deny_list_version" [] of Both;
    /// When a certificate ends, in Unix seconds: at a node that of the node; at the Master that of the CA, and the earliest end among the agents' certificates.
    CERTIFICATE_END = Gauge "sealbus_certificate_end_timestamp_seconds" ["of"] of Both;

    /// Nodes of the platform, by state.
    NODES = Gauge "sealbus_nodes" ["state"] of Master;
    /// Agents of the platform, by state of their life cycle. `ended` are agents that are not there now.
    AGENTS = Gauge "sealbus_agents" ["state"] of Master;
    /// How often a process was started again.
    RESTARTS = Counter "sealbus_restarts" ["process"] of Master;
    /// Refused attempts on the whole platform that were reported to the Master since it was started.
    PLATFORM_REFUSALS = Counter "sealbus_platform_refusals" ["reason"] of Master;
    /// Certificates that were issued since the platform exists.
    CERTIFICATES_ISSUED = Counter "sealbus_certificates_issued" [] of Master;
    /// Number of the Master's term. It grows with each start of a Master on the same state.
    TERM = Gauge "sealbus_term" [] of Master;
    /// When the Master was started, in Unix seconds.
    START = Gauge "sealbus_start_timestamp_seconds" [] of Master;
    /// Witnesses that found the issuance log cut off or rewritten. More than 0 is an attack or a restored backup.
    LOG_ALARMS = Gauge "sealbus_log_alarms" [] of Master;
}
