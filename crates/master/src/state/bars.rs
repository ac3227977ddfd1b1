//! The agents that get no more certificates, because an operator revoked theirs. Each has a row, so that a revocation costs
//! one row however many agents the process has. The rows go when the process is forgotten.

use std::collections::{BTreeSet, HashMap};

use sealbus_store::Rows;

use super::MasterState;
use crate::registry::Process;

pub(super) const BAR_ROW: &str = "bar/";
/// The note of a program that is not started again.
pub(super) const REVOKED: &str = "revoked by an operator";

/// The barred agents of each process.
#[derive(Default)]
pub(super) struct Bars(HashMap<String, BTreeSet<String>>);

fn row(process: &str, agent: &str) -> String {
    format!("{BAR_ROW}{process}/{agent}")
}

impl Bars {
    /// Loads a row of the store, given without its prefix.
    pub(super) fn load(&mut self, row: &str) {
        if let Some((process, agent)) = row.split_once('/') {
            let agents = self.0.entry(process.to_owned()).or_default();
            agents.insert(agent.to_owned());
        }
    }

    pub(super) fn add(&mut self, process: &str, agent: &str, rows: &mut Rows) {
        let agents = self.0.entry(process.to_owned()).or_default();
        if agents.insert(agent.to_owned()) {
            rows.put_bytes(row(process, agent), Vec::new());
        }
    }

    pub(super) fn of(&self, process: &str) -> impl Iterator<Item = &String> {
        self.0.get(process).into_iter().flatten()
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&mut self, process: &str, rows: &mut Rows) {
        for agent in self.0.remove(process).into_iter().flatten() {
            rows.delete(row(process, &agent));
        }
    }

    /// Forgets all processes but these.
    pub(super) fn keep(&mut self, is_known: impl Fn(&str) -> bool, rows: &mut Rows) {
        let processes = self.0.keys().filter(|process| !is_known(process));
        let unknown: Vec<String> = processes.cloned().collect();
        for process in unknown {
            self.forget(&process, rows);
        }
    }
}

impl MasterState {
    /// Bars an agent in this process, or all of its agents, from further certificates.
    pub fn bar(&mut self, process: &str, agent: Option<&str>) {
        let Some((name, found)) = self.process(process) else {
            return;
        };
        let agents = match agent {
            Some(agent) => vec![agent.to_owned()],
            None => found.agents.keys().cloned().collect(),
        };
        // An agent that is revoked while it moves is barred at both ends.
        let group = self.groups.get(name);
        let destination = group
            .filter(|group| {
                let source = group.moving.as_ref().and_then(|it| it.source.as_ref());
                source.is_some_and(|source| source.id == process)
            })
            .and_then(|group| group.process.as_ref());
        let destination = destination.map(|destination| destination.id.clone());
        for process in [process].into_iter().chain(destination.as_deref()) {
            for agent in &agents {
                self.bars.add(process, agent, &mut self.rows);
            }
        }
    }

    /// Bars an agent in all of its processes. An agent that has ended and waits for its next start is not started.
    pub fn bar_everywhere(&mut self, agent: &str) {
        for process in self.processes_of(agent) {
            self.bar(&process, Some(agent));
        }
        let name = self.agents.get(agent);
        let name = name.filter(|_| self.waits_for_start(agent)).cloned();
        if let Some(name) = name
            && let Some(group) = self.groups.get_mut(&name)
        {
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
        self.bars.of(process).any(|barred| barred == agent)
    }

    /// Whether an operator revoked any agent of a process, and all of them.
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
