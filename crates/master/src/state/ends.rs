//! The ends of processes, by themselves or not, and their restarts.

use std::time::Duration;

use sealbus_seal::denylist::Reason;

use super::bars::REVOKED;
use super::{About, MasterState, unknown};
use crate::registry::{Group, GroupOrigin, Life, Process};
use sealbus_control::node::{Exit, NodeRequest};
use sealbus_control::text::excerpt;
use sealbus_control::{Fault, FaultCode, UnixMillis};
use sealbus_manifest::RestartPolicy;

/// Characters kept of the reason for which a process could not be started.
const LONGEST_ERROR: usize = 1024;
/// Characters kept of the end of a process in the note of its program. The whole note has at most 1,024.
const LONGEST_HOW: usize = 960;

impl MasterState {
    /// Notes that a process ended.
    pub fn exited(&mut self, process: &str, exit: &Exit, now: UnixMillis) {
        let exit = &bounded(exit);
        if self.ended_at_rest(process, exit) {
            return;
        }
        let barred = self.bars.of(process).next().is_some();
        let Some(name) = self.drop_process(process) else {
            return;
        };
        tracing::info!(process = %name, %exit, "ended");
        let Some(group) = self.groups.get_mut(&name) else {
            return;
        };
        let found = group.processes().find(|found| found.id == process);
        let Some(ended) = found.cloned() else {
            return;
        };
        group.leaving.retain(|leaving| leaving.id != process);
        let cause = match exit {
            _ if ended.stop_by.is_some() => Reason::Killed,
            Exit::Lost => Reason::NodeLost,
            _ => Reason::Ended,
        };
        // An operator revoked the agent, so no process may go on for it.
        if barred && group.moving.as_ref().is_some_and(|it| it.source_gone) {
            group.wanted = false;
        }
        self.end_process(&ended, cause);
        if self.move_lost(&name, process, exit, now) {
            return;
        }
        let Some(group) = self.groups.get_mut(&name) else {
            return;
        };
        if group
            .process
            .as_ref()
            .is_none_or(|present| present.id != process)
        {
            self.save(&name);
            return;
        }
        group.process = None;
        self.start_again_or_rest(&name, &ended, exit, barred, now);
    }

    /// Starts a group again whose only process has ended, or lets it rest, as its policy says. A `barred` group rests.
    fn start_again_or_rest(
        &mut self,
        name: &str,
        ended: &Process,
        exit: &Exit,
        barred: bool,
        now: UnixMillis,
    ) {
        let patience = self.patience;
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let told = ended.stop_by.is_some() || !group.wanted || barred;
        let failed = exit.is_failure();
        let error = ended.agents.iter().find_map(|(agent, life)| match life {
            // The gateway serves without this agent, and ended for another reason.
            _ if self.bars.has(name, agent) => None,
            Life::Failed { error } => Some(error.clone()),
            _ => None,
        });
        let how = error.map_or_else(|| exit.to_string(), |error| format!("{exit}: {error}"));
        let how = excerpt(&how, LONGEST_HOW);
        let again = match group.restart {
            _ if told => false,
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => failed,
            RestartPolicy::Always => true,
        };
        if again {
            let settled = ended.since + patience.settled.as_millis() as u64 <= now;
            group.failures = if settled || !failed {
                1
            } else {
                group.failures + 1
            };
            // The process is not to blame for the fate of its node.
            let pause = if exit.is_of_its_node() {
                Duration::ZERO
            } else {
                pause(&patience, group.failures)
            };
            group.start_at = Some(now + pause.as_millis() as u64);
            group.note = Some(format!("ended ({how}), start {} follows", group.starts + 1));
        } else {
            group.wanted = false;
            group.note = Some(if barred {
                REVOKED.to_owned()
            } else if told {
                "stopped".to_owned()
            } else {
                format!("ended ({how})")
            });
        }
        self.refresh(name);
    }

