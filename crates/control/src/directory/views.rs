//! The parts of a large directory that each node must hold: slices, and the names that it follows.

use std::collections::{BTreeSet, HashMap};

use sealbus_seal::Name;

use super::following::MOST_FOLLOWED;
use super::slices::{HOLDERS, MOST_WHOLE, SLICES, Slices, WHOLE_AGAIN, hash, slice_of, weight};
use super::update::{NAMES_AT_ONCE, Standing};

/// The distance between the first numbers of exchanges, so that no late update has the number of a later exchange.
const NUMBERS: u64 = 1 << 32;
/// Followings of nodes that began anew are removed when there are more of them than of all others, and more than this.
const UNSWEPT: usize = 10_000;

/// The Master's knowledge of the nodes' replicas.
#[derive(Debug)]
pub(super) struct Views {
    is_sliced: bool,
    of_node: HashMap<String, usize>,
    views: Vec<View>,
    /// The nodes that are told of the processes that use channels.
    hearing: BTreeSet<usize>,
    /// The nodes that must hold each slice, with their weights, the greatest first.
    holders: Vec<Vec<(u64, usize)>>,
    /// The tags of the nodes that follow each name.
    followers: HashMap<String, Vec<u32>>,
    /// The node of each tag; `None` if the node began anew, with another tag.
    tags: Vec<Option<usize>>,
    free: Vec<u32>,
    /// The number of all followings.
    followings: usize,
    /// The number of followings whose tag has no node.
    unswept: usize,
    drawn: u64,
}

#[derive(Debug)]
struct View {
    node: String,
    hash: u64,
    is_there: bool,
    /// The slices that the node states to hold.
    held: Slices,
    /// The revision that the node was last told.
    told: u64,
    /// Whether the node has stated anything.
    is_heard_of: bool,
    /// The revision up to which the node's processes know those that use channels.
    heard: u64,
    tag: u32,
    /// The number of the last exchange of names.
    number: u64,
    followed: usize,
}

impl Default for Views {
    fn default() -> Self {
        Self {
            is_sliced: false,
            of_node: HashMap::new(),
            views: Vec::new(),
            hearing: BTreeSet::new(),
            holders: vec![Vec::new(); SLICES],
            followers: HashMap::new(),
            tags: Vec::new(),
            free: Vec::new(),
            followings: 0,
            unswept: 0,
            drawn: 0,
        }
    }
}

impl Views {
    /// Whether nodes hold only slices.
    pub(super) fn is_sliced(&self) -> bool {
        self.is_sliced
    }

    /// Notes the number of agents.
    pub(super) fn agents_are(&mut self, agents: usize) {
        self.is_sliced = match self.is_sliced {
            true => agents >= WHOLE_AGAIN,
            false => agents > MOST_WHOLE,
        };
    }

    /// The view of a node.
    pub(super) fn of(&mut self, node: &str) -> usize {
        if let Some(view) = self.of_node.get(node) {
            return *view;
        }
        let view = self.views.len();
        let tag = self.tag(view);
        self.views.push(View {
            node: node.to_owned(),
            hash: hash(node),
            is_there: false,
            held: Slices::NONE,
            told: 0,
            is_heard_of: false,
            heard: 0,
            tag,
            number: 0,
            followed: 0,
        });
        self.of_node.insert(node.to_owned(), view);
        view
    }

    fn tag(&mut self, view: usize) -> u32 {
        if let Some(tag) = self.free.pop() {
            self.tags[tag as usize] = Some(view);
            return tag;
        }
        self.tags.push(Some(view));
        (self.tags.len() - 1) as u32
    }

    /// Notes that a node has come.
    pub(super) fn came(&mut self, node: &str) {
        let view = self.of(node);
        self.views[view].is_there = true;
        for slice in 0..SLICES {
            self.candidate(slice, view);
        }
    }

    /// Notes that a node has gone. Nothing about it is remembered.
    pub(super) fn gone(&mut self, node: &str) {
        let view = self.of(node);
        let gone = &mut self.views[view];
        (gone.is_there, gone.held, gone.told) = (false, Slices::NONE, 0);
        (gone.is_heard_of, gone.heard) = (false, 0);
        self.hearing.remove(&view);
        self.begin_anew(view);
        for slice in 0..SLICES {
            let held = self.holders[slice].iter().any(|(_, other)| *other == view);
            if held {
                self.holders[slice].clear();
                let there = (0..self.views.len()).filter(|other| self.views[*other].is_there);
                for other in there.collect::<Vec<_>>() {
                    self.candidate(slice, other);
                }
            }
        }
    }

    fn candidate(&mut self, slice: usize, view: usize) {
        let candidate = (weight(slice, self.views[view].hash), view);
        let holders = &mut self.holders[slice];
        if holders.contains(&candidate) {
            return;
        }
        let place = holders.partition_point(|other| *other > candidate);
        holders.insert(place, candidate);
        holders.truncate(HOLDERS);
    }

