//! Consumers: the subscriptions of this process. The exchange fills a consumer's queue, and its agent empties it.

mod handling;
mod ledgers;
mod open_requests;
mod outcome;
mod putting;
mod resting;
mod rows;
mod unread;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::{Gate, Moment, Tap};

use super::aftermath::{Aftermath, PeerKey, Source, note_taken};
use super::config::ExchangeConfig;
use super::options::{Ended, SubscriptionOptions};
use super::publication::Turn;
use crate::event::{Mechanism, ReceivedEvent, RequestId};
use crate::filter::ChannelFilter;
use crate::flow::FlowPolicy;
use crate::log::Tracker;
use crate::qos::Reliability;
use crate::queue::{FlowReport, Loss, QueueCounters, SubscriptionQueue};
use ledgers::Ledgers;
use open_requests::OpenRequests;
pub(super) use outcome::{PutOutcome, Room};
use rows::Rows;
use unread::Unread;

/// The time between two log lines that report that publishers wait for the same subscription.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

struct Entry {
    event: ReceivedEvent,
    source: Source,
    cost: usize,
}

impl Entry {
    /// The process whose credit the event took. Best-effort events take none, because they may be lost on the way.
    fn payer(&self) -> Option<PeerKey> {
        let is_kept = self.event.header.qos.reliability != Reliability::BestEffort;
        self.source.peer().filter(|_| is_kept)
    }

    /// Whether the event is missed if it is not taken. An event of a log stays there.
    fn is_transient(&self) -> bool {
        let is_logged = matches!(self.source, Source::Log(_));
        !is_logged && !matches!(self.event.header.mechanism, Mechanism::Request { .. })
    }
}

struct State {
    queue: SubscriptionQueue<Entry>,
    /// The rows, which are read after the queue.
    rows: Rows,
    /// The accounts of other processes, if the subscription pushes back.
    ledgers: Option<Ledgers>,
    open: OpenRequests,
    unread: Unread,
    /// The events of a group that the agent took last and is handling.
    in_hand: Vec<Source>,
    lost: Vec<(Entry, Loss)>,
    ended: Option<Ended>,
    /// Whether the agent rests because it moves. It then takes nothing.
    rests: bool,
    waker: Option<Waker>,
    /// How often publishers of this process had to wait since the last report, and when to report again.
    waits: u64,
    next_report: Moment,
    /// The time since which publishers of this process have found no room.
    stalled_since: Option<Duration>,
    /// How many events passed the subscription by, here and elsewhere.
    missed: u64,
    /// How often the filter could not be evaluated, here and elsewhere.
    filter_errors: u64,
    /// When the log may report again that events pass the subscription by.
    next_missed: Moment,
}

/// A subscription of this process.
pub(crate) struct Consumer {
    pub(crate) id: u32,
    pub(crate) agent: Arc<str>,
    pub(crate) options: SubscriptionOptions,
    pub(super) filter: Option<ChannelFilter>,
    /// The logs that the subscription has read, if it reads logs.
    pub(crate) tracker: Option<Arc<Tracker>>,
    state: Mutex<State>,
    /// The gate at which publishers of this process wait for room.
    pub(super) gate: Arc<Gate>,
    /// Shows watchers the events that arrive.
    tap: Arc<Tap>,
}

impl Consumer {
    pub(super) fn new(
        id: u32,
        agent: Arc<str>,
        options: SubscriptionOptions,
        filter: Option<ChannelFilter>,
        config: &ExchangeConfig,
    ) -> Self {
        let queue = SubscriptionQueue::new(options.policy, options.limits);
        let pushes_back = options.policy == FlowPolicy::PushBack;
        let ledgers =
            pushes_back.then(|| Ledgers::new(options.limits.bytes, config.largest_message));
        Self {
            id,
            agent,
            tracker: options.reads_logs().then(Arc::default),
            options,
            filter,
            state: Mutex::new(State {
                queue,
                rows: Rows::default(),
                ledgers,
                open: OpenRequests::default(),
                unread: Unread::default(),
                in_hand: Vec::new(),
                lost: Vec::new(),
                ended: None,
                rests: false,
                waker: None,
                waits: 0,
                next_report: Moment::default(),
                stalled_since: None,
                missed: 0,
                filter_errors: 0,
                next_missed: Moment::default(),
            }),
            gate: Arc::default(),
            tap: config.tap.clone(),
        }
    }

