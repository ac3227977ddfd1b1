//! Queue groups: subscriptions that share events. Each event goes to one member of the group.
//!
//! All subscriptions of one name, pattern and filter are a group, also across processes. The publisher's process holds
//! each event of a group until a member has handled it. It gives the event to the least busy member: the one that has
//! the fewest of its events. If that member leaves or is lost before it has handled the event, another member gets the
//! event, marked. A member has few events at a time, so that an event waits here, where any member can get it, and not
//! behind a slow member.
//!
//! The held events are bounded for each group and for all groups together. Publishers wait for room.

mod group;
mod held;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Gate, Moment, UndeliverableReason};

use super::Now;
use super::consumer::Room;
use super::peer::RemoteSubscription;
use super::publication::Turn;
use super::receipt::Receipt;
use super::share::{MemberKey, Share};
use crate::filter::ChannelFilter;
use crate::path::ChannelPath;
use crate::pattern::{ChannelPattern, PatternIndex};
use group::{Group, Member, Over};
pub(super) use group::{GroupKey, May};
pub(super) use held::{Fate, Held};

/// The most groups that a process knows.
pub(super) const MOST_GROUPS: usize = 1024;
/// The bytes that all groups together may hold. Beyond it, each may hold only a little.
const MOST_BYTES: usize = 64 << 20;
/// The time between two searches for events that no member may have.
const CARE: Duration = Duration::from_secs(1);

/// The queue groups whose members this process knows.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<u32, Group>,
    next: u32,
    by_key: HashMap<GroupKey, u32>,
    of_member: HashMap<MemberKey, u32>,
    index: PatternIndex<u32>,
    /// Groups that may have both a free member and an event for it.
    unserved: BTreeSet<u32>,
    over: Over,
    bytes: usize,
    /// The number of the last event given.
    given: u64,
    care_at: Option<Duration>,
}

impl Groups {
    /// Adds a subscription to its group.
    ///
    /// # Errors
    /// If there are too many groups.
    pub(super) fn join(
        &mut self,
        key: GroupKey,
        filter: Option<&ChannelFilter>,
        member: MemberKey,
        (agent, prefetch): (Arc<str>, usize),
        remote: Option<Arc<RemoteSubscription>>,
    ) -> Result<(), usize> {
        let id = match self.by_key.get(&key) {
            Some(id) => *id,
            None if self.groups.len() >= MOST_GROUPS => return Err(MOST_GROUPS),
            None => {
                let id = self.next;
                self.next += 1;
                self.index.insert(&key.pattern, id);
                self.by_key.insert(key.clone(), id);
                let group = Group::new(key, filter.cloned(), member.0);
                self.groups.insert(id, group);
                id
            }
        };
        if let Some(group) = self.groups.get_mut(&id) {
            group.join(member, Member::new(agent, prefetch, remote));
            self.of_member.insert(member, id);
            self.unserved.insert(id);
        }
        Ok(())
    }

