//! The exchange: who subscribes to what, here and in the other processes, and what is published, asked and answered between
//! them. A state machine without I/O and without a clock: what happened and what time it is come in, frames
//! and outcomes come out.
//!
//! **Epochs.** Two processes first tell each other the epoch they speak in (*hello*). A process that
//! was started anew has a higher one, and so has one that gave the other up; frames of a former epoch are known by their
//! session and ignored. On a new session both announce their subscriptions anew.
//!
//! **Reliability.** Frames are numbered for each session and kept until acknowledged; they are sent again after a
//! pause, and at once when the transport has lost them. The receiver takes each once and in order, or, if its QoS does
//! not ask for order, as it comes. What is not acknowledged within [`ExchangeConfig::absence`] is reported to its
//! publisher, and the two processes begin anew. Best-effort events are sent once and neither kept nor reported.
//!
//! **Flow.** A publisher waits while a process has more unacknowledged than [`ExchangeConfig::kept_bytes`], and while a
//! subscription that pushes back has no room, or its process has given no credit for more. All other subscriptions take
//! what comes and act by their policy. Best-effort events wait for no other process: what finds no room there is lost.
//!
//! **Requests** name the subscriptions that are asked. Each answers once, declines, or is gone; so the requester knows who
//! did not answer, and need not wait for those that cannot.
//!
//! **Rights** are looked at where an event arrives, by the identity that its transport proved, and where a subscription is
//! announced to; at the publisher once more, so that it learns of it early.

mod arrival;
mod collector;
mod consumer;
mod filter_errors;
#[cfg(test)]
mod hostile;
mod peer;
mod publish;
mod receipt;
#[cfg(test)]
mod simulation;
mod spare;
mod stream;
mod targets;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sealbus_seal::Identity;
use sealbus_seal::permission::ChannelRight;
use thiserror::Error;

pub(crate) use collector::Collector;
use consumer::PeerKey;
pub(crate) use consumer::{Aftermath, Consumer};
pub use consumer::{Ended, SubscriptionOptions};
use filter_errors::Untold;
use peer::Peer;
pub(crate) use publish::{Asked, Attempt, Publication, Turn};
pub use publish::{PublishError, Reach};
pub(crate) use receipt::Receipt;
use spare::Spare;
pub(crate) use stream::Parcel;
use stream::{Kept, Pace};
use targets::{Channel, Counts, Filter, Here, PeerTargets, Targets, There, Uses};

use super::filter::{ChannelFilter, FilterError};
use super::flow::FlowPolicy;
use super::frame::{self, Announcement, Frame, HeadMechanism};
use super::moment::Moment;
use super::path::ChannelPath;
use super::pattern::{ChannelPattern, PatternIndex};
use super::permission::ChannelPermissions;
use super::queue::{FlowReport, QueueCounters};
use crate::error::UndeliverableReason;
use crate::refusal::RefusalReason;

/// How an exchange behaves, and how much others can make it hold.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeConfig {
    /// A number that grows from each start of the process to the next, such as microseconds since 1970. Not 0.
    pub(crate) epoch: u64,
    /// Subscriptions of one other process.
    pub(crate) subscriptions_per_process: usize,
    /// Frames kept for one process until it acknowledges them, before publishers wait.
    pub(crate) kept_frames: usize,
    /// Their bytes.
    pub(crate) kept_bytes: usize,
    /// Bytes held of one process that came before others that are due.
    pub(crate) early_bytes: usize,
    /// The first pause before frames are sent again. Short where frames can be lost, long where the transport sees to
    /// that itself.
    pub(crate) resend: Duration,
    /// The longest such pause.
    pub(crate) longest_resend: Duration,
    /// The first pause between two hellos, and the longest.
    pub(crate) greet: (Duration, Duration),
    /// After so long without an acknowledgement that is due a process is given up.
    pub(crate) absence: Duration,
    /// How long an acknowledgement may wait for more to acknowledge.
    pub(crate) acknowledge_after: Duration,
    /// Frames after which it does not wait.
    pub(crate) acknowledge_frames: usize,
    /// Bytes after which it does not wait.
    pub(crate) acknowledge_bytes: usize,
    /// Requests of this process under way.
    pub(crate) requests: usize,
    /// Channels remembered.
    pub(crate) channels: usize,
    /// The largest encoded message.
    pub(crate) largest_message: usize,
}

impl ExchangeConfig {
    /// The usual configuration, over a transport that loses nothing as long as a process is there.
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            epoch: epoch.max(1),
            subscriptions_per_process: 16_384,
            kept_frames: 16_384,
            kept_bytes: 8 << 20,
            early_bytes: 8 << 20,
            resend: Duration::from_secs(5),
            longest_resend: Duration::from_secs(30),
            greet: (Duration::from_millis(200), Duration::from_secs(5)),
            absence: Duration::from_secs(30),
            acknowledge_after: Duration::from_millis(20),
            acknowledge_frames: 64,
            acknowledge_bytes: 256 << 10,
            requests: 65_536,
            channels: 65_536,
            largest_message: 16 << 20,
        }
    }

    fn pace(&self) -> Pace {
        Pace {
            after: self.acknowledge_after,
            frames: self.acknowledge_frames,
            bytes: self.acknowledge_bytes,
        }
    }
}

