//! The origins of groups: a manifest, a ticket, or the Master's own process.

use std::net::SocketAddr;

use sealbus_seal::token::SecretHash;

use super::{About, MasterState, unknown};
use crate::placement::{PlacementWish, place};
use crate::registry::{Group, GroupOrigin, Life, Process};
use sealbus_control::admin::NodeState;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::node::NodeRequest;
use sealbus_control::{EndedProcess, Fault, FaultCode, UnixMillis};
use sealbus_manifest::{AgentEntry, RestartPolicy};

impl Group {
    pub(super) fn new(agents: Vec<String>, origin: GroupOrigin) -> Self {
        Self {
            agents,
            origin,
            pin: None,
            forbid: Vec::new(),
            restart: RestartPolicy::Never,
            wanted: true,
            starts: 0,
            failures: 0,
            process: None,
            moving: None,
            leaving: Vec::new(),
            start_at: None,
            note: None,
            last_node: None,
            saved: None,
        }
    }

    fn asks_the_same(&self, other: &Self) -> bool {
        self.agents == other.agents
            && self.origin == other.origin
            && self.pin == other.pin
            && self.forbid == other.forbid
    }

    /// Whether the group waits for a program that comes with a ticket.
    fn is_unused_ticket(&self) -> bool {
        let waits = |process: &Process| process.address.is_none();
        self.origin == GroupOrigin::Ticket && self.process.as_ref().is_some_and(waits)
    }

    /// Whether an agent of a ticket, though not the one that it names first, has ended while its process goes on.
    fn has_parted_with(&self, agent: &str) -> bool {
        let is_first = self.agents.first().is_some_and(|first| first == agent);
        let life = self
            .process
            .as_ref()
            .and_then(|process| process.agents.get(agent));
        let has_ended = matches!(life, Some(Life::Ended | Life::Failed { .. }));
        self.origin == GroupOrigin::Ticket && !is_first && has_ended
    }

    pub(super) fn place(&mut self, process: Process) {
        self.last_node = Some(process.node.clone());
        self.process = Some(process);
    }
}

impl MasterState {
    /// Starts the agents of a manifest. A known group that agrees with its entry is left alone, even if it has ended: a
    /// restarted Master starts nothing that was finished or killed. On an error nothing is started at all.
    ///
    /// # Errors
    /// [`FaultCode::NameTaken`] if another agent has an agent's name.
    pub fn start(&mut self, entries: &[AgentEntry], now: UnixMillis) -> Result<(), Fault> {
        self.check_names(entries, &[])?;
        let mut groups = Vec::new();
        for entry in entries {
            for (name, agents) in entry.processes() {
                let origin = GroupOrigin::Program {
                    command: entry.command.clone(),
                    directory: entry.directory.clone(),
                    environment: entry.environment.clone(),
                    confinement: Box::new(entry.confinement.clone()),
                };
                let mut group = Group::new(agents, origin);
                group.pin.clone_from(&entry.node);
                group.forbid.clone_from(&entry.forbid);
                group.restart = entry.restart;
                group.start_at = Some(now);
                groups.push((name, group));
            }
        }
        for (name, group) in groups {
            let old = self.groups.get_mut(&name);
            let starts = old.as_ref().map_or(0, |old| old.starts);
            if let Some(old) = old.filter(|old| old.asks_the_same(&group)) {
                if old.restart != group.restart {
                    old.restart = group.restart;
                    self.save(&name);
                }
                continue;
            }
            self.forget(&name);
            self.index(&name, &group);
            self.groups.insert(name.clone(), Group { starts, ..group });
            self.refresh(&name);
        }
        self.place_waiting(now);
        Ok(())
    }

    /// Checks that no other agent has a name that a manifest gives. The groups that are about to end count no more.
    ///
    /// # Errors
    /// [`FaultCode::NameTaken`].
    pub(crate) fn check_names(
        &self,
        entries: &[AgentEntry],
        ending: &[String],
    ) -> Result<(), Fault> {
        for (name, agents) in entries.iter().flat_map(AgentEntry::processes) {
            let taken = |agent: &&String| self.is_taken(agent, &name, ending);
            if let Some(agent) = agents.iter().find(taken) {
                let message = format!("the name {agent} is taken on this platform");
                return Err(Fault::new(FaultCode::NameTaken, message)
                    .advise("give the agent another name, or kill the one that has it"));
            }
        }
        Ok(())
    }

    /// Restarts an agent that has ended or was stopped, with all agents of its process. If the agent waits for its next
    /// start, it starts at once.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`]; [`FaultCode::NotPermitted`] if the agent runs, or the platform does not start it.
    pub fn start_again(&mut self, agent: &str, now: UnixMillis) -> Result<(), Fault> {
        let name = self.program_of(agent)?;
        let Some(group) = self.groups.get_mut(&name) else {
            return Err(unknown("agent", agent));
        };
        if group.process.is_some() {
            let message = format!("the process of {agent} still runs");
            return Err(Fault::new(FaultCode::NotPermitted, message)
                .advise("`sealbus restart` ends it and starts it again"));
        }
        group.wanted = true;
        group.failures = 0;
        group.start_at = Some(now);
        group.note = None;
        // The operator trusts again what was revoked.
        self.bars.forget(&name, &mut self.rows);
        self.refresh(&name);
        self.place_waiting(now);
        Ok(())
    }

