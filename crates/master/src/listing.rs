//! The operator's view of nodes and agents.

use std::ops::Bound;

use super::desk::Desk;
use crate::registry::{Group, GroupOrigin, Life};
use sealbus_control::UnixMillis;
use sealbus_control::admin::{AgentStatus, AgentsPage, NodeStatus, NodesPage, Page};
use sealbus_control::clock::timestamp;
use sealbus_control::names::SYSTEM_AGENTS;

/// A page of the nodes.
pub(super) fn nodes(desk: &Desk, page: &Page) -> NodesPage {
    let nodes = desk.state.nodes().range::<str, _>(page.places());
    let statuses = nodes.map(|(name, node)| {
        let here = |group: &&Group| {
            let process = group.process.as_ref();
            process.is_some_and(|process| process.node == *name)
        };
        let placed: Vec<_> = desk.state.groups_on(name).filter(here).collect();
        NodeStatus {
            name: name.clone(),
            state: node.state,
            address: node.description.address.to_string(),
            host: node.description.host.clone(),
            processors: node.description.processors,
            isolation: node.description.isolation,
            processes: placed.len() as u32,
            agents: placed.iter().map(|group| group.agents.len() as u32).sum(),
            heard: node.heard,
        }
    });
    page.cut(statuses, |node| node.name.clone()).into()
}

/// The agents in these places but the platform's own, by name, each with its group and the group's name.
pub(super) fn known<'d>(
    desk: &'d Desk,
    places: (Bound<&str>, Bound<&str>),
) -> impl Iterator<Item = (&'d str, &'d str, &'d Group)> {
    let all = desk.state.agents(places);
    // An embedded platform's program is in the Master's own process.
    all.filter(|(agent, _, group)| {
        group.origin != GroupOrigin::System || !SYSTEM_AGENTS.contains(agent)
    })
}

/// A page of the agents, the platform's own aside.
pub(super) fn agents(desk: &Desk, page: &Page, now: UnixMillis) -> AgentsPage {
    let (found, end) = page.cut(known(desk, page.places()), |(agent, ..)| {
        (*agent).to_owned()
    });
    let agents = found
        .into_iter()
        .map(|(agent, name, group)| agent_status(desk, agent, name, group, now))
        .collect();
    AgentsPage { agents, end }
}

/// The agents of the same process as this one.
pub(super) fn agents_beside(desk: &Desk, agent: &str, now: UnixMillis) -> AgentsPage {
    let group = desk.state.group_of(agent).into_iter();
    let agents = group.flat_map(|(name, group)| {
        let agents = group.agents.iter();
        agents.map(move |agent| agent_status(desk, agent, name, group, now))
    });
    (agents.collect(), None).into()
}

fn agent_status(
    desk: &Desk,
    agent: &str,
    name: &str,
    group: &Group,
    now: UnixMillis,
) -> AgentStatus {
    let process = group.process.as_ref();
    let life = process.and_then(|process| process.agents.get(agent));
    let failed = match life {
        Some(Life::Failed { error }) => Some(format!("failed: {error}")),
        Some(Life::Ended) => Some("ended".to_owned()),
        _ => None,
    };
    let certificate = desk.ca.living(agent, timestamp(now));
    AgentStatus {
        name: format!("{agent}@{}", desk.name),
        node: process.map(|process| process.node.clone()),
        process: name.to_owned(),
        pid: process.and_then(|process| process.pid),
        address: process.and_then(|process| process.address),
        state: desk.state.life(agent),
        note: failed.or_else(|| group.note.clone()),
        restarts: group.starts.saturating_sub(1),
        serial: certificate.map(|found| found.serial.to_string()),
        expires: certificate.map(|found| found.not_after.as_unix_seconds() * 1000),
    }
}