/// What time it is, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Since the exchange began; never goes back.
    pub(crate) since_start: Duration,
    /// By the calendar, which others share.
    pub(crate) moment: Moment,
}

/// What somebody is to be told.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// What an agent published did not get where it was to.
    Failed {
        publisher: Arc<str>,
        receiver: String,
        /// The ACL message.
        body: Bytes,
        reason: UndeliverableReason,
    },
    /// Something was refused.
    Refused {
        tried_by: String,
        proved: Option<String>,
        channel: Option<String>,
        reason: RefusalReason,
        explanation: String,
    },
    /// A subscription's policy has acted.
    Flow {
        agent: Arc<str>,
        pattern: ChannelPattern,
        report: FlowReport,
    },
    /// A subscription's filter cannot be evaluated for what is published; said once.
    FilterError {
        agent: Arc<str>,
        pattern: ChannelPattern,
        filter: String,
        problem: String,
    },
}

/// Why a subscription was not made.
#[derive(Clone, Debug, Error)]
pub enum SubscribeError {
    /// The filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// It would never get anything.
    #[error(
        "a subscription that takes neither events nor requests gets nothing: choose at least one"
    )]
    Nothing,
    /// The agent may not read the channel.
    #[error(
        "agent {agent} may not subscribe to {pattern}: the platform's policy does not allow it"
    )]
    NotPermitted {
        /// The agent.
        agent: Arc<str>,
        /// The channels.
        pattern: ChannelPattern,
    },
    /// There is nothing to go on from after an absence, or to replay.
    #[error(
        "this platform keeps no events: a subscription cannot be durable, nor begin before now"
    )]
    NoLog,
    /// More subscriptions than other processes take.
    #[error("this process has {0} subscriptions, as many as it may have")]
    TooMany(usize),
    /// Another subscription of the agent has the durable name.
    #[error(
        "agent {agent} has a subscription with the durable name {durable:?} already: end it, or take another name"
    )]
    DurableTwice {
        /// The agent.
        agent: Arc<str>,
        /// The name.
        durable: String,
    },
    /// No durable name.
    #[error("{0:?} cannot be a durable name: it has 1 to {max} bytes and no control characters", max = frame::LONGEST_NAME)]
    DurableName(String),
    /// The agent has left this process.
    #[error("agent {0} has left this process and cannot subscribe")]
    Detached(Arc<str>),
    /// The QoS asked for cannot be had.
    #[error(transparent)]
    Unavailable(#[from] super::qos::UnavailableQos),
}

/// A request under way.
struct Asking {
    /// Who is asked and has not answered, by process and subscription; `None` is this process.
    awaiting: HashMap<(Option<u32>, u32), Arc<str>>,
    /// Those of them that will not answer.
    declined: Vec<Arc<str>>,
    collector: Arc<Collector>,
    channel: ChannelPath,
    /// Answers that are wanted still.
    wanted: usize,
    deadline: Duration,
}

/// What is known about a channel, for `channel list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// The channel.
    pub channel: ChannelPath,
    /// Events, messages and requests put on it by agents of this process.
    pub published: u64,
    /// Those that came from other processes.
    pub received: u64,
    /// Best-effort events that were not sent to a process for want of room, counted for each process.
    pub dropped: u64,
    /// How often a subscription's filter could not be evaluated for what agents of this process put on it.
    pub filter_errors: u64,
    /// Subscriptions of this process that match.
    pub subscriptions_here: usize,
    /// Those of other processes.
    pub subscriptions_there: usize,
}

/// What is known about a subscription, for `channel list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionReport {
    /// Its agent.
    pub agent: Arc<str>,
    /// The process it is in; `None`: this one.
    pub process: Option<Identity>,
    /// The channels.
    pub pattern: ChannelPattern,
    /// Its filter; empty: none.
    pub filter: String,
    /// What it does when it is full.
    pub policy: FlowPolicy,
    /// Whether it answers requests.
    pub answers: bool,
    /// How often its filter could not be evaluated: for what was published anywhere, if it is of this process, else for what
    /// was published here.
    pub filter_errors: u64,
    /// Of a subscription of this process: events and bytes that wait, and what happened so far.
    pub queue: Option<(usize, usize, QueueCounters)>,
}

