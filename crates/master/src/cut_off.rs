//! A Master that reaches the store but not the nodes must not go on leading. Nodes that do not hear it raise an alarm at the
//! Masters that stand by, and these report the alarm through the store. The leading Master compares the alarms with the
//! nodes that it hears itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_control::UnixMillis;
use sealbus_control::statement::{Alarm, Signed};
use sealbus_seal::{Identity, Trust};

use super::desk::Desk;

/// How long an alarm counts. Nodes repeat it each half second.
const FRESH: Duration = Duration::from_secs(3);
/// Most nodes whose alarms count at a time.
const MOST: usize = 1000;
/// After this time in milliseconds a silent node is not heard. Nodes give a sign of life each second.
const SILENT: UnixMillis = 2000;

/// The alarms that a Master hears while it stands by.
pub(super) struct StandbyAlarms {
    /// Without a root of its own the Master believes nobody.
    trust: Option<Arc<Trust>>,
    raised: Mutex<BTreeMap<String, Instant>>,
}

impl StandbyAlarms {
    /// A Master that has heard no alarm yet.
    pub(super) fn new(trust: Option<Arc<Trust>>) -> Self {
        Self {
            trust,
            raised: Mutex::default(),
        }
    }

    /// Notes an alarm, if a node of this platform raised it just now. Returns whether it did.
    pub(super) fn note(&self, alarm: &Signed, now: UnixMillis) -> bool {
        let Some(trust) = &self.trust else {
            return false;
        };
        let node = match alarm.open::<Alarm>(trust, now) {
            Ok((identity, _)) => match identity.identity() {
                Identity::Node { name, .. } => name.to_string(),
                _ => return false,
            },
            Err(error) => {
                tracing::debug!(%error, "an alarm is not believed");
                return false;
            }
        };
        let mut raised = self.raised.lock();
        if raised.len() < MOST || raised.contains_key(&node) {
            raised.insert(node, Instant::now());
        }
        true
    }

    /// The nodes that raise an alarm.
    pub(super) fn latest(&self) -> Vec<String> {
        let mut raised = self.raised.lock();
        raised.retain(|_, at| at.elapsed() < FRESH);
        raised.keys().cloned().collect()
    }
}

/// The nodes as the Master that leads and those that stand by hear them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hearing {
    /// Nodes that this Master hears.
    pub(super) heard: usize,
    /// Nodes that other Masters hear, and this one does not.
    pub(super) missed: usize,
}

impl Hearing {
    /// Compares the nodes that the desk hears with the nodes that raise an alarm elsewhere. An alarm of a node that was
    /// given up, or is heard here, does not count.
    pub(super) fn of(desk: &Desk, alarmed: &BTreeSet<String>, now: UnixMillis) -> Self {
        let nodes = desk.state.nodes().iter();
        let nodes = nodes.filter(|(_, node)| !node.state.is_gone());
        let mut hearing = Self {
            heard: 0,
            missed: 0,
        };
        for (name, _) in nodes {
            let beat = desk.beats.get(name).copied().unwrap_or_default();
            if now.saturating_sub(beat) < SILENT {
                hearing.heard += 1;
            } else if alarmed.contains(name) {
                hearing.missed += 1;
            }
        }
        hearing
    }
}
