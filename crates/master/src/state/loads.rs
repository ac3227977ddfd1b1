//! Indexes over the groups, updated with every change of a group, so that no decision needs a look at all of them. They hold the
//! agents and groups on each node, the groups for which time alone does something, by the moment, and the groups that wait for a
//! node.

use std::collections::{BTreeSet, HashMap};

use sealbus_control::UnixMillis;

use super::WAITING;
use crate::registry::{Group, Process};

/// The indexes.
#[derive(Debug, Default)]
pub(super) struct Loads {
    agents_on: HashMap<String, u64>,
    groups_on: HashMap<String, BTreeSet<String>>,
    due: BTreeSet<(UnixMillis, String)>,
    waiting: BTreeSet<String>,
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
    due: Option<UnixMillis>,
    waits: bool,
}

/// The node of a group's present process, and those of its other processes.
fn nodes_of(group: &Group) -> (Option<&str>, impl Iterator<Item = &str>) {
    let present = group.process.as_ref().map(|process| process.node.as_str());
    let others = group.processes().skip(usize::from(present.is_some()));
    (present, others.map(|process| process.node.as_str()))
}

/// The first moment at which time alone does something for a group: it is started, its move is given up, or one of its processes
/// must have ended.
pub(super) fn due(group: &Group) -> Option<UnixMillis> {
    let present = group.process.as_ref().and_then(|process| process.stop_by);
    let moving = group.moving.as_ref().map(|moving| moving.give_up);
    let start_at = group.start_at.filter(|at| *at != WAITING);
    let leaving = |process: &Process| process.stop_by.unwrap_or_default();
    let leaving = group.leaving.iter().map(leaving).min();
    [present, moving, start_at, leaving]
        .into_iter()
        .flatten()
        .min()
}

/// Whether a group waits for a node.
pub(super) fn waits(group: &Group) -> bool {
    group.start_at == Some(WAITING)
}

impl Share {
    fn of(group: &Group) -> Self {
        let (node, others) = nodes_of(group);
        Self {
            agents: group.agents.len() as u64,
            node: node.map(str::to_owned),
            others: others.map(str::to_owned).collect(),
            due: due(group),
            waits: waits(group),
        }
    }

    fn is_of(&self, group: &Group) -> bool {
        let (node, others) = nodes_of(group);
        self.agents == group.agents.len() as u64
            && self.node.as_deref() == node
            && self.others.iter().map(String::as_str).eq(others)
            && self.due == due(group)
            && self.waits == waits(group)
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
        if let Some(due) = share.due {
            self.due.remove(&(due, name.to_owned()));
        }
        self.waiting.remove(name);
    }

    fn add(&mut self, name: &str, share: &Share) {
        if let Some(node) = &share.node {
            *self.agents_on.entry(node.clone()).or_default() += share.agents;
        }
        for node in share.nodes() {
            let groups = self.groups_on.entry(node.clone()).or_default();
            groups.insert(name.to_owned());
        }
        if let Some(due) = share.due {
            self.due.insert((due, name.to_owned()));
        }
        if share.waits {
            self.waiting.insert(name.to_owned());
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

    /// The groups for which time alone does something by this moment.
    pub(super) fn due_by(&self, now: UnixMillis) -> impl Iterator<Item = &String> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.map(|(_, name)| name)
    }

    /// The first moment after this one at which time alone does something.
    pub(super) fn next_after(&self, now: UnixMillis) -> Option<UnixMillis> {
        let later = self.due.range((now.saturating_add(1), String::new())..);
        later.map(|(at, _)| *at).next()
    }

    /// The groups that wait for a node.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &String> {
        self.waiting.iter()
    }
}
