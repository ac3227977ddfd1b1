//! The places of all agents, the processes whose agents use channels, and the rules for all processes. The Master has
//! the original, with a revision for each change. Nodes keep replicas, so that agents find each other while the Master
//! is away: of the whole directory up to [`MOST_WHOLE`] agents, and of [slices](Slices) of a larger one.
//!
//! A node states its [`Standing`] with each heartbeat, and gets [`Directory::answer`]. In between, the Master tells it
//! the changes that concern it ([`Directory::news_for`]).

#[cfg(test)]
mod cost;
mod following;
mod hollow;
mod places;
mod recent;
mod replica;
mod slices;
#[cfg(test)]
mod tests;
mod update;
mod views;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use crate::names::MASTER_NODE;
use crate::{AgentLocation, DirectoryChange, EndedProcess, ProcessContact, Rules};
use places::{contact, contacts, own_node};
use slices::slice_of;
use update::{NODES, names_between, processes_between, section_of};
use views::Views;

pub use following::MOST_FOLLOWED;
pub use hollow::HollowReplica;
pub use recent::RecentNames;
pub use replica::{Changed, Replica};
pub use slices::{HOLDERS, MOST_WHOLE, SLICES, Slices, WHOLE_AGAIN};
pub use update::{
    Cursor, DirectoryPart, DirectoryStep, DirectoryUpdate, NAMES_AT_ONCE, PART, Standing, Transfer,
};

/// The number of changes that are remembered, so that a replica need not get everything anew. In a large directory it
/// is a fraction of the agents, so that the loss of many nodes at once does not make other nodes begin anew.
const REMEMBERED: usize = 4096;
/// The fraction of the agents.
const REMEMBERED_OF_AGENTS: usize = 4;
/// The most changes in one update.
const MOST_CHANGES: usize = 4096;
/// The most ended processes that are remembered. No more of them are still mentioned at a time.
const ENDED: usize = 64;

/// The Master's directory.
#[derive(Debug)]
pub struct Directory {
    revision: u64,
    /// The nodes' own agents. All nodes know them, because they ask each other.
    nodes: BTreeMap<String, ProcessContact>,
    /// All other agents.
    slices: Vec<BTreeMap<String, AgentLocation>>,
    agents: usize,
    /// The processes whose agents use channels.
    processes: BTreeMap<EndedProcess, SocketAddr>,
    /// The revisions at which they joined.
    since: HashMap<EndedProcess, u64>,
    /// The latest processes that ended. They never come back.
    ended: VecDeque<EndedProcess>,
    rules: Rules,
    recent: VecDeque<Recent>,
    views: Views,
    /// The revision up to which the concerned nodes were determined.
    looked: u64,
}

/// A change, and the nodes that it concerns.
#[derive(Debug)]
struct Recent {
    step: DirectoryStep,
    concerns: Concerns,
}

/// The nodes that a change concerns.
#[derive(Debug)]
enum Concerns {
    /// All nodes.
    All,
    /// The nodes that hold or follow the agent of the step.
    Agent,
    /// The nodes that are told of processes that use channels.
    Channels,
    /// The end of a process: it concerns the nodes that hold or follow its agents, because they may have links to it,
    /// and the nodes that were told of it.
    End {
        agents: Vec<String>,
        used_channels: bool,
    },
}

impl Recent {
    /// The agents whose holders and followers the change concerns.
    fn agents(&self) -> &[String] {
        match (&self.concerns, &self.step) {
            (Concerns::Agent, DirectoryStep::Agent(change)) => std::slice::from_ref(&change.agent),
            (Concerns::End { agents, .. }, _) => agents,
            _ => &[],
        }
    }

    /// Whether the change concerns the nodes that are told of processes that use channels.
    fn is_of_channels(&self) -> bool {
        match &self.concerns {
            Concerns::All | Concerns::Agent => false,
            Concerns::Channels => true,
            Concerns::End { used_channels, .. } => *used_channels,
        }
    }
}

