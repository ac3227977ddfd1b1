//! Whether a node's silence counts against it. It does not while the Master did not run, while the broker is silent, or
//! while the Master hears no node at all: then it is the Master that is cut off, and no other node could take over.

use std::time::Duration;

use super::MasterState;
use sealbus_control::UnixMillis;
use sealbus_control::admin::NodeState;

/// How often the Master looks whether nodes are silent, in milliseconds.
pub(super) const LOOK: UnixMillis = 500;
/// A Master that looks so many milliseconds after its last look did not run in between.
const LATE: UnixMillis = 1000;

/// The known state of the broker that carries the nodes' messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    is_there: bool,
    /// When it was known to work, last.
    worked: UnixMillis,
    /// Until then nodes find their way back to it.
    grace: UnixMillis,
}

impl Witness {
    /// Up to when silence counts.
    fn until(self, now: UnixMillis) -> UnixMillis {
        if self.is_there && now >= self.grace {
            self.worked.min(now)
        } else {
            0
        }
    }
}

impl MasterState {
    /// From now on silence counts against nodes only up to the moment at which the broker was known to work:
    /// [`broker_worked`](Self::broker_worked) must be told of it.
    pub fn nodes_speak_by_broker(&mut self, now: UnixMillis) {
        self.witness = Some(Witness {
            is_there: true,
            worked: now,
            grace: 0,
        });
    }

    /// The broker is away, or does not carry messages. True if it was there before.
    pub fn broker_is_away(&mut self) -> bool {
        match &mut self.witness {
            Some(witness) => std::mem::replace(&mut witness.is_there, false),
            None => false,
        }
    }

    /// The broker was seen to work at `at`. True if it was away before: nodes have their time then to be heard again.
    pub fn broker_worked(&mut self, at: UnixMillis, now: UnixMillis) -> bool {
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

    /// A node gave a sign of life. That alone does not make it [alive](NodeState::Alive): it registers for that.
    pub fn heard(&mut self, name: &str, now: UnixMillis) {
        if !self.nodes.contains_key(name) {
            return;
        }
        self.hears(now);
        if let Some(node) = self.nodes.get_mut(name)
            && !node.state.is_gone()
        {
            node.heard = now;
        }
    }

    /// The Master hears some node now. If it heard none for a while, that was its own fault, and excuses the others.
    pub(super) fn hears(&mut self, now: UnixMillis) {
        self.look(now);
        if self.witness.is_none() {
            let silent = now.saturating_sub(self.heard_any);
            let deaf = silent.saturating_sub(self.patience.earshot.as_millis() as u64);
            self.excuse(deaf, now);
        }
        self.heard_any = now;
    }

    /// Looks at the clock. If the last look was long ago, the Master did not run: it was stopped, its machine slept or had no
    /// time for it, or the clock was put forward. All waiting begins again where it was then; the same after the clock was
    /// put back.
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

    /// When to look again at the latest.
    pub(super) fn next_look(&self) -> Option<UnixMillis> {
        self.watches().then_some(self.looked + LOOK)
    }

    /// Whether there is any node whose silence could mean something.
    fn watches(&self) -> bool {
        self.nodes.values().any(|node| !node.state.is_gone())
    }

    /// Moves all moments that are waited for.
    fn put_off(&mut self, later: impl Fn(UnixMillis) -> UnixMillis, now: UnixMillis) {
        for node in self.nodes.values_mut() {
            node.heard = later(node.heard).min(now);
        }
        self.heard_any = later(self.heard_any).min(now);
        for group in self.groups.values_mut() {
            let moving = group.moving.as_mut().map(|moving| &mut moving.give_up);
            let stopping = group.process.iter_mut().chain(&mut group.leaving);
            let stopping = stopping.filter_map(|process| process.stop_by.as_mut());
            for at in group.start_at.iter_mut().chain(moving).chain(stopping) {
                // Neither "as soon as there is a node" nor "never again".
                if *at != 0 && *at != UnixMillis::MAX {
                    *at = later(*at);
                }
            }
        }
    }

    /// So much of the nodes' silence, in milliseconds, does not count.
    fn excuse(&mut self, lost: UnixMillis, now: UnixMillis) {
        for node in self.nodes.values_mut() {
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

    /// Whether a node has been silent for so long that it is dead, if the broker works.
    pub fn is_any_silent(&self, now: UnixMillis) -> bool {
        self.nodes
            .values()
            .any(|node| self.deadline(node).is_some_and(|deadline| deadline <= now))
    }

    /// Up to when silence counts against a node in this state.
    pub(super) fn silence_counts_until(&self, state: NodeState, now: UnixMillis) -> UnixMillis {
        match self.witness {
            // One that left is not waited for.
            _ if state == NodeState::Left => now,
            Some(witness) => witness.until(now),
            None => now.min(self.heard_any + self.patience.earshot.as_millis() as u64),
        }
    }

    /// Whether time alone tells that a node in this state is gone.
    pub(super) fn is_judged_by_time(&self, state: NodeState) -> bool {
        self.witness.is_none() || state == NodeState::Left
    }
}
