//! The crew of a program: its agents, whose ends are reported to it.

use std::fmt;
use std::sync::Arc;

use sealbus_process::Interceptor;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::platform::Platform;

/// How an agent ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentEnd {
    /// The agent left, because it, its program or the platform wished so.
    Left,
    /// The agent moved to another process.
    Moved,
    /// A hook failed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// A hook panicked.
    Panicked(String),
}

/// `the agent failed: …`, for logs and for the platform.
impl fmt::Display for AgentEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentEnd::Left => f.write_str("left"),
            AgentEnd::Moved => f.write_str("moved to another process"),
            AgentEnd::Failed(error) => write!(f, "failed: {error}"),
            AgentEnd::Panicked(what) => write!(f, "panicked: {what}"),
        }
    }
}

/// Starts agents, and reports their ends to the program. The crew ends when no agent holds it any more.
#[derive(Clone)]
pub(crate) struct Crew {
    pub(crate) clock: Clock,
    pub(crate) interceptor: Option<Arc<dyn Interceptor>>,
    pub(crate) ends: mpsc::UnboundedSender<(String, AgentEnd)>,
}

impl Crew {
    pub(crate) fn new(platform: &Platform) -> (Crew, mpsc::UnboundedReceiver<(String, AgentEnd)>) {
        let (ends, told) = mpsc::unbounded_channel();
        let crew = Crew {
            clock: platform.clock.clone(),
            interceptor: platform.interceptor.clone(),
            ends,
        };
        (crew, told)
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