/// The exchange of a process.
pub(crate) struct Exchange {
    config: ExchangeConfig,
    rights: Arc<ChannelPermissions>,
    // Sorted, so that what is sent does not depend on the order of a hash table.
    consumers: BTreeMap<u32, Arc<Consumer>>,
    next_subscription: u32,
    here: PatternIndex<u32>,
    peers: BTreeMap<u32, Peer>,
    indexes: HashMap<Identity, u32>,
    next_peer: u32,
    there: PatternIndex<(u32, u32)>,
    channels: HashMap<ChannelPath, Channel>,
    /// Numbers of channels that were forgotten are not used again.
    lowest_number: u64,
    generation: u64,
    asking: BTreeMap<u64, Asking>,
    next_request: u64,
    /// Subscriptions of this process that did not take the request that is just being made.
    declined_at_once: Vec<u32>,
    outcomes: Vec<Outcome>,
    spare: Spare,
    ready: VecDeque<u32>,
    /// Whether an agent of this process has published, so that it wants to know who subscribes elsewhere.
    is_interested: bool,
    /// When to look through the queues for what has expired or become valid.
    sweep_at: Option<Duration>,
    alarm: Option<Duration>,
    is_alarm_sooner: bool,
}

/// The least time between two looks through all queues.
const SWEEP: Duration = Duration::from_millis(10);

impl Exchange {
    pub(crate) fn new(config: ExchangeConfig) -> Self {
        Self {
            config,
            rights: Arc::default(),
            consumers: BTreeMap::new(),
            next_subscription: 1,
            here: PatternIndex::new(),
            peers: BTreeMap::new(),
            indexes: HashMap::new(),
            next_peer: 0,
            there: PatternIndex::new(),
            channels: HashMap::new(),
            lowest_number: 0,
            generation: 1,
            asking: BTreeMap::new(),
            next_request: 1,
            declined_at_once: Vec::new(),
            outcomes: Vec::new(),
            spare: Spare::default(),
            ready: VecDeque::new(),
            is_interested: false,
            sweep_at: None,
            alarm: None,
            is_alarm_sooner: false,
        }
    }

    /// From now on these permissions hold.
    pub(crate) fn set_permissions(&mut self, rights: Arc<ChannelPermissions>) {
        self.rights = rights;
        self.generation += 1;
    }

    // ---- subscriptions of this process ----

    pub(crate) fn subscribe(
        &mut self,
        agent: &Arc<str>,
        options: SubscriptionOptions,
        now: Now,
    ) -> Result<Arc<Consumer>, SubscribeError> {
        if !options.takes_events && !options.answers {
            return Err(SubscribeError::Nothing);
        }
        if let Some(durable) = &options.durable {
            let is_legal = !durable.is_empty()
                && durable.len() <= frame::LONGEST_NAME
                && !durable.chars().any(char::is_control);
            if !is_legal {
                return Err(SubscribeError::DurableName(durable.clone()));
            }
            let has_it = |other: &Consumer| {
                other.agent == *agent && other.options.durable.as_ref() == Some(durable)
            };
            if self.consumers.values().any(|other| has_it(other)) {
                return Err(SubscribeError::DurableTwice {
                    agent: agent.clone(),
                    durable: durable.clone(),
                });
            }
        }
        if self.consumers.len() >= self.config.subscriptions_per_process {
            return Err(SubscribeError::TooMany(self.consumers.len()));
        }
        // A pattern is judged channel by channel, as they are used.
        if !self.may_subscribe(agent, &options.pattern, options.answers) {
            return Err(SubscribeError::NotPermitted {
                agent: agent.clone(),
                pattern: options.pattern,
            });
        }
        let filter = compile(&options.filter)?;
        let id = self.next_subscription;
        self.next_subscription += 1;
        let consumer = Arc::new(Consumer::new(id, agent.clone(), options, filter));
        self.here.insert(&consumer.options.pattern, id);
        self.consumers.insert(id, consumer.clone());
        self.generation += 1;
        let indexes: Vec<u32> = self.peers.keys().copied().collect();
        for index in indexes {
            self.want(index, now);
            if let Some(peer) = self.peers.get_mut(&index)
                && peer.is_introduced()
            {
                announce(peer, &consumer, now);
                self.mark_ready(index);
            }
        }
        Ok(consumer)
    }

    /// Whether there may be a channel of the pattern on which the agent may get something.
    fn may_subscribe(&self, agent: &str, pattern: &ChannelPattern, answers: bool) -> bool {
        let may = |right| self.rights.may_on_some(agent, right, pattern);
        may(ChannelRight::Subscribe) || answers && may(ChannelRight::Answer)
    }

    /// Ends a subscription of this process.
    pub(crate) fn unsubscribe(&mut self, id: u32, why: Ended, now: Now) {
        let Some(consumer) = self.consumers.remove(&id) else {
            return;
        };
        self.here
            .remove(&consumer.options.pattern, |other| *other == id);
        self.generation += 1;
        let mut aftermath = Aftermath::default();
        consumer.end(why, &mut aftermath);
        // Its process says that it is gone; what it owes need not be said.
        aftermath.credit.clear();
        self.settle(id, aftermath, now);
        self.stop_awaiting(None, Some(id));
        let indexes: Vec<u32> = self.peers.keys().copied().collect();
        for index in indexes {
            if let Some(peer) = self.peers.get_mut(&index)
                && peer.is_introduced()
            {
                peer.tell(None, now.since_start, |stamp| Frame::Withdraw {
                    stamp,
                    subscription: id,
                });
                self.mark_ready(index);
            }
        }
    }

