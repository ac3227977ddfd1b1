//! The places of all agents, the present processes and the rules for them. The Master has the original, with a revision
//! for each change. Nodes keep replicas, so that agents find each other while the Master is away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

use crate::node::{DirectoryStep, DirectoryUpdate};
use crate::{AgentLocation, DirectoryChange, EndedProcess, ProcessContact, Rules};

/// Changes that are remembered, so that a replica need not receive the whole directory.
const REMEMBERED: usize = 4096;
/// Most ended processes that are remembered. No more of them are still mentioned at a time.
const ENDED: usize = 64;

/// The Master's directory.
#[derive(Debug)]
pub struct Directory {
    revision: u64,
    entries: HashMap<String, AgentLocation>,
    processes: HashMap<EndedProcess, SocketAddr>,
    /// The latest processes that ended. They do not come back.
    ended: VecDeque<EndedProcess>,
    rules: Rules,
    recent: VecDeque<DirectoryStep>,
}

impl Directory {
    /// An empty directory. Its first change will have the revision after `revision`. A restarted Master begins above
    /// every revision it may have given out before.
    pub fn starting_at(revision: u64) -> Self {
        // Revision 0 belongs to a replica without any content.
        Self {
            revision: revision.max(1),
            entries: HashMap::new(),
            processes: HashMap::new(),
            ended: VecDeque::new(),
            rules: Rules::default(),
            recent: VecDeque::new(),
        }
    }

    /// The revision of the latest change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The place of `agent`.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        self.entries
            .get(agent)
            .cloned()
            .unwrap_or(AgentLocation::Unknown)
    }

    /// Notes the new place of `agent`. Returns false if the place was already known.
    pub fn set(&mut self, agent: &str, location: AgentLocation) -> bool {
        if self.locate(agent) == location {
            return false;
        }
        match &location {
            AgentLocation::Unknown => self.entries.remove(agent),
            known => self.entries.insert(agent.to_owned(), known.clone()),
        };
        self.remember(DirectoryStep::Agent(DirectoryChange {
            agent: agent.to_owned(),
            location,
        }));
        true
    }

    /// The processes that can be reached.
    pub fn processes(&self) -> Vec<ProcessContact> {
        contacts(&self.processes)
    }

    /// The rules for all processes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Sets the rules for all processes.
    pub fn set_rules(&mut self, rules: Rules) {
        if self.rules != rules {
            self.rules = rules.clone();
            self.remember(DirectoryStep::Rules { rules });
        }
    }

    /// Notes the address of a process, unless the process has ended.
    pub fn joined(&mut self, joined: ProcessContact) {
        let named = joined.named();
        if self.ended.contains(&named) || self.processes.get(&named) == Some(&joined.address) {
            return;
        }
        self.processes.insert(named, joined.address);
        self.remember(DirectoryStep::Joined { joined });
    }

    /// Notes that a process has ended.
    pub fn ended(&mut self, ended: EndedProcess) {
        self.processes.remove(&ended);
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended.clone());
        self.remember(DirectoryStep::Ended { ended });
    }

    fn remember(&mut self, step: DirectoryStep) {
        self.revision += 1;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(step);
    }

    /// The news for a replica at `revision`: the later changes, or the whole directory.
    pub fn since(&self, revision: u64) -> DirectoryUpdate {
        let oldest = self.revision - self.recent.len() as u64;
        if (oldest..=self.revision).contains(&revision) {
            let skip = (revision - oldest) as usize;
            let changes = self.recent.iter().skip(skip).cloned().collect();
            return DirectoryUpdate {
                from: revision,
                to: self.revision,
                changes,
            };
        }
        let mut together: HashMap<&AgentLocation, Vec<String>> = HashMap::new();
        for (agent, location) in &self.entries {
            together.entry(location).or_default().push(agent.clone());
        }
        let everything = together
            .into_iter()
            .map(|(at, agents)| DirectoryStep::Together {
                agents,
                at: at.clone(),
            });
        let joined = self.processes().into_iter();
        let rules = DirectoryStep::Rules {
            rules: self.rules.clone(),
        };
        DirectoryUpdate {
            from: 0,
            to: self.revision,
            changes: everything
                .chain(joined.map(|joined| DirectoryStep::Joined { joined }))
                .chain([rules])
                .collect(),
        }
    }
}

/// A node's copy of the directory.
#[derive(Debug, Default)]
pub struct Replica {
    revision: u64,
    entries: HashMap<String, AgentLocation>,
    processes: HashMap<EndedProcess, SocketAddr>,
    rules: Rules,
}

