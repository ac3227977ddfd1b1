//! Whether a node's silence counts against it: on a broker, it may be the broker that is silent.

use std::time::Duration;

use super::MasterState;
use sealbus_control::UnixMillis;
use sealbus_control::admin::NodeState;

/// What is known of the broker that carries what nodes say.
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

    /// The Master itself did not run for so many milliseconds: its machine slept or had no time for it, or the clock was put
    /// forward. It heard nobody then, which counts against no node.
    pub fn did_not_run(&mut self, lost: UnixMillis, now: UnixMillis) {
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
            Some(witness) if state != NodeState::Left => witness.until(now),
            _ => now,
        }
    }

    /// Whether time alone tells that a node in this state is gone.
    pub(super) fn is_judged_by_time(&self, state: NodeState) -> bool {
        self.witness.is_none() || state == NodeState::Left
    }
}