    /// Ends all subscriptions of an agent that has left.
    pub(crate) fn agent_left(&mut self, agent: &str, now: Now) {
        let ids: Vec<u32> = self
            .consumers
            .values()
            .filter(|consumer| *consumer.agent == *agent)
            .map(|consumer| consumer.id)
            .collect();
        for id in ids {
            self.unsubscribe(id, Ended::Cancelled, now);
        }
    }

    /// Does what is to be done after events have left the queue of a subscription.
    pub(crate) fn settle(&mut self, id: u32, aftermath: Aftermath, now: Now) {
        if aftermath.has_room
            && let Some(consumer) = self.consumers.get(&id)
        {
            consumer.gate.open();
        }
        for (key, limit) in aftermath.credit {
            if let Some(peer) = self.peer_of(key) {
                peer.tell(None, now.since_start, |stamp| Frame::Credit {
                    stamp,
                    subscription: id,
                    limit,
                });
                self.mark_ready(key.index);
            }
        }
        for (source, request) in aftermath.unanswered {
            match source {
                None => self.decline((None, id), request.0),
                Some(key) => {
                    if let Some(peer) = self.peer_of(key) {
                        peer.tell(None, now.since_start, |stamp| Frame::NoAnswer {
                            stamp,
                            request: request.0,
                            subscription: id,
                        });
                        self.mark_ready(key.index);
                    }
                }
            }
        }
        for (key, number, is_taken) in aftermath.taken {
            if let Some(peer) = self.peer_of(key) {
                peer.tell(None, now.since_start, |stamp| {
                    if is_taken {
                        Frame::Taken {
                            stamp,
                            taken: number,
                        }
                    } else {
                        Frame::Absent {
                            stamp,
                            message: number,
                        }
                    }
                });
                self.mark_ready(key.index);
            }
        }
    }

    // ---- other processes ----

    /// There is another process on the platform.
    pub(crate) fn process_joined(&mut self, identity: &Identity, now: Now) {
        if self.indexes.contains_key(identity) {
            return;
        }
        let index = self.next_peer;
        self.next_peer += 1;
        let peer = Peer::new(
            PeerKey { index, serial: 0 },
            Arc::new(identity.clone()),
            self.config.epoch,
            self.config.resend,
            self.config.greet.0,
        );
        self.indexes.insert(identity.clone(), index);
        self.peers.insert(index, peer);
        if self.is_interested || !self.consumers.is_empty() {
            self.want(index, now);
        }
    }

    /// A process is no more.
    pub(crate) fn process_left(&mut self, identity: &Identity, now: Now) {
        let Some(index) = self.indexes.remove(identity) else {
            return;
        };
        let reason = UndeliverableReason::ProcessUnreachable(format!("{identity} has ended"));
        self.lose(index, &reason, now);
        self.peers.remove(&index);
    }

    /// An agent of this process publishes: it is to be known who subscribes elsewhere. Returns whether it is.
    pub(crate) fn take_interest(&mut self, now: Now) -> bool {
        if !self.is_interested {
            self.is_interested = true;
            let indexes: Vec<u32> = self.peers.keys().copied().collect();
            for index in indexes {
                self.want(index, now);
            }
        }
        self.knows_all()
    }

    /// Whether all processes have announced their subscriptions.
    pub(crate) fn knows_all(&self) -> bool {
        self.peers.values().all(|peer| peer.is_known)
    }

    /// There is a reason to talk to a process.
    fn want(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        if !peer.is_wanted {
            peer.is_wanted = true;
            peer.greet();
            peer.greet_at = Some(now.since_start + peer.greet_pause);
            let at = peer.greet_at;
            self.mark_ready(index);
            self.set_alarm(at);
        }
    }

    /// Gives a process up: what it has not acknowledged is reported, what it announced is forgotten, and the two begin
    /// anew.
    fn lose(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        let former = peer.key;
        peer.key.serial += 1;
        peer.is_heard = false;
        peer.is_known = false;
        peer.is_blocked = false;
        peer.probe_at = None;
        peer.untold = Untold::default();
        peer.early_acknowledgement = None;
        peer.last_report = 0;
        peer.incoming = stream::Incoming::default();
        peer.greet_pause = self.config.greet.0;
        peer.greet_at = peer.is_wanted.then_some(now.since_start);
        let kept = peer.outgoing.take();
        let untaken: Vec<_> = peer.untaken.drain().map(|(_, receipt)| receipt).collect();
        let subscriptions: Vec<_> = peer.subscriptions.drain().collect();
        let gate = peer.gate.clone();
        let identity = peer.identity.clone();
        let at = peer.greet_at;
        for (id, subscription) in subscriptions {
            self.there
                .remove(&subscription.pattern, |other| *other == (index, id));
            subscription.gate.open_all();
        }
        self.generation += 1;
        for kept in kept {
            self.report(kept, &identity, reason);
        }
        for receipt in untaken {
            receipt.fail(reason);
        }
        for consumer in self.consumers.values() {
            consumer.forget(former);
        }
        self.stop_awaiting(Some(index), None);
        gate.open_all();
        self.set_alarm(at);
    }

