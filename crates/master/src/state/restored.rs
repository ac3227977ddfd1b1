//! A state that was restored from a backup. Nodes know better which processes they run and which certificates were
//! revoked. So the Master first listens. It places nothing, and takes nothing for lost, until the nodes it knows are
//! back or a minute has passed. Processes that the backup does not know are adopted if their nodes show that the CA
//! certified them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use super::{About, MasterState, RESTORED_ROW};
use crate::registry::{Group, GroupOrigin, Life, Process};
use sealbus_control::node::{Exit, NodeRequest, RunningProcess};
use sealbus_control::{NodeDescription, UnixMillis};

/// How long the Master listens at least, so that nodes that the backup does not know are heard too.
const LEAST: Duration = Duration::from_secs(20);
/// How long the Master listens at most.
const MOST: Duration = Duration::from_secs(60);

/// The contents of the row once the nodes were heard. The row stays, because a node that the backup does not know may be
/// away for longer.
const HEARD: &[u8] = b"heard";

/// The facts known so far.
pub(super) struct Restored {
    since: UnixMillis,
    /// The processes that run on each node that was heard.
    running: BTreeMap<String, HashSet<String>>,
    /// Processes that the backup does not know, by their nodes. No node can speak for the processes of another one.
    strangers: BTreeMap<String, BTreeMap<String, Stranger>>,
}

/// A process that the backup does not know.
struct Stranger {
    found: RunningProcess,
    /// Its agents that the CA had certified, and that are not denied.
    proven: Option<BTreeSet<String>>,
    /// The proven agents so far, while its node has not shown all certificates yet.
    proving: Option<BTreeSet<String>>,
}

impl Restored {
    fn since(now: UnixMillis) -> Self {
        Self {
            since: now,
            running: BTreeMap::new(),
            strangers: BTreeMap::new(),
        }
    }

    /// Reads the row of a restored state. Returns `None` once the nodes were heard.
    pub(super) fn load(row: &[u8], now: UnixMillis) -> Option<Self> {
        (row != HEARD).then(|| Self::since(now))
    }

    pub(super) fn until(&self) -> UnixMillis {
        self.since + MOST.as_millis() as UnixMillis
    }
}

impl MasterState {
    /// Whether the Master still collects the facts that nodes know better than its restored state.
    pub(crate) fn is_restoring(&self) -> bool {
        self.restored.is_some()
    }

    /// Whether the state was once restored, and may lack nodes that joined after its backup.
    pub(crate) fn was_restored(&self) -> bool {
        self.was_restored
    }

    /// Notes the processes of a node. Returns false if the state was not restored, or if the listening is over.
    pub(super) fn note_running(&mut self, node: &str, running: &[RunningProcess]) -> bool {
        let is_known = |found: &&RunningProcess| {
            let ours = self.process(&found.process);
            ours.is_some_and(|(_, process)| process.node == node)
        };
        let unknown: Vec<_> = running.iter().filter(|found| !is_known(found)).collect();
        let Some(restored) = &mut self.restored else {
            return false;
        };
        let mut former = restored.strangers.remove(node).unwrap_or_default();
        let strangers = unknown.iter().map(|found| {
            let former = former.remove(&found.process);
            let (proven, proving) = former.map(|it| (it.proven, it.proving)).unwrap_or_default();
            let stranger = Stranger {
                found: (*found).clone(),
                proven,
                proving,
            };
            (found.process.clone(), stranger)
        });
        let strangers = strangers.collect();
        restored.strangers.insert(node.to_owned(), strangers);
        let all = running.iter().map(|found| found.process.clone()).collect();
        restored.running.insert(node.to_owned(), all);
        for found in unknown {
            self.ask_for_certificates(node, found.process.clone());
        }
        true
    }

    fn stranger(&mut self, node: &str, process: &str) -> Option<&mut Stranger> {
        let restored = self.restored.as_mut()?;
        restored.strangers.get_mut(node)?.get_mut(process)
    }

