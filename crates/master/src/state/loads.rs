//! The number of agents on each node. It is updated with every change of a group, so placing one group needs no look at
//! the others.

use std::collections::HashMap;

/// Agents by node.
#[derive(Debug, Default)]
pub(super) struct Loads {
    by_node: HashMap<String, u64>,
    /// The share of each group, with its node.
    by_group: HashMap<String, (String, u64)>,
}

impl Loads {
    /// Notes that all `agents` agents of `group` are placed on `node`.
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

    /// The number of agents placed on a node.
    pub(super) fn on(&self, node: &str) -> u64 {
        self.by_node.get(node).copied().unwrap_or_default()
    }
}
