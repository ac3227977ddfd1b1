//! Moves: freeze at the source, restore at the destination, or go on at the source.

use std::time::Duration;

use sealbus_seal::denylist::Reason;

use super::{About, Effect, MasterState, unknown};
use crate::placement::{PlacementWish, place};
use crate::registry::{Group, GroupOrigin, Move, Process};
use sealbus_control::node::{Exit, Inheritance, NodeAnswer, NodeRequest};
use sealbus_control::{Fault, FaultCode, UnixMillis};

/// How long a process has to end by itself after its agents moved, or after their move failed because they were killed.
const FAREWELL: Duration = Duration::from_secs(1);

impl MasterState {
    /// Begins to move an agent, with its process, to another node. The result comes as an [`Effect::Settled`] of the
    /// group with the returned name.
    ///
    /// # Errors
    /// If the agent is not running, the node cannot take it, or a move is already in progress.
    pub(crate) fn move_agent(
        &mut self,
        agent: &str,
        node: &str,
        now: UnixMillis,
    ) -> Result<String, Fault> {
        let name = self
            .agents
            .get(agent)
            .cloned()
            .ok_or_else(|| unknown("agent", agent))?;
        let refuse = |why: String| Fault::new(FaultCode::NotPermitted, why);
        let group = self
            .groups
            .get(&name)
            .ok_or_else(|| unknown("agent", agent))?;
        match group.origin {
            GroupOrigin::System => return Err(refuse(format!("{agent} is part of the platform"))),
            GroupOrigin::Ticket => {
                return Err(refuse(format!("{agent} came with a ticket"))
                    .advise("the platform did not start it and cannot start it elsewhere"));
            }
            GroupOrigin::Program { .. } => {}
        }
        if group.moving.is_some() {
            return Err(refuse(format!("{agent} is moving already")));
        }
        let running = group
            .process
            .as_ref()
            .filter(|p| p.is_settled() && p.stop_by.is_none());
        let Some(process) = running.cloned() else {
            return Err(Fault::new(
                FaultCode::Unavailable,
                format!("{agent} is not running now"),
            )
            .advise("wait until `sealbus ps` shows it as active"));
        };
        if !self.nodes.contains_key(node) {
            return Err(unknown("node", node).advise("`sealbus nodes` shows those there are"));
        }
        if process.node == node {
            return Err(refuse(format!("{agent} is on {node} already")));
        }
        if group.pin.as_deref().is_some_and(|pin| pin != node) {
            return Err(refuse(format!(
                "the manifest pins {agent} to {}",
                process.node
            )));
        }
        let wish = PlacementWish {
            pin: Some(node),
            forbid: &group.forbid,
            isolation: group.origin.isolation(),
        };
        if let Err(error) = place(&self.candidates(), wish) {
            return Err(Fault::new(FaultCode::NoNode, format!("{agent}: {error}")));
        }
        let give_up = now + self.patience.moving.as_millis() as u64;
        let moving = Move {
            destination: node.to_owned(),
            give_up,
            source: None,
            source_gone: false,
            source_exit: None,
            is_second_try: false,
        };
        if let Some(group) = self.groups.get_mut(&name) {
            group.moving = Some(moving);
        }
        self.refresh(&name);
        self.ask_to_freeze(&name, &process, node);
        Ok(name)
    }

    fn ask_to_freeze(&mut self, name: &str, process: &Process, destination: &str) {
        let request = NodeRequest::Freeze {
            process: process.id.clone(),
            destination: destination.to_owned(),
        };
        let about = About::Freeze {
            group: name.to_owned(),
            process: process.id.clone(),
        };
        self.ask(&process.node, request, about);
    }

    pub(super) fn resume_move(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else {
            return;
        };
        let (Some(moving), Some(process)) = (group.moving.clone(), group.process.clone()) else {
            return;
        };
        match moving.source {
            None => self.ask_to_freeze(name, &process, &moving.destination),
            Some(source) if process.pid.is_none() => {
                let inherits = Inheritance {
                    node: source.node,
                    process: source.id,
                };
                self.ask_to_start(name, &process.node, &process.id, Some(inherits));
            }
            Some(_) => {}
        }
    }