    /// The group of an agent whose program the platform starts.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`]; [`FaultCode::NotPermitted`] if the platform does not start it.
    pub(crate) fn program_of(&self, agent: &str) -> Result<String, Fault> {
        let known = self.group_of(agent);
        let (name, group) = known.ok_or_else(|| unknown("agent", agent))?;
        let (message, advice) = match group.origin {
            GroupOrigin::Program { .. } => return Ok(name.to_owned()),
            GroupOrigin::Ticket => (
                format!("{agent} came with a ticket, so the platform cannot start it"),
                "start its program with another ticket: sealbus ticket",
            ),
            GroupOrigin::System => (
                format!("{agent} is part of the platform"),
                "it runs as long as the Master",
            ),
        };
        Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
    }

    fn is_taken(&self, agent: &str, group: &str, ending: &[String]) -> bool {
        let of_another = |name: &String| {
            let Some(owner) = self.groups.get(name).filter(|owner| owner.wanted) else {
                return false;
            };
            let is_program = matches!(owner.origin, GroupOrigin::Program { .. });
            let is_itself = is_program && name == group;
            !is_itself && !ending.contains(name) && !owner.is_unused_ticket()
        };
        self.is_member(agent) || self.agents.get(agent).is_some_and(of_another)
    }

    /// Notes a process that runs inside the Master's own, with its agents: the system agents, or all agents of an
    /// embedded platform. It replaces the process of an earlier run, whose certificates are revoked.
    ///
    /// # Errors
    /// If no name for it can be drawn.
    pub fn adopt(
        &mut self,
        name: &str,
        agents: Vec<String>,
        pid: Option<u32>,
        now: UnixMillis,
    ) -> Result<String, Fault> {
        // The name stays, so that processes that know it find the process again.
        let earlier = self
            .groups
            .get(name)
            .and_then(|group| group.process.as_ref());
        let id = match earlier.map(|process| process.id.clone()) {
            Some(id) => id,
            None => (self.draw_name)()?,
        };
        let starts = self.groups.get(name).map_or(0, |group| group.starts);
        self.forget(name);
        // At another security level the Master distributes its agents over its processes in another way.
        let former: Vec<String> = agents
            .iter()
            .filter_map(|agent| self.agents.get(agent).cloned())
            .filter(|group| {
                self.groups
                    .get(group)
                    .is_some_and(|group| group.origin == GroupOrigin::System)
            })
            .collect();
        for group in former {
            self.forget(&group);
        }
        let mut group = Group::new(agents, GroupOrigin::System);
        let mut process = Process::placed(id.clone(), MASTER_NODE, &group.agents, now);
        process.pid = pid;
        group.place(process);
        group.starts = starts + 1;
        self.index(name, &group);
        let agents = group.agents.clone();
        self.groups.insert(name.to_owned(), group);
        self.refresh(name);
        for agent in agents {
            self.step(
                1,
                &agent,
                MASTER_NODE,
                "placed in the Master's process".to_owned(),
            );
            self.step(
                2,
                &agent,
                MASTER_NODE,
                "started in the Master's process".to_owned(),
            );
        }
        Ok(id)
    }

    /// Gives up the processes of the Master that led before on another machine. Their certificates are revoked, and all
    /// other processes learn that they ended. This cuts off a Master that still believes that it leads.
    pub(crate) fn supersede_master(&mut self) {
        let is_system = |(_, group): &(&String, &Group)| group.origin == GroupOrigin::System;
        let groups: Vec<_> = self.groups.iter().filter(is_system).collect();
        let names: Vec<_> = groups.iter().map(|(name, _)| (*name).clone()).collect();
        let processes: Vec<_> = groups
            .iter()
            .flat_map(|(_, group)| group.processes())
            .map(|process| process.id.clone())
            .collect();
        for name in names {
            self.forget(&name);
        }
        for process in processes {
            let node = MASTER_NODE.to_owned();
            self.directory.control_ended(EndedProcess { node, process });
        }
    }

