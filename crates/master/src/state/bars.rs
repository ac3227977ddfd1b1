//! The agents that get no more certificates, because an operator revoked theirs. Each has a row, so that a revocation costs
//! one row however many agents the process has. The rows go when the process is forgotten. An agent without which a gateway
//! serves others is barred in all processes of the gateway: after a crash, the gateway is restarted without it. Its row goes
//! when an operator starts the gateway again.

use std::collections::{BTreeSet, HashMap};

use sealbus_store::Rows;

use super::MasterState;
use crate::registry::{Life, Process};

pub(super) const BAR_ROW: &str = "bar/";
/// The note of a program that is not started again, and of an agent without which its gateway was restarted.
pub(super) const REVOKED: &str = "revoked by an operator";

/// The barred agents of each holder: a process, or the group of a gateway.
#[derive(Default)]
pub(super) struct Bars(HashMap<String, BTreeSet<String>>);

fn row(holder: &str, agent: &str) -> String {
    format!("{BAR_ROW}{holder}/{agent}")
}

impl Bars {
    /// Loads a row of the store, given without its prefix.
    pub(super) fn load(&mut self, row: &str) {
        if let Some((holder, agent)) = row.split_once('/') {
            let agents = self.0.entry(holder.to_owned()).or_default();
            agents.insert(agent.to_owned());
        }
    }

    pub(super) fn add(&mut self, holder: &str, agent: &str, rows: &mut Rows) {
        let agents = self.0.entry(holder.to_owned()).or_default();
        if agents.insert(agent.to_owned()) {
            rows.put_bytes(row(holder, agent), Vec::new());
        }
    }

    pub(super) fn of(&self, holder: &str) -> impl Iterator<Item = &String> {
        self.0.get(holder).into_iter().flatten()
    }

    pub(super) fn has(&self, holder: &str, agent: &str) -> bool {
        let agents = self.0.get(holder);
        agents.is_some_and(|agents| agents.contains(agent))
    }

    /// Notes in a new process of a gateway's group that the barred agents do not come to life there.
    pub(super) fn leave_out(&self, group: &str, process: &mut Process) {
        for agent in self.of(group) {
            if let Some(life) = process.agents.get_mut(agent) {
                *life = Life::Failed {
                    error: REVOKED.to_owned(),
                };
            }
        }
    }

    /// Forgets a process that has ended, or a gateway that is forgotten or started again by an operator.
    pub(super) fn forget(&mut self, holder: &str, rows: &mut Rows) {
        for agent in self.0.remove(holder).into_iter().flatten() {
            rows.delete(row(holder, &agent));
        }
    }

    /// Forgets all holders but these.
    pub(super) fn keep(&mut self, is_known: impl Fn(&str) -> bool, rows: &mut Rows) {
        let holders = self.0.keys().filter(|holder| !is_known(holder));
        let unknown: Vec<String> = holders.cloned().collect();
        for holder in unknown {
            self.forget(&holder, rows);
        }
    }
}

impl MasterState {
    /// Bars an agent in this process, or all of its agents, from further certificates. An agent without which a gateway serves
    /// others is barred in all processes of the gateway.
    pub fn bar(&mut self, process: &str, agent: Option<&str>) {
        let Some((name, found)) = self.process(process) else {
            return;
        };
        let agents = match agent {
            Some(agent) => vec![agent.to_owned()],
            None => found.agents.keys().cloned().collect(),
        };
        let name = name.to_owned();
        // An agent that is revoked while it moves is barred at both ends.
        let group = self.groups.get(&name);
        let destination = group
            .filter(|group| {
                let source = group.moving.as_ref().and_then(|it| it.source.as_ref());
                source.is_some_and(|source| source.id == process)
            })
            .and_then(|group| group.process.as_ref());
        let destination = destination.map(|destination| destination.id.clone());
        for process in [process].into_iter().chain(destination.as_deref()) {
            for agent in &agents {
                let holder = match group.is_some_and(|group| group.serves_without(agent)) {
                    true => name.as_str(),
                    false => process,
                };
                self.bars.add(holder, agent, &mut self.rows);
            }
        }
    }

    /// Bars an agent in all of its processes. An agent that has ended and waits for its next start is not started. If it belongs
    /// to a gateway that serves others without it, the gateway is started.
    pub fn bar_everywhere(&mut self, agent: &str) {
        for process in self.processes_of(agent) {
            self.bar(&process, Some(agent));
        }
        let name = self.agents.get(agent);
        let name = name.filter(|_| self.waits_for_start(agent)).cloned();
        if let Some(name) = name
            && let Some(group) = self.groups.get_mut(&name)
        {
            if group.serves_without(agent) {
                return self.bars.add(&name, agent, &mut self.rows);
            }
            group.wanted = false;
            group.start_at = None;
            group.note = Some(REVOKED.to_owned());
            self.refresh(&name);
        }
    }

    /// Whether an agent has no process, and gets one without another command of an operator.
    pub fn waits_for_start(&self, agent: &str) -> bool {
        let name = self.agents.get(agent);
        let group = name.and_then(|name| self.groups.get(name));
        group.is_some_and(|group| group.wanted && group.process.is_none())
    }

    /// Whether an operator revoked this agent in this process.
    pub fn is_barred(&self, process: &str, agent: &str) -> bool {
        let group = self.processes.get(process);
        let mut holders = [process].into_iter().chain(group.map(String::as_str));
        holders.any(|holder| self.bars.has(holder, agent))
    }

    /// Whether an operator revoked any agent without which a process may not go on, and all of its agents.
    pub fn barred(&self, process: &Process) -> (bool, bool) {
        let is_barred = |agent: &String| self.is_barred(&process.id, agent);
        let any = self.bars.of(&process.id).next().is_some();
        (any, any && process.agents.keys().all(is_barred))
    }

    /// Forgets a process that has ended. Returns its group.
    pub(super) fn drop_process(&mut self, process: &str) -> Option<String> {
        self.bars.forget(process, &mut self.rows);
        self.processes.remove(process)
    }
}
