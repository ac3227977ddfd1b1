//! The agents that the processes of a node have asked for.

use sealbus_control::rpc::RpcCaller;
use sealbus_control::{DirectoryChange, Fault};

use super::{Entry, Processes};

impl Processes {
    /// The processes that asked for one of the changed agents, each with its changes.
    pub(crate) fn interested(
        &self,
        changes: &[DirectoryChange],
    ) -> Vec<(String, RpcCaller, Vec<DirectoryChange>)> {
        let entries = self.entries.lock();
        let changed = |(process, entry): (&String, &Entry)| {
            let (_, caller) = entry.connection.as_ref()?;
            let changes = wanted(changes, |agent| entry.asked.contains(agent));
            (!changes.is_empty()).then(|| (process.clone(), caller.clone(), changes))
        };
        entries.iter().filter_map(changed).collect()
    }

    /// Notes that a process asked for an agent. Returns the agent that is forgotten to make room.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn asked(&self, process: &str, agent: &str) -> Result<Option<String>, Fault> {
        self.with(process, |entry| entry.asked.note(agent))
    }

    /// Whether a process asked for an agent.
    pub(crate) fn is_asked(&self, agent: &str) -> bool {
        let entries = self.entries.lock();
        entries.values().any(|entry| entry.asked.contains(agent))
    }
}

/// The changes that concern the agents asked for.
pub(crate) fn wanted(
    changes: &[DirectoryChange],
    is_asked: impl Fn(&str) -> bool,
) -> Vec<DirectoryChange> {
    changes
        .iter()
        .filter(|change| is_asked(&change.agent))
        .cloned()
        .collect()
}