    pub(super) fn pushes_back(&self) -> bool {
        self.options.policy == FlowPolicy::PushBack
    }

    /// Opens a window for one process of this many. Returns its first limit.
    pub(super) fn open_window(&self, peer: PeerKey, processes: usize) -> u64 {
        let mut state = self.state.lock();
        let ledgers = state.ledgers.as_mut();
        ledgers.map_or(0, |ledgers| ledgers.open(peer, processes))
    }

    /// Whether an event of this many bytes finds room, or the policy needs none.
    pub(super) fn has_room(&self, cost: usize, turn: Turn<'_>, now: Duration) -> Room {
        if !self.pushes_back() {
            return Room::Free;
        }
        let mut state = self.state.lock();
        state.dissolve_rows();
        if !state.queue.has_room(cost) && state.ended.is_none() {
            return Room::Full(*state.stalled_since.get_or_insert(now));
        }
        drop(state);
        if turn.is_behind_others_at(&self.gate) {
            Room::Taken
        } else {
            Room::Free
        }
    }

    /// Counts events that have passed the subscription by. Returns whether they are the first of a series.
    pub(super) fn miss(&self, count: u64, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.missed = state.missed.saturating_add(count);
        let is_first = now >= state.next_missed;
        if is_first {
            state.next_missed = now.plus(REPORT_INTERVAL);
        }
        is_first
    }

    /// The limit of a process that asks for it, if it does not know that limit yet.
    pub(super) fn credit_of(&self, peer: PeerKey) -> Option<u64> {
        self.state.lock().ledgers.as_mut()?.announce(peer)
    }

    /// Gives back the credit of a process's event that is not put into the queue.
    pub(super) fn refund(&self, peer: PeerKey, cost: usize, aftermath: &mut Aftermath) {
        let mut state = self.state.lock();
        if let Some(ledgers) = &mut state.ledgers {
            ledgers.receive(peer, cost);
            state.pay(peer, cost, aftermath);
        }
    }

    /// Takes up to `most` events out of the queue. The agent has then handled the events that it took before. Returns 0
    /// if there is none now, or the agent rests; `waker` is then woken when that may have changed.
    pub(crate) fn take(
        &self,
        now: Moment,
        waker: Option<&Waker>,
        most: usize,
        mut out: impl FnMut(ReceivedEvent),
        aftermath: &mut Aftermath,
    ) -> usize {
        if let Some(tracker) = &self.tracker {
            tracker.settle();
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.handled(aftermath);
        let mut count = 0;
        while count < most && !state.rests {
            let entry = state.next_entry(now);
            state.settle_lost(aftermath);
            let Some(entry) = entry else { break };
            count += 1;
            out(self.hand_out(state, entry, now, aftermath));
        }
        if count == 0
            && let Some(waker) = waker
        {
            state.waker = Some(waker.clone());
        }
        if count > 0 {
            state.stalled_since = None;
        }
        aftermath.has_room |= count > 0 && self.pushes_back();
        count
    }

    /// The requester of `event`, if `event` is a request that the agent took here and has not answered. The request
    /// then counts as answered.
    pub(super) fn close_request(
        &self,
        event: &ReceivedEvent,
    ) -> Option<(Option<PeerKey>, RequestId)> {
        self.state.lock().open.close(event)
    }

    /// Opens a request again that could not be answered just now.
    pub(super) fn reopen_request(
        &self,
        event: &ReceivedEvent,
        source: Option<PeerKey>,
        id: RequestId,
    ) {
        self.state.lock().open.add(event, (source, id));
    }

    /// Advances the time and gives up expired events. Returns when to call this again.
    pub(super) fn advance(&self, now: Moment, aftermath: &mut Aftermath) -> Option<Moment> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.queue.advance(now, &mut state.lost);
        if !state.lost.is_empty() {
            state.stalled_since = None;
        }
        aftermath.has_room |= !state.lost.is_empty() && self.pushes_back();
        state.settle_lost(aftermath);
        let next = state.queue.next_change();
        let waker = if state.is_ready() {
            state.waker.take()
        } else {
            None
        };
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
        next
    }

