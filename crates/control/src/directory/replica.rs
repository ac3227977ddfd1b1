//! A node's copy of the directory, or of some slices of it.

mod parts;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::following::Following;
use super::places::{contacts, own_node};
use super::slices::{HOLDERS, SLICES, Slices, hash, slice_of, weight};
use super::update::{DirectoryStep, DirectoryUpdate, Standing, Transfer};
use crate::names::MASTER_NODE;
use crate::{AgentLocation, DirectoryChange, EndedProcess, ProcessContact, Rules};

/// A node's copy of the directory.
///
/// It has all nodes, the processes that use channels if it [wants](Self::hear_processes) them, the slices that the
/// Master names, and the names that this node follows. Everything that it [covers](Self::covers) is as in the Master's
/// directory at the revision, or newer.
#[derive(Debug)]
pub struct Replica {
    revision: u64,
    nodes: BTreeMap<String, ProcessContact>,
    slices: Vec<BTreeMap<String, AgentLocation>>,
    processes: BTreeMap<EndedProcess, SocketAddr>,
    rules: Rules,
    /// Whether all nodes have come.
    has_base: bool,
    /// Whether it wants to be told of the processes that use channels.
    hears_processes: bool,
    /// Whether all of these processes have come.
    has_processes: bool,
    /// The slices that have come completely.
    held: Slices,
    /// The slices that are still to come.
    transfer: Option<Transfer>,
    following: Following,
    /// Places of followed names according to other nodes, until the Master reports them. `None` if these differ.
    hearsay: HashMap<String, Option<AgentLocation>>,
    /// Whether the answer to the stated standing is outstanding. It includes updates that came before it.
    is_asking: bool,
    /// Whether an update did not fit, or more changes wait.
    is_behind: bool,
    /// Whether the last answer contained nothing of what was asked for.
    is_stalled: bool,
}

impl Default for Replica {
    fn default() -> Self {
        Self {
            revision: 0,
            nodes: BTreeMap::new(),
            slices: vec![BTreeMap::new(); SLICES],
            processes: BTreeMap::new(),
            rules: Rules::default(),
            has_base: false,
            hears_processes: false,
            has_processes: false,
            held: Slices::NONE,
            transfer: None,
            following: Following::default(),
            hearsay: HashMap::new(),
            is_asking: false,
            is_behind: false,
            is_stalled: false,
        }
    }
}

/// The changes that an update made in a replica.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Agents that have moved.
    pub agents: Vec<DirectoryChange>,
    /// Agents that have left a node, each with that node.
    pub left: Vec<(String, String)>,
    /// Processes that use channels and can be reached now.
    pub joined: Vec<ProcessContact>,
    /// Processes that have ended.
    pub ended: Vec<EndedProcess>,
    /// The present rules for all processes.
    pub rules: Option<Rules>,
}

impl Replica {
    /// The replica's revision; 0 before the first update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The place of `agent`, as far as this replica knows it.
    pub fn locate(&self, agent: &str) -> AgentLocation {
        if let Some(contact) = self.nodes.get(agent) {
            return AgentLocation::Process(contact.clone());
        }
        let known = self.slices[slice_of(agent)].get(agent);
        known.cloned().unwrap_or(AgentLocation::Unknown)
    }

    /// Whether this replica would know `agent` if the Master knew it at this revision.
    pub fn covers(&self, agent: &str) -> bool {
        self.nodes.contains_key(agent)
            || self.held.contains(Slices::of(agent))
            || self.following.is_told(agent)
    }

