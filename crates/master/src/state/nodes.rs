//! Nodes: joining, heartbeats and death.

use sealbus_seal::denylist::Reason;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::{MasterState, unknown};
use crate::placement::CandidateNode;
use crate::registry::{Group, GroupOrigin, Node};
use sealbus_control::admin::NodeState;
use sealbus_control::directory::Standing;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::node::{Current, Exit, RunningProcess};
use sealbus_control::text::excerpt;
use sealbus_control::{
    EndedProcess, Fault, FaultCode, NodeDescription, ProcessContact, UnixMillis,
};

/// How long a node that left stays reachable, so that it gets the answer to its last report.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Characters kept of each text by which a node describes itself.
const LONGEST_TEXT: usize = 256;

impl MasterState {
    /// Whether a node of this name has joined.
    pub fn is_member(&self, node: &str) -> bool {
        node == MASTER_NODE || self.nodes.contains_key(node)
    }

    /// Lets a node join. Without a requested name it gets the first free `node-N`.
    ///
    /// # Errors
    /// [`FaultCode::NameTaken`].
    pub fn join(
        &mut self,
        wish: Option<&str>,
        description: NodeDescription,
        now: UnixMillis,
    ) -> Result<(String, String), Fault> {
        if let Some(name) = wish {
            self.give_up_lost(name, now);
        }
        let taken = |name: &str| {
            self.is_member(name) || self.agents.contains_key(name) || name == MASTER_NODE
        };
        let name = match wish {
            Some(name) if taken(name) => {
                let message = format!("the name {name} is taken on this platform");
                return Err(Fault::new(FaultCode::NameTaken, message).advise(
                    "choose another name, or start that node again in its own state directory",
                ));
            }
            Some(name) => name.to_owned(),
            None => (1_u32..)
                .map(|number| format!("node-{number}"))
                .find(|name| !taken(name))
                .unwrap_or_default(),
        };
        let process = (self.draw_name)()?;
        self.hears(now);
        let node = Node {
            description: bounded(description),
            process: process.clone(),
            contact: None,
            attachment: None,
            heard: now,
            state: NodeState::Expected,
        };
        self.nodes.change().insert(name.clone(), node);
        self.save_node(&name);
        Ok((name, process))
    }

    /// Lets a node come back. Returns the name of its process: the same as before, unless the node was given up as
    /// dead.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if the node never joined; [`FaultCode::Unavailable`] while it is heard from another machine.
    pub fn come_back(
        &mut self,
        name: &str,
        description: NodeDescription,
        now: UnixMillis,
    ) -> Result<String, Fault> {
        let fresh = (self.draw_name)()?;
        self.hears(now);
        let description = bounded(description);
        self.check_machine(name, &description.host, now)?;
        self.part_with(name);
        self.come_back_unknown(name, &description, now);
        let node = self
            .nodes
            .change()
            .get_mut(name)
            .ok_or_else(|| not_a_member(name))?;
        if node.state.is_gone() {
            node.process = fresh;
            node.state = NodeState::Expected;
        }
        node.description = description;
        node.heard = now;
        let process = node.process.clone();
        self.save_node(name);
        Ok(process)
    }

