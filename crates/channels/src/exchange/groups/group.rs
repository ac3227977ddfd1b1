//! One queue group, in the process of a publisher: the members, the events that wait for a member, and the events that
//! each member has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Gate, Moment, RefusalReason, UndeliverableReason};

use crate::exchange::Now;
use crate::exchange::groups::held::{Fate, Held};
use crate::exchange::peer::RemoteSubscription;
use crate::exchange::share::MemberKey;
use crate::filter::ChannelFilter;
use crate::flow::{FlowPolicy, QueueLimits};
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
use crate::queue::{Loss, QueueTerms, SubscriptionQueue};

/// The most that a group holds here, including the events that members have.
const MOST: QueueLimits = QueueLimits {
    events: 16_384,
    bytes: 8 << 20,
};
/// The amount that a group may hold even if all groups together hold too much.
const AT_LEAST: QueueLimits = QueueLimits {
    events: 64,
    bytes: 64 << 10,
};
/// How often an event may come back before it is given up, so that an event that ends each agent that takes it does not
/// end all.
const MOST_TRIES: u32 = 8;
/// The most waiting events that are searched for one that a free member may have.
const MOST_PARKED: usize = 64;
/// As [`MOST_PARKED`], including the sealed events that wait for the key of a member.
const MOST_PARKED_SEALED: usize = 1024;

/// The key of a group: its name, and the pattern and filter of its members' subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::exchange) struct GroupKey {
    pub(in crate::exchange) name: Arc<str>,
    pub(in crate::exchange) pattern: ChannelPattern,
    pub(in crate::exchange) filter: String,
}

/// The events of a group that have ended.
pub(super) type Over = Vec<(Held, Fate)>;

/// Whether an agent may read a channel.
pub(in crate::exchange) type May<'a> = &'a dyn Fn(&str, &ChannelPath) -> bool;

pub(super) struct Member {
    pub(super) agent: Arc<str>,
    /// How many events the member has at a time.
    pub(super) prefetch: usize,
    /// For a member in another process: its subscription, with its credit.
    pub(super) remote: Option<Arc<RemoteSubscription>>,
    /// The events that the member has, by number.
    has: BTreeMap<u64, Held>,
    /// The number of the event that the member got last.
    turn: u64,
    /// Whether the member is about to leave, and gets nothing more.
    is_closed: bool,
    /// Whether sealed events wait until the member's key is known.
    lacks_key: bool,
}

impl Member {
    pub(super) fn new(
        agent: Arc<str>,
        prefetch: usize,
        remote: Option<Arc<RemoteSubscription>>,
    ) -> Self {
        Self {
            agent,
            prefetch: prefetch.max(1),
            remote,
            has: BTreeMap::new(),
            turn: 0,
            is_closed: false,
            lacks_key: false,
        }
    }

    fn has_credit(&self) -> bool {
        self.remote.as_ref().is_none_or(|it| it.has_credit())
    }

    fn may_have(&self, key: MemberKey, held: &Held, may: May<'_>) -> bool {
        !self.is_closed
            && held.refused_by != Some(key)
            && !(self.lacks_key && held.is_sealed())
            && may(&self.agent, &held.header.channel)
    }
}

pub(super) struct Group {
    pub(super) key: GroupKey,
    pub(super) filter: Option<ChannelFilter>,
    /// The process of the first member; `None` is this process.
    pub(super) opened_by: Option<u32>,
    members: BTreeMap<MemberKey, Member>,
    /// The members that may get one more event: the least busy first, and among equals the one that has waited longest.
    free: BTreeSet<(usize, u64, MemberKey)>,
    /// Events that came back, and events that no free member may have. They are given first.
    first: VecDeque<Held>,
    waiting: SubscriptionQueue<Held>,
    /// The number of held events, including those that members have.
    events: usize,
    bytes: usize,
    /// The gate at which publishers wait for room.
    pub(super) gate: Arc<Gate>,
    /// The time since which publishers have found no room.
    stalled_since: Option<Duration>,
    /// The time since which the group has had no members.
    empty_since: Option<Duration>,
}

