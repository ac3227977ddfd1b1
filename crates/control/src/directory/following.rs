//! The names that a node follows, whatever slices it holds: its own agents, and the agents that its processes ask for.
//! The Master learns them in numbered exchanges. An exchange is repeated unchanged until its answer comes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::recent::RecentNames;
use super::slices::{SLICES, Slices, slice_of};
use super::update::NAMES_AT_ONCE;

/// The most names that a node follows, apart from its own agents.
pub const MOST_FOLLOWED: usize = 65_536;

#[derive(Debug)]
pub(super) struct Following {
    /// The number of the last answered exchange.
    number: u64,
    asked: RecentNames,
    own: Arc<HashSet<String>>,
    /// Followed names that the Master knows.
    told: HashSet<String>,
    /// Followed names that the Master does not know, by slice.
    untold: Vec<BTreeSet<String>>,
    /// Names that are no longer followed, which the Master does not know yet.
    unwanted: BTreeSet<String>,
    sent: Option<Exchange>,
}

/// Names to follow and names to forget.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) follow: Vec<String>,
    pub(super) forget: Vec<String>,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            number: 0,
            asked: RecentNames::new(MOST_FOLLOWED),
            own: Arc::default(),
            told: HashSet::new(),
            untold: vec![BTreeSet::new(); SLICES],
            unwanted: BTreeSet::new(),
            sent: None,
        }
    }
}

impl Following {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the name is followed.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.own.contains(name) || self.asked.contains(name)
    }

    /// Whether the Master reports the changes of this name.
    pub(super) fn is_told(&self, name: &str) -> bool {
        self.told.contains(name)
    }

    /// Follows a name that is asked for. Returns the name that is dropped to make room.
    pub(super) fn ask(&mut self, name: &str) -> Option<String> {
        let forgotten = self.asked.note(name);
        self.enter(name);
        forgotten.filter(|forgotten| self.leave(forgotten))
    }

    /// Notes that nobody asks for a name any more. Returns whether it is no longer followed.
    pub(super) fn unask(&mut self, name: &str) -> bool {
        self.asked.remove(name) && self.leave(name)
    }

    /// Follows the node's own agents. Returns the names that are no longer followed. If the value is the same as
    /// before, this costs nothing.
    pub(super) fn own_are(&mut self, own: &Arc<HashSet<String>>) -> Vec<String> {
        if Arc::ptr_eq(&self.own, own) {
            return Vec::new();
        }
        let former = std::mem::replace(&mut self.own, own.clone());
        for name in own.difference(&former) {
            self.enter(name);
        }
        let gone = former.difference(own);
        gone.filter(|name| self.leave(name)).cloned().collect()
    }

    fn enter(&mut self, name: &str) {
        if self.told.contains(name) {
            return;
        }
        let sent = self.sent.as_ref();
        let is_leaving = sent.is_some_and(|sent| sent.forget.iter().any(|sent| sent == name));
        if !is_leaving && self.unwanted.remove(name) {
            self.told.insert(name.to_owned());
        } else {
            self.untold[slice_of(name)].insert(name.to_owned());
        }
    }

    fn leave(&mut self, name: &str) -> bool {
        if self.contains(name) {
            return false;
        }
        self.untold[slice_of(name)].remove(name);
        if self.told.remove(name) {
            self.unwanted.insert(name.to_owned());
        }
        true
    }

    /// The next exchange. Names in slices that the node holds need none.
    pub(super) fn exchange(&mut self, held: Slices) -> Exchange {
        if self.sent.is_none() && self.has_news(held) {
            let lacking = (Slices::ALL - held).iter();
            let follow = lacking.flat_map(|slice| &self.untold[slice]);
            let forget = self.unwanted.iter();
            self.sent = Some(Exchange {
                follow: follow.take(NAMES_AT_ONCE).cloned().collect(),
                forget: forget.take(NAMES_AT_ONCE).cloned().collect(),
            });
        }
        self.sent.clone().unwrap_or_default()
    }

    /// Whether there are names that the Master must be told.
    pub(super) fn has_news(&self, held: Slices) -> bool {
        let mut lacking = (Slices::ALL - held).iter();
        self.sent.is_some()
            || !self.unwanted.is_empty()
            || lacking.any(|slice| !self.untold[slice].is_empty())
    }

    /// Takes the number from the answer to an exchange.
    pub(super) fn answered(&mut self, number: u64) {
        if number == self.number {
            return;
        }
        match self.sent.take() {
            Some(sent) if number == self.number.wrapping_add(1) => {
                self.number = number;
                for name in sent.forget {
                    self.unwanted.remove(&name);
                }
                for name in sent.follow {
                    match self.contains(&name) {
                        true => {
                            self.untold[slice_of(&name)].remove(&name);
                            self.told.insert(name);
                        }
                        false => {
                            self.unwanted.insert(name);
                        }
                    }
                }
            }
            _ => self.begin(number),
        }
    }

    /// Begins anew: the Master follows nothing for this node.
    pub(super) fn begin(&mut self, number: u64) {
        self.number = number;
        self.sent = None;
        self.told.clear();
        self.unwanted.clear();
        for name in self.own.iter().chain(self.asked.iter()) {
            self.untold[slice_of(name)].insert(name.clone());
        }
    }
}