    /// The slices that a node must hold: those chosen for it, and those that it holds until all of their holders do.
    pub(super) fn slices_of(&self, view: usize) -> Slices {
        if !self.is_sliced {
            return Slices::ALL;
        }
        let is_holder =
            |slice: &usize| self.holders[*slice].iter().any(|(_, other)| *other == view);
        let is_settled = |slice: &usize| {
            let mut holders = self.holders[*slice].iter();
            holders.all(|(_, view)| self.views[*view].held.contains(Slices::one(*slice)))
        };
        let held = self.views[view].held;
        if !self.views[view].is_there {
            return held;
        }
        let must = |slice: &usize| {
            is_holder(slice) || (held.contains(Slices::one(*slice)) && !is_settled(slice))
        };
        (0..SLICES)
            .filter(must)
            .fold(Slices::NONE, |all, slice| all | Slices::one(slice))
    }

    /// Notes the slices that a node holds.
    pub(super) fn holds(&mut self, view: usize, slices: Slices) {
        self.views[view].held = slices;
    }

    /// Notes whether a node wants to be told of the processes that use channels, and which revision its own know.
    pub(super) fn hears_processes(&mut self, view: usize, standing: &Standing) {
        match standing.processes {
            true => self.hearing.insert(view),
            false => self.hearing.remove(&view),
        };
        let stating = &mut self.views[view];
        // A node that has nothing of the directory has only registered, and will state more soon.
        stating.is_heard_of = standing.revision > 0;
        stating.heard = match stating.is_heard_of {
            true => stating.heard.max(standing.heard),
            false => 0,
        };
    }

    /// Whether a node is told of the processes that use channels.
    pub(super) fn hears(&self, view: usize) -> bool {
        self.hearing.contains(&view)
    }

    /// Notes the revision up to which the processes of a node know those that use channels.
    pub(super) fn heard(&mut self, view: usize, revision: u64) {
        let heard = &mut self.views[view].heard;
        *heard = revision.max(*heard);
    }

    /// Whether, on all nodes that are told of processes that use channels, the processes know these up to this
    /// revision. A node that has not stated anything yet may be one of them.
    pub(super) fn have_heard(&self, revision: u64) -> bool {
        let mut there = self.views.iter().enumerate().filter(|(_, it)| it.is_there);
        there.all(|(view, it)| it.is_heard_of && (it.heard >= revision || !self.hears(view)))
    }

    /// The nodes that are told of the processes that use channels.
    pub(super) fn hearing(&self) -> impl Iterator<Item = &str> {
        let hearing = self.hearing.iter();
        hearing.map(|view| self.views[*view].node.as_str())
    }

    /// The revision that a node was last told.
    pub(super) fn told(&self, view: usize) -> u64 {
        self.views[view].told
    }

    /// Notes the revision that a node is told.
    pub(super) fn tell(&mut self, view: usize, revision: u64) {
        self.views[view].told = revision;
    }

    /// The number of a node's last exchange.
    pub(super) fn number(&self, view: usize) -> u64 {
        self.views[view].number
    }

    /// Whether a node follows a name.
    pub(super) fn follows(&self, view: usize, name: &str) -> bool {
        let tag = self.views[view].tag;
        self.followers
            .get(name)
            .is_some_and(|tags| tags.contains(&tag))
    }

    /// The nodes that must be told of a change of this name.
    pub(super) fn concerned(&self, name: &str) -> impl Iterator<Item = &str> {
        let holders = self.holders[slice_of(name)].iter().map(|(_, view)| *view);
        let followers = self.followers.get(name).into_iter().flatten();
        let followers = followers.filter_map(|tag| self.tags[*tag as usize]);
        holders
            .chain(followers)
            .map(|view| self.views[view].node.as_str())
    }

    /// Carries out an exchange of names. Returns whether the names that the node wants to follow are followed now.
    pub(super) fn exchange(&mut self, view: usize, standing: &Standing) -> bool {
        let number = self.views[view].number;
        let is_empty = standing.follow.is_empty() && standing.forget.is_empty();
        let next = standing.names.wrapping_add(1);
        let fits = standing.names == number || (next == number && !is_empty);
        if number == 0 || !fits {
            self.renew(view);
            return false;
        }
        if is_empty {
            return false;
        }
        for name in standing.forget.iter().take(NAMES_AT_ONCE) {
            self.forget(view, name);
        }
        for name in standing.follow.iter().take(NAMES_AT_ONCE) {
            self.follow(view, name);
        }
        self.views[view].number = next;
        true
    }

    fn follow(&mut self, view: usize, name: &str) {
        // The node itself has the same limit, in addition to its own agents.
        let is_full = self.views[view].followed >= 2 * MOST_FOLLOWED;
        if is_full || self.follows(view, name) || Name::new("agent", name).is_err() {
            return;
        }
        let tag = self.views[view].tag;
        self.followers.entry(name.to_owned()).or_default().push(tag);
        self.views[view].followed += 1;
        self.followings += 1;
    }

