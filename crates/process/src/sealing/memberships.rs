//! The groups in which agents of this process read: what was said to them on sealed channels.

use std::collections::HashMap;
use std::sync::Arc;

use sealbus_channels::GroupName;
use sealbus_mls::Member;
use sealbus_seal::{Timestamp, Trust};

/// Most groups of all agents of a process, and the bytes of their Welcomes, which say how much they occupy.
const MOST: usize = 4096;
const MOST_BYTES: usize = 256 << 20;

/// The agent that reads, the publisher, and the channel.
pub(super) type Place = (String, String, String);

/// The groups of this process's agents. Of each publisher and channel an agent has the latest one.
#[derive(Default)]
pub(super) struct Memberships {
    members: HashMap<Place, Membership>,
    bytes: usize,
    /// Counts the uses.
    clock: u64,
}

struct Membership {
    group: GroupName,
    member: Member,
    bytes: usize,
    used: u64,
}

impl Memberships {
    /// The agent's place in this group.
    pub(super) fn find(&mut self, place: &Place, group: &GroupName) -> Option<&mut Member> {
        let found = self.members.get_mut(place)?;
        if found.group != *group {
            return None;
        }
        self.clock += 1;
        found.used = self.clock;
        Some(&mut found.member)
    }

    /// An agent has joined a group by a Welcome of this length. If there are too many groups, the one that was not used for
    /// the longest time is forgotten: its agent joins again with the next event.
    pub(super) fn join(&mut self, place: Place, group: GroupName, member: Member, bytes: usize) {
        self.leave(&place);
        while self.members.len() >= MOST || self.bytes + bytes > MOST_BYTES {
            let oldest = self.members.iter().min_by_key(|(_, it)| it.used);
            let Some(oldest) = oldest.map(|(place, _)| place.clone()) else {
                break;
            };
            self.leave(&oldest);
        }
        self.clock += 1;
        self.bytes += bytes;
        let used = self.clock;
        let membership = Membership {
            group,
            member,
            bytes,
            used,
        };
        self.members.insert(place, membership);
    }

    /// An agent has left its group.
    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(left) = self.members.remove(place) {
            self.bytes = self.bytes.saturating_sub(left.bytes);
        }
    }

    /// Forgets the groups of agents that are not here any more, and of publishers whose certificate is not good.
    pub(super) fn forget(
        &mut self,
        trust: &Arc<Trust>,
        now: Timestamp,
        is_here: impl Fn(&str) -> bool,
    ) {
        let over: Vec<Place> = self
            .members
            .iter()
            .filter(|((agent, ..), it)| {
                !is_here(agent) || trust.check(it.member.publisher(), now).is_err()
            })
            .map(|(place, _)| place.clone())
            .collect();
        for place in over {
            self.leave(&place);
        }
    }
}