    /// Ends an agent, with its process, for good.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`]; [`FaultCode::NotPermitted`] for a system agent.
    pub fn kill(&mut self, agent: &str, grace: Duration, now: UnixMillis) -> Result<(), Fault> {
        let name = self
            .agents
            .get(agent)
            .cloned()
            .ok_or_else(|| unknown("agent", agent))?;
        let Some(group) = self.groups.get_mut(&name) else {
            return Err(unknown("agent", agent));
        };
        if group.origin == GroupOrigin::System {
            let message = format!("{agent} is part of the platform");
            return Err(Fault::new(FaultCode::NotPermitted, message)
                .advise("to end the platform, end the Master"));
        }
        group.wanted = false;
        group.start_at = None;
        if let (Some(ended), Some(exit)) = (
            &group.process,
            group.moving.as_ref().and_then(|it| it.source_exit.clone()),
        ) {
            let ended = ended.id.clone();
            self.exited(&ended, &exit, now);
            return Ok(());
        }
        let stop_by = Some(now + grace.as_millis() as u64);
        let moving = group.moving.take();
        // Agents at rest would mistake the order to stop for the end of their move.
        let rests = moving
            .as_ref()
            .is_some_and(|moving| moving.source.is_none());
        let resting = group.process.clone().filter(|_| rests && !grace.is_zero());
        match moving {
            // Until the new process has taken over, the agent is at rest in the former one. If the new one ends before,
            // the agent goes on in the former one and ends there. If the former one has ended, its node tells the senders
            // of what the agent has not read.
            Some(moving) if moving.source_gone || moving.source.is_some() && !grace.is_zero() => {
                group.moving = Some(moving);
            }
            // The process at the former place ends too.
            moving => {
                let source = moving.and_then(|moving| moving.source);
                let source = source.map(|source| Process { stop_by, ..source });
                group.leaving.extend(source);
            }
        }
        if let Some(process) = &mut group.process {
            process.stop_by = stop_by;
        } else {
            group.note = Some("stopped".to_owned());
        }
        let present = group.process.iter().chain(&group.leaving);
        let processes: Vec<Process> = present.cloned().collect();
        if let Some(resting) = resting {
            self.thaw(&resting);
        }
        for process in processes {
            if grace.is_zero() {
                self.revoke(&process.id, Reason::Killed);
            }
            self.stop_process(&process, grace, "killed by the operator");
        }
        self.refresh(&name);
        Ok(())
    }

    /// Ends everything, for the end of the platform.
    pub fn stop_all(&mut self, grace: Duration, now: UnixMillis) {
        let agents: Vec<String> = self
            .groups
            .values()
            .filter(|group| group.origin != GroupOrigin::System)
            .filter_map(|group| group.agents.first().cloned())
            .collect();
        for agent in agents {
            // The only possible error is that the agent is already gone.
            let _ = self.kill(&agent, grace, now);
        }
    }

    /// Forgets all programs at the end of the platform. The next start begins without any.
    pub(crate) fn forget_programs(&mut self) {
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in names {
            self.forget_program(&name);
        }
    }

    /// Forgets a program that the manifest does not name any more. A process that still runs is ended.
    pub(crate) fn forget_program(&mut self, name: &str) {
        let group = self.groups.get(name);
        if group.is_some_and(|group| group.origin != GroupOrigin::System) {
            self.forget(name);
        }
    }

    pub(super) fn stop_process(&mut self, process: &Process, grace: Duration, reason: &str) {
        let request = NodeRequest::Stop {
            process: process.id.clone(),
            grace: grace.as_millis() as u64,
            reason: reason.to_owned(),
        };
        self.ask(&process.node.clone(), request, About::Nothing);
    }

    pub(super) fn tick_groups(&mut self, now: UnixMillis) {
        self.give_up_moves(now);
        self.end_leaving(now);
        let is_overdue = |group: &Group| {
            let stop_by = group.process.as_ref().and_then(|process| process.stop_by);
            stop_by.is_some_and(|at| at <= now)
        };
        for name in self.due(now, is_overdue) {
            let Some(process) = self
                .groups
                .get_mut(&name)
                .and_then(|group| group.process.as_mut())
            else {
                continue;
            };
            // The node is asked once. It ends the process by force, and reports the end.
            process.stop_by = Some(UnixMillis::MAX);
            let process = process.id.clone();
            self.revoke(&process, Reason::Killed);
            self.save(&name);
        }
        self.place_waiting(now);
    }
}

/// The end, with its reason shortened and unable to steer a terminal, because the node wrote it.
fn bounded(exit: &Exit) -> Exit {
    match exit {
        Exit::NotStarted { error } => Exit::NotStarted {
            error: excerpt(error, LONGEST_ERROR),
        },
        exit => exit.clone(),
    }
}

fn pause(patience: &super::TimeLimits, failures: u32) -> Duration {
    let doubled = patience
        .first_pause
        .saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(patience.longest_pause)
}
