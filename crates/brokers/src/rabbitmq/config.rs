//! How a process reaches its broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::{Credential, Identity, PlatformName, SecurityLevel, Trust};
use serde::{Deserialize, Serialize};

/// A user and password, at the levels where agents do not prove who they are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The user, which all agents share.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// How agents log in.
#[derive(Clone, Debug)]
pub enum RabbitSecurity {
    /// Level `none`: plain AMQP, for measuring.
    None(Login),
    /// Level `tls`: the broker proves that it is the platform's; agents share a user.
    Tls(Login, Arc<Trust>),
    /// Level `auth`: each agent logs in with its own certificate (SASL EXTERNAL).
    Auth(Arc<Trust>),
}

impl RabbitSecurity {
    /// The level it stands for.
    pub fn level(&self) -> SecurityLevel {
        match self {
            Self::None(_) => SecurityLevel::None,
            Self::Tls(..) => SecurityLevel::Tls,
            Self::Auth(_) => SecurityLevel::Auth,
        }
    }
}

/// Who a process is on the broker, where the buses of processes talk to each other.
#[derive(Clone, Debug)]
pub struct ProcessLogin {
    /// The process.
    pub identity: Identity,
    /// Its certificate; needed at level `auth`.
    pub credential: Option<Arc<Credential>>,
}

/// How a process reaches its broker. [`RabbitConfig::new`] has the usual values.
#[derive(Clone, Debug)]
pub struct RabbitConfig {
    /// The platform.
    pub platform: PlatformName,
    /// The brokers of the cluster, as `HOST:PORT`. Tried in turn, each agent beginning at another one.
    pub addresses: Vec<String>,
    /// The virtual host.
    pub vhost: String,
    /// Level, and what belongs to it.
    pub security: RabbitSecurity,
    /// The process; without it nothing is said to the buses of other processes, and channels reach no further than this one.
    pub process: Option<ProcessLogin>,
    /// The largest message sent or received, in bytes, encoded.
    pub largest_message: usize,
    /// Messages of one agent that the broker has not confirmed, before the agent waits.
    pub unconfirmed_messages: usize,
    /// The same in bytes.
    pub unconfirmed_bytes: usize,
    /// Messages that one agent holds and has not taken, before the broker keeps the others.
    pub prefetch: u16,
    /// After so long without a message a message is given to the broker to drop, if it has not been delivered; it is
    /// kept without limit otherwise.
    pub message_life: Option<Duration>,
    /// How often both sides say that they are there.
    pub heartbeat: Duration,
    /// How long a broker may take to answer when it is connected to.
    pub connect_time: Duration,
    /// How long the broker may be away, or not take a message, before its sender is told that it is lost.
    pub give_up: Duration,
    /// How long a message waits for the one before it, should the broker have changed their order: longer than it takes
    /// the broker to find out that a connection is dead.
    pub reorder_time: Duration,
    /// The pause before a connection is tried again: the first, and the longest as it doubles.
    pub redial: (Duration, Duration),
}

impl RabbitConfig {
    /// The usual configuration: messages up to 16 MiB, 1024 of them unconfirmed, lost after a minute without a broker.
    pub fn new(platform: PlatformName, addresses: Vec<String>, security: RabbitSecurity) -> Self {
        Self {
            vhost: platform.to_string(),
            platform,
            addresses,
            security,
            process: None,
            largest_message: 16 << 20,
            unconfirmed_messages: 1024,
            unconfirmed_bytes: 8 << 20,
            prefetch: 512,
            message_life: None,
            heartbeat: Duration::from_secs(10),
            connect_time: Duration::from_secs(20),
            give_up: Duration::from_secs(60),
            reorder_time: Duration::from_secs(30),
            redial: (Duration::from_millis(100), Duration::from_secs(2)),
        }
    }
}