    /// Ends the subscription. Events in the queue stay with the agent, unless the subscription was cancelled or the agent
    /// moves. Returns how many events the agent misses because it moves while they wait.
    pub(super) fn end(&self, why: Ended, aftermath: &mut Aftermath) -> u64 {
        if let Some(tracker) = &self.tracker {
            tracker.finish();
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.dissolve_rows();
        state.ended.get_or_insert(why);
        let mut missed = 0;
        // Events in hand may have been handled. The publisher's process gives them to other members, marked.
        state.in_hand.clear();
        if why == Ended::Cancelled || self.options.group.is_some() || state.rests {
            for entry in state.queue.drain() {
                let is_missed = state.rests && entry.is_transient();
                missed += u64::from(is_missed);
                state.give_up(&entry, aftermath);
                if is_missed {
                    entry.go_back(aftermath);
                }
            }
        }
        aftermath.unanswered.extend(state.open.drain());
        let waker = state.waker.take();
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.gate.open_all();
        missed
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.state.lock().ended
    }

    /// Forgets everything of a process that is gone.
    pub(super) fn forget(&self, peer: PeerKey) {
        let mut state = self.state.lock();
        if let Some(ledgers) = &mut state.ledgers {
            ledgers.forget(peer);
        }
        state.unread.forget(peer);
        state.open.forget(peer);
    }

    /// The number of waiting events, their bytes, and the counters so far.
    pub(crate) fn counts(&self) -> (usize, usize, QueueCounters) {
        let state = self.state.lock();
        let (events, bytes) = state.rows.counts();
        let counters = state.queue.counters();
        (
            state.queue.len() + events,
            state.queue.bytes() + bytes,
            QueueCounters {
                taken: counters.taken + events as u64,
                filter_errors: state.filter_errors,
                missed: state.missed,
                ..counters
            },
        )
    }

    /// Counts failed evaluations of the filter. Returns whether they are the first.
    pub(super) fn count_filter_errors(&self, count: u64) -> bool {
        let mut state = self.state.lock();
        let is_first = state.filter_errors == 0;
        state.filter_errors = state.filter_errors.saturating_add(count);
        is_first && count > 0
    }

    /// The line for the log, if the policy has acted and a line is due.
    pub(super) fn report(&self, now: Moment) -> Option<FlowReport> {
        self.state.lock().queue.report(now)
    }

    /// Notes that a publisher of this process has to wait. Returns the line for the log, if one is due.
    pub(super) fn note_wait(&self, now: Moment) -> Option<FlowReport> {
        let mut state = self.state.lock();
        state.waits += 1;
        if now < state.next_report {
            return None;
        }
        state.next_report = now.plus(REPORT_INTERVAL);
        Some(FlowReport {
            policy: FlowPolicy::PushBack,
            dropped: 0,
            pushed_back: std::mem::take(&mut state.waits),
            disconnected: false,
        })
    }

    /// Lets the next publisher of this process try.
    pub(crate) fn open_gate(&self) {
        self.gate.open();
    }
}

impl State {
    /// Whether an event can be handed out now.
    fn is_ready(&self) -> bool {
        self.queue.is_ready() || !self.rows.is_empty()
    }

    fn pay(&mut self, peer: PeerKey, cost: usize, aftermath: &mut Aftermath) {
        let ledgers = self.ledgers.as_mut();
        if let Some((peer, limit)) = ledgers.and_then(|ledgers| ledgers.pay(peer, cost)) {
            aftermath.credit.retain(|(other, _)| *other != peer);
            aftermath.credit.push((peer, limit));
        }
    }

    /// Gives up an event that no agent gets.
    fn give_up(&mut self, entry: &Entry, aftermath: &mut Aftermath) {
        self.leave(entry, aftermath);
        if let Some(peer) = entry.payer() {
            self.pay(peer, entry.cost, aftermath);
        }
        if let Mechanism::Request { id } = entry.event.header.mechanism {
            aftermath.unanswered.push((entry.source.peer(), id));
        }
        note_taken(&entry.source, false, aftermath);
    }

    fn settle_lost(&mut self, aftermath: &mut Aftermath) {
        if self.lost.is_empty() {
            return;
        }
        for (entry, _) in std::mem::take(&mut self.lost) {
            self.give_up(&entry, aftermath);
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("id", &self.id)
            .field("agent", &self.agent)
            .field("pattern", &self.options.pattern)
            .finish_non_exhaustive()
    }
}
