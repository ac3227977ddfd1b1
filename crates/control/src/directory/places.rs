//! The places of agents and processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::{AgentLocation, EndedProcess, ProcessContact};

/// The contact of a node, if `agent` is a node's own agent. Only such an agent has the name of the node where it is.
pub(super) fn own_node<'l>(agent: &str, location: &'l AgentLocation) -> Option<&'l ProcessContact> {
    match location {
        AgentLocation::Process(contact) if contact.node == agent => Some(contact),
        _ => None,
    }
}

/// The contact of a process.
pub(super) fn contact(named: &EndedProcess, address: SocketAddr) -> ProcessContact {
    ProcessContact {
        node: named.node.clone(),
        process: named.process.clone(),
        address,
    }
}

/// The contacts of processes.
pub(super) fn contacts(processes: &BTreeMap<EndedProcess, SocketAddr>) -> Vec<ProcessContact> {
    let contacts = processes.iter();
    contacts
        .map(|(named, address)| contact(named, *address))
        .collect()
}