    fn ask_for_certificates(&mut self, node: &str, process: String) {
        let about = About::Certified {
            node: node.to_owned(),
            process: process.clone(),
        };
        let after = None;
        self.ask(node, NodeRequest::Certificates { process, after }, about);
    }

    /// Has all certificates shown again, because more certificates are denied now than when they were shown.
    pub(crate) fn doubt_certificates(&mut self) {
        let Some(restored) = &mut self.restored else {
            return;
        };
        let mut doubted = Vec::new();
        for (node, strangers) in &mut restored.strangers {
            for (process, stranger) in strangers {
                (stranger.proven, stranger.proving) = (None, None);
                doubted.push((node.clone(), process.clone()));
            }
        }
        for (node, process) in doubted {
            self.ask_for_certificates(&node, process);
        }
    }

    /// Notes that a process that the backup does not know was certified, as its node begins to show.
    pub fn is_certified(&mut self, node: &str, process: &str) {
        if let Some(stranger) = self.stranger(node, process) {
            stranger.proving = Some(BTreeSet::new());
        }
    }

    /// Notes further agents of such a process that were certified, too. Returns whether the node need go on.
    pub fn certified(&mut self, node: &str, process: &str, agents: BTreeSet<String>) -> bool {
        let stranger = self.stranger(node, process);
        let proving = stranger.and_then(|stranger| stranger.proving.as_mut());
        proving.map(|proving| proving.extend(agents)).is_some()
    }

    /// Notes that the node has shown all certificates of a process.
    pub(crate) fn has_shown_all(&mut self, node: &str, process: &str) {
        if let Some(stranger) = self.stranger(node, process) {
            stranger.proven = Some(stranger.proving.take().unwrap_or_default());
        }
    }

    /// Lets a node that the backup does not know come back, if its certificate was verified.
    pub(super) fn come_back_unknown(
        &mut self,
        name: &str,
        description: &NodeDescription,
        now: UnixMillis,
    ) -> bool {
        let is_free = !self.is_member(name) && !self.agents.contains_key(name);
        if !self.was_restored || !is_free {
            return false;
        }
        tracing::warn!(
            node = name,
            "joined after the backup was made, and is taken in again"
        );
        self.join(Some(name), description.clone(), now).is_ok()
    }

    /// In a restored state, gives up a node that is not there, so that a new one may have its name: the machine's disk may
    /// be lost too.
    pub(super) fn give_up_lost(&mut self, name: &str, now: UnixMillis) {
        let node = self.nodes.get(name).map(|node| node.state);
        let Some(state) = node.filter(|state| self.was_restored && !state.is_there()) else {
            return;
        };
        if !state.is_gone() {
            self.node_died(name, now);
        }
        if let Err(fault) = self.forget_node(name) {
            tracing::error!(node = name, %fault, "could not be given up");
        }
    }

    /// Ends the listening when its time is over.
    pub(super) fn tick_restored(&mut self, now: UnixMillis) {
        let Some(restored) = &self.restored else {
            return;
        };
        let is_missing = |name: &String| !restored.running.contains_key(name);
        let missing = self.nodes.iter().filter(|(_, node)| !node.state.is_gone());
        // A manifest that is put in force may yet bring the agents of a process.
        let is_clear = |Stranger { found, proven, .. }: &Stranger| {
            let is_known = |(agent, _): &(String, _)| self.agents.contains_key(agent);
            proven.is_some() && (found.pid.is_none() || found.agents.iter().all(is_known))
        };
        let mut strangers = restored.strangers.values().flat_map(BTreeMap::values);
        let is_complete = !missing.map(|(name, _)| name).any(is_missing) && strangers.all(is_clear);
        let least = restored.since + LEAST.as_millis() as UnixMillis;
        if now < least || !is_complete && now < restored.until() {
            return;
        }
        // Without the wait for what was restored, deadlines come earlier.
        self.nodes.change();
        let Some(restored) = self.restored.take() else {
            return;
        };
        self.rows.put_bytes(RESTORED_ROW.to_owned(), HEARD.to_vec());
        let Restored {
            running: all,
            strangers,
            ..
        } = restored;
        let mut adopted = 0;
        for (node, strangers) in &strangers {
            for Stranger { found, proven, .. } in strangers.values() {
                let proven = proven.as_ref();
                let is_adopted =
                    proven.is_some_and(|agents| self.adopt_running(node, found, agents, &all, now));
                adopted += usize::from(is_adopted);
                if !is_adopted {
                    let stop = NodeRequest::Stop {
                        process: found.process.clone(),
                        grace: 0,
                        reason: "the restored Master does not know it".to_owned(),
                    };
                    self.ask(node, stop, About::Nothing);
                }
            }
        }
        for (node, running) in &all {
            self.miss(node, |process| running.contains(process), now);
        }
        tracing::warn!(
            warning = "restored",
            adopted,
            nodes = all.len(),
            "the platform goes on from its backup"
        );
        self.place_waiting(now);
    }

