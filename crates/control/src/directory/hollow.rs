//! A stand-in for a node's replica, for simulations of many nodes.

use super::Slices;
use super::update::{DirectoryUpdate, Standing};

/// States and asks the same as a [`Replica`](super::Replica), but keeps nothing: the replicas of all nodes of a large
/// platform would need the memory of all nodes.
#[derive(Clone, Debug, Default)]
pub struct HollowReplica(Standing);

impl HollowReplica {
    /// Follows agents, from the next answer on.
    pub fn follow(&mut self, agents: impl IntoIterator<Item = String>) {
        self.0.follow.extend(agents);
    }

    /// Wants to be told of the processes that use channels, from the next answer on.
    pub fn hear_processes(&mut self) {
        self.0.processes = true;
    }

    /// The standing that it states to the Master.
    pub fn standing(&self) -> Standing {
        self.0.clone()
    }

    /// Takes the answer to the standing. Returns whether it asks again at once.
    pub fn answered(&mut self, answer: &DirectoryUpdate) -> bool {
        let Self(standing) = self;
        if answer.from > 0 && answer.names == standing.names + 1 {
            standing.follow.clear();
        }
        (standing.revision, standing.slices) = (answer.to, answer.slices);
        standing.heard = standing.revision;
        standing.names = answer.names;
        !standing.follow.is_empty()
    }

    /// Takes an update that the Master sent unasked, if it fits.
    pub fn told(&mut self, update: &DirectoryUpdate) {
        let Self(standing) = self;
        let fits = (1..=standing.revision).contains(&update.from);
        if fits && update.names == standing.names {
            standing.revision = standing.revision.max(update.to);
            standing.heard = standing.revision;
        }
    }

    /// The revision that it knows.
    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// The slices that it would hold.
    pub fn held(&self) -> Slices {
        self.0.slices
    }
}
