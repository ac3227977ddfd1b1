//! The exchange's knowledge about another process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_seal::{Identity, Timestamp};

use super::aftermath::PeerKey;
use super::known_filters::KnownFilters;
use super::receipt::Receipt;
use super::share::Share;
use super::stream::{IncomingStream, KeptFrame, OutgoingStream, Parcel};
use crate::filter::ChannelFilter;
use crate::flow::FlowPolicy;
use crate::frame::{Announcement, Frame, Stamp, session};
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
use sealbus_bus::{Gate, MESSAGE_OVERHEAD};

/// A subscription that another process announced.
#[derive(Debug)]
pub(crate) struct RemoteSubscription {
    pub(crate) agent: Arc<str>,
    pub(crate) pattern: ChannelPattern,
    pub(crate) filter: Option<ChannelFilter>,
    pub(crate) policy: FlowPolicy,
    pub(crate) takes_events: bool,
    pub(crate) answers: bool,
    /// Whether the subscription gets the events of persistent channels from the logs.
    pub(crate) reads_logs: bool,
    /// The queue group that the subscription belongs to.
    pub(crate) group: Option<Arc<str>>,
    /// The beginning of the certificate under which the agent announced the subscription.
    pub(super) since: Option<Timestamp>,
    /// The first frame to the process that was made after the announcement.
    pub(super) known_before: u64,
    /// The bytes that may be sent to the subscription in all, and below the bytes that were sent.
    limit: AtomicU64,
    sent: AtomicU64,
    /// The time since which publishers have waited for credit and got none.
    stalled_since: Mutex<Option<Duration>>,
    /// Events that passed the subscription by and were not yet reported to its process.
    missed: AtomicU64,
    /// How often the filter could not be evaluated here.
    pub(super) filter_errors: AtomicU64,
    /// The gate at which publishers wait for more credit.
    pub(super) gate: Arc<Gate>,
}

impl RemoteSubscription {
    pub(super) fn new(
        agent: Arc<str>,
        pattern: ChannelPattern,
        filter: Option<ChannelFilter>,
        announcement: &Announcement<'_>,
        since: Option<Timestamp>,
        known_before: u64,
    ) -> Self {
        Self {
            agent,
            pattern,
            filter,
            policy: announcement.policy,
            takes_events: announcement.takes_events,
            answers: announcement.answers,
            reads_logs: announcement.reads_logs,
            group: (!announcement.group.is_empty()).then(|| announcement.group.into()),
            since,
            known_before,
            limit: AtomicU64::new(announcement.credit),
            sent: AtomicU64::new(0),
            stalled_since: Mutex::default(),
            missed: AtomicU64::new(0),
            filter_errors: AtomicU64::new(0),
            gate: Arc::default(),
        }
    }

    pub(super) fn pushes_back(&self) -> bool {
        self.policy == FlowPolicy::PushBack
    }

