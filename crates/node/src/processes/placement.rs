//! The agents that the Master has placed in the processes of the node. Each request of a process names one or more of
//! them, so looking one up must not cost more if there are many.

use std::collections::hash_map::{HashMap, ValuesMut};
use std::collections::{BTreeSet, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use sealbus_control::node::Launch;

use super::Entry;

/// The most names of agents that a fault or a log line lists.
const LISTED: usize = 16;

/// The agents that are placed in a process.
pub(crate) struct Placement {
    /// The process.
    pub(crate) process: String,
    /// The process's name in the manifest.
    pub(crate) group: String,
    /// Whether the process came with a ticket.
    pub(crate) has_ticket: bool,
    agents: BTreeSet<String>,
}

impl Placement {
    pub(crate) fn of(launch: &Launch) -> Self {
        Self {
            process: launch.process.clone(),
            group: launch.group.clone(),
            has_ticket: launch.command.is_empty(),
            agents: launch.agents.iter().cloned().collect(),
        }
    }

    /// Whether the agent with this local name is placed in the process.
    pub(crate) fn has(&self, agent: &str) -> bool {
        self.agents.contains(agent)
    }

    /// The first agents of the process, for a fault.
    pub(crate) fn listed(&self) -> String {
        listed(&self.agents)
    }
}

/// The first of these names.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut names = names.into_iter().map(String::as_str);
    let first: Vec<&str> = names.by_ref().take(LISTED).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The entries of the processes, and the agents of all of them.
#[derive(Default)]
pub(crate) struct Entries {
    by_process: HashMap<String, Entry>,
    /// Collected on demand, after a process came or went.
    agents: Option<Arc<HashSet<String>>>,
}

impl Entries {
    pub(crate) fn insert(&mut self, process: String, entry: Entry) {
        self.agents = None;
        self.by_process.insert(process, entry);
    }

    pub(crate) fn remove(&mut self, process: &str) -> Option<Entry> {
        self.agents = None;
        self.by_process.remove(process)
    }

    pub(super) fn get_mut(&mut self, process: &str) -> Option<&mut Entry> {
        self.by_process.get_mut(process)
    }

    pub(super) fn values_mut(&mut self) -> ValuesMut<'_, String, Entry> {
        self.by_process.values_mut()
    }

    /// The agents of all processes. The value stays the same as long as no process comes or goes.
    pub(super) fn agents(&mut self) -> Arc<HashSet<String>> {
        let collect = || {
            let placed = self
                .by_process
                .values()
                .map(|entry| &entry.placement.agents);
            Arc::new(placed.flatten().cloned().collect())
        };
        self.agents.get_or_insert_with(collect).clone()
    }
}

impl Deref for Entries {
    type Target = HashMap<String, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.by_process
    }
}
