//! Processes: placement, start and life.

use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;

use sealbus_seal::denylist::Reason;

use super::{About, Effect, MasterState};
use crate::placement::{CandidateNode, PlacementWish, place};
use crate::registry::{Group, GroupOrigin, Life, Process};
use sealbus_control::attachment::AgentReport;
use sealbus_control::node::{ChannelListing, Exit, Inheritance, Launch, NodeAnswer, NodeRequest};
use sealbus_control::{EndedProcess, Fault, PlacedState, UnixMillis};

/// The `start_at` of a group that waits for a node, and for no moment.
pub(crate) const WAITING: UnixMillis = UnixMillis::MAX;

impl MasterState {
    pub(super) fn launch(
        &self,
        name: &str,
        process: &str,
        inherits: Option<Inheritance>,
    ) -> Option<Launch> {
        let group = self.groups.get(name)?;
        let (command, directory, environment, confinement) = match &group.origin {
            GroupOrigin::Program {
                command,
                directory,
                environment,
                confinement,
            } => (
                command.clone(),
                directory.clone(),
                environment.clone(),
                confinement.as_ref().clone(),
            ),
            GroupOrigin::Ticket | GroupOrigin::System => Default::default(),
        };
        Some(Launch {
            process: process.to_owned(),
            group: name.to_owned(),
            agents: group.agents.clone(),
            command,
            directory,
            environment,
            confinement,
            inherits,
        })
    }

    pub(super) fn step(&mut self, step: u8, agent: &str, node: &str, what: String) {
        let (agent, node) = (agent.to_owned(), node.to_owned());
        self.effects.push(Effect::Step {
            step,
            agent,
            node,
            what,
        });
    }

    /// Places every group that is due, and those that wait for a node if one has changed.
    pub(super) fn place_waiting(&mut self, now: UnixMillis) {
        if self.is_restoring() {
            return;
        }
        let is_due =
            |group: &Group| group.process.is_none() && group.start_at.is_some_and(|at| at <= now);
        let mut due = self.due(now, is_due);
        if self.nodes.have_changed() {
            due.extend(self.loads.waiting().cloned());
        }
        if due.is_empty() {
            return;
        }
        due.sort_unstable();
        // The nodes are listed once for all.
        let nodes = self.candidates().into_iter();
        let nodes = nodes.map(|node| {
            let facts = (node.agents, node.processors, node.isolation);
            (node.name.to_owned(), facts)
        });
        let nodes: Vec<_> = nodes.collect();
        let candidates = nodes.iter();
        let candidates = candidates.map(|(name, (agents, processors, isolation))| CandidateNode {
            name,
            agents: *agents,
            processors: *processors,
            isolation: *isolation,
        });
        let mut candidates: Vec<_> = candidates.collect();
        for name in due {
            self.place_group(&name, &mut candidates, now);
        }
    }