    /// Counts processes as lost that were started on a node and are not there.
    pub(super) fn miss(&mut self, node: &str, is_there: impl Fn(&str) -> bool, now: UnixMillis) {
        for process in self.placed_on(node) {
            let started = self.process(&process).is_some_and(|(_, p)| p.pid.is_some());
            if started && !is_there(&process) {
                self.exited(&process, &Exit::Lost, now);
            }
        }
    }

    /// Adopts a running process as that of its group. All its agents belong to one group that does not run elsewhere,
    /// or the process came with a ticket.
    fn adopt_running(
        &mut self,
        node: &str,
        found: &RunningProcess,
        proven: &BTreeSet<String>,
        running: &BTreeMap<String, HashSet<String>>,
        now: UnixMillis,
    ) -> bool {
        let Some((first, _)) = found.agents.first() else {
            return false;
        };
        if proven.is_empty() {
            return false;
        }
        let name = match self.agents.get(first) {
            Some(name) => name.clone(),
            None if found.pid.is_none() && found.agents.len() == 1 && !self.is_member(first) => {
                let group = Group::new(vec![first.clone()], GroupOrigin::Ticket);
                self.index(first, &group);
                self.groups.insert(first.clone(), group);
                first.clone()
            }
            None => return false,
        };
        let Some(group) = self.groups.get(&name) else {
            return false;
        };
        let known: HashSet<&String> = group.agents.iter().collect();
        let is_its = |(agent, _): &(String, _)| known.contains(agent);
        let runs = |process: &Process| {
            let there = running.get(&process.node);
            there.is_some_and(|there| there.contains(&process.id))
        };
        let is_free = group.origin != GroupOrigin::System && !group.processes().any(runs);
        if !is_free || !found.agents.iter().all(is_its) {
            return false;
        }
        let agents = group.agents.clone();
        let former: Vec<Process> = group.processes().cloned().collect();
        for process in former {
            self.drop_process(&process.id);
            self.end_process(&process, sealbus_seal::denylist::Reason::Superseded);
        }
        let mut process = Process::placed(found.process.clone(), node, &agents, now);
        self.bars.leave_out(&name, &mut process);
        process.pid = found.pid;
        process.begun = true;
        process.address = found.address;
        process.channels = found.channels;
        for (agent, state) in &found.agents {
            process
                .agents
                .insert(agent.clone(), Life::State { state: *state });
        }
        self.processes.insert(process.id.clone(), name.clone());
        if let Some(group) = self.groups.get_mut(&name) {
            group.moving = None;
            group.leaving.clear();
            group.start_at = None;
            group.note = None;
            group.wanted = true;
            group.starts = group.starts.max(1);
            group.place(process);
        }
        // An agent without a valid certificate was revoked, and gets no other in this process.
        for (agent, _) in found.agents.iter().filter(|it| !proven.contains(&it.0)) {
            self.bar(&found.process, Some(agent));
        }
        self.refresh(&name);
        true
    }
}