    /// Whether the subscription's process has given credit for more.
    pub(super) fn has_credit(&self) -> bool {
        !self.pushes_back()
            || self.sent.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn charge(&self, cost: u64) {
        if self.pushes_back() {
            self.sent.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Takes back the cost of a frame that is not sent after all.
    pub(super) fn refund(&self, cost: u64) {
        if self.pushes_back() {
            let _ = self
                .sent
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sent| {
                    Some(sent.saturating_sub(cost))
                });
        }
    }

    /// Raises the limit. The time that publishers wait begins anew, because the agent has taken an event. No event costs
    /// less than [`MESSAGE_OVERHEAD`], so a smaller raise counts only if publishers can go on.
    pub(super) fn raise(&self, limit: u64) {
        let former = self.limit.fetch_max(limit, Ordering::Relaxed);
        let is_worth_an_event = limit >= former.saturating_add(MESSAGE_OVERHEAD as u64);
        if is_worth_an_event || limit > former && self.has_credit() {
            *self.stalled_since.lock() = None;
        }
        self.gate.open();
    }

    /// Notes that a publisher finds no credit. Returns the time since which there has been none.
    pub(super) fn stall(&self, now: Duration) -> Duration {
        *self.stalled_since.lock().get_or_insert(now)
    }

    /// Whether an event, or a message to one agent, was sent to this subscription, which is number `id` of its process.
    /// `budget`: the cost that its filter may still have. Once that is spent, the answer is no.
    pub(super) fn is_target(&self, id: u32, parcel: &Parcel, budget: &mut u32) -> bool {
        let Ok(Frame::Event { head, targets, .. }) = Frame::decode(&parcel.head) else {
            return false;
        };
        if !targets.is_all() {
            return targets.iter().any(|it| it == id);
        }
        let Ok(channel) = ChannelPath::new(head.channel) else {
            return false;
        };
        let reads_it = self.reads_logs && head.persistence.is_persistent();
        let takes = self.takes_events && self.group.is_none() && !reads_it;
        let sees = takes && self.pattern.matches(&channel);
        sees && self.filter.as_ref().is_none_or(|filter| {
            if *budget == 0 {
                return false;
            }
            let bytes = parcel.message();
            let limits = Limits {
                message_length: bytes.len(),
                ..Limits::default()
            };
            EncodedMessage::new(bytes, &limits).is_ok_and(|message| {
                let header = head.to_header(channel);
                let (passes, cost) = filter.evaluate(&header, &message.message());
                *budget = budget.saturating_sub(cost);
                passes.unwrap_or(false)
            })
        })
    }

    /// Notes that an event passes the subscription by.
    pub(super) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over the missed events that its earlier self was not told of.
    pub(super) fn inherit(&self, former: &Self) {
        let missed = former.take_missed();
        self.missed.fetch_add(missed, Ordering::Relaxed);
    }

    /// The number of events that have passed the subscription by since the last call.
    pub(super) fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

/// The filter errors that a process has not been told of: by subscription number, with count and reason.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) by_subscription: BTreeMap<u32, (u64, String)>,
    pub(super) at: Option<Duration>,
}

/// A publisher or an event that waits until the agents of a process have taken a frame.
pub(super) enum Untaken {
    /// A publisher.
    Receipt(Arc<Receipt>),
    /// An event of a group. Another member gets it if this one does not handle it.
    Share(Share),
}

/// Another process.
pub(super) struct Peer {
    pub(super) key: PeerKey,
    pub(super) identity: Arc<Identity>,
    /// The epoch under which this process speaks to it.
    pub(super) own_epoch: u64,
    /// The epoch of that process; 0 if not known.
    pub(super) epoch: u64,
    pub(super) outgoing: OutgoingStream,
    pub(super) incoming: IncomingStream,
    /// The first frame to send again. It and later ones have come back, or may have come too early.
    pub(super) again_from: Option<u64>,
    pub(super) subscriptions: HashMap<u32, Arc<RemoteSubscription>>,
    /// The filters of its subscriptions.
    pub(super) filters: KnownFilters,
    /// The process's subscriptions when it was given up, until it has announced them again. The events that they miss
    /// are counted.
    pub(super) away: HashMap<u32, Arc<RemoteSubscription>>,
    /// Whether there is a reason to talk to the process.
    pub(super) is_wanted: bool,
    /// Whether the process was heard in this session, and thus knows both epochs.
    pub(super) is_heard: bool,
    /// Whether the process has announced all its subscriptions.
    pub(super) is_known: bool,
    /// Whether publishers go on without the process's announcements: it was given up, takes no frames, or a publisher
    /// was told that it is silent.
    pub(super) is_excused: bool,
    /// The time until which publishers wait for the process's announcements, once a publisher does. The announcements end
    /// it, and a new session does so only long after it has passed.
    pub(super) awaited_until: Option<Duration>,
    /// Whether the transport has no room at the moment.
    pub(super) is_blocked: bool,
    /// Whether the process is marked as one with frames to send.
    pub(super) is_ready: bool,
    /// When to look at the process again.
    pub(super) due: Option<Duration>,
    pub(super) greet_at: Option<Duration>,
    pub(super) greet_pause: Duration,
    /// When to check that the process is still there, because publishers wait for its credit.
    pub(super) probe_at: Option<Duration>,
    /// The notices about the filters of its subscriptions.
    pub(super) untold: Untold,
    /// When the last frame of a wrong session was answered.
    pub(super) corrected: Option<Duration>,
    /// The last frame that reports a refusal to the process.
    pub(super) last_report: u64,
    /// Frames that the process has taken but its agents have not.
    pub(super) untaken: HashMap<u64, Untaken>,
    /// The subscriptions of this process in which events of that process wait.
    pub(super) readers: BTreeSet<u32>,
    /// The gate at which publishers wait for room.
    pub(super) gate: Arc<Gate>,
}

impl Peer {
    pub(super) fn new(key: PeerKey, identity: Arc<Identity>, epoch: u64, greet: Duration) -> Self {
        Self {
            key,
            identity,
            own_epoch: epoch,
            epoch: 0,
            outgoing: OutgoingStream::default(),
            incoming: IncomingStream::default(),
            again_from: None,
            subscriptions: HashMap::new(),
            filters: KnownFilters::default(),
            away: HashMap::new(),
            is_wanted: false,
            is_heard: false,
            is_known: false,
            is_excused: false,
            awaited_until: None,
            is_blocked: false,
            is_ready: false,
            due: None,
            greet_at: None,
            greet_pause: greet,
            probe_at: None,
            untold: Untold::default(),
            corrected: None,
            last_report: 0,
            untaken: HashMap::new(),
            readers: BTreeSet::new(),
            gate: Arc::default(),
        }
    }

    /// Whether frames other than hellos can be written.
    pub(super) fn is_introduced(&self) -> bool {
        self.epoch != 0
    }

    /// The session of the frames to that process.
    pub(super) fn session_out(&self) -> u64 {
        session(self.own_epoch, self.epoch)
    }

    /// The session of the frames from that process.
    pub(super) fn session_in(&self) -> u64 {
        session(self.epoch, self.own_epoch)
    }

    /// The stamp of the next frame that is kept until acknowledged.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp {
            session: self.session_out(),
            number: self.outgoing.next(),
        }
    }