impl Replica {
    /// The replica's revision; 0 before the first update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The place of `agent`, as far as this replica knows it.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        self.entries
            .get(agent)
            .cloned()
            .unwrap_or(AgentLocation::Unknown)
    }

    /// The reachable processes, as far as this replica knows them; `None` before the first update.
    pub fn processes(&self) -> Option<Vec<ProcessContact>> {
        (self.revision > 0).then(|| contacts(&self.processes))
    }

    /// The rules for all processes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Applies an update and returns the changes it made. An update is ignored if it begins neither at this replica's
    /// revision nor at the beginning. The next update begins at the revision that this replica reports.
    pub fn apply(&mut self, update: DirectoryUpdate) -> Changed {
        if update.from == 0 {
            return self.replace(update);
        }
        if update.from > self.revision || update.to <= self.revision {
            return Changed::default();
        }
        let seen = (self.revision - update.from) as usize;
        self.revision = update.to;
        let mut changed = Changed::default();
        for step in update.changes.into_iter().skip(seen) {
            match step {
                DirectoryStep::Agent(change) => {
                    if self.set(&change) {
                        changed.agents.push(change);
                    }
                }
                DirectoryStep::Joined { joined } => {
                    self.processes.insert(joined.named(), joined.address);
                    changed.joined.push(joined);
                }
                DirectoryStep::Ended { ended } => {
                    self.processes.remove(&ended);
                    // Order matters: a process that joined and then ended must not join again.
                    changed.joined.retain(|joined| joined.named() != ended);
                    changed.ended.push(ended);
                }
                DirectoryStep::Rules { rules } => {
                    self.rules = rules.clone();
                    changed.rules = Some(rules);
                }
                // Only whole directories have this step.
                DirectoryStep::Together { .. } => {}
            }
        }
        changed
    }

    fn replace(&mut self, update: DirectoryUpdate) -> Changed {
        let mut gone: HashMap<String, AgentLocation> = std::mem::take(&mut self.entries);
        let mut before = processes(&gone);
        let known = std::mem::take(&mut self.processes);
        before.extend(known.keys().cloned());
        let mut changed = Changed::default();
        for step in update.changes {
            match step {
                DirectoryStep::Together { agents: names, at } => {
                    for agent in names {
                        let location = at.clone();
                        if gone.remove(&agent).as_ref() != Some(&location) {
                            let (agent, location) = (agent.clone(), location.clone());
                            changed.agents.push(DirectoryChange { agent, location });
                        }
                        self.entries.insert(agent, location);
                    }
                }
                DirectoryStep::Joined { joined } => {
                    let named = joined.named();
                    self.processes.insert(named.clone(), joined.address);
                    if known.get(&named) != Some(&joined.address) {
                        changed.joined.push(joined);
                    }
                }
                DirectoryStep::Rules { rules } => {
                    if self.rules != rules {
                        self.rules = rules.clone();
                        changed.rules = Some(rules);
                    }
                }
                // Whole directories do not have these steps.
                DirectoryStep::Agent(_) | DirectoryStep::Ended { .. } => {}
            }
        }
        let unknown = AgentLocation::Unknown;
        changed
            .agents
            .extend(gone.into_keys().map(|agent| DirectoryChange {
                agent,
                location: unknown.clone(),
            }));
        self.revision = update.to;
        // A process without agents may be one that its agents are leaving. It counts as ended.
        let mut after = processes(&self.entries);
        after.extend(self.processes.keys().cloned());
        changed.ended = before.difference(&after).cloned().collect();
        changed
    }

    fn set(&mut self, change: &DirectoryChange) -> bool {
        match &change.location {
            AgentLocation::Unknown => self.entries.remove(&change.agent).is_some(),
            known => {
                self.entries
                    .insert(change.agent.clone(), known.clone())
                    .as_ref()
                    != Some(known)
            }
        }
    }
}

/// The changes that an update made in a replica.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Agents that have moved.
    pub agents: Vec<DirectoryChange>,
    /// Processes that can be reached now.
    pub joined: Vec<ProcessContact>,
    /// Processes that have ended.
    pub ended: Vec<EndedProcess>,
    /// The present rules for all processes.
    pub rules: Option<Rules>,
}

fn contacts(processes: &HashMap<EndedProcess, SocketAddr>) -> Vec<ProcessContact> {
    let contacts = processes.iter().map(|(named, address)| ProcessContact {
        node: named.node.clone(),
        process: named.process.clone(),
        address: *address,
    });
    contacts.collect()
}

