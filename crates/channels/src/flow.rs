//! Flow policies: they decide when a subscription takes its events more slowly than they come.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The policy of a full subscription. Other subscriptions never wait for a full one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowPolicy {
    /// The publishers wait, and nothing is lost.
    #[default]
    PushBack,
    /// The oldest event of the lowest priority is dropped to make room for the new event.
    DropOldest,
    /// The new event is dropped.
    DropNewest,
    /// The subscription ends, and its agent is told.
    Disconnect,
}

impl FlowPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::PushBack,
        Self::DropOldest,
        Self::DropNewest,
        Self::Disconnect,
    ];

    /// Its name on the command line, in logs and in Python.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PushBack => "push-back",
            Self::DropOldest => "drop-oldest",
            Self::DropNewest => "drop-newest",
            Self::Disconnect => "disconnect",
        }
    }

    /// Its number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The policy with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for FlowPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FlowPolicy {
    type Err = UnknownFlowPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownFlowPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| UnknownFlowPolicy(text.chars().take(40).collect()))
    }
}

/// The text names no flow policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown flow policy {0:?}: choose one of push-back, drop-oldest, drop-newest, disconnect")]
pub struct UnknownFlowPolicy(String);

/// How much a subscription holds before its [`FlowPolicy`] acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The number of events.
    pub events: usize,
    /// The number of bytes. Each event counts with [`MESSAGE_OVERHEAD`](sealbus_bus::MESSAGE_OVERHEAD) added.
    pub bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            events: 16_384,
            bytes: 8 << 20,
        }
    }
}