    /// The events that no member has: the group's name, whether the group has members, and the event.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&str, bool, &Held)> {
        self.groups.values().flat_map(|group| {
            let has_members = group.members().next().is_some();
            let waiting = group.waiting();
            waiting.map(move |held| (&*group.key.name, has_members, held))
        })
    }

    /// Gives nothing more to a member, because it is about to leave.
    pub(super) fn close(&mut self, member: MemberKey) {
        if let Some(group) = self.group_of(member) {
            group.close(member);
        }
    }

    /// Removes a member that is gone.
    pub(super) fn leave(&mut self, member: MemberKey) {
        if let Some(id) = self.of_member.remove(&member) {
            self.change(id, |group, over| group.leave(member, over));
        }
    }

    /// Removes all members of a process that is gone. Nothing is given to any of them in between.
    pub(super) fn leave_all(&mut self, process: u32) {
        let members = self.of_member.keys();
        let mut members: Vec<MemberKey> = members
            .filter(|(of, _)| *of == Some(process))
            .copied()
            .collect();
        members.sort_unstable();
        for member in members {
            self.leave(member);
        }
    }

    /// Whether a member in a process has events that it has not handled.
    pub(super) fn waits_for(&self, process: u32) -> bool {
        let mut members = self.of_member.iter();
        members.any(|(member, id)| {
            let group = self.groups.get(id);
            member.0 == Some(process) && group.is_some_and(|group| group.is_busy(*member))
        })
    }

    /// Notes that a member may have room again.
    pub(super) fn look_at(&mut self, member: MemberKey) {
        if let Some(id) = self.of_member.get(&member) {
            self.unserved.insert(*id);
        }
    }

    fn group_of(&mut self, member: MemberKey) -> Option<&mut Group> {
        self.groups.get_mut(self.of_member.get(&member)?)
    }

    /// The groups that take events on a channel.
    pub(super) fn matching(&self, channel: &ChannelPath, may: May<'_>) -> Vec<u32> {
        let mut matching = Vec::new();
        self.index.for_each_match(channel, |id| {
            let group = self.groups.get(id);
            if group.is_some_and(|group| group.takes(channel, may)) {
                matching.push(*id);
            }
        });
        matching.sort_unstable();
        matching
    }

    pub(super) fn filter(&self, id: u32) -> Option<&ChannelFilter> {
        self.groups.get(&id)?.filter.as_ref()
    }

    /// The processes that may pay for the filter of a group: the process that opened it, and the processes of its
    /// members. A stranger that opened the group of others thus takes nothing from them. `None` is this process.
    pub(super) fn payers(&self, id: u32) -> impl Iterator<Item = Option<u32>> {
        let group = self.groups.get(&id).into_iter();
        group.flat_map(|group| {
            let members = group.members().map(|(key, _)| key.0);
            iter::once(group.opened_by).chain(members)
        })
    }

    pub(super) fn members(&self, id: u32) -> impl Iterator<Item = MemberKey> {
        let group = self.groups.get(&id).into_iter();
        group.flat_map(|group| group.members().map(|(key, _)| key))
    }

    /// Whether the group has a member in another process, so that a message must be encoded.
    pub(super) fn reaches_far(&self, id: u32) -> bool {
        self.members(id).any(|(process, _)| process.is_some())
    }

    /// The least busy member, for an event that is not held.
    pub(super) fn least_busy(
        &self,
        id: u32,
        channel: &ChannelPath,
        may: May<'_>,
    ) -> Option<MemberKey> {
        self.groups.get(&id)?.least_busy(channel, may)
    }

    /// Notes that a member gets an event that is not held.
    pub(super) fn take_turn(&mut self, member: MemberKey) {
        self.given += 1;
        let turn = self.given;
        if let Some(group) = self.group_of(member) {
            group.take_turn(member, turn);
        }
    }

    /// Checks that there is room for an event of this size. If not, returns the gate to wait at.
    pub(super) fn room(
        &mut self,
        id: u32,
        cost: usize,
        turn: Turn<'_>,
        now: Duration,
    ) -> Option<(Room, Arc<Gate>)> {
        let is_tight = self.bytes >= MOST_BYTES;
        let group = self.groups.get_mut(&id)?;
        let gate = group.gate.clone();
        let room = if !group.has_room(cost, is_tight) {
            Room::Full(group.stall(now))
        } else if turn.is_behind_others_at(&gate) {
            Room::Taken
        } else {
            Room::Free
        };
        Some((room, gate))
    }

    /// Holds an event until a member gets it.
    pub(super) fn hold(&mut self, id: u32, held: Held, size: usize, now: Moment) {
        self.bytes += held.cost;
        match self.groups.get_mut(&id) {
            Some(group) => {
                group.hold(held, size, now);
                self.unserved.insert(id);
            }
            None => self.over.push((held, Fate::Expired)),
        }
    }

    /// The reason why a group does not take an event.
    pub(super) fn not_handled(&self, id: u32) -> Option<UndeliverableReason> {
        self.groups.get(&id).map(Group::not_handled)
    }

    /// The next group that must be served.
    pub(super) fn next_to_serve(&mut self) -> Option<u32> {
        self.unserved.pop_first()
    }

    /// Gives an event of a group to a member, if one is free.
    pub(super) fn give(&mut self, id: u32, now: Moment, may: May<'_>) -> Option<Share> {
        let event = self.given + 1;
        let group = self.groups.get_mut(&id)?;
        let member = group.give(event, now, may, &mut self.over)?;
        self.given = event;
        Some(Share {
            group: id,
            member,
            event,
        })
    }

    /// An event that a member has.
    pub(super) fn held(&mut self, share: Share) -> Option<&mut Held> {
        let group = self.groups.get_mut(&share.group)?;
        group.held(share.member, share.event)
    }

    /// Takes the receipt of an event that a member's process has.
    pub(super) fn take_receipt(&mut self, share: Share) -> Option<Arc<Receipt>> {
        self.held(share)?.receipt.take()
    }

    /// Ends an event that a member has handled.
    pub(super) fn handled(&mut self, share: Share) {
        self.change(share.group, |group, over| {
            group.handled(share.member, share.event, over);
        });
    }

    /// Takes back an event that a member does not take.
    pub(super) fn returned(&mut self, share: Share, reason: Option<UndeliverableReason>) {
        self.change(share.group, |group, over| {
            group.returned(share.member, share.event, reason, over);
        });
    }

    /// Takes back a sealed event that a member cannot read now.
    pub(super) fn postpone(&mut self, share: Share, reason: UndeliverableReason) {
        self.change(share.group, |group, _| {
            group.postpone(share.member, share.event, reason);
        });
    }

    /// Takes back a sealed event that a member could not open.
    pub(super) fn not_opened(&mut self, share: Share, reason: UndeliverableReason) {
        self.change(share.group, |group, over| {
            group.not_opened(share.member, share.event, reason, over);
        });
    }

    /// Tries the keys of these agents again, which may be known now.
    pub(super) fn try_keys(&mut self, is_meant: impl Fn(&str) -> bool) {
        for (id, group) in &mut self.groups {
            if group.try_keys(&is_meant) {
                self.unserved.insert(*id);
            }
        }
    }

    /// Gives up an event that nobody can get.
    pub(super) fn give_up(&mut self, share: Share, reason: UndeliverableReason) {
        self.change(share.group, |group, over| {
            group.give_up(share.member, share.event, reason, over);
        });
    }

    fn change(&mut self, id: u32, change: impl FnOnce(&mut Group, &mut Over)) {
        if let Some(group) = self.groups.get_mut(&id) {
            change(group, &mut self.over);
            self.unserved.insert(id);
        }
    }

    /// When a group next changes by itself.
    pub(super) fn next_change(&self, id: u32) -> Option<Moment> {
        self.groups.get(&id)?.next_change()
    }

    /// Looks at all groups in which an event may have become valid or have expired.
    pub(super) fn sweep(&mut self) {
        let waiting = self.groups.iter();
        let waiting = waiting.filter(|(_, group)| group.next_change().is_some());
        self.unserved.extend(waiting.map(|(id, _)| *id));
    }

    /// Notes that a group was served. If it holds events that no member may have, returns when to look for them.
    pub(super) fn was_served(&mut self, id: u32, now: Duration) -> Option<Duration> {
        if self.groups.get(&id).is_some_and(Group::needs_care) {
            return Some(*self.care_at.get_or_insert(now + CARE));
        }
        None
    }

    /// When to look again for events that no member may have.
    pub(super) fn care_at(&self) -> Option<Duration> {
        self.care_at
    }

    /// Gives up events that no member has been allowed to have for too long.
    pub(super) fn care(&mut self, now: Now, patience: Duration, may: May<'_>) {
        if self.care_at.is_none_or(|at| at > now.since_start) {
            return;
        }
        self.care_at = None;
        for (id, group) in &mut self.groups {
            if group.needs_care() {
                group.care(now, patience, may, &mut self.over);
                self.unserved.insert(*id);
            }
        }
    }

    /// The events that have ended since the last call.
    pub(super) fn take_over(&mut self) -> Over {
        let over = std::mem::take(&mut self.over);
        for (held, _) in &over {
            self.bytes -= held.cost;
        }
        over
    }

    /// Forgets a group that has no members and holds nothing. Returns its pattern then.
    pub(super) fn forget_if_over(&mut self, id: u32) -> Option<ChannelPattern> {
        let group = self.groups.get(&id).filter(|group| group.is_over())?;
        let key = group.key.clone();
        group.gate.open_all();
        self.groups.remove(&id);
        self.by_key.remove(&key);
        self.index.remove(&key.pattern, |other| *other == id);
        Some(key.pattern)
    }

    /// The bytes held for all groups.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn key(&self, id: u32) -> Option<&GroupKey> {
        self.groups.get(&id).map(|group| &group.key)
    }
}
