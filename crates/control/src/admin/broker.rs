//! The broker that carries a platform's messages, as operators see it.

use serde::{Deserialize, Serialize};

use crate::{Blob, UnixMillis};

/// The broker, or the cluster of brokers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// The addresses at which agents reach the broker.
    pub addresses: Vec<String>,
    /// The cluster's members, by name.
    pub members: Vec<BrokerMember>,
    /// The number of messages that wait for each agent there, by the agents' full names.
    pub waiting: Vec<(String, u64)>,
    /// The number of dead letters that the broker keeps.
    pub kept: u64,
    /// The number of dead letters since the Master was started.
    pub dead: u64,
    /// The latest dead letters, latest last.
    pub dead_letters: Vec<DeadLetterRecord>,
}

/// One broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerMember {
    /// The broker's name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// The shortages because of which it lets the cluster take no messages: `memory`, `disk`.
    pub alarms: Vec<String>,
}

/// A message that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRecord {
    /// When it became a dead letter.
    pub at: UnixMillis,
    /// The sender, as far as the broker knows it. At levels without proof, the sender that the message names.
    pub from: Option<String>,
    /// The receiver.
    pub to: Option<String>,
    /// The reason.
    pub why: String,
    /// The message's performative; `None` if it is not an ACL message.
    pub performative: Option<String>,
    /// The message's length in bytes.
    pub bytes: u64,
    /// Whether its sender was told.
    pub told: bool,
}

/// A broker's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedBroker {
    /// The root certificate, DER.
    pub root: Blob,
    /// The broker's certificate and its issuers', DER.
    pub chain: Vec<Blob>,
}