    /// Handles the source node's answer to the request to freeze.
    pub(super) fn frozen(
        &mut self,
        name: &str,
        process: &str,
        result: Result<NodeAnswer, Fault>,
        now: UnixMillis,
    ) {
        let freezing = self.groups.get(name).is_some_and(|group| {
            group
                .moving
                .as_ref()
                .is_some_and(|moving| moving.source.is_none())
                && group
                    .process
                    .as_ref()
                    .is_some_and(|source| source.id == process)
        });
        if !freezing {
            return;
        }
        if let Err(fault) = result {
            self.move_failed(name, fault, now);
            return;
        }
        let id = match (self.draw_name)() {
            Ok(id) => id,
            Err(fault) => {
                self.move_failed(name, fault, now);
                return;
            }
        };
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let (Some(moving), Some(source)) = (&mut group.moving, group.process.take()) else {
            return;
        };
        let is_gone = moving.source_exit.take().is_some();
        let former = source.id.clone();
        moving.source = Some(source);
        self.restore(name, id, &former, now);
        if is_gone {
            self.drop_process(&former);
        }
    }

    /// Places a process of this id at the destination, which restores the agents that the source handed in. Agents that are
    /// barred in `former` are barred in it.
    fn restore(&mut self, name: &str, id: String, former: &str, now: UnixMillis) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let Some(moving) = &group.moving else { return };
        let Some(source) = &moving.source else { return };
        let node = moving.destination.clone();
        let from = source.node.clone();
        let inherits = Inheritance {
            node: from.clone(),
            process: source.id.clone(),
        };
        let mut placed = Process::placed(id.clone(), &node, &group.agents, now);
        self.bars.leave_out(name, &mut placed);
        // An agent that an operator revoked is not trusted again because it moves.
        let barred: Vec<String> = self.bars.of(former).cloned().collect();
        for agent in barred {
            self.bars.add(&id, &agent, &mut self.rows);
        }
        group.starts += 1;
        group.place(placed);
        let agents = group.agents.clone();
        self.processes.insert(id.clone(), name.to_owned());
        self.refresh(name);
        for agent in &agents {
            self.step(
                1,
                agent,
                &node,
                format!("placed on {node}, moved from {from}"),
            );
        }
        self.ask_to_start(name, &node, &id, Some(inherits));
    }

    /// Ends a move whose new process has settled.
    pub(super) fn move_on(&mut self, name: &str, now: UnixMillis) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let restoring = group
            .moving
            .as_ref()
            .is_some_and(|moving| moving.source.is_some());
        let restored = restoring && group.process.as_ref().is_some_and(Process::is_settled);
        if !restored {
            return;
        }
        let Some(Move {
            source: Some(source),
            source_gone,
            destination,
            ..
        }) = group.moving.take()
        else {
            return;
        };
        if !source_gone {
            // The process redirects others that still write to it, until all know the new place.
            let stop_by = Some(now + self.patience.leaving.as_millis() as u64);
            group.leaving.push(Process { stop_by, ..source });
        }
        self.refresh(name);
        let result = Ok(destination);
        self.effects.push(Effect::Settled {
            group: name.to_owned(),
            result,
        });
    }

    /// Asks the node of a process to let its agents at rest go on.
    pub(super) fn thaw(&mut self, process: &Process) {
        let request = NodeRequest::Thaw {
            process: process.id.clone(),
        };
        self.ask(&process.node, request, About::Nothing);
    }

    fn move_failed(&mut self, name: &str, fault: Fault, now: UnixMillis) {
        tracing::warn!(process = name, %fault, "the move failed");
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let Some(moving) = group.moving.take() else {
            return;
        };
        if let (Some(exit), Some(source)) = (&moving.source_exit, &group.process) {
            // Its agents were not handed in: it ends like any other process.
            let (exit, source) = (exit.clone(), source.id.clone());
            group.moving = Some(Move {
                source_exit: None,
                ..moving
            });
            return self.exited(&source, &exit, now);
        }
        let may_try_again = moving.source_gone && !moving.is_second_try && group.wanted;
        if may_try_again
            && moving.give_up > now
            && let Some(abandoned) = group.process.take()
            && let Ok(id) = (self.draw_name)()
        {
            // Only the node of the source still has the agents.
            group.moving = Some(Move {
                is_second_try: true,
                ..moving
            });
            self.restore(name, id, &abandoned.id, now);
            return self.abandon(&abandoned);
        }
        let (mut abandoned, mut ended) = (None, None);
        if let Some(source) = moving.source {
            abandoned = group.process.take();
            match moving.source_gone {
                true => ended = Some(source),
                false => group.process = Some(source),
            }
        }
        if let Some(process) = &abandoned {
            self.abandon(process);
        }
        if let Some(ended) = ended {
            // The node tells the senders of messages that the agents have not read.
            self.thaw(&ended);
        }
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        // The agent was killed during the move, and ends where it was.
        let is_killed = !group.wanted;
        match &mut group.process {
            Some(source) => {
                if is_killed {
                    source.stop_by = Some(now + FAREWELL.as_millis() as u64);
                }
                let source = source.clone();
                self.thaw(&source);
                if is_killed {
                    self.stop_process(&source, FAREWELL, "killed by the operator");
                }
            }
            None if is_killed => group.note = Some("stopped".to_owned()),
            // Both processes are gone, so the group starts again from nothing.
            None => group.start_at = Some(now),
        }
        self.refresh(name);
        self.effects.push(Effect::Settled {
            group: name.to_owned(),
            result: Err(fault),
        });
    }

    /// Ends a process that did not take over.
    fn abandon(&mut self, process: &Process) {
        self.drop_process(&process.id);
        self.end_process(process, Reason::Ended);
        self.stop_process(process, Duration::ZERO, "the move failed");
    }

    /// Handles the end of a process that was asked to hand in its agents. Its node has them if it did, even if it told
    /// only a former Master. Returns true if the move goes on until the node has answered.
    pub(super) fn ended_at_rest(&mut self, process: &str, exit: &Exit) -> bool {
        let Some(name) = self.processes.get(process).cloned() else {
            return false;
        };
        let is_barred = self.bars.of(process).next().is_some();
        let Some(group) = self.groups.get_mut(&name) else {
            return false;
        };
        let Some(ended) = group.process.clone().filter(|it| it.id == process) else {
            return false;
        };
        let Some(moving) = group.moving.as_mut().filter(|it| it.source.is_none()) else {
            return false;
        };
        let node = self.nodes.get(&ended.node);
        let is_told = is_barred || !group.wanted || ended.stop_by.is_some();
        if is_told || node.is_none_or(|node| node.state.is_gone()) {
            return false;
        }
        if !moving.source_gone {
            moving.source_gone = true;
            moving.source_exit = Some(exit.clone());
            let destination = moving.destination.clone();
            // Until the node has answered, the process stays the group's, but nobody reaches it.
            if let Some(process) = &mut group.process {
                process.address = None;
            }
            self.end_process(&ended, Reason::Ended);
            self.save(&name);
            self.ask_to_freeze(&name, &ended, &destination);
            return true;
        }
        moving.source_exit.is_some()
    }

    /// Handles the end of a process of a move. Returns true if the end was dealt with here.
    pub(super) fn move_lost(
        &mut self,
        name: &str,
        process: &str,
        exit: &Exit,
        now: UnixMillis,
    ) -> bool {
        let Some(group) = self.groups.get_mut(name) else {
            return false;
        };
        let is_present = group.process.as_ref().is_some_and(|it| it.id == process);
        let Some(moving) = &mut group.moving else {
            return false;
        };
        match &moving.source {
            Some(source) if source.id == process => {
                // The process's node still holds the frozen agents.
                moving.source_gone = true;
                self.save(name);
                true
            }
            // The process was the source of an earlier move.
            _ if !is_present => false,
            Some(_) => {
                let message = format!(
                    "the process on {} ended before it took over: {exit}",
                    moving.destination
                );
                self.move_failed(
                    name,
                    Fault::new(FaultCode::StartFailed, message)
                        .advise("see its log; the agent goes on where it was"),
                    now,
                );
                self.place_waiting(now);
                true
            }
            None => {
                group.moving = None;
                let ended = group.process.clone();
                let message = "the agent ended before it could be moved";
                let result = Err(Fault::new(FaultCode::Unavailable, message));
                self.effects.push(Effect::Settled {
                    group: name.to_owned(),
                    result,
                });
                // If the node was handed the agents, it tells the senders of messages that they have not read.
                if let Some(ended) = ended {
                    self.thaw(&ended);
                }
                false
            }
        }
    }

    /// Ends the processes whose time to leave is over.
    pub(super) fn end_leaving(&mut self, now: UnixMillis) {
        let mut over = Vec::new();
        for name in self.due(now, |group| !group.leaving.is_empty()) {
            let Some(group) = self.groups.get_mut(&name) else {
                continue;
            };
            let is_over = |process: &mut Process| process.stop_by.is_none_or(|at| at <= now);
            for process in group.leaving.extract_if(.., is_over) {
                over.push((name.clone(), process));
            }
        }
        for (name, process) in over {
            self.drop_process(&process.id);
            self.stop_process(&process, FAREWELL, "its agents moved");
            self.end_process(&process, Reason::Moved);
            self.save(&name);
        }
    }

    pub(super) fn give_up_moves(&mut self, now: UnixMillis) {
        let is_overdue = |group: &Group| group.moving.as_ref().is_some_and(|m| m.give_up <= now);
        for name in self.due(now, is_overdue) {
            let message = "the move took too long and was given up";
            self.move_failed(
                &name,
                Fault::new(FaultCode::Unavailable, message)
                    .advise("see the agent's log: `save` or `restore` may hang"),
                now,
            );
        }
        self.place_waiting(now);
    }
}