    /// Refuses a node that comes back on another machine than the one from which it is heard. With a copy of the state
    /// directory, it would take the place of the node that is heard, whose agents would count as lost. A node that moves
    /// to another machine leaves, or is given up, before it comes back. A host name is the node's own word, and machines may
    /// share one: this helps against copies made by mistake, and not against a thief of the key.
    fn check_machine(&self, name: &str, host: &str, now: UnixMillis) -> Result<(), Fault> {
        let patience = self.patience_with_nodes().as_millis() as u64;
        let is_heard = |node: &&Node| node.state.is_there() && now < node.heard + patience;
        let node = self.nodes.get(name).filter(is_heard);
        match node.map(|node| &node.description) {
            Some(known) if known.host != host => {
                let (there, address) = (&known.host, known.address);
                let message = format!("{name} runs on {there} ({address}), and not on {host}");
                Err(Fault::new(FaultCode::Unavailable, message).advise(
                    "the node tries again: end the node there, or join this machine under a name of its own (sealbus token)",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Takes the ends of processes that a node reports when it registers, because the Master could not hear of them
    /// before. These processes are not lost, and a process that ended in order is not restarted.
    pub(crate) fn ended_meanwhile(
        &mut self,
        name: &str,
        ended: &[(String, Exit)],
        now: UnixMillis,
    ) {
        for (process, exit) in ended {
            let is_its_own = self
                .process(process)
                .is_some_and(|(_, found)| found.node == name);
            if is_its_own {
                self.exited(process, exit, now);
            }
        }
    }

    /// Registers a node that has started or come back.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if the node never joined.
    pub fn register(
        &mut self,
        name: &str,
        description: NodeDescription,
        contact: ProcessContact,
        attachment: Option<SocketAddr>,
        running: &[RunningProcess],
        now: UnixMillis,
    ) -> Result<Current, Fault> {
        self.hears(now);
        // A restored state may know an earlier process of the node. The certificates of a node's process end with the node, so a
        // node must not name the process of another one.
        let may_be_later = self.restored.is_some() && !self.is_taken_process(&contact.process);
        let Some(node) = self.nodes.change().get_mut(name) else {
            return Err(not_a_member(name));
        };
        let is_its = node.process == contact.process || may_be_later;
        if !is_its || node.state.is_gone() {
            let message = format!("the process of {name} was given up");
            return Err(Fault::new(FaultCode::NotPermitted, message)
                .advise("the node is to come back by enrolment"));
        }
        *node = Node {
            description: bounded(description),
            process: contact.process.clone(),
            contact: Some(contact),
            attachment,
            heard: now,
            state: NodeState::Alive,
        };
        self.save_node(name);
        self.refresh_node(name);
        let mut stop = Vec::new();
        let is_noted = self.note_running(name, running);
        for found in running {
            let ours = self
                .process(&found.process)
                .filter(|(_, process)| process.node == name);
            match ours {
                Some((group, _)) => {
                    let group = group.to_owned();
                    self.merge(&group, found, now);
                }
                None if is_noted => {}
                None => stop.push(found.process.clone()),
            }
        }
        // A missing process was lost while the node or the Master was away. The node is still asked to start newly
        // placed ones.
        if !is_noted {
            let there: HashSet<&str> = running.iter().map(|found| found.process.as_str()).collect();
            self.miss(name, |process| there.contains(process), now);
        }
        self.place_waiting(now);
        Ok(Current {
            directory: self.directory.answer(name, &Standing::default()),
            deny_list: None,
            stop,
            register: false,
            masters: Vec::new(),
            away: false,
        })
    }

    fn is_taken_process(&self, process: &str) -> bool {
        let mut nodes = self.nodes.values();
        self.processes.contains_key(process) || nodes.any(|node| node.process == process)
    }

    fn merge(&mut self, group: &str, found: &RunningProcess, now: UnixMillis) {
        let Some(process) = self.process_mut(&found.process) else {
            return;
        };
        process.pid = found.pid.or(process.pid);
        process.address = found.address.or(process.address);
        process.channels |= found.channels;
        for (agent, state) in &found.agents {
            if let Some(life) = process.agents.get_mut(agent) {
                *life = crate::registry::Life::State { state: *state };
            }
        }
        self.refresh(group);
        // The former Master may have ended before it stored that a move had ended.
        self.move_on(group, now);
    }

    /// Takes a node's heartbeat.
    pub fn heartbeat(&mut self, name: &str, directory: &Standing, now: UnixMillis) -> Current {
        self.heard(name, now);
        let node = self.nodes.get(name);
        let register = node.is_none_or(|node| !node.state.is_there());
        Current {
            directory: self.directory.answer(name, directory),
            deny_list: None,
            stop: Vec::new(),
            register,
            masters: Vec::new(),
            away: false,
        }
    }

    /// Acts on the passing of time: nodes may be dead, or restarts due.
    pub fn tick(&mut self, now: UnixMillis) {
        self.look(now);
        self.tick_restored(now);
        if self.restored.is_some() || self.nodes.may_be_due(now) {
            let is_over = |node: &Node| self.deadline(node).is_some_and(|deadline| deadline <= now);
            let silent = self.nodes.iter().filter(|(_, node)| is_over(node));
            let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
            for name in silent {
                self.judge(&name, now);
            }
            self.nodes.are_due_at(self.first_deadline());
        }
        debug_assert!(self.nodes.may_be_due(self.first_deadline()));
        self.tick_groups(now);
    }

    /// Judges a node that has run out of time.
    fn judge(&mut self, name: &str, now: UnixMillis) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        let until = self.silence_counts_until(node.state, now);
        let counts = self
            .deadline(node)
            .is_some_and(|deadline| deadline <= until);
        match node.state {
            NodeState::Left if counts => self.part_with(name),
            _ if counts => self.node_died(name, now),
            NodeState::Alive if self.witness.is_none() => {
                tracing::warn!(
                    node = name,
                    "no node is heard, so the Master may be the one that is cut off: the node is expected back, and keeps its agents"
                );
                if let Some(node) = self.nodes.change().get_mut(name) {
                    node.state = NodeState::Expected;
                }
            }
            _ => {}
        }
    }

    /// When a node that stays silent is given up.
    pub(super) fn deadline(&self, node: &Node) -> Option<UnixMillis> {
        let patience = match node.state {
            NodeState::Alive | NodeState::Leaving => self.patience_with_nodes(),
            NodeState::Expected => self.patience.after_restart,
            NodeState::Left if node.contact.is_some() => LAST_ANSWER,
            NodeState::Left | NodeState::Dead => return None,
        };
        let at = node.heard + patience.as_millis() as u64;
        Some(match &self.restored {
            Some(restored) => at.max(restored.until()),
            None => at,
        })
    }

    fn first_deadline(&self) -> UnixMillis {
        let deadlines = self.nodes.values().filter_map(|node| self.deadline(node));
        deadlines.min().unwrap_or(UnixMillis::MAX)
    }

    pub(super) fn node_died(&mut self, name: &str, now: UnixMillis) {
        tracing::warn!(
            node = name,
            "no heartbeat: the node is dead, its agents are placed again"
        );
        self.end_node(name, NodeState::Dead, Reason::NodeLost);
        for process in self.placed_on(name) {
            self.exited(&process, &Exit::Lost, now);
        }
        self.place_waiting(now);
    }

    /// Notes that a node is about to leave. Nothing more is placed on it. Returns whether that is new.
    pub fn leaving(&mut self, name: &str) -> bool {
        match self.nodes.change().get_mut(name) {
            Some(node) if node.state == NodeState::Alive => {
                node.state = NodeState::Leaving;
                true
            }
            _ => false,
        }
    }

    /// Notes that a node has left. It stays reachable for a moment, so that the answer arrives.
    pub fn left(&mut self, name: &str, now: UnixMillis) {
        let Some(node) = self
            .nodes
            .change()
            .get_mut(name)
            .filter(|node| !node.state.is_gone())
        else {
            return;
        };
        node.state = NodeState::Left;
        node.heard = now;
        tracing::info!(node = name, "has left");
        for process in self.placed_on(name) {
            self.exited(&process, &Exit::NodeLeft, now);
        }
        self.place_waiting(now);
    }

    /// Gives up a node that left and has had its last answer.
    fn part_with(&mut self, name: &str) {
        let is_due = |node: &Node| node.state == NodeState::Left && node.contact.is_some();
        if self.nodes.get(name).is_some_and(is_due) {
            self.end_node(name, NodeState::Left, Reason::Ended);
        }
    }

    /// Ends a node's own process.
    fn end_node(&mut self, name: &str, state: NodeState, cause: Reason) {
        if let Some(node) = self.nodes.change().get_mut(name) {
            node.state = state;
            node.contact = None;
            let process = node.process.clone();
            self.revoke(&process, cause);
            self.directory.control_ended(EndedProcess {
                node: name.to_owned(),
                process,
            });
        }
        self.save_node(name);
        self.refresh_node(name);
    }

    /// Forgets a dead node, so that its name is free.
    ///
    /// # Errors
    /// If the node is alive or unknown.
    pub(crate) fn forget_node(&mut self, name: &str) -> Result<(), Fault> {
        let node = self.nodes.get(name).ok_or_else(|| unknown("node", name))?;
        if !node.state.is_gone() {
            return Err(Fault::new(
                FaultCode::NameTaken,
                format!("the node {name} is alive"),
            ));
        }
        self.nodes.change().remove(name);
        self.rows.delete(format!("{}{name}", super::NODE_ROW));
        Ok(())
    }

    /// The groups with a process on a node.
    pub(crate) fn groups_on(&self, node: &str) -> impl Iterator<Item = &Group> {
        let names = self.loads.groups_on(node);
        names.filter_map(|name| self.groups.get(name))
    }

    /// The processes placed on a node.
    pub fn placed_on(&self, node: &str) -> Vec<String> {
        self.groups_on(node)
            .filter(|group| group.origin != GroupOrigin::System)
            .flat_map(Group::processes)
            .filter(|process| process.node == node)
            .map(|process| process.id.clone())
            .collect()
    }

    /// The nodes that can take processes.
    pub(super) fn candidates(&self) -> Vec<CandidateNode<'_>> {
        let alive = self.nodes.iter();
        let alive = alive.filter(|(_, node)| node.state == NodeState::Alive);
        alive
            .map(|(name, node)| CandidateNode {
                name,
                agents: self.loads.on(name),
                processors: node.description.processors,
                isolation: node.description.isolation,
            })
            .collect()
    }

    /// The next moment at which time alone makes something due.
    pub(crate) fn next_tick(&self) -> Option<UnixMillis> {
        let nodes = || {
            let nodes = self.nodes.values();
            nodes
                .filter(|node| self.is_judged_by_time(node.state))
                .filter_map(|node| self.deadline(node))
                // An overdue node that does not count as dead is judged at the Master's next look.
                .filter(|at| *at > self.looked)
                .min()
        };
        let nodes = match self.nodes.may_be_due(self.looked) {
            true => nodes(),
            false => self.nodes.due(),
        };
        // A group that is overdue, and was not dealt with, waits for something other than time.
        let groups = self.loads.next_after(self.looked);
        let restored = self.is_restoring().then_some(self.looked + 500);
        let due = nodes.into_iter().chain(groups).chain(self.next_look());
        due.chain(restored).min()
    }
}

/// The description, with its texts shortened and unable to steer a terminal, because the node wrote them.
fn bounded(description: NodeDescription) -> NodeDescription {
    NodeDescription {
        host: excerpt(&description.host, LONGEST_TEXT),
        version: excerpt(&description.version, LONGEST_TEXT),
        ..description
    }
}

pub(crate) fn not_a_member(name: &str) -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        format!("{name} is not a node of this platform"),
    )
    .advise("join it with a new token: sealbus token")
}