    /// A new session with a process has begun: it hears of all subscriptions there are.
    fn begin(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        if !peer.is_introduced() {
            return;
        }
        for consumer in self.consumers.values() {
            announce(peer, consumer, now);
        }
        peer.tell(None, now.since_start, |stamp| Frame::Known { stamp });
        self.mark_ready(index);
    }

    /// Tells the publisher of a frame that it was lost.
    fn report(&mut self, kept: Kept, identity: &Identity, reason: &UndeliverableReason) {
        if let Some(receipt) = &kept.receipt {
            receipt.fail(reason);
        }
        let Some(publisher) = kept.parcel.author else {
            return;
        };
        let receiver = match Frame::decode(&kept.parcel.head) {
            Ok(Frame::Event { head, .. }) => match head.mechanism {
                HeadMechanism::Message { receiver } => receiver.to_owned(),
                // Who asked hears that there was no answer.
                HeadMechanism::Request { .. } => return,
                _ => head.channel.to_owned(),
            },
            Ok(Frame::Reply { .. } | Frame::Keep { .. }) => identity.to_string(),
            _ => return,
        };
        self.outcomes.push(Outcome::Failed {
            publisher,
            receiver,
            body: kept.parcel.body,
            reason: reason.clone(),
        });
    }

    // ---- sending ----

