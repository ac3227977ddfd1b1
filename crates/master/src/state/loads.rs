//! How many agents are placed on each node, kept up with every change of a group: placing one asks no other group.

use std::collections::HashMap;

/// Agents by node.
#[derive(Debug, Default)]
pub(super) struct Loads {
    by_node: HashMap<String, u64>,
    /// What each group adds, and where.
    by_group: HashMap<String, (String, u64)>,
}

impl Loads {
    /// Notes that so many agents of `group` are placed on `node`, and nowhere else.
    pub(super) fn note(&mut self, group: &str, node: Option<&str>, agents: u64) {
        let known = self.by_group.get(group);
        let known = known.map(|(node, agents)| (node.as_str(), *agents));
        if known == node.map(|node| (node, agents)) {
            return;
        }
        if let Some((node, agents)) = self.by_group.remove(group)
            && let Some(load) = self.by_node.get_mut(&node)
        {
            *load -= agents;
            if *load == 0 {
                self.by_node.remove(&node);
            }
        }
        if let Some(node) = node {
            *self.by_node.entry(node.to_owned()).or_default() += agents;
            self.by_group
                .insert(group.to_owned(), (node.to_owned(), agents));
        }
    }

    /// How many agents are placed on a node.
    pub(super) fn on(&self, node: &str) -> u64 {
        self.by_node.get(node).copied().unwrap_or_default()
    }
}