/// The nodes that must be told of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    /// All nodes.
    All,
    /// These nodes.
    Nodes(BTreeSet<String>),
}

impl Directory {
    /// An empty directory. Its first change gets the revision after `revision`. A restarted Master begins above every
    /// revision that it may have given out before.
    pub fn starting_at(revision: u64) -> Self {
        // Revision 0 belongs to a replica without any content.
        let revision = revision.max(1);
        Self {
            revision,
            nodes: BTreeMap::new(),
            slices: vec![BTreeMap::new(); SLICES],
            agents: 0,
            processes: BTreeMap::new(),
            since: HashMap::new(),
            ended: VecDeque::new(),
            rules: Rules::default(),
            recent: VecDeque::new(),
            views: Views::default(),
            looked: revision,
        }
    }

    /// The revision of the latest change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether there are so many agents that no node must hold all of them.
    pub fn is_sliced(&self) -> bool {
        self.views.is_sliced()
    }

    /// The place of `agent`.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        if let Some(contact) = self.nodes.get(agent) {
            return AgentLocation::Process(contact.clone());
        }
        let known = self.slices[slice_of(agent)].get(agent);
        known.cloned().unwrap_or(AgentLocation::Unknown)
    }

    /// Notes the new place of `agent`. Returns false if it was known already.
    pub fn set(&mut self, agent: &str, location: AgentLocation) -> bool {
        if self.locate(agent) == location {
            return false;
        }
        let was_node = self.nodes.remove(agent).is_some();
        let slice = &mut self.slices[slice_of(agent)];
        if slice.remove(agent).is_some() {
            self.agents -= 1;
        }
        let node = own_node(agent, &location).cloned();
        let is_node = node.is_some();
        match (node, &location) {
            (Some(contact), _) => {
                self.nodes.insert(agent.to_owned(), contact);
            }
            (None, AgentLocation::Unknown) => {}
            (None, known) => {
                slice.insert(agent.to_owned(), known.clone());
                self.agents += 1;
            }
        }
        if agent != MASTER_NODE && was_node != is_node {
            match is_node {
                true => self.views.came(agent),
                false => self.views.gone(agent),
            }
        }
        self.views.agents_are(self.agents);
        let change = DirectoryChange {
            agent: agent.to_owned(),
            location,
        };
        let concerns = match was_node || is_node {
            true => Concerns::All,
            false => Concerns::Agent,
        };
        self.remember(DirectoryStep::Agent(change), concerns);
        true
    }

    /// The reachable processes whose agents use channels.
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
            self.remember(DirectoryStep::Rules { rules }, Concerns::All);
        }
    }

    /// Notes the address of a process whose agents use channels, unless the process has ended.
    pub fn joined(&mut self, joined: ProcessContact) {
        let named = joined.named();
        if self.ended.contains(&named) || self.processes.get(&named) == Some(&joined.address) {
            return;
        }
        self.processes.insert(named.clone(), joined.address);
        self.remember(DirectoryStep::Joined { joined }, Concerns::Channels);
        self.since.insert(named, self.revision);
    }

    /// Notes that a process with these agents has ended.
    pub fn ended<'a>(&mut self, ended: EndedProcess, agents: impl IntoIterator<Item = &'a String>) {
        let concerns = Concerns::End {
            agents: agents.into_iter().cloned().collect(),
            used_channels: self.processes.contains_key(&ended),
        };
        self.note_end(ended, concerns);
    }

    /// Notes that the process of a node or of the Master has ended. All nodes have links to it.
    pub fn control_ended(&mut self, ended: EndedProcess) {
        self.note_end(ended, Concerns::All);
    }

    fn note_end(&mut self, ended: EndedProcess, concerns: Concerns) {
        self.processes.remove(&ended);
        self.since.remove(&ended);
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended.clone());
        self.remember(DirectoryStep::Ended { ended }, concerns);
    }

    fn remember(&mut self, step: DirectoryStep, concerns: Concerns) {
        self.revision += 1;
        let most = REMEMBERED.max(self.agents / REMEMBERED_OF_AGENTS);
        while self.recent.len() >= most {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent { step, concerns });
    }

    /// The revision before the oldest remembered change.
    fn oldest(&self) -> u64 {
        self.revision - self.recent.len() as u64
    }

    /// The changes after a revision; `None` if some of them are forgotten.
    fn after(&self, revision: u64) -> Option<impl Iterator<Item = &Recent>> {
        let skip = revision.checked_sub(self.oldest())? as usize;
        (skip <= self.recent.len()).then(|| self.recent.range(skip..))
    }

    /// The news for a follower of the whole directory in the Master's own memory: the changes after `revision`, or
    /// everything.
    pub fn since(&self, revision: u64) -> DirectoryUpdate {
        let (from, changes) = match self.after(revision) {
            Some(changes) => (
                revision,
                changes.map(|recent| recent.step.clone()).collect(),
            ),
            None => {
                let everything = Transfer {
                    slices: Slices::ALL,
                    base: true,
                    processes: true,
                    after: None,
                };
                (0, self.part(everything, usize::MAX).entries)
            }
        };
        DirectoryUpdate {
            from,
            to: self.revision,
            slices: Slices::ALL,
            changes,
            ..DirectoryUpdate::default()
        }
    }

    /// Whether a process that uses channels can be reached, and all others that do have been told of it.
    pub fn is_told(&self, named: &EndedProcess) -> bool {
        let since = self.since.get(named);
        since.is_some_and(|since| self.views.have_heard(*since))
    }

    /// Notes that the processes of a node know those that use channels, up to this revision.
    pub fn heard(&mut self, node: &str, revision: u64) {
        let view = self.views.of(node);
        self.views.heard(view, revision);
    }

    /// The answer to what a node states about its replica.
    pub fn answer(&mut self, node: &str, standing: &Standing) -> DirectoryUpdate {
        let view = self.views.of(node);
        let goes_on = self.after(standing.revision).is_some();
        let follows = match goes_on {
            true => self.views.exchange(view, standing),
            false => {
                self.views.renew(view);
                false
            }
        };
        self.views.holds(view, standing.slices);
        self.views.hears_processes(view, standing);
        let slices = self.views.slices_of(view);
        let update = match self.news(view, standing.revision, slices) {
            Some(mut update) => {
                if follows {
                    let follow = standing.follow.iter().take(NAMES_AT_ONCE);
                    update.changes.extend(follow.map(|agent| {
                        let (agent, location) = (agent.clone(), self.locate(agent));
                        DirectoryStep::Agent(DirectoryChange { agent, location })
                    }));
                }
                if let Some(mut transfer) = standing.transfer.clone() {
                    transfer.slices = transfer.slices & slices;
                    update.part = Some(self.part(transfer, PART));
                }
                update
            }
            None => {
                let all = Transfer {
                    slices,
                    base: true,
                    processes: standing.processes,
                    after: None,
                };
                DirectoryUpdate {
                    from: 0,
                    to: self.revision,
                    slices,
                    names: self.views.number(view),
                    part: Some(self.part(all, PART)),
                    ..DirectoryUpdate::default()
                }
            }
        };
        self.views.tell(view, update.to);
        update
    }

    /// The nodes that are concerned by changes since the last call.
    pub fn concerned(&mut self) -> Concerned {
        let looked = std::mem::replace(&mut self.looked, self.revision);
        let Some(changes) = self.after(looked) else {
            return Concerned::All;
        };
        let mut nodes = BTreeSet::new();
        for recent in changes {
            let agents = recent.agents();
            let is_all = matches!(recent.concerns, Concerns::All);
            if is_all || (!self.is_sliced() && !agents.is_empty()) {
                return Concerned::All;
            }
            let by_agents = agents.iter().flat_map(|agent| self.views.concerned(agent));
            let hearing = recent.is_of_channels().then(|| self.views.hearing());
            for node in by_agents.chain(hearing.into_iter().flatten()) {
                if !nodes.contains(node) {
                    nodes.insert(node.to_owned());
                }
            }
        }
        Concerned::Nodes(nodes)
    }

    /// The changes that concern a node and that it has not been told yet; `None` if there are none, or if the node must
    /// first state its standing.
    pub fn news_for(&mut self, node: &str) -> Option<DirectoryUpdate> {
        let view = self.views.of(node);
        let slices = self.views.slices_of(view);
        let update = self.news(view, self.views.told(view), slices)?;
        if update.changes.is_empty() {
            return None;
        }
        self.views.tell(view, update.to);
        Some(update)
    }

    fn news(&self, view: usize, from: u64, slices: Slices) -> Option<DirectoryUpdate> {
        let mut update = DirectoryUpdate {
            from,
            to: from,
            slices,
            names: self.views.number(view),
            ..DirectoryUpdate::default()
        };
        for recent in self.after(from)? {
            let knows = |agent: &String| {
                slices.contains(Slices::of(agent)) || self.views.follows(view, agent)
            };
            let concerns = matches!(recent.concerns, Concerns::All)
                || (recent.is_of_channels() && self.views.hears(view))
                || recent.agents().iter().any(knows);
            if concerns {
                if update.changes.len() == MOST_CHANGES {
                    update.more = true;
                    break;
                }
                update.changes.push(recent.step.clone());
            }
            update.to += 1;
        }
        Some(update)
    }

    /// The next part of a transfer, with at most this many entries.
    fn part(&self, of: Transfer, most: usize) -> DirectoryPart {
        let after = of.after.as_ref();
        let base = of.base.then_some(());
        let nodes = base.and_then(|()| names_between(NODES, after, None));
        let nodes = nodes.map(|range| self.nodes.range::<str, _>(range));
        let nodes = nodes.into_iter().flatten().map(|(name, contact)| {
            let location = AgentLocation::Process(contact.clone());
            let (agent, cursor) = (name.clone(), Cursor::at(NODES, name));
            let step = DirectoryStep::Agent(DirectoryChange { agent, location });
            (cursor, Some(step), None)
        });
        let processes = of.processes.then_some(());
        let processes = processes.and_then(|()| processes_between(after, None));
        let processes = processes.map(|range| self.processes.range(range));
        let processes = processes.into_iter().flatten().map(|(named, address)| {
            let joined = contact(named, *address);
            let step = DirectoryStep::Joined { joined };
            (Cursor::at_process(named), Some(step), None)
        });
        let agents = of.slices.iter().filter_map(|slice| {
            let range = names_between(section_of(slice), after, None)?;
            Some((slice, self.slices[slice].range::<str, _>(range)))
        });
        let agents = agents.flat_map(|(slice, agents)| {
            agents.map(move |(name, location)| {
                (
                    Cursor::at(section_of(slice), name),
                    None,
                    Some((name, location)),
                )
            })
        });
        let mut entries = Vec::new();
        if of.base && after.is_none() {
            let rules = self.rules.clone();
            entries.push(DirectoryStep::Rules { rules });
        }
        let mut together: HashMap<&AgentLocation, Vec<String>> = HashMap::new();
        let mut all = nodes.chain(processes).chain(agents);
        let mut last = None;
        for (cursor, step, agent) in all.by_ref().take(most) {
            last = Some(cursor);
            entries.extend(step);
            if let Some((name, location)) = agent {
                together.entry(location).or_default().push(name.clone());
            }
        }
        let until = all.next().and(last);
        drop(all);
        let together = together.into_iter().map(|(at, agents)| {
            let at = at.clone();
            DirectoryStep::Together { agents, at }
        });
        entries.extend(together);
        DirectoryPart { of, until, entries }
    }
}