impl Group {
    pub(super) fn new(
        key: GroupKey,
        filter: Option<ChannelFilter>,
        opened_by: Option<u32>,
    ) -> Self {
        // The caller has checked the room, for everything that is held together.
        let unlimited = QueueLimits {
            events: usize::MAX,
            bytes: usize::MAX,
        };
        Self {
            key,
            filter,
            opened_by,
            members: BTreeMap::new(),
            free: BTreeSet::new(),
            first: VecDeque::new(),
            waiting: SubscriptionQueue::new(FlowPolicy::PushBack, unlimited),
            events: 0,
            bytes: 0,
            gate: Arc::default(),
            stalled_since: None,
            empty_since: None,
        }
    }

    /// The events that no member has.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Held> {
        self.first.iter().chain(self.waiting.iter())
    }

    /// Whether the group holds nothing and has no members.
    pub(super) fn is_over(&self) -> bool {
        self.members.is_empty() && self.events == 0
    }

    /// Whether the group holds events that perhaps no member may have, or must try the key of a member again.
    pub(super) fn needs_care(&self) -> bool {
        let may_strand = self.members.is_empty() || !self.first.is_empty();
        (self.events > 0 && may_strand) || self.members.values().any(|it| it.lacks_key)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (MemberKey, &Member)> {
        self.members.iter().map(|(key, member)| (*key, member))
    }

    /// Whether the group takes events on a channel: a member may read the channel, or a member may come back.
    pub(super) fn takes(&self, channel: &ChannelPath, may: May<'_>) -> bool {
        let mut members = self.members.values();
        self.members.is_empty() || members.any(|member| may(&member.agent, channel))
    }

    pub(super) fn has_room(&self, cost: usize, is_tight: bool) -> bool {
        let limits = if is_tight { AT_LEAST } else { MOST };
        let is_within = self.events < limits.events && self.bytes + cost <= limits.bytes;
        self.events == 0 || is_within
    }

    /// Notes that a publisher finds no room. Returns the time since which there has been none.
    pub(super) fn stall(&mut self, now: Duration) -> Duration {
        *self.stalled_since.get_or_insert(now)
    }

    // ---- members ----

    pub(super) fn join(&mut self, key: MemberKey, member: Member) {
        self.free.insert((0, 0, key));
        self.members.insert(key, member);
        self.empty_since = None;
    }

    /// Gives nothing more to a member, because it is about to leave.
    pub(super) fn close(&mut self, key: MemberKey) {
        if let Some(member) = self.members.get_mut(&key) {
            self.free.remove(&(member.has.len(), member.turn, key));
            member.is_closed = true;
        }
    }

    /// Removes a member that is gone. It may have handled its events, so they are marked.
    pub(super) fn leave(&mut self, key: MemberKey, over: &mut Over) {
        self.close(key);
        let Some(member) = self.members.remove(&key) else {
            return;
        };
        // The next member gets the oldest of them first.
        for held in member.has.into_values().rev() {
            self.take_back(held, None, true, None, over);
        }
    }

    /// Whether a member has events that it has not handled.
    pub(super) fn is_busy(&self, key: MemberKey) -> bool {
        let member = self.members.get(&key);
        member.is_some_and(|member| !member.has.is_empty())
    }

    /// Changes a member's record.
    fn change<T>(
        &mut self,
        key: MemberKey,
        change: impl FnOnce(&mut Member) -> Option<T>,
    ) -> Option<T> {
        let member = self.members.get_mut(&key)?;
        self.free.remove(&(member.has.len(), member.turn, key));
        let changed = change(member);
        if !member.is_closed && member.has.len() < member.prefetch {
            self.free.insert((member.has.len(), member.turn, key));
        }
        changed
    }

    /// The least busy member, for an event that is not held.
    pub(super) fn least_busy(&self, channel: &ChannelPath, may: May<'_>) -> Option<MemberKey> {
        let members = self.members.iter();
        members
            .filter(|(_, member)| !member.is_closed && may(&member.agent, channel))
            .min_by_key(|(_, member)| (member.has.len(), member.turn))
            .map(|(key, _)| *key)
    }

    /// Notes that a member gets an event that is not held.
    pub(super) fn take_turn(&mut self, key: MemberKey, turn: u64) {
        self.change(key, |member| {
            member.turn = turn;
            Some(())
        });
    }

    // ---- events ----

    pub(super) fn hold(&mut self, held: Held, size: usize, now: Moment) {
        self.events += 1;
        self.bytes += held.cost;
        let terms = QueueTerms::new(&held.header, size);
        let mut lost = Vec::new();
        self.waiting.push_accepted(held, terms, now, &mut lost);
        // Expired events come out at the next look.
        for (held, _) in lost {
            self.first.push_back(held);
        }
    }

    /// When the group changes next, if no event or member comes or goes.
    pub(super) fn next_change(&self) -> Option<Moment> {
        self.waiting.next_change()
    }

    /// Gives up expired events.
    fn expire(&mut self, now: Moment, over: &mut Over) {
        let mut lost: Vec<(Held, Loss)> = Vec::new();
        self.waiting.advance(now, &mut lost);
        let (expired, others) = std::mem::take(&mut self.first)
            .into_iter()
            .partition(|held| held.header.is_expired(now));
        self.first = others;
        let expired: VecDeque<Held> = expired;
        for held in lost.into_iter().map(|(held, _)| held).chain(expired) {
            self.end(held, Fate::Expired, over);
        }
    }

    /// Gives an event, under this number, to the least busy member that has room.
    pub(super) fn give(
        &mut self,
        number: u64,
        now: Moment,
        may: May<'_>,
        over: &mut Over,
    ) -> Option<MemberKey> {
        self.expire(now, over);
        let mut free = self
            .free
            .iter()
            .filter_map(|(_, _, key)| self.members.get(key));
        if !free.any(Member::has_credit) {
            return None;
        }
        for place in 0..self.first.len() {
            if let Some(key) = self.choose(self.first.get(place)?, may) {
                let held = self.first.remove(place)?;
                return self.hand(key, number, held);
            }
        }
        let lacks_key = self.members.values().any(|it| it.lacks_key);
        let waits_for_key = |held: &Held| lacks_key && held.is_sealed();
        let mut parked = self.first.iter().filter(|it| !waits_for_key(it)).count();
        while parked < MOST_PARKED && self.first.len() < MOST_PARKED_SEALED {
            let held = self.waiting.pop(now, &mut Vec::new())?;
            match self.choose(&held, may) {
                Some(key) => return self.hand(key, number, held),
                None => {
                    parked += usize::from(!waits_for_key(&held));
                    self.first.push_back(held);
                }
            }
        }
        None
    }

    fn choose(&self, held: &Held, may: May<'_>) -> Option<MemberKey> {
        let suits = |key: &MemberKey| {
            let member = self.members.get(key);
            member.is_some_and(|member| member.has_credit() && member.may_have(*key, held, may))
        };
        self.free.iter().map(|(_, _, key)| *key).find(suits)
    }

    fn hand(&mut self, key: MemberKey, number: u64, held: Held) -> Option<MemberKey> {
        self.change(key, |member| {
            member.turn = number;
            member.has.insert(number, held);
            Some(key)
        })
    }

    pub(super) fn held(&mut self, key: MemberKey, number: u64) -> Option<&mut Held> {
        self.members.get_mut(&key)?.has.get_mut(&number)
    }

    /// Ends an event that a member has handled.
    pub(super) fn handled(&mut self, key: MemberKey, number: u64, over: &mut Over) {
        if let Some(held) = self.change(key, |member| member.has.remove(&number)) {
            self.end(held, Fate::Handled, over);
        }
    }

    /// Takes back an event that a member does not take.
    pub(super) fn returned(
        &mut self,
        key: MemberKey,
        number: u64,
        reason: Option<UndeliverableReason>,
        over: &mut Over,
    ) {
        if let Some(mut held) = self.change(key, |member| member.has.remove(&number)) {
            held.may_return = false;
            self.take_back(held, Some(key), false, reason, over);
        }
    }

    /// Takes back a sealed event that a member cannot read now. It waits for another member, or until this one can read it.
    pub(super) fn postpone(&mut self, key: MemberKey, number: u64, reason: UndeliverableReason) {
        let held = self.change(key, |member| {
            member.lacks_key = true;
            member.has.remove(&number)
        });
        if let Some(mut held) = held {
            held.reason = Some(reason);
            self.first.push_front(held);
        }
    }

    /// Takes back a sealed event that a member could not open. It goes to another member. If no other may have it, it
    /// goes to the same one again, which joins the readers anew.
    pub(super) fn not_opened(
        &mut self,
        key: MemberKey,
        number: u64,
        reason: UndeliverableReason,
        over: &mut Over,
    ) {
        if let Some(mut held) = self.change(key, |member| member.has.remove(&number)) {
            let refused_by = (self.members.len() > 1).then_some(key);
            held.may_return = true;
            self.take_back(held, refused_by, false, Some(reason), over);
        }
    }

    /// Tries the keys of these members again. Returns whether one of them lacked its key.
    pub(super) fn try_keys(&mut self, is_meant: impl Fn(&str) -> bool) -> bool {
        let members = self.members.values_mut();
        let mut meant = members.filter(|it| it.lacks_key && is_meant(&it.agent));
        let mut is_any = false;
        for member in &mut meant {
            member.lacks_key = false;
            is_any = true;
        }
        is_any
    }

    /// Gives up an event that no member can get.
    pub(super) fn give_up(
        &mut self,
        key: MemberKey,
        number: u64,
        reason: UndeliverableReason,
        over: &mut Over,
    ) {
        if let Some(held) = self.change(key, |member| member.has.remove(&number)) {
            self.end(held, Fate::Failed(reason), over);
        }
    }

    fn take_back(
        &mut self,
        mut held: Held,
        refused_by: Option<MemberKey>,
        may_be_again: bool,
        reason: Option<UndeliverableReason>,
        over: &mut Over,
    ) {
        held.tries += 1;
        held.stranded_since = None;
        held.refused_by = refused_by;
        held.header.may_be_again |= may_be_again;
        held.reason = reason.or(held.reason);
        if held.tries < MOST_TRIES {
            self.first.push_front(held);
        } else {
            let reason = held.reason.take().unwrap_or_else(|| self.not_handled());
            self.end(held, Fate::Failed(reason), over);
        }
    }

    fn end(&mut self, held: Held, fate: Fate, over: &mut Over) {
        self.events -= 1;
        self.bytes -= held.cost;
        self.stalled_since = None;
        self.gate.open();
        over.push((held, fate));
    }

    /// Lets events return to members that could not open them, if no other member may have them. Gives up the events
    /// that no member has been allowed to have for as long as `patience`.
    pub(super) fn care(&mut self, now: Now, patience: Duration, may: May<'_>, over: &mut Over) {
        self.expire(now.moment, over);
        let time = now.since_start;
        let members = &self.members;
        for held in &mut self.first {
            let suits = |held: &Held| {
                let mut members = members.iter();
                members.any(|(key, member)| member.may_have(*key, held, may))
            };
            if held.may_return && !suits(held) {
                held.refused_by = None;
            }
            held.stranded_since = match suits(held) {
                true => None,
                false => Some(held.stranded_since.unwrap_or(time)),
            };
        }
        // The members that lack a key are tried again.
        self.try_keys(|_| true);
        let is_long = |since: Duration| since + patience <= time;
        let mut given_up: Vec<Held> = Vec::new();
        let (stranded, others): (VecDeque<Held>, _) = std::mem::take(&mut self.first)
            .into_iter()
            .partition(|held| held.stranded_since.is_some_and(is_long));
        self.first = others;
        given_up.extend(stranded);
        if self.members.is_empty() && is_long(*self.empty_since.get_or_insert(time)) {
            given_up.extend(self.waiting.drain());
        }
        for mut held in given_up {
            let reason = held.reason.take().unwrap_or_else(|| self.not_handled());
            self.end(held, Fate::Failed(reason), over);
        }
    }

    /// The reason why an event comes back to its publisher.
    pub(super) fn not_handled(&self) -> UndeliverableReason {
        UndeliverableReason::Refused {
            reason: RefusalReason::OverLimit,
            explanation: format!(
                "no member of the group {:?} handled it: none came, none took anything for long, or each ended that \
                 had it",
                &*self.key.name
            ),
        }
    }
}