    /// A process that has something to send, or had when it was marked; each time another one.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        if let Some(peer) = self.peers.get_mut(&index) {
            peer.is_ready = false;
        }
        Some(index)
    }

    pub(crate) fn identity(&self, index: u32) -> Option<&Arc<Identity>> {
        self.peers.get(&index).map(|peer| &peer.identity)
    }

    pub(crate) fn index_of(&self, identity: &Identity) -> Option<u32> {
        self.indexes.get(identity).copied()
    }

    /// The next frame for a process, unless its transport has no room.
    pub(crate) fn next_parcel(&self, index: u32) -> Option<&Parcel> {
        let peer = self.peers.get(&index)?;
        if peer.is_blocked {
            return None;
        }
        peer.outgoing.peek(peer.is_introduced())
    }

    /// The transport has taken the frame.
    pub(crate) fn sent(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        let is_known = peer.is_introduced();
        peer.outgoing.advance(is_known, now.since_start);
        let at = peer.outgoing.deadline();
        self.set_alarm(at);
    }

    /// The transport has no room; [`unblock`](Self::unblock) says when it has again.
    pub(crate) fn block(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(&index) {
            peer.is_blocked = true;
        }
    }

    pub(crate) fn unblock(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(&index) {
            peer.is_blocked = false;
            self.mark_ready(index);
        }
    }

    /// The transport can never take the frame: its publisher hears of it, and the other process that nothing comes.
    pub(crate) fn impossible(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        let is_known = peer.is_introduced();
        let number = peer
            .outgoing
            .peek(is_known)
            .filter(|parcel| !matches!(Frame::decode(&parcel.head), Ok(Frame::Void { .. })))
            .and(peer.outgoing.peek_number(is_known));
        let Some(number) = number else {
            peer.outgoing.advance(is_known, now.since_start);
            return;
        };
        self.give_up(index, number, reason);
    }

    /// A void takes the place of a frame that will never be accepted, and its publisher is told.
    fn give_up(&mut self, index: u32, number: u64, reason: &UndeliverableReason) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        let session = peer.session_out();
        let void = Parcel::of_process(&Frame::Void {
            stamp: frame::Stamp { session, number },
        });
        let Some(kept) = peer.outgoing.void(number, void) else {
            return;
        };
        for id in kept.charged.iter().flat_map(|ids| ids.iter()) {
            if let Some(subscription) = peer.subscriptions.get(id) {
                subscription.refund(kept.cost);
            }
        }
        if kept.is_settled {
            return;
        }
        let identity = peer.identity.clone();
        if let Ok(Frame::Event { head, targets, .. }) = Frame::decode(&kept.parcel.head)
            && let HeadMechanism::Request { id } = head.mechanism
        {
            for subscription in targets.iter() {
                self.decline((Some(index), subscription), id);
            }
        }
        self.report(kept, &identity, reason);
    }

    /// The other process, or the transport on its behalf, does not take a frame, for who wrote it is not accepted.
    pub(crate) fn frame_refused(
        &mut self,
        identity: &Identity,
        frame: &[u8],
        reason: &UndeliverableReason,
        now: Now,
    ) {
        let Some(index) = self.index_of(identity) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        match Frame::decode(frame).map(|frame| frame.stamp()) {
            // It does not take frames at all; if that changes it will greet.
            Ok(None) => {
                peer.is_wanted = false;
                peer.greet_at = None;
            }
            Ok(Some(stamp)) if stamp.number != 0 && stamp.session == peer.session_out() => {
                self.give_up(index, stamp.number, reason);
                if let Some(peer) = self.peers.get_mut(&index) {
                    peer.outgoing.hurry(now.since_start);
                }
                self.set_alarm(Some(now.since_start));
            }
            _ => {}
        }
    }

    /// The transport has lost frames that it had taken.
    pub(crate) fn frames_lost(&mut self, identity: &Identity, now: Now) {
        if let Some(index) = self.index_of(identity)
            && let Some(peer) = self.peers.get_mut(&index)
        {
            peer.outgoing.hurry(now.since_start);
            self.set_alarm(Some(now.since_start));
        }
    }

    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn peer_of(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers
            .get_mut(&key.index)
            .filter(|peer| peer.key == key)
    }

    fn mark_ready(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(&index)
            && !peer.is_ready
        {
            peer.is_ready = true;
            self.ready.push_back(index);
        }
    }

    // ---- time ----

    fn set_alarm(&mut self, at: Option<Duration>) {
        if let Some(at) = at
            && self.alarm.is_none_or(|alarm| at < alarm)
        {
            self.alarm = Some(at);
            self.is_alarm_sooner = true;
        }
    }

    /// When [`tick`](Self::tick) is to be called, if that is sooner than was said before.
    pub(crate) fn take_alarm(&mut self) -> Option<Duration> {
        if std::mem::take(&mut self.is_alarm_sooner) {
            self.alarm
        } else {
            None
        }
    }

    /// Time has passed. Returns when to call it again.
    pub(crate) fn tick(&mut self, now: Now) -> Option<Duration> {
        let time = now.since_start;
        self.alarm = None;
        let indexes: Vec<u32> = self.peers.keys().copied().collect();
        for index in indexes {
            self.tick_peer(index, now);
        }
        let over: Vec<u64> = self
            .asking
            .iter()
            .filter(|(_, asking)| asking.deadline <= time)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.end_request(id);
        }
        if self.sweep_at.is_some_and(|at| at <= time) {
            self.sweep(now);
        }
        let next = self
            .asking
            .values()
            .map(|asking| asking.deadline)
            .chain(self.sweep_at)
            .min();
        self.set_alarm(next);
        self.is_alarm_sooner = false;
        self.alarm
    }

    /// Publishers wait for credit from a process that may owe nothing else: it is to be seen whether it is there still.
    fn probe_later(&mut self, index: u32, now: Now) {
        let at = now.since_start + self.config.absence / 3;
        if let Some(peer) = self.peers.get_mut(&index) {
            let at = *peer.probe_at.get_or_insert(at);
            self.set_alarm(Some(at));
        }
    }

    /// Sends something that a process must acknowledge, while one of its subscriptions has no credit left.
    fn probe(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        peer.probe_at = None;
        if peer.subscriptions.values().all(|it| it.has_credit()) {
            return;
        }
        if peer.outgoing.size().0 == 0 {
            peer.tell(None, now.since_start, |stamp| Frame::Void { stamp });
            self.mark_ready(index);
        }
        self.probe_later(index, now);
    }

    fn tick_peer(&mut self, index: u32, now: Now) {
        let time = now.since_start;
        let (absence, longest) = (self.config.absence, self.config.longest_resend);
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        if peer.outgoing.silence(time) >= absence {
            let reason = UndeliverableReason::ProcessUnreachable(format!(
                "{} has acknowledged nothing for {} s",
                peer.identity,
                absence.as_secs()
            ));
            // In a new epoch, so that what comes of the old one is not taken any more.
            peer.own_epoch = peer.own_epoch.saturating_add(1);
            self.lose(index, &reason, now);
            self.begin(index, now);
        }
        let probe_at = self.peers.get(&index).and_then(|peer| peer.probe_at);
        if probe_at.is_some_and(|at| at <= time) {
            self.probe(index, now);
        }
        let untold_at = self.peers.get(&index).and_then(|peer| peer.untold.at);
        if untold_at.is_some_and(|at| at <= time) {
            self.tell_filter_errors(index, now);
        }
        let Some(peer) = self.peers.get_mut(&index) else {
            return;
        };
        let mut is_ready = false;
        if peer.greet_at.is_some_and(|at| at <= time) {
            if peer.is_heard {
                peer.greet_at = None;
            } else {
                peer.greet();
                peer.greet_at = Some(time + peer.greet_pause);
                peer.greet_pause = (peer.greet_pause * 2).min(self.config.greet.1);
                is_ready = true;
            }
        }
        is_ready |= peer.outgoing.tick(time, longest);
        if peer.incoming.deadline().is_some_and(|at| at <= time) {
            acknowledge(peer);
            is_ready = true;
        }
        let next = [
            peer.greet_at,
            peer.probe_at,
            peer.untold.at,
            peer.outgoing.deadline(),
            peer.incoming.deadline(),
            peer.outgoing.waiting_since().map(|since| since + absence),
        ];
        let next = next.into_iter().flatten().min();
        if is_ready {
            self.mark_ready(index);
        }
        self.set_alarm(next);
    }

    /// Something in a queue changes at `moment`.
    fn sweep_by(&mut self, moment: Option<Moment>, now: Now) {
        let Some(moment) = moment else { return };
        let at = now.since_start + moment.since(now.moment).max(SWEEP);
        if self.sweep_at.is_none_or(|old| at < old) {
            self.sweep_at = Some(at);
            self.set_alarm(self.sweep_at);
        }
    }

    /// Gives up what has expired in the queues, and wakes those for whom something has become valid.
    fn sweep(&mut self, now: Now) {
        let consumers: Vec<_> = self.consumers.values().cloned().collect();
        self.sweep_at = None;
        for consumer in consumers {
            let mut aftermath = Aftermath::default();
            let next = consumer.advance(now.moment, &mut aftermath);
            self.settle(consumer.id, aftermath, now);
            self.sweep_by(next, now);
        }
    }

    // ---- requests ----

    /// A subscription will not answer a request.
    fn decline(&mut self, who: (Option<u32>, u32), request: u64) {
        if request == self.next_request && who.0.is_none() {
            self.declined_at_once.push(who.1);
        }
        if let Some(asking) = self.asking.get_mut(&request)
            && let Some(agent) = asking.awaiting.remove(&who)
        {
            asking.declined.push(agent);
            if asking.awaiting.is_empty() {
                self.end_request(request);
            }
        }
    }

    /// A process, or one of its subscriptions, answers nothing any more.
    fn stop_awaiting(&mut self, process: Option<u32>, subscription: Option<u32>) {
        let concerned: Vec<(u64, u32)> = self
            .asking
            .iter()
            .flat_map(|(request, asking)| asking.awaiting.keys().map(|key| (*request, *key)))
            .filter(|(_, key)| key.0 == process && subscription.is_none_or(|id| id == key.1))
            .map(|(request, key)| (request, key.1))
            .collect();
        for (request, id) in concerned {
            self.decline((process, id), request);
        }
    }

    /// No more answers to a request are wanted, or can come.
    pub(crate) fn end_request(&mut self, request: u64) {
        if let Some(asking) = self.asking.remove(&request) {
            let mut unanswered: Vec<_> = asking.declined;
            unanswered.extend(asking.awaiting.into_values());
            unanswered.sort();
            asking.collector.close(unanswered);
        }
    }

    // ---- channels ----

    /// A channel that is in use, and whom something on it is for.
    fn known(&self, path: &str) -> Option<(ChannelPath, Arc<Targets>)> {
        let (path, channel) = self.channels.get_key_value(path)?;
        let is_current = channel.generation == self.generation;
        is_current.then(|| (path.clone(), channel.targets.clone()))
    }

    /// Whom something on a channel is for.
    fn targets(&mut self, path: &ChannelPath) -> Arc<Targets> {
        if let Some(channel) = self.channels.get(path)
            && channel.generation == self.generation
        {
            return channel.targets.clone();
        }
        let mut targets = Targets::default();
        self.here.for_each_match(path, |id| {
            if let Some(consumer) = self.consumers.get(id) {
                let SubscriptionOptions {
                    takes_events,
                    answers,
                    ..
                } = consumer.options;
                let uses = Uses::new(&self.rights, &consumer.agent, path, takes_events, answers);
                match uses {
                    Some(uses) => targets.here.push(Here {
                        consumer: consumer.clone(),
                        uses,
                    }),
                    None if takes_events => targets.barred.push(*id),
                    None => {}
                }
            }
        });
        targets.here.sort_by_key(|here| here.consumer.id);
        let mut there: HashMap<u32, Vec<There>> = HashMap::new();
        self.there.for_each_match(path, |(index, id)| {
            if let Some(peer) = self.peers.get(index)
                && let Some(it) = peer.subscriptions.get(id)
                && let Some(uses) =
                    Uses::new(&self.rights, &it.agent, path, it.takes_events, it.answers)
            {
                there.entry(*index).or_default().push(There {
                    id: *id,
                    subscription: it.clone(),
                    uses,
                });
            }
        });
        for (peer, mut subscriptions) in there {
            subscriptions.sort_by_key(|it| it.id);
            let sees_all = subscriptions.iter().all(|it| {
                !it.subscription.takes_events || it.uses.sees && it.subscription.filter.is_none()
            });
            let all = sees_all.then(|| {
                subscriptions
                    .iter()
                    .filter(|it| it.uses.sees && it.subscription.pushes_back())
                    .map(|it| it.id)
                    .collect()
            });
            targets.there.push(PeerTargets {
                peer,
                subscriptions,
                all,
            });
        }
        targets.there.sort_by_key(|targets| targets.peer);
        if self.channels.len() >= self.config.channels && !self.channels.contains_key(path) {
            self.forget_channels();
        }
        let lowest = self.lowest_number;
        let channel = self
            .channels
            .entry(path.clone())
            .or_insert_with(|| Channel {
                counts: Arc::new(Counts {
                    published: AtomicU64::new(lowest),
                    ..Counts::default()
                }),
                ..Channel::default()
            });
        targets.counts = channel.counts.clone();
        let targets = Arc::new(targets);
        channel.generation = self.generation;
        channel.targets = targets.clone();
        targets
    }

    /// Makes room for other channels: half of them go, those without subscriptions first.
    fn forget_channels(&mut self) {
        let keep = self.config.channels / 2;
        let mut left = self.channels.len();
        let mut highest = self.lowest_number;
        for only_unused in [true, false] {
            self.channels.retain(|_, channel| {
                let is_unused = channel.targets.here.is_empty() && channel.targets.there.is_empty();
                let stays = left <= keep || (only_unused && !is_unused);
                if !stays {
                    left -= 1;
                    highest = highest.max(channel.counts.published.load(Ordering::Relaxed));
                }
                stays
            });
        }
        self.lowest_number = highest;
    }

    /// What is known about the channels in use.
    pub(crate) fn channel_reports(&mut self) -> Vec<ChannelReport> {
        let paths: Vec<ChannelPath> = self.channels.keys().cloned().collect();
        let exact = self
            .consumers
            .values()
            .map(|it| it.options.pattern.as_path());
        let remote = self
            .peers
            .values()
            .flat_map(|peer| peer.subscriptions.values());
        let remote = remote.map(|it| it.pattern.as_path());
        let mut paths: Vec<ChannelPath> = paths
            .into_iter()
            .chain(exact.chain(remote).flatten())
            .collect();
        paths.sort();
        paths.dedup();
        let mut reports = Vec::with_capacity(paths.len());
        for path in paths {
            let targets = self.targets(&path);
            let Counts {
                published,
                kept,
                received,
                dropped,
                filter_errors,
            } = &*targets.counts;
            reports.push(ChannelReport {
                published: published.load(Ordering::Relaxed) + kept.load(Ordering::Relaxed),
                received: received.load(Ordering::Relaxed),
                dropped: dropped.load(Ordering::Relaxed),
                filter_errors: filter_errors.load(Ordering::Relaxed),
                subscriptions_here: targets.here.len(),
                subscriptions_there: targets.there.iter().map(|it| it.subscriptions.len()).sum(),
                channel: path,
            });
        }
        reports
    }

    /// What is known about all subscriptions.
    pub(crate) fn subscription_reports(&self) -> Vec<SubscriptionReport> {
        let here = self.consumers.values().map(|it| SubscriptionReport {
            agent: it.agent.clone(),
            process: None,
            pattern: it.options.pattern.clone(),
            filter: it.options.filter.clone(),
            policy: it.options.policy,
            answers: it.options.answers,
            filter_errors: it.counts().2.filter_errors,
            queue: Some(it.counts()),
        });
        let there = self.peers.values().flat_map(|peer| {
            peer.subscriptions.values().map(|it| SubscriptionReport {
                agent: it.agent.clone(),
                process: Some((*peer.identity).clone()),
                pattern: it.pattern.clone(),
                filter: it
                    .filter
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
                policy: it.policy,
                answers: it.answers,
                filter_errors: it.filter_errors.load(Ordering::Relaxed),
                queue: None,
            })
        });
        let mut reports: Vec<_> = here.chain(there).collect();
        reports.sort_by(|a, b| (a.pattern.as_str(), &a.agent).cmp(&(b.pattern.as_str(), &b.agent)));
        reports
    }
}

fn compile(text: &str) -> Result<Option<Filter>, FilterError> {
    if text.is_empty() {
        return Ok(None);
    }
    ChannelFilter::new(text).map(Some)
}

/// Tells a process of a subscription of this one.
fn announce(peer: &mut Peer, consumer: &Consumer, now: Now) {
    let options = &consumer.options;
    peer.tell(Some(&consumer.agent), now.since_start, |stamp| {
        Frame::Announce {
            stamp,
            announcement: Announcement {
                subscription: consumer.id,
                pattern: options.pattern.as_str(),
                filter: &options.filter,
                policy: options.policy,
                answers: options.answers,
                takes_events: options.takes_events,
                credit: consumer.window(),
                durable: options.durable.as_deref().unwrap_or_default(),
                replay: options.replay,
            },
        }
    });
}

/// Tells a process what has come from it.
fn acknowledge(peer: &mut Peer) {
    let (upto, beyond) = peer.incoming.acknowledgement();
    let frame = Frame::Acknowledge {
        stamp: frame::Stamp {
            session: peer.session_out(),
            number: 0,
        },
        upto,
        beyond,
        after: peer.last_report,
    };
    peer.outgoing.push_control(&frame);
}
