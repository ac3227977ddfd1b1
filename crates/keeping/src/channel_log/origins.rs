//! The events that a log has already had, so that an event submitted twice is kept once.
//!
//! A process numbers its events. The node itself supplies the name of the process, so that no process can use up the
//! numbers of another.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use sealbus_control::Fault;

/// The number of an event, once it is on disk.
pub(super) type Keeping = Shared<BoxFuture<'static, Result<u64, Fault>>>;

/// The most processes remembered for a log.
const MOST_ORIGINS: usize = 1024;
/// The most events of each process that are remembered by number. No process has more under way.
const MOST_RECENT: usize = super::MOST_EVENTS;

/// The identity of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// The node's name for the process that submitted the event.
    pub(super) process: Arc<str>,
    /// A number that the process chose when it started.
    pub(super) session: u64,
    /// How many events the process has submitted in this session.
    pub(super) sequence: u64,
}

impl Given {
    /// The key under which the event is kept.
    pub(super) fn to_key(&self) -> Bytes {
        let mut key = Vec::with_capacity(16 + self.process.len());
        key.extend_from_slice(&self.session.to_le_bytes());
        key.extend_from_slice(&self.sequence.to_le_bytes());
        key.extend_from_slice(self.process.as_bytes());
        key.into()
    }

    /// Reads the key of a kept event; `None` if the bytes are not such a key.
    pub(super) fn from_key(key: &[u8]) -> Option<Self> {
        let (session, rest) = key.split_first_chunk()?;
        let (sequence, process) = rest.split_first_chunk()?;
        Some(Self {
            process: std::str::from_utf8(process).ok()?.into(),
            session: u64::from_le_bytes(*session),
            sequence: u64::from_le_bytes(*sequence),
        })
    }
}

/// For each process, the numbers that a log has had.
#[derive(Default)]
pub(super) struct Origins {
    known: HashMap<Arc<str>, Recent>,
    /// The processes in the order in which they came. The oldest is forgotten first.
    order: VecDeque<Arc<str>>,
}

/// The events of a process in its latest session.
#[derive(Default)]
struct Recent {
    session: u64,
    events: BTreeMap<u64, Keeping>,
}

impl Origins {
    /// The outcome for an event, if the log has had it before.
    pub(super) fn known(&self, given: &Given) -> Option<Keeping> {
        let recent = self.known.get(&given.process)?;
        let is_same = recent.session == given.session;
        is_same.then(|| recent.events.get(&given.sequence).cloned())?
    }

    /// Notes an event that is being kept.
    pub(super) fn note(&mut self, given: &Given, keeping: Keeping) {
        if !self.known.contains_key(&given.process) {
            self.order.push_back(given.process.clone());
            if self.order.len() > MOST_ORIGINS
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        let recent = self.known.entry(given.process.clone()).or_default();
        if recent.session != given.session {
            recent.session = given.session;
            recent.events.clear();
        }
        recent.events.insert(given.sequence, keeping);
        while recent.events.len() > MOST_RECENT {
            recent.events.pop_first();
        }
    }

    /// Notes an event that was found in the log.
    pub(super) fn found(&mut self, given: &Given, number: u64) {
        let there = std::future::ready(Ok(number)).boxed().shared();
        self.note(given, there);
    }

    /// Forgets an event that could not be kept.
    pub(super) fn forget(&mut self, given: &Given) {
        if let Some(recent) = self.known.get_mut(&given.process)
            && recent.session == given.session
        {
            recent.events.remove(&given.sequence);
        }
    }
}