    /// Sends a frame that needs a stamp and is kept until acknowledged.
    pub(super) fn tell<'a>(
        &mut self,
        author: Option<&Arc<str>>,
        now: Duration,
        frame: impl FnOnce(Stamp) -> Frame<'a>,
    ) {
        let mut parcel = Parcel::of_process(&frame(self.stamp()));
        parcel.author = author.cloned();
        self.outgoing.push(KeptFrame::new(parcel), now);
    }

    /// As [`tell`](Self::tell), for the report that a frame was refused or not taken. The acknowledgement of arrived
    /// frames follows behind it.
    pub(super) fn report<'a>(&mut self, now: Duration, frame: impl FnOnce(Stamp) -> Frame<'a>) {
        self.last_report = self.outgoing.next();
        self.tell(None, now, frame);
    }

    pub(super) fn greet(&mut self) {
        self.outgoing.greet(&Frame::Hello {
            from: self.own_epoch,
            to: self.epoch,
        });
    }
}

/// Tells a process which of its frames have come, and that no event of its frames up to `read` still waits for an agent
/// to take it.
pub(super) fn acknowledge(peer: &mut Peer, read: u64) {
    let upto = peer.incoming.acknowledged();
    let frame = Frame::Acknowledge {
        stamp: Stamp {
            session: peer.session_out(),
            number: 0,
        },
        upto,
        read: read.min(upto),
        after: peer.last_report,
    };
    let after = peer.last_report;
    peer.outgoing.push_acknowledgement(&frame, after);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credit_for_an_event_begins_the_wait_of_publishers_anew() {
        let announcement = Announcement {
            subscription: 1,
            pattern: "/dates",
            filter: "",
            policy: FlowPolicy::PushBack,
            answers: false,
            takes_events: true,
            credit: 1000,
            reads_logs: false,
            group: "",
            prefetch: 0,
        };
        let pattern = ChannelPattern::new("/dates").expect("a pattern");
        let agent = "idle@factory".into();
        let it = RemoteSubscription::new(agent, pattern, None, &announcement, None, 1);
        let at = Duration::from_secs;
        // The last event was long.
        it.charge(5000);
        assert_eq!(it.stall(at(0)), at(0));
        for step in 1..=3 {
            it.raise(1000 + step);
            assert_eq!(it.stall(at(20 * step)), at(0));
        }
        // The agent takes a short event. Publishers wait on, and the agent misses nothing.
        it.raise(1003 + MESSAGE_OVERHEAD as u64);
        assert!(!it.has_credit());
        assert_eq!(it.stall(at(70)), at(70));
        it.raise(4999);
        assert_eq!(it.stall(at(80)), at(80));
        // However little it is, publishers go on.
        it.raise(5001);
        assert!(it.has_credit());
        assert_eq!(it.stall(at(90)), at(90));
    }
}