    /// The nodes, without the Master.
    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys().filter(|node| *node != MASTER_NODE)
    }

    /// The contact of a node.
    pub fn node(&self, name: &str) -> Option<&ProcessContact> {
        self.nodes.get(name)
    }

    /// The nodes that may hold the slice of `agent`, likeliest first. While holders change, a former one comes behind
    /// them.
    pub fn holders(&self, agent: &str) -> Vec<String> {
        let slice = slice_of(agent);
        let mut nodes: Vec<(u64, &String)> = self
            .nodes()
            .map(|node| (weight(slice, hash(node)), node))
            .collect();
        nodes.sort_unstable_by(|one, other| other.cmp(one));
        let nodes = nodes.into_iter().take(2 * HOLDERS);
        nodes.map(|(_, node)| node.clone()).collect()
    }

    /// The slices that this replica holds whole.
    pub fn held(&self) -> Slices {
        self.held
    }

    /// The number of agents that it knows, without nodes.
    pub fn agents(&self) -> usize {
        self.slices.iter().map(BTreeMap::len).sum()
    }

    /// The reachable processes that use channels; `None` if the replica does not want them, or not all have come.
    pub fn processes(&self) -> Option<Vec<ProcessContact>> {
        self.has_processes.then(|| contacts(&self.processes))
    }

    /// Sets whether it wants to be told of the processes that use channels, from the next answer on.
    pub fn hear_processes(&mut self, hears: bool) {
        if self.hears_processes == hears {
            return;
        }
        self.hears_processes = hears;
        self.is_stalled = false;
        if !hears {
            self.processes.clear();
            self.has_processes = false;
        }
        // A part that comes now no longer fits.
        self.transfer = self.transfer.take().filter(|transfer| !transfer.processes);
        self.hold_all(self.held);
    }

    #[cfg(test)]
    pub(super) fn hears_of_processes(&self) -> bool {
        self.hears_processes
    }

    /// Has its standing stated to the Master at once.
    pub fn state_at_once(&mut self) {
        (self.is_behind, self.is_stalled) = (true, false);
    }

    /// The rules for all processes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Follows an agent that somebody has asked for, from the next answer on.
    pub fn follow(&mut self, agent: &str) {
        if let Some(forgotten) = self.following.ask(agent) {
            self.drop_unkept(&forgotten);
        }
        self.is_stalled = false;
    }

    /// Whether the replica follows an agent.
    pub fn follows(&self, agent: &str) -> bool {
        self.following.contains(agent)
    }

    /// Notes what another node said about a followed agent. If the Master says the same, it is no change. Another node
    /// is believed in nothing else.
    pub fn heard(&mut self, agent: &str, location: &AgentLocation) {
        if self.covers(agent) || !self.following.contains(agent) {
            return;
        }
        // Nodes that said another place must be overruled by the Master.
        let said = self.hearsay.entry(agent.to_owned());
        let said = said.or_insert_with(|| Some(location.clone()));
        said.take_if(|former| former != location);
    }

    /// Notes that nobody asks for an agent any more.
    pub fn unfollow(&mut self, agent: &str) {
        if self.following.unask(agent) {
            self.drop_unkept(agent);
        }
    }

    /// Follows the node's own agents.
    pub fn own_agents_are(&mut self, agents: &Arc<HashSet<String>>) {
        for agent in self.following.own_are(agents) {
            self.drop_unkept(&agent);
        }
    }

    /// The standing that the replica states to the Master. Until [`answered`](Self::answered) or
    /// [`unanswered`](Self::unanswered) is called, other updates are refused.
    pub fn standing(&mut self) -> Standing {
        self.is_asking = true;
        let (coming, following) = (self.coming(), &mut self.following);
        let exchange = following.exchange(coming);
        Standing {
            revision: self.revision,
            slices: self.held,
            names: following.number(),
            follow: exchange.follow,
            forget: exchange.forget,
            processes: self.hears_processes,
            heard: 0,
            transfer: self.transfer.clone(),
        }
    }

    /// Whether the Master must be asked at once, and not only with the next heartbeat.
    pub fn wants(&self) -> bool {
        let has_news = self.following.has_news(self.coming());
        !self.is_stalled && (self.is_behind || self.transfer.is_some() || has_news)
    }

    /// Notes that the last standing gets no answer.
    pub fn unanswered(&mut self) {
        self.is_asking = false;
    }

    /// Applies the answer to the last standing, and returns the changes that it made.
    pub fn answered(&mut self, update: DirectoryUpdate) -> Changed {
        self.is_asking = false;
        let state = |replica: &Self| {
            let (held, number) = (replica.held, replica.following.number());
            (replica.revision, held, number, replica.transfer.clone())
        };
        let before = state(self);
        let mut changed = Changed::default();
        if update.from == 0 {
            self.revision = update.to;
            self.held = Slices::NONE;
            self.has_processes = false;
            let of = update.part.as_ref().map(|part| &part.of);
            self.transfer = Some(Transfer {
                slices: update.slices,
                base: true,
                processes: self.hears_processes && of.is_some_and(|of| of.processes),
                after: None,
            });
            self.following.begin(update.names);
            self.take_steps(update.changes, &mut changed);
        } else if update.from == self.revision {
            self.revision = self.revision.max(update.to);
            self.hold_only(update.slices);
            self.take_steps(update.changes, &mut changed);
            self.following.answered(update.names);
        } else {
            self.is_stalled = true;
            return changed;
        }
        if let Some(part) = update.part {
            self.take_part(part, &mut changed);
        }
        self.hold_all(update.slices);
        self.is_behind = update.more;
        self.is_stalled = state(self) == before;
        changed
    }

    /// Applies an update that the Master sent unasked, and returns the changes that it made. An update that does not
    /// fit is ignored, because the next answer includes it.
    pub fn told(&mut self, update: DirectoryUpdate) -> Changed {
        let mut changed = Changed::default();
        if update.to <= self.revision {
            return changed;
        }
        let fits =
            (1..=self.revision).contains(&update.from) && update.names == self.following.number();
        if self.is_asking || !fits {
            (self.is_behind, self.is_stalled) = (true, false);
            return changed;
        }
        self.revision = update.to;
        self.hold_only(update.slices);
        self.take_steps(update.changes, &mut changed);
        self.hold_all(update.slices);
        self.is_behind |= update.more;
        changed
    }

    /// The slices that the replica has or will get.
    fn coming(&self) -> Slices {
        let coming = self.transfer.as_ref().map(|transfer| transfer.slices);
        self.held | coming.unwrap_or_default()
    }

    fn keeps(&self, agent: &str) -> bool {
        self.coming().contains(Slices::of(agent)) || self.following.contains(agent)
    }

    fn drop_unkept(&mut self, agent: &str) {
        if !self.following.contains(agent) {
            self.hearsay.remove(agent);
        }
        if !self.keeps(agent) {
            self.slices[slice_of(agent)].remove(agent);
        }
    }

    /// Gives up all other slices. Followed names stay as long as nothing newer is known.
    fn hold_only(&mut self, slices: Slices) {
        let dropped = self.coming() - slices;
        self.held = self.held & slices;
        if dropped == Slices::NONE {
            return;
        }
        if let Some(transfer) = &mut self.transfer {
            transfer.slices = transfer.slices & slices;
            if transfer.slices == Slices::NONE && !transfer.base && !transfer.processes {
                self.transfer = None;
            }
        }
        self.drop_slices(dropped);
    }

    fn drop_slices(&mut self, dropped: Slices) {
        let following = &self.following;
        for slice in dropped.iter() {
            self.slices[slice].retain(|name, _| following.contains(name));
        }
    }

    /// Requests those of the slices that are missing. One transfer follows the other.
    fn hold_all(&mut self, slices: Slices) {
        let lacking = slices - self.held;
        let lacks_processes = self.hears_processes && !self.has_processes;
        let lacks_any = lacking != Slices::NONE || !self.has_base || lacks_processes;
        if self.transfer.is_none() && lacks_any {
            self.transfer = Some(Transfer {
                slices: lacking,
                base: !self.has_base,
                processes: lacks_processes,
                after: None,
            });
        }
    }

    fn take_steps(&mut self, steps: Vec<DirectoryStep>, changed: &mut Changed) {
        for step in steps {
            match step {
                DirectoryStep::Agent(DirectoryChange { agent, location }) => {
                    self.set(agent, location, changed);
                }
                DirectoryStep::Joined { joined } => self.joined(joined, changed),
                DirectoryStep::Ended { ended } => {
                    self.processes.remove(&ended);
                    // Order matters: a process that joined and then ended must not join again.
                    changed.joined.retain(|joined| joined.named() != ended);
                    changed.ended.push(ended);
                }
                DirectoryStep::Rules { rules } => self.obey(rules, changed),
                // Only transfers have this step.
                DirectoryStep::Together { .. } => {}
            }
        }
    }

    fn obey(&mut self, rules: Rules, changed: &mut Changed) {
        if self.rules != rules {
            self.rules = rules.clone();
            changed.rules = Some(rules);
        }
    }

    fn joined(&mut self, joined: ProcessContact, changed: &mut Changed) {
        if !self.hears_processes {
            return;
        }
        let former = self.processes.insert(joined.named(), joined.address);
        if former != Some(joined.address) {
            changed.joined.push(joined);
        }
    }

    fn set(&mut self, agent: String, location: AgentLocation, changed: &mut Changed) {
        let former = self.locate(&agent);
        if former == location {
            return;
        }
        if let AgentLocation::Process(former) = former
            && !matches!(&location, AgentLocation::Process(contact) if contact.node == former.node)
        {
            changed.left.push((agent.clone(), former.node));
        }
        let was_node = self.nodes.remove(&agent).is_some();
        let node = own_node(&agent, &location).cloned();
        if !was_node && node.is_none() && !self.keeps(&agent) {
            return;
        }
        let slice = &mut self.slices[slice_of(&agent)];
        slice.remove(&agent);
        match (node, &location) {
            (Some(contact), _) => {
                self.nodes.insert(agent.clone(), contact);
            }
            (None, AgentLocation::Unknown) => {}
            (None, known) => {
                slice.insert(agent.clone(), known.clone());
            }
        }
        if self.hearsay.remove(&agent).flatten().as_ref() != Some(&location) {
            changed.agents.push(DirectoryChange { agent, location });
        }
    }
}
