//! The operator's view of nodes and agents.

use super::desk::Desk;
use crate::registry::{Life, Origin};
use sealbus_control::UnixMillis;
use sealbus_control::admin::{AgentStatus, NodeStatus};
use sealbus_control::clock::timestamp;
use sealbus_control::names::SYSTEM_AGENTS;

/// All nodes.
pub(super) fn nodes(desk: &Desk) -> Vec<NodeStatus> {
    let all = desk.state.nodes().iter();
    all.map(|(name, node)| {
        let here = |group: &&crate::registry::Group| {
            group
                .process
                .as_ref()
                .is_some_and(|process| process.node == *name)
        };
        let placed: Vec<_> = desk.state.groups().values().filter(here).collect();
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
    })
    .collect()
}

/// All agents but the platform's own.
pub(super) fn agents(desk: &Desk, now: UnixMillis) -> Vec<AgentStatus> {
    let certificates = desk.ca.living_by_agent(timestamp(now));
    let groups = desk.state.groups().iter();
    let mut all: Vec<AgentStatus> = groups
        .flat_map(|(name, group)| group.agents.iter().map(move |agent| (name, group, agent)))
        // An embedded platform's program is in the Master's own process.
        .filter(|(_, group, agent)| {
            group.origin != Origin::System || !SYSTEM_AGENTS.contains(&agent.as_str())
        })
        .map(|(name, group, agent)| {
            let process = group.process.as_ref();
            let life = process.and_then(|process| process.agents.get(agent));
            let failed = match life {
                Some(Life::Failed { error }) => Some(format!("failed: {error}")),
                Some(Life::Ended) => Some("ended".to_owned()),
                _ => None,
            };
            let certificate = certificates.get(agent.as_str());
            AgentStatus {
                name: format!("{agent}@{}", desk.name),
                node: process.map(|process| process.node.clone()),
                process: name.clone(),
                pid: process.and_then(|process| process.pid),
                address: process.and_then(|process| process.address),
                state: desk.state.life(agent),
                note: failed.or_else(|| group.note.clone()),
                restarts: group.starts.saturating_sub(1),
                serial: certificate.map(|found| found.serial.to_string()),
                expires: certificate.map(|found| found.not_after.as_unix_seconds() * 1000),
            }
        })
        .collect();
    all.sort_by(|one, two| one.name.cmp(&two.name));
    all
}