    /// Takes another agent into a process that was adopted before. Nothing happens if the agent is there and alive.
    ///
    /// # Errors
    /// [`FaultCode::NameTaken`] if another agent has the name.
    pub fn take_in(&mut self, process: &str, agent: &str) -> Result<(), Fault> {
        let Some(name) = self.processes.get(process).cloned() else {
            return Err(unknown("process", process));
        };
        if self.is_member(agent) || self.agents.get(agent).is_some_and(|group| *group != name) {
            let message = format!("the name {agent} is taken on this platform");
            return Err(
                Fault::new(FaultCode::NameTaken, message).advise("give the agent another name")
            );
        }
        let Some(found) = self.process_mut(process) else {
            return Err(unknown("process", process));
        };
        if matches!(
            found.agents.get(agent),
            Some(Life::Unborn | Life::State { .. })
        ) {
            return Ok(());
        }
        found.agents.insert(agent.to_owned(), Life::Unborn);
        let known = self.agents.insert(agent.to_owned(), name.clone());
        if let Some(group) = self.groups.get_mut(&name)
            && known.is_none()
        {
            group.agents.push(agent.to_owned());
        }
        self.save_soon(&name);
        self.refresh_agent(&name, agent);
        self.step(
            1,
            agent,
            MASTER_NODE,
            "placed in the Master's process".to_owned(),
        );
        self.step(
            2,
            agent,
            MASTER_NODE,
            "started in the Master's process".to_owned(),
        );
        Ok(())
    }

    /// The node to which a program with a ticket must attach, with the address.
    ///
    /// # Errors
    /// [`FaultCode::NoNode`].
    pub(crate) fn attachment_of(
        &self,
        agent: &str,
        wish: Option<&str>,
    ) -> Result<(String, SocketAddr), Fault> {
        let attachment = |node: &str| self.nodes.get(node).and_then(|node| node.attachment);
        let mut candidates = self.candidates();
        candidates.retain(|node| attachment(node.name).is_some());
        let wish = PlacementWish {
            pin: wish,
            forbid: &[],
            isolation: GroupOrigin::Ticket.isolation(),
        };
        let node = place(&candidates, wish)
            .map_err(|error| Fault::new(FaultCode::NoNode, format!("{agent}: {error}")))?;
        let address = attachment(node).ok_or_else(|| unknown("node", node))?;
        Ok((node.to_owned(), address))
    }

    /// Whether a restarted Master still expects a node to which a program with a ticket could attach.
    pub(crate) fn expects_node(&self, wish: Option<&str>) -> bool {
        self.nodes.iter().any(|(name, node)| {
            node.state == NodeState::Expected && wish.is_none_or(|wish| wish == name)
        })
    }

    /// Lets a program with a ticket come to `node` as `agent`. When the node knows of the ticket,
    /// [`Effect::Settled`](super::Effect::Settled) follows.
    ///
    /// # Errors
    /// [`FaultCode::NameTaken`].
    pub fn expect(
        &mut self,
        agents: Vec<String>,
        node: &str,
        ticket: SecretHash,
        expires: UnixMillis,
        now: UnixMillis,
    ) -> Result<(), Fault> {
        // The name of an unused ticket, or of an agent that is gone, is free.
        let mut former = Vec::new();
        let mut parted = Vec::new();
        for agent in &agents {
            let name = self.agents.get(agent);
            let group = name.and_then(|name| self.groups.get(name));
            if group.is_some_and(|group| group.wanted && group.has_parted_with(agent)) {
                parted.extend(name.map(|name| (name.clone(), agent.clone())));
                continue;
            }
            let free = group.is_some_and(|group| !group.wanted || group.is_unused_ticket());
            if !free && (self.is_member(agent) || self.agents.contains_key(agent)) {
                let message = format!("the name {agent} is taken on this platform");
                return Err(Fault::new(FaultCode::NameTaken, message)
                    .advise("choose another name, or kill the agent that has it"));
            }
            former.extend(name.cloned());
        }
        let Some(agent) = agents.first().cloned() else {
            let message = "a ticket is for one agent at least";
            return Err(Fault::new(FaultCode::BadRequest, message));
        };
        let agent = agent.as_str();
        let id = (self.draw_name)()?;
        for name in former {
            self.forget(&name);
        }
        for (name, agent) in parted {
            self.part(&name, &agent);
        }
        let mut group = Group::new(agents, GroupOrigin::Ticket);
        group.place(Process::placed(id.clone(), node, &group.agents, now));
        self.index(agent, &group);
        self.groups.insert(agent.to_owned(), group);
        self.refresh(agent);
        self.step(
            1,
            agent,
            node,
            format!("placed on {node}, to come with a ticket"),
        );
        if let Some(launch) = self.launch(agent, &id, None) {
            let about = About::Expect {
                group: agent.to_owned(),
                node: node.to_owned(),
            };
            self.ask(
                node,
                NodeRequest::Expect {
                    launch,
                    ticket,
                    expires,
                },
                about,
            );
        }
        Ok(())
    }

    /// Takes an agent that has ended out of its group. Its process no longer gets certificates for it.
    fn part(&mut self, name: &str, agent: &str) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        group.agents.retain(|other| other != agent);
        if let Some(process) = &mut group.process {
            process.agents.remove(agent);
        }
        self.agents.remove(agent);
        self.save(name);
    }

    /// The processes that hold an agent: its present one, the one from which it moves, and those that leave.
    pub(crate) fn processes_of(&self, agent: &str) -> Vec<String> {
        let group = self
            .agents
            .get(agent)
            .and_then(|name| self.groups.get(name));
        let processes = group.into_iter().flat_map(Group::processes);
        processes.map(|process| process.id.clone()).collect()
    }
}
