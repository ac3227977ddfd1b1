//! Where every agent is: the Master's original, with a revision for each change, and the replicas
//! that nodes keep so that agents find each other while the Master is away.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::control::node::{DirectoryStep, DirectoryUpdate};
use crate::control::{AgentLocation, DirectoryChange, EndedProcess};

/// Changes remembered so that a replica need not be sent everything.
const REMEMBERED: usize = 4096;

/// The Master's directory.
#[derive(Debug)]
pub struct Directory {
    revision: u64,
    entries: HashMap<String, AgentLocation>,
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

    /// Notes that a process is no more.
    pub fn ended(&mut self, ended: EndedProcess) {
        self.remember(DirectoryStep::Ended { ended });
    }

    fn remember(&mut self, step: DirectoryStep) {
        self.revision += 1;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(step);
    }

    /// What a replica at `revision` has to be told: the changes since, or everything.
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
        DirectoryUpdate {
            from: 0,
            to: self.revision,
            changes: everything.collect(),
        }
    }
}

/// A node's copy of the directory.
#[derive(Debug, Default)]
pub struct Replica {
    revision: u64,
    entries: HashMap<String, AgentLocation>,
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
                DirectoryStep::Ended { ended } => changed.ended.push(ended),
                // Only whole directories are told so.
                DirectoryStep::Together { .. } => {}
            }
        }
        changed
    }

    fn replace(&mut self, update: DirectoryUpdate) -> Changed {
        let mut gone: HashMap<String, AgentLocation> = std::mem::take(&mut self.entries);
        let before = processes(&gone);
        let mut agents = Vec::new();
        for step in update.changes {
            let DirectoryStep::Together { agents: names, at } = step else {
                continue;
            };
            for agent in names {
                let location = at.clone();
                if gone.remove(&agent).as_ref() != Some(&location) {
                    let (agent, location) = (agent.clone(), location.clone());
                    agents.push(DirectoryChange { agent, location });
                }
                self.entries.insert(agent, location);
            }
        }
        let unknown = AgentLocation::Unknown;
        agents.extend(gone.into_keys().map(|agent| DirectoryChange {
            agent,
            location: unknown.clone(),
        }));
        self.revision = update.to;
        // A process without agents may be one that is only being left; it is as good as ended.
        let after = processes(&self.entries);
        let ended = before.difference(&after).cloned().collect();
        Changed { agents, ended }
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

/// What an update changed in a replica.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Agents that are elsewhere now.
    pub agents: Vec<DirectoryChange>,
    /// Processes that are no more.
    pub ended: Vec<EndedProcess>,
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
    use crate::control::ProcessContact;

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
}