    fn place_group(&mut self, name: &str, candidates: &mut [CandidateNode<'_>], now: UnixMillis) {
        let Some(group) = self.groups.get(name) else {
            return;
        };
        let wish = PlacementWish {
            pin: group.pin.as_deref(),
            forbid: &group.forbid,
            isolation: group.origin.isolation(),
        };
        let placed = match place(candidates, wish) {
            Ok(node) => {
                let again = now + self.patience.first_pause.as_millis() as u64;
                let drawn = (self.draw_name)();
                drawn
                    .map(|id| (node.to_owned(), id))
                    .map_err(|fault| (fault.to_string(), again))
            }
            Err(error) => Err((error.to_string(), WAITING)),
        };
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let (node, id) = match placed {
            Ok(placed) => placed,
            Err((why, again)) => {
                if group.note.as_ref() != Some(&why) || group.start_at != Some(again) {
                    tracing::warn!(process = name, %why, "cannot be placed yet");
                    group.note = Some(why);
                    group.start_at = Some(again);
                    self.refresh(name);
                }
                return;
            }
        };
        group.start_at = None;
        group.note = None;
        group.starts += 1;
        let mut process = Process::placed(id.clone(), &node, &group.agents, now);
        self.bars.leave_out(name, &mut process);
        group.place(process);
        let agents = group.agents.clone();
        let chosen = candidates.iter_mut().find(|it| it.name == node);
        if let Some(chosen) = chosen {
            chosen.agents += agents.len() as u64;
        }
        self.processes.insert(id.clone(), name.to_owned());
        self.refresh(name);
        for agent in &agents {
            self.step(1, agent, &node, format!("placed on {node}"));
        }
        self.ask_to_start(name, &node, &id, None);
    }

    pub(super) fn ask_to_start(
        &mut self,
        name: &str,
        node: &str,
        process: &str,
        inherits: Option<Inheritance>,
    ) {
        if let Some(launch) = self.launch(name, process, inherits) {
            let about = About::Start {
                group: name.to_owned(),
                process: process.to_owned(),
            };
            self.ask(node, NodeRequest::Start { launch }, about);
        }
    }

    /// Repeats the requests that were in progress when the Master was killed.
    pub(super) fn resume(&mut self, name: &str, now: UnixMillis) {
        let Some(group) = self.groups.get(name) else {
            return;
        };
        // A process that was told to stop is told again, and takes over no agents.
        if group.moving.is_some() && group.wanted {
            self.resume_move(name);
            return;
        }
        let Some(process) = group.process.clone() else {
            return;
        };
        if group.origin == GroupOrigin::System {
            return;
        }
        if process.stop_by.is_some() || !group.wanted {
            let left = process.stop_by.unwrap_or(now).saturating_sub(now);
            self.stop_process(&process, Duration::from_millis(left), "it was told to stop");
        } else if process.pid.is_none() && group.origin != GroupOrigin::Ticket {
            self.ask_to_start(name, &process.node, &process.id, None);
        }
    }

    pub(super) fn process_mut(&mut self, process: &str) -> Option<&mut Process> {
        let group = self.groups.get_mut(self.processes.get(process)?)?;
        let source = group
            .moving
            .as_mut()
            .and_then(|moving| moving.source.as_mut());
        let present = group.process.iter_mut().chain(source);
        present
            .chain(&mut group.leaving)
            .find(|found| found.id == process)
    }

    /// Handles a node's answer.
    pub fn answered(&mut self, about: About, result: Result<NodeAnswer, Fault>, now: UnixMillis) {
        match about {
            About::Nothing | About::Certified { .. } => {
                if let Err(fault) = result {
                    tracing::warn!(%fault, "a node could not do as it was told");
                }
            }
            About::Start { process, .. } => match result {
                Ok(NodeAnswer::Started { pid }) => self.started(&process, Some(pid)),
                Ok(_) => {}
                Err(fault) => {
                    self.exited(
                        &process,
                        &Exit::NotStarted {
                            error: fault.to_string(),
                        },
                        now,
                    );
                }
            },
            About::Expect { group, node } => {
                let result = result.map(|_| node);
                self.effects.push(Effect::Settled { group, result });
            }
            About::Freeze { group, process } => self.frozen(&group, &process, result, now),
        }
    }

    /// Notes that a process was started, or that a program attached with its ticket. The node reports this with the
    /// process id. A request for a certificate, which takes another way, may report it first.
    pub fn started(&mut self, process: &str, pid: Option<u32>) {
        let Some((name, found)) = self.process(process) else {
            return;
        };
        if found.begun && (pid.is_none() || found.pid == pid) {
            return;
        }
        let (name, node, first) = (name.to_owned(), found.node.clone(), !found.begun);
        let agents: Vec<String> = found.agents.keys().cloned().collect();
        if let Some(found) = self.process_mut(process) {
            found.pid = pid.or(found.pid);
            found.begun = true;
        }
        self.save(&name);
        if !first {
            return;
        }
        let came = match self.groups.get(&name).map(|group| &group.origin) {
            Some(GroupOrigin::Ticket) => format!("came to {node} with its ticket"),
            _ => format!("started by {node}"),
        };
        let what = match pid {
            Some(pid) => format!("{came} as process {pid}"),
            None => came,
        };
        for agent in agents {
            self.step(2, &agent, &node, what.clone());
        }
    }

    /// Notes that a process listens.
    pub fn announced(&mut self, process: &str, address: SocketAddr, now: UnixMillis) {
        let Some(found) = self.process_mut(process) else {
            return;
        };
        found.address = Some(address);
        self.changed(process, now);
    }

    /// Notes that agents of a process use channels. Returns whether the others have learned of it.
    pub fn uses_channels(&mut self, process: &str, now: UnixMillis) -> ChannelListing {
        if let Some(found) = self.process_mut(process)
            && !std::mem::replace(&mut found.channels, true)
        {
            self.changed(process, now);
        }
        // Nobody waits for a process that was given up.
        let is_told = self.process(process).is_none_or(|(_, found)| {
            let (node, process) = (found.node.clone(), found.id.clone());
            self.directory.is_told(&EndedProcess { node, process })
        });
        ChannelListing {
            revision: self.directory.revision(),
            is_told,
        }
    }

    /// Notes an agent's report about itself.
    pub fn reported(&mut self, process: &str, agent: &str, report: AgentReport, now: UnixMillis) {
        let Some(life) = self
            .process_mut(process)
            .and_then(|process| process.agents.get_mut(agent))
        else {
            return;
        };
        let life_now = match report.bounded() {
            AgentReport::State { state } => Life::State { state },
            AgentReport::Ended => Life::Ended,
            AgentReport::Failed { error } => Life::Failed { error },
        };
        let ended = matches!(life_now, Life::Ended | Life::Failed { .. });
        if *life == life_now {
            return;
        }
        *life = life_now;
        if ended {
            self.effects.push(Effect::Revoke {
                process: process.to_owned(),
                agent: Some(agent.to_owned()),
                cause: Reason::Ended,
            });
        }
        let Some(name) = self.processes.get(process).cloned() else {
            return;
        };
        // A node that registers names the agents that live, and no ends.
        match ended {
            true => self.save(&name),
            false => self.save_soon(&name),
        }
        self.refresh_agent(&name, agent);
        self.move_on(&name, now);
    }

    fn changed(&mut self, process: &str, now: UnixMillis) {
        let Some(name) = self.processes.get(process).cloned() else {
            return;
        };
        self.refresh(&name);
        self.move_on(&name, now);
    }

    /// The agents in these places, by name, each with its group and the group's name.
    pub(crate) fn agents(
        &self,
        places: (Bound<&str>, Bound<&str>),
    ) -> impl Iterator<Item = (&str, &str, &Group)> {
        let names = self.agents.range::<str, _>(places);
        names.filter_map(|(agent, name)| Some((&**agent, &**name, self.groups.get(name)?)))
    }

    /// The state of an agent for the operator.
    pub fn life(&self, agent: &str) -> Option<PlacedState> {
        self.white_pages.get(agent).copied()
    }
}
