//! The configuration of a process's connection to its broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::{Credential, Identity, PlatformName, SecurityLevel, Trust};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A user and a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The login's password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The promise of a broker about a message that it has confirmed, until the receiver has taken the message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum BrokerPromise {
    /// A majority of the brokers has the message on disk.
    #[default]
    Durable,
    /// One broker has the message in its memory. The message ends with this broker's process.
    Transient,
}

/// The access of a platform's agents to its broker, as the platform describes it to their processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerDescription {
    /// The name of the broker's [kind](crate::BrokerKind).
    pub kind: String,
    /// The brokers of the cluster, as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// The login shared by all agents, at the levels where they do not prove their identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// Seconds after which an untaken message is given up. Without this value, no message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_life: Option<u64>,
    /// The broker's promise about messages and frames.
    #[serde(default)]
    pub promise: BrokerPromise,
    /// Everything that only the kind's own client reads. Logs may show it.
    #[serde(flatten)]
    pub own: Map<String, Value>,
}

/// How agents log in.
#[derive(Clone, Debug)]
pub enum BrokerSecurity {
    /// Level `none`: no encryption, for measurements. All agents share a login.
    None(Login),
    /// Level `tls`: the broker proves that it belongs to the platform. All agents share a login.
    Tls(Login, Arc<Trust>),
    /// Level `auth`: each agent logs in with its own certificate.
    Auth(Arc<Trust>),
    /// Level `signed`: as at level `auth`, and each message brings its author's evidence. Also level `sealed`, at which
    /// the agents seal their messages themselves.
    Signed(Arc<Trust>),
}

impl BrokerSecurity {
    /// The security level that this stands for.
    pub fn level(&self) -> SecurityLevel {
        match self {
            Self::None(_) => SecurityLevel::None,
            Self::Tls(..) => SecurityLevel::Tls,
            Self::Auth(_) => SecurityLevel::Auth,
            Self::Signed(_) => SecurityLevel::Signed,
        }
    }

    /// The trust in certificates, at the levels at which agents have certificates.
    pub fn certified(&self) -> Option<&Arc<Trust>> {
        match self {
            Self::None(_) | Self::Tls(..) => None,
            Self::Auth(trust) | Self::Signed(trust) => Some(trust),
        }
    }
}

/// The identity of a process on the broker. Its bus talks to the buses of other processes under this identity.
#[derive(Clone, Debug)]
pub struct ProcessLogin {
    /// The process.
    pub identity: Identity,
    /// The process's certificate, needed from level `auth`.
    pub credential: Option<Arc<Credential>>,
}

/// The configuration of a process's connection to its broker. [`BrokerConfig::new`] gives the usual values.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The platform.
    pub platform: PlatformName,
    /// The brokers of the cluster, as `HOST:PORT`. Agents try them in turn, and each agent begins at another one.
    pub addresses: Vec<String>,
    /// The level, and the credentials that it needs.
    pub security: BrokerSecurity,
    /// The process. Without it, this bus sends nothing to the buses of other processes, and channels do not leave this
    /// process.
    pub process: Option<ProcessLogin>,
    /// The largest message sent or received, in bytes of its encoding.
    pub largest_message: usize,
    /// How many messages of one agent may be unconfirmed before the agent waits.
    pub unconfirmed_messages: usize,
    /// How many bytes of one agent's messages may be unconfirmed before the agent waits.
    pub unconfirmed_bytes: usize,
    /// How many messages one agent holds that it has not taken. The broker keeps the others. The number is lower while
    /// so many messages have more than 64 MiB.
    pub prefetch: u16,
    /// The broker's promise about messages and frames.
    pub promise: BrokerPromise,
    /// How long the broker keeps a message that is not taken; without it, for ever.
    pub message_life: Option<Duration>,
    /// How long a broker may take to answer a new connection.
    pub connect_time: Duration,
    /// How long the broker may be away, or refuse a message, before the sender is told that the message is lost.
    pub give_up: Duration,
    /// How long a message waits for the one before it, if the broker may have changed their order. It is longer than
    /// the time in which a broker notices a dead connection.
    pub reorder_time: Duration,
    /// The pause before a connection is tried again: the first pause, and the longest, as the pause doubles.
    pub redial: (Duration, Duration),
}

impl BrokerConfig {
    /// The usual configuration: messages up to 16 MiB, 1024 of them unconfirmed, lost after a minute without a broker.
    pub fn new(platform: PlatformName, addresses: Vec<String>, security: BrokerSecurity) -> Self {
        Self {
            platform,
            addresses,
            security,
            process: None,
            largest_message: 16 << 20,
            unconfirmed_messages: 1024,
            unconfirmed_bytes: 8 << 20,
            prefetch: 512,
            promise: BrokerPromise::default(),
            message_life: None,
            connect_time: Duration::from_secs(20),
            give_up: Duration::from_secs(60),
            reorder_time: Duration::from_secs(30),
            redial: (Duration::from_millis(100), Duration::from_secs(2)),
        }
    }
}
