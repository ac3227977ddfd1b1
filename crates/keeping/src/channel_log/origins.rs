//! Which events a log has had, so that one that is given twice is kept once.

use std::collections::{BTreeMap, HashMap, VecDeque};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use sealbus_control::Fault;

/// The number of an event, once it is on disk.
pub(super) type Keeping = Shared<BoxFuture<'static, Result<u64, Fault>>>;

/// Processes remembered for a log.
const MOST_ORIGINS: usize = 1024;
/// Events of each that are remembered by number; a process has no more under way.
const MOST_RECENT: usize = super::MOST_EVENTS;

/// What a log has had of each process.
#[derive(Default)]
pub(super) struct Origins {
    known: HashMap<u64, BTreeMap<u64, Keeping>>,
    /// The order in which they came, for forgetting.
    order: VecDeque<u64>,
}

impl Origins {
    /// What became of an event, if it was here before.
    pub(super) fn known(&self, origin: u64, sequence: u64) -> Option<Keeping> {
        self.known.get(&origin)?.get(&sequence).cloned()
    }

    /// An event is being kept.
    pub(super) fn note(&mut self, origin: u64, sequence: u64, keeping: Keeping) {
        if !self.known.contains_key(&origin) {
            self.order.push_back(origin);
            if self.order.len() > MOST_ORIGINS
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        let recent = self.known.entry(origin).or_default();
        recent.insert(sequence, keeping);
        while recent.len() > MOST_RECENT {
            recent.pop_first();
        }
    }

    /// An event was found in the log.
    pub(super) fn found(&mut self, origin: u64, sequence: u64, number: u64) {
        let there = std::future::ready(Ok(number)).boxed().shared();
        self.note(origin, sequence, there);
    }

    /// An event could not be kept.
    pub(super) fn forget(&mut self, origin: u64, sequence: u64) {
        if let Some(recent) = self.known.get_mut(&origin) {
            recent.remove(&sequence);
        }
    }
}
