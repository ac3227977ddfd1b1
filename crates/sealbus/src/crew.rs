//! The crew of a program: its agents, whose ends are reported to it.

use std::fmt;

use tokio::sync::mpsc;

/// How an agent ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentEnd {
    /// The agent left: by its own wish, its program's or the platform's.
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

/// Starts agents, and reports their ends to the program. The crew is over when no agent holds it any more.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    pub(crate) ends: mpsc::UnboundedSender<(String, AgentEnd)>,
}

impl Crew {
    pub(crate) fn new() -> (Crew, mpsc::UnboundedReceiver<(String, AgentEnd)>) {
        let (ends, told) = mpsc::unbounded_channel();
        (Crew { ends }, told)
    }
}
