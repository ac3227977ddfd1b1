//! Where every agent is, which processes there are and what holds for them: the Master's original, with a
//! revision for each change, and the replicas that nodes keep so that agents find each other while the Master is away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

use crate::node::{DirectoryStep, DirectoryUpdate};
use crate::{AgentLocation, DirectoryChange, EndedProcess, ProcessContact, Rules};

/// Changes remembered so that a replica need not be sent everything.
const REMEMBERED: usize = 4096;
/// Processes remembered as ended: more than end while one of them is still spoken of.
const ENDED: usize = 64;

/// The Master's directory.
#[derive(Debug)]
pub struct Directory {
    revision: u64,
    entries: HashMap<String, AgentLocation>,
    processes: HashMap<EndedProcess, SocketAddr>,
    /// The last processes that ended: they do not come back.
    ended: VecDeque<EndedProcess>,
    rules: Rules,
    recent: VecDeque<DirectoryStep>,
}

impl Directory {
    /// An empty directory whose first change will have the revision after `revision`. A Master that
    /// is started again begins above every revision it may have given out before.
    pub fn starting_at(revision: u64) -> Self {
        // Revision 0 is a replica's that has nothing yet.
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

    /// Where `agent` is.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        self.entries
            .get(agent)
            .cloned()
            .unwrap_or(AgentLocation::Unknown)
    }

    /// Notes where `agent` is now; false if it was known to be there.
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

    /// Lays down what holds for all processes.
    pub fn set_rules(&mut self, rules: Rules) {
        if self.rules != rules {
            self.rules = rules.clone();
            self.remember(DirectoryStep::Rules { rules });
        }
    }

    /// Notes where a process can be reached, unless it has ended.
    pub fn joined(&mut self, joined: ProcessContact) {
        let named = joined.named();
        if self.ended.contains(&named) || self.processes.get(&named) == Some(&joined.address) {
            return;
        }
        self.processes.insert(named, joined.address);
        self.remember(DirectoryStep::Joined { joined });
    }

    /// Notes that a process is no more.
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

    /// The news for a replica at `revision`: the changes since, or everything.
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
    /// The revision it is at; 0 before the first update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Where `agent` is, as far as this replica knows.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        self.entries
            .get(agent)
            .cloned()
            .unwrap_or(AgentLocation::Unknown)
    }

    /// The processes that can be reached, as far as this replica knows; `None` before the first update.
    pub fn processes(&self) -> Option<Vec<ProcessContact>> {
        (self.revision > 0).then(|| contacts(&self.processes))
    }

    /// The rules for all processes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Applies an update and returns what it changed. An update that does not begin at this
    /// replica's revision, nor at the beginning, is left alone: the next one begins where this
    /// replica says it is.
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
                    // Told in order: whoever joined before does not join after.
                    changed.joined.retain(|joined| joined.named() != ended);
                    changed.ended.push(ended);
                }
                DirectoryStep::Rules { rules } => {
                    self.rules = rules.clone();
                    changed.rules = Some(rules);
                }
                // Only whole directories are told so.
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
                // Whole directories are told without these.
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
        // A process without agents may be one that is only being left; it is as good as ended.
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
    /// Agents that are elsewhere now.
    pub agents: Vec<DirectoryChange>,
    /// Processes that can be reached now.
    pub joined: Vec<ProcessContact>,
    /// Processes that are no more.
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
        /// Whatever updates are lost, doubled or late, a replica that gets the answer to its own
        /// revision is equal to the original.
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
                // Processes have names of their own for each start.
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
        // A Master that was started again, and lacks one.
        let mut directory = Directory::starting_at(1000);
        directory.joined(contact(3, 7));
        let rules = Rules {
            channels: Vec::new(),
            permission: sealbus_seal::permission::Policy {
                groups: [("sellers".to_owned(), Vec::new())].into(),
                ..Default::default()
            },
        };
        directory.set_rules(rules.clone());
        let changed = replica.apply(directory.since(replica.revision()));
        assert_eq!(changed.joined, [contact(3, 7)]);
        assert_eq!(changed.ended, [contact(1, 7).named()]);
        assert_eq!(changed.rules.as_ref(), Some(&rules));
        assert_eq!(replica.rules(), &rules);
    }
}
