//! Indexes over the groups, updated with every change of a group, so that no decision needs a look at all of them: the agents and
//! groups on each node, and the groups for which time alone may do something.

use std::collections::{BTreeSet, HashMap};

use crate::registry::Group;

/// The indexes.
#[derive(Debug, Default)]
pub(super) struct Loads {
    agents_on: HashMap<String, u64>,
    groups_on: HashMap<String, BTreeSet<String>>,
    restless: BTreeSet<String>,
    by_group: HashMap<String, Share>,
}

/// The facts about a group in the indexes.
#[derive(Debug, Default)]
struct Share {
    agents: u64,
    /// The node of its present process.
    node: Option<String>,
    /// The nodes of its other processes.
    others: Vec<String>,
    is_restless: bool,
}

/// The node of a group's present process, and those of its other processes.
fn nodes_of(group: &Group) -> (Option<&str>, impl Iterator<Item = &str>) {
    let present = group.process.as_ref().map(|process| process.node.as_str());
    let others = group.processes().skip(usize::from(present.is_some()));
    (present, others.map(|process| process.node.as_str()))
}

/// Whether time alone may do something for a group.
fn is_restless(group: &Group) -> bool {
    let present = group.process.as_ref();
    group.start_at.is_some()
        || group.moving.is_some()
        || !group.leaving.is_empty()
        || present.is_some_and(|process| process.stop_by.is_some())
}

impl Share {
    fn of(group: &Group) -> Self {
        let (node, others) = nodes_of(group);
        Self {
            agents: group.agents.len() as u64,
            node: node.map(str::to_owned),
            others: others.map(str::to_owned).collect(),
            is_restless: is_restless(group),
        }
    }

    fn is_of(&self, group: &Group) -> bool {
        let (node, others) = nodes_of(group);
        self.agents == group.agents.len() as u64
            && self.node.as_deref() == node
            && self.others.iter().map(String::as_str).eq(others)
            && self.is_restless == is_restless(group)
    }

    fn nodes(&self) -> impl Iterator<Item = &String> {
        self.node.iter().chain(&self.others)
    }
}

impl Loads {
    /// Notes the present state of the group called `name`; none if it is gone.
    pub(super) fn note(&mut self, name: &str, group: Option<&Group>) {
        let known = self.by_group.get(name);
        let is_known = match (known, group) {
            (Some(known), Some(group)) => known.is_of(group),
            (None, None) => true,
            _ => false,
        };
        if is_known {
            return;
        }
        if let Some(former) = self.by_group.remove(name) {
            self.remove(name, &former);
        }
        if let Some(group) = group {
            let share = Share::of(group);
            self.add(name, &share);
            self.by_group.insert(name.to_owned(), share);
        }
    }

    fn remove(&mut self, name: &str, share: &Share) {
        if let Some(node) = &share.node
            && let Some(agents) = self.agents_on.get_mut(node)
        {
            *agents -= share.agents;
            if *agents == 0 {
                self.agents_on.remove(node);
            }
        }
        for node in share.nodes() {
            if let Some(groups) = self.groups_on.get_mut(node) {
                groups.remove(name);
                if groups.is_empty() {
                    self.groups_on.remove(node);
                }
            }
        }
        self.restless.remove(name);
    }

    fn add(&mut self, name: &str, share: &Share) {
        if let Some(node) = &share.node {
            *self.agents_on.entry(node.clone()).or_default() += share.agents;
        }
        for node in share.nodes() {
            let groups = self.groups_on.entry(node.clone()).or_default();
            groups.insert(name.to_owned());
        }
        if share.is_restless {
            self.restless.insert(name.to_owned());
        }
    }

    /// The number of agents placed on a node.
    pub(super) fn on(&self, node: &str) -> u64 {
        self.agents_on.get(node).copied().unwrap_or_default()
    }

    /// The groups with a process on a node.
    pub(super) fn groups_on(&self, node: &str) -> impl Iterator<Item = &String> {
        self.groups_on.get(node).into_iter().flatten()
    }

    /// The groups for which time alone may do something: they wait for a start, move, leave, or must end.
    pub(super) fn restless(&self) -> impl Iterator<Item = &String> {
        self.restless.iter()
    }
}
