//! Judges whether a node's silence counts against it. It does not count while the Master did not run, while the broker
//! is silent, or while the Master hears no node at all. In the last case the Master itself is cut off, and no other
//! node could take over.

use std::time::Duration;

use super::MasterState;
use sealbus_control::UnixMillis;
use sealbus_control::admin::NodeState;

/// How often the Master checks whether nodes are silent, in milliseconds.
pub(super) const LOOK: UnixMillis = 500;
/// A gap of this many milliseconds between two looks means that the Master did not run in between.
const LATE: UnixMillis = 1000;

/// The known state of the broker that carries the nodes' messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    is_there: bool,
    /// When the broker was last known to work.
    worked: UnixMillis,
    /// Until when nodes have time to find their way back to the broker.
    grace: UnixMillis,
}

impl Witness {
    /// The time up to which silence counts.
    fn until(self, now: UnixMillis) -> UnixMillis {
        if self.is_there && now >= self.grace {
            self.worked.min(now)
        } else {
            0
        }
    }
}

impl MasterState {
    /// From now on silence counts against nodes only up to the latest moment at which the broker was known to work.
    /// [`broker_worked`](Self::broker_worked) must report these moments.
    pub(crate) fn nodes_speak_by_broker(&mut self, now: UnixMillis) {
        self.nodes.change();
        self.witness = Some(Witness {
            is_there: true,
            worked: now,
            grace: 0,
        });
    }

    /// Notes that the broker is away, or does not carry messages. Returns true if it was there before.
    pub(crate) fn broker_is_away(&mut self) -> bool {
        match &mut self.witness {
            Some(witness) => std::mem::replace(&mut witness.is_there, false),
            None => false,
        }
    }

    /// Notes that the broker was seen to work at `at`. Returns true if it was away before. Nodes then have some time
    /// until they are heard again.
    pub(crate) fn broker_worked(&mut self, at: UnixMillis, now: UnixMillis) -> bool {
        let patience = self.patience.after_broker;
        let Some(witness) = &mut self.witness else {
            return false;
        };
        let was_away = !std::mem::replace(&mut witness.is_there, true);
        if was_away {
            witness.grace = now + patience.as_millis() as u64;
        }
        witness.worked = witness.worked.max(at);
        was_away
    }

    /// Notes a node's sign of life. This alone does not make the node [alive](NodeState::Alive): the node must
    /// register.
    pub fn heard(&mut self, name: &str, now: UnixMillis) {
        if !self.nodes.contains_key(name) {
            return;
        }
        self.hears(now);
        self.nodes.heard(name, now);
    }

    /// Notes that the Master hears some node. If it heard none for a while, it was itself cut off, and the other nodes
    /// are excused.
    pub(super) fn hears(&mut self, now: UnixMillis) {
        self.look(now);
        if self.witness.is_none() {
            let silent = now.saturating_sub(self.heard_any);
            let deaf = silent.saturating_sub(self.patience.earshot.as_millis() as u64);
            // With 10,000 nodes, a look at all of them takes longer than everything else about a heartbeat.
            if deaf > 0 {
                self.excuse(deaf, now);
            }
        }
        self.heard_any = now;
    }

    /// Looks at the clock. If the last look was long ago, the Master did not run: it was stopped, its machine slept or
    /// was overloaded, or the clock was put forward. Then all waits resume where they stood. The same holds after the
    /// clock was put back.
    pub fn look(&mut self, now: UnixMillis) {
        let before = std::mem::replace(&mut self.looked, now);
        if !self.watches() {
            return;
        }
        if now < before {
            self.put_off(|at| at.saturating_sub(before - now).max(1), now);
        } else if now - before > LATE {
            let lost = now - before - LOOK;
            tracing::warn!(
                seconds = lost / 1000,
                "the Master did not run for a while; that counts against no node"
            );
            self.put_off(|at| at.saturating_add(lost), now);
        }
    }

    /// The latest time for the next look.
    pub(super) fn next_look(&self) -> Option<UnixMillis> {
        self.watches().then_some(self.looked + LOOK)
    }

    /// Whether the silence of any node could mean something.
    fn watches(&self) -> bool {
        self.nodes.values().any(|node| !node.state.is_gone())
    }

    /// Moves all moments that the Master waits for.
    fn put_off(&mut self, later: impl Fn(UnixMillis) -> UnixMillis, now: UnixMillis) {
        for node in self.nodes.change().values_mut() {
            node.heard = later(node.heard).min(now);
        }
        self.heard_any = later(self.heard_any).min(now);
        for (name, group) in &mut self.groups {
            let moving = group.moving.as_mut().map(|moving| &mut moving.give_up);
            let stopping = group.process.iter_mut().chain(&mut group.leaving);
            let stopping = stopping.filter_map(|process| process.stop_by.as_mut());
            for at in group.start_at.iter_mut().chain(moving).chain(stopping) {
                // The greatest moment means "as soon as there is a node", or "never again", and stays.
                if *at != UnixMillis::MAX {
                    *at = later(*at);
                }
            }
            self.loads.note(name, Some(group));
        }
    }

    /// Excuses this many milliseconds of the nodes' silence.
    fn excuse(&mut self, lost: UnixMillis, now: UnixMillis) {
        for node in self.nodes.change().values_mut() {
            node.heard = node.heard.saturating_add(lost).min(now);
        }
    }

    /// How long a node may be silent.
    pub(super) fn patience_with_nodes(&self) -> Duration {
        match self.witness {
            Some(_) => self.patience.node_by_broker,
            None => self.patience.node,
        }
    }

    /// Whether any node has been silent for so long that it is dead, if the broker works.
    pub(crate) fn is_any_silent(&self, now: UnixMillis) -> bool {
        self.nodes
            .values()
            .any(|node| self.deadline(node).is_some_and(|deadline| deadline <= now))
    }

    /// The time up to which silence counts against a node in this state.
    pub(super) fn silence_counts_until(&self, state: NodeState, now: UnixMillis) -> UnixMillis {
        match self.witness {
            // A node that left is not expected back.
            _ if state == NodeState::Left => now,
            Some(witness) => witness.until(now),
            None => now.min(self.heard_any + self.patience.earshot.as_millis() as u64),
        }
    }

    /// Whether the passing of time alone shows that a node in this state is gone.
    pub(super) fn is_judged_by_time(&self, state: NodeState) -> bool {
        self.witness.is_none() || state == NodeState::Left
    }
}