    fn forget(&mut self, view: usize, name: &str) {
        let tag = self.views[view].tag;
        let Some(tags) = self.followers.get_mut(name) else {
            return;
        };
        let Some(place) = tags.iter().position(|other| *other == tag) else {
            return;
        };
        tags.swap_remove(place);
        if tags.is_empty() {
            self.followers.remove(name);
        }
        self.views[view].followed -= 1;
        self.followings -= 1;
    }

    /// Begins the exchanges with a node anew.
    pub(super) fn renew(&mut self, view: usize) {
        self.begin_anew(view);
        self.drawn += NUMBERS;
        self.views[view].number = self.drawn;
    }

    /// Forgets all names that a node follows.
    fn begin_anew(&mut self, view: usize) {
        self.views[view].number = 0;
        let followed = std::mem::take(&mut self.views[view].followed);
        if followed == 0 {
            return;
        }
        // Searching for them among the names of all nodes would take too long.
        self.tags[self.views[view].tag as usize] = None;
        self.views[view].tag = self.tag(view);
        self.unswept += followed;
        if self.unswept > UNSWEPT.max(self.followings / 2) {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let tags = &self.tags;
        self.followers.retain(|_, followers| {
            followers.retain(|tag| tags[*tag as usize].is_some());
            followers.shrink_to_fit();
            !followers.is_empty()
        });
        self.followers.shrink_to_fit();
        self.followings -= std::mem::take(&mut self.unswept);
        let free: BTreeSet<u32> = self.free.drain(..).collect();
        let unused = (0..self.tags.len() as u32).filter(|tag| self.tags[*tag as usize].is_none());
        self.free = unused
            .chain(free)
            .collect::<BTreeSet<u32>>()
            .into_iter()
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(names: u64, follow: &[String]) -> Standing {
        Standing {
            names,
            follow: follow.to_vec(),
            ..Standing::default()
        }
    }

    /// Whatever a node sends, the Master remembers a limited number of its names.
    #[test]
    fn a_hostile_node_fills_no_memory() {
        let mut views = Views::default();
        views.came("node-1");
        let view = views.of("node-1");
        views.exchange(view, &standing(0, &[]));
        for round in 0..200 {
            let names: Vec<String> = (0..2 * NAMES_AT_ONCE)
                .map(|number| format!("made-up-{round}-{number}"))
                .collect();
            views.exchange(view, &standing(views.number(view), &names));
        }
        assert_eq!(views.views[view].followed, 2 * MOST_FOLLOWED);
        let names = ["no name@all".to_owned(), "x".repeat(100_000)];
        views.exchange(view, &standing(0, &[]));
        views.exchange(view, &standing(views.number(view), &names));
        assert_eq!(views.views[view].followed, 0);
        // It begins anew with other names, again and again.
        for round in 0..2000 {
            let names: Vec<String> = (0..NAMES_AT_ONCE)
                .map(|number| format!("other-{round}-{number}"))
                .collect();
            views.exchange(view, &standing(0, &[]));
            views.exchange(view, &standing(views.number(view), &names));
            assert!(views.follows(view, &names[0]));
            assert!(views.followers.len() <= 2 * UNSWEPT + NAMES_AT_ONCE);
        }
        assert!(views.tags.len() < 100, "{}", views.tags.len());
        views.gone("node-1");
        views.sweep();
        assert_eq!((views.followers.len(), views.followings), (0, 0));
    }

    #[test]
    fn an_exchange_that_comes_twice_is_carried_out_once_and_any_other_begins_anew() {
        let mut views = Views::default();
        let view = views.of("node-1");
        assert!(!views.exchange(view, &standing(0, &[])));
        let first = views.number(view);
        let names = ["a".to_owned()];
        assert!(views.exchange(view, &standing(first, &names)));
        assert!(views.exchange(view, &standing(first, &names)));
        assert_eq!((views.number(view), views.followings), (first + 1, 1));
        assert!(!views.exchange(view, &standing(first, &[])));
        assert!(!views.follows(view, "a") && views.number(view) > first + 1);
    }

    #[test]
    fn a_slice_stays_where_it_is_until_its_holders_have_it() {
        let mut views = Views::default();
        views.agents_are(MOST_WHOLE + 1);
        for node in ["one", "two", "three"] {
            views.came(node);
            let view = views.of(node);
            assert_eq!(views.slices_of(view), Slices::ALL);
            views.holds(view, Slices::ALL);
        }
        views.came("four");
        let four = views.of("four");
        let gained = views.slices_of(four);
        assert!(gained != Slices::NONE && gained != Slices::ALL);
        for node in ["one", "two", "three"] {
            assert_eq!(views.slices_of(views.of_node[node]), Slices::ALL);
        }
        views.holds(four, gained);
        let kept = ["one", "two", "three"].map(|node| views.slices_of(views.of_node[node]));
        let held = kept.iter().map(|slices| slices.count()).sum::<u32>() + gained.count();
        assert_eq!(held as usize, HOLDERS * SLICES);
        views.gone("one");
        assert_eq!(views.slices_of(four), Slices::ALL);
    }
}