fn processes(entries: &HashMap<String, AgentLocation>) -> HashSet<EndedProcess> {
    let contacts = entries.values().filter_map(|location| match location {
        AgentLocation::Process(contact) => Some(contact),
        _ => None,
    });
    contacts
        .map(|contact| EndedProcess {
            node: contact.node.clone(),
            process: contact.process.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ProcessContact;

    fn at(port: u16) -> AgentLocation {
        match port {
            0 => AgentLocation::Unknown,
            1 => AgentLocation::InTransit,
            _ => AgentLocation::Process(ProcessContact {
                node: "node-1".to_owned(),
                process: "p".to_owned(),
                address: ([127, 0, 0, 1], port).into(),
            }),
        }
    }

    fn contact(process: usize, port: u16) -> ProcessContact {
        ProcessContact {
            node: "node-1".to_owned(),
            process: format!("process-{process}"),
            address: ([127, 0, 0, 1], port).into(),
        }
    }

    proptest! {
        /// Updates may be lost, doubled or late. Still, a replica that gets the answer to its own revision is equal to
        /// the original.
        #[test]
        fn a_replica_catches_up(
            steps in prop::collection::vec((0_usize..5, 0_u16..6, 0_u8..4), 1..60),
            start in 0_u64..3,
        ) {
            let mut directory = Directory::starting_at(start);
            let mut replica = Replica::default();
            let mut late = Vec::new();
            for (agent, port, delivery) in steps {
                                let before = directory.revision();
                directory.set(&format!("agent-{agent}"), at(port));
                // Each start of a process has a name of its own.
                match port {
                    3 => directory.joined(contact(agent, 7)),
                    4 => directory.joined(contact(agent, 8)),
                    5 => directory.ended(contact(agent, 7).named()),
                    _ => {}
                }
                let update = directory.since(before);
                match delivery {
                    0 => {}
                    1 => late.push(update),
                    2 => { replica.apply(update); }
                    _ => {
                        replica.apply(directory.since(replica.revision()));
                        for old in late.drain(..).filter(|old| old.from != 0) {
                            replica.apply(old);
                        }
                    }
                }
            }
            replica.apply(directory.since(replica.revision()));
            for agent in 0..5 {
                let name = format!("agent-{agent}");
                                prop_assert_eq!(directory.locate(&name), replica.locate(&name));
            }
            let sorted = |mut processes: Vec<ProcessContact>| {
                processes.sort_by(|a, b| a.process.cmp(&b.process));
                processes
            };
            let known = replica.processes().unwrap();
            prop_assert_eq!(sorted(directory.processes()), sorted(known));
        }
    }

    #[test]
    fn an_update_tells_what_it_changed() {
        let mut directory = Directory::starting_at(10);
        directory.set("a", at(5));
        directory.set("b", at(6));
        let mut replica = Replica::default();
        assert_eq!(replica.apply(directory.since(0)).agents.len(), 2);
        directory.set("a", at(0));
        let changes = replica.apply(directory.since(replica.revision()));
        assert_eq!(
            changes.agents,
            [DirectoryChange {
                agent: "a".to_owned(),
                location: at(0)
            }]
        );
        let ended = EndedProcess {
            node: "node-1".to_owned(),
            process: "p".to_owned(),
        };
        directory.ended(ended.clone());
        let changed = replica.apply(directory.since(replica.revision()));
        assert_eq!((changed.agents.len(), changed.ended), (0, vec![ended]));
        assert_eq!(
            replica.apply(directory.since(replica.revision())),
            Changed::default()
        );
    }

    /// The single notices to a process add up to the whole directory.
    #[test]
    fn a_process_that_ended_does_not_join_again() {
        let mut directory = Directory::starting_at(10);
        let mut replica = Replica::default();
        assert_eq!(replica.processes(), None);
        directory.joined(contact(1, 7));
        let changed = replica.apply(directory.since(0));
        assert_eq!(changed.joined, [contact(1, 7)]);
        directory.joined(contact(2, 7));
        directory.ended(contact(2, 7).named());
        directory.joined(contact(2, 7));
        let changed = replica.apply(directory.since(replica.revision()));
        assert_eq!(changed.joined, []);
        assert_eq!(changed.ended, [contact(2, 7).named()]);
        // This Master was restarted, and lacks one process.
        let mut directory = Directory::starting_at(1000);
        directory.joined(contact(3, 7));
        let rules = Rules {
            channels: Vec::new(),
            permission: sealbus_seal::permission::Policy {
                groups: [("sellers".to_owned(), Vec::new())].into(),
                ..Default::default()
            },
            ..Rules::default()
        };
        directory.set_rules(rules.clone());
        let changed = replica.apply(directory.since(replica.revision()));
        assert_eq!(changed.joined, [contact(3, 7)]);
        assert_eq!(changed.ended, [contact(1, 7).named()]);
        assert_eq!(changed.rules.as_ref(), Some(&rules));
        assert_eq!(replica.rules(), &rules);
    }
}
