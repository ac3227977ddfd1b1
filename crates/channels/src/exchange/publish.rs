//! What agents of this process put on channels: events, directed messages, requests and answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, EncodeError, bitefficient};
use sealbus_seal::Identity;
use sealbus_seal::permission::ChannelRight;
use thiserror::Error;

use super::collector::Collector;
use super::consumer::{Aftermath, Consumer, Put, Source};
use super::filter_errors::{FailedFilters, Sieve};
use super::peer::RemoteSubscription;
use super::receipt::Receipt;
use super::requests::Asking;
use super::stream::{Kept, Parcel};
use super::targets::{Here, PeerTargets, Targets, There, is_kept};
use super::{Ended, Exchange, Now, Outcome};
use crate::event::{ChannelHeader, Mechanism, ReceivedEvent, RequestId};
use crate::frame::{self, Frame, Head, Stamp};
use crate::log::{LogNote, LogPlace};
use crate::path::ChannelPath;
use crate::qos::{Qos, Reliability};
use sealbus_bus::Acknowledgement;
use sealbus_bus::Gate;
use sealbus_bus::MESSAGE_OVERHEAD;
use sealbus_bus::Moment;
use sealbus_bus::NotKept;
use sealbus_bus::UndeliverableReason;
use sealbus_bus::{Provenance, ReceivedMessage, shared_size};

/// Content of this length and above is shared with the publisher; shorter content is copied with the rest of the message.
const SHARED: usize = 2 << 10;
/// A buffer that has grown beyond this is not kept.
const LARGEST_SPARE: usize = 64 << 10;

/// Why something was not put on a channel. What goes wrong later comes to the publisher as a `failure` message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishError {
    /// The agent may not publish there.
    #[error("agent {agent} may not publish on {channel}: the platform's policy does not allow it")]
    NotPermitted {
        /// The agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// The agent may not answer there.
    #[error("agent {agent} may not answer on {channel}: the platform's policy does not allow it")]
    MayNotAnswer {
        /// The agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// The agent is not on the channel.
    #[error(
        "agent {receiver} is not on {channel}: it has no subscription there that is known to this process"
    )]
    NotOnChannel {
        /// The agent.
        receiver: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// Another process has not said what it subscribes to, so that the event might not reach all who want it.
    #[error(
        "not published: {process} has not said within {seconds} s what its agents subscribe to, and would miss it: see \
         whether that process runs, and publish again; best-effort events do not wait for it"
    )]
    NotAnnounced {
        /// The process.
        process: Arc<Identity>,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It is no request that this subscription took, or it was answered before, or it is too late.
    #[error(
        "there is no open request to answer: it was answered, has expired, or was not taken by this subscription"
    )]
    NotAsked,
    /// The message cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encoding(#[from] EncodeError),
    /// It is larger than the transport carries.
    #[error("the message has {size} bytes and the limit is {limit}: send less, or raise the limit")]
    TooLarge {
        /// Its size, encoded.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// More requests are under way than a process may have.
    #[error("{0} requests are under way, as many as may be: wait for answers")]
    TooManyRequests(usize),
    /// It expires before it could be handed out.
    #[error("it has expired already, or expires before it is valid")]
    Expired,
    /// A message that is another agent's.
    #[error(
        "agent {agent} sent a message whose sender is {claimed}: an agent sends under its own name only"
    )]
    ForgedSender {
        /// The agent.
        agent: Arc<str>,
        /// The name in the message.
        claimed: String,
    },
    /// The agent has left this process, or is barred from sending.
    #[error(
        "agent {0} cannot publish: it has left this process, or has thousands of failure notices unread"
    )]
    Barred(Arc<str>),
    /// The QoS asked for cannot be had.
    #[error(transparent)]
    Unavailable(#[from] crate::qos::UnavailableQos),
    /// The log does not take it.
    #[error("the event is not kept: {0}")]
    NotKept(NotKept),
    /// It was published, but not everybody acknowledges it.
    #[error("published, but not acknowledged by all: {0}")]
    Unacknowledged(UndeliverableReason),
}

/// Who got what was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Subscriptions of this process that it was put into.
    pub here: usize,
    /// Other processes it was sent to.
    pub processes: usize,
    /// Where it is kept, if its channel is persistent. Subscriptions that read it from there are counted neither `here` nor
    /// among the `processes`.
    pub kept: Option<LogPlace>,
}

/// What is to be published.
pub(crate) struct Publication<'a> {
    pub(crate) publisher: &'a Arc<str>,
    pub(crate) channel: &'a ChannelPath,
    pub(crate) qos: &'a Qos,
    /// With its sender filled in.
    pub(crate) message: &'a Arc<AclMessage>,
    /// Its number in the log, and when it was published, if it was kept before.
    pub(crate) kept: Option<(u64, Moment)>,
    /// What hears of acknowledgements.
    pub(crate) receipt: Option<&'a Arc<Receipt>>,
    pub(crate) turn: Turn<'a>,
}

/// Who is to go before those that wait at a gate.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn<'a> {
    /// The number of the agent that publishes or answers.
    agent: u64,
    /// The gate at which it has waited.
    gate: Option<&'a Arc<Gate>>,
}

impl<'a> Turn<'a> {
    /// That of an agent that has not waited.
    pub(crate) fn of(agent: u64) -> Self {
        Self { agent, gate: None }
    }

    /// That of an agent that has waited at `gate`.
    pub(crate) fn at(agent: u64, gate: &'a Arc<Gate>) -> Self {
        Self {
            agent,
            gate: Some(gate),
        }
    }

    /// Whether it has to wait behind others at this gate.
    pub(super) fn is_behind_others_at(self, gate: &Arc<Gate>) -> bool {
        !self.gate.is_some_and(|own| Arc::ptr_eq(own, gate)) && gate.is_crowded_for(self.agent)
    }
}

/// Whether there was room.
pub(crate) enum Attempt<T> {
    Done(T),
    /// There is none: wait at the gate.
    Full(Arc<Gate>),
}

/// A request that was sent.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) collector: Arc<Collector>,
}

/// Whom it goes to: subscriptions here, and for each other process the subscriptions there, none named for all.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) here: Vec<usize>,
    pub(super) there: Vec<ChosenThere>,
    /// Filters that could not be evaluated.
    failed: FailedFilters,
    /// Subscriptions of this process and of others that the event passes by.
    pub(super) passed_here: Vec<usize>,
    pub(super) passed_there: Vec<Arc<RemoteSubscription>>,
}

pub(super) struct ChosenThere {
    /// Index in [`Targets::there`].
    pub(super) at: usize,
    /// Those named in the frame.
    pub(super) named: Vec<u32>,
    /// Those that pay for it.
    pub(super) charged: Option<Arc<[u32]>>,
}

/// A message as it goes to other processes; its content, if it is long, is that of the message itself.
struct Encoded {
    start: Vec<u8>,
    content: Bytes,
    tail: &'static [u8],
}

/// The content of a message.
struct SharedContent(Arc<AclMessage>);

impl AsRef<[u8]> for SharedContent {
    fn as_ref(&self) -> &[u8] {
        self.0.content_bytes().unwrap_or_default()
    }
}

impl Chosen {
    /// Adds all subscriptions of one process that see events; it judges by itself which of them want this one.
    fn all(&mut self, at: usize, there: &PeerTargets) {
        let sees = there.subscriptions.iter().filter(|it| it.uses.sees);
        let charged: Arc<[u32]> = sees
            .filter(|it| it.subscription.pushes_back())
            .map(|it| it.id)
            .collect();
        self.there.push(ChosenThere {
            at,
            named: Vec::new(),
            charged: (!charged.is_empty()).then_some(charged),
        });
    }

    /// Adds subscriptions of one process, which the frames name.
    pub(super) fn name(&mut self, at: usize, subscriptions: &[&There]) {
        for part in subscriptions.chunks(frame::MOST_TARGETS) {
            let charged: Arc<[u32]> = part
                .iter()
                .filter(|it| it.subscription.pushes_back())
                .map(|it| it.id)
                .collect();
            self.there.push(ChosenThere {
                at,
                named: part.iter().map(|it| it.id).collect(),
                charged: (!charged.is_empty()).then_some(charged),
            });
        }
    }
}

impl Exchange {
    /// Whether an agent may publish on a channel.
    pub(crate) fn may_publish(
        &self,
        publisher: &Arc<str>,
        path: &ChannelPath,
    ) -> Result<(), PublishError> {
        if self.rights.may(publisher, ChannelRight::Publish, path) {
            return Ok(());
        }
        Err(PublishError::NotPermitted {
            agent: publisher.clone(),
            channel: path.clone(),
        })
    }

    /// Puts an event that was read from a log into the queue of a subscription; false if that has ended.
    pub(crate) fn hand_logged(
        &mut self,
        subscription: u32,
        event: ReceivedEvent,
        note: LogNote,
        now: Now,
    ) -> bool {
        let Some(consumer) = self.consumers.get(&subscription).cloned() else {
            return false;
        };
        let path = &event.header.channel;
        if self
            .rights
            .may(&consumer.agent, ChannelRight::Subscribe, path)
        {
            self.enqueue(&consumer, event, Source::Log(Box::new(note)), now);
        } else {
            note.lost();
        }
        true
    }

    /// Publishes an event, sends to one agent on the channel, or asks everyone, as `mechanism` says.
    fn put(
        &mut self,
        publication: &Publication<'_>,
        mechanism: Mechanism,
        now: Now,
    ) -> Result<Attempt<(Reach, Chosen, Arc<Targets>)>, PublishError> {
        let Publication {
            publisher,
            channel: path,
            qos,
            message,
            ..
        } = *publication;
        self.may_publish(publisher, path)?;
        self.take_interest(now);
        let is_directed = matches!(mechanism, Mechanism::Message { .. });
        if qos.reliability != Reliability::BestEffort
            && !is_directed
            && let Some(gate) = self.await_announcements(publication.turn, now)?
        {
            return Ok(Attempt::Full(gate));
        }
        let targets = self.targets(path);
        let next = || targets.counts.published.load(Ordering::Relaxed) + 1;
        let (number, published) = publication.kept.unwrap_or_else(|| (next(), now.moment));
        let header = ChannelHeader::new(mechanism, path.clone(), *qos, number, published);
        if header.is_never_valid(now.moment) {
            return Err(PublishError::Expired);
        }
        let mut chosen = match self.choose(&header, publication, &targets) {
            // It may be on the channel in a process that has not said so yet.
            Err(error @ PublishError::NotOnChannel { .. }) => {
                return match self.await_announcements(publication.turn, now)? {
                    Some(gate) => Ok(Attempt::Full(gate)),
                    None => Err(error),
                };
            }
            chosen => chosen?,
        };
        let cost = shared_size(message) + MESSAGE_OVERHEAD;
        let is_event = header.mechanism == Mechanism::Event;
        if let Some(gate) = self.full(&mut chosen, &targets, cost, is_event, publication, now) {
            return Ok(Attempt::Full(gate));
        }
        let encoded = match chosen.there.is_empty() {
            true => None,
            false => Some(self.encode(message)?),
        };
        self.note_failed_filters(&targets, std::mem::take(&mut chosen.failed), now);
        self.note_passed(&header, publication, &targets, &chosen, now);
        // Kept and other events of a channel are numbered apart.
        let counts = &targets.counts;
        match publication.kept {
            None => counts.published.store(number, Ordering::Relaxed),
            Some(_) => _ = counts.kept.fetch_add(1, Ordering::Relaxed),
        }
        let reach = Reach {
            here: chosen.here.len(),
            processes: chosen.there.len(),
            kept: None,
        };
        if let Some(encoded) = encoded {
            self.send_to_processes(&header, encoded, publication, &targets, &chosen, now);
        }
        if let Some((last, others)) = chosen.here.split_last() {
            let message = ReceivedMessage::shared(message.clone(), Provenance::SameProcess);
            let event = ReceivedEvent::new(header, message);
            let consumer = |index: &usize| targets.here.get(*index).map(|it| &it.consumer);
            for consumer in others.iter().filter_map(consumer) {
                self.hand_over(consumer, event.clone(), publication.receipt, now);
            }
            if let Some(consumer) = consumer(last) {
                self.hand_over(consumer, event, publication.receipt, now);
            }
        }
        Ok(Attempt::Done((reach, chosen, targets)))
    }

    /// A message as it goes to other processes.
    fn encode(&mut self, message: &Arc<AclMessage>) -> Result<Encoded, PublishError> {
        let mut start = std::mem::take(&mut self.encoded);
        start.clear();
        let (mut content, mut tail): (_, &[u8]) = (Bytes::new(), &[]);
        let length = message.content_bytes().map_or(0, <[u8]>::len);
        if length < SHARED {
            bitefficient::encode(message, &mut start)?;
        } else if let Some(after) = bitefficient::encode_around_content(message, &mut start)? {
            content = Bytes::from_owner(SharedContent(message.clone()));
            tail = after;
        }
        let size = start.len() + content.len() + tail.len();
        if size > self.config.largest_message {
            return Err(PublishError::TooLarge {
                size,
                limit: self.config.largest_message,
            });
        }
        Ok(Encoded {
            start,
            content,
            tail,
        })
    }

    /// The subscriptions it is for.
    fn choose(
        &self,
        header: &ChannelHeader,
        publication: &Publication<'_>,
        targets: &Targets,
    ) -> Result<Chosen, PublishError> {
        let view = publication.message.as_ref().as_ref();
        let publisher = publication.publisher;
        let mut chosen = Chosen {
            here: Vec::with_capacity(targets.here.len()),
            there: Vec::with_capacity(targets.there.len()),
            failed: FailedFilters::default(),
            passed_here: Vec::new(),
            passed_there: Vec::new(),
        };
        let mut sieve = Sieve::new(header, &view);
        match &header.mechanism {
            Mechanism::Event => {
                for (index, it) in targets.here.iter().enumerate() {
                    if it.sees(header) && sieve.passes_here(index, it.consumer.filter.as_ref()) {
                        chosen.here.push(index);
                    }
                }
                for (at, there) in targets.there.iter().enumerate() {
                    let reads_logs = |it: &There| it.uses.sees && !it.sees(header);
                    if let Some(all) = &there.all
                        && !(is_kept(header) && there.subscriptions.iter().any(reads_logs))
                    {
                        if there.subscriptions.iter().any(|it| it.uses.sees) {
                            chosen.there.push(ChosenThere {
                                at,
                                named: Vec::new(),
                                charged: (!all.is_empty()).then(|| all.clone()),
                            });
                        }
                        continue;
                    }
                    sieve.begin_process();
                    let mut wanted = |it: &There| {
                        it.sees(header)
                            && sieve.passes_there(at, it.id, it.subscription.filter.as_ref())
                    };
                    // Each process is told in as few frames as name all of its subscriptions.
                    let named: Vec<&There> =
                        there.subscriptions.iter().filter(|it| wanted(it)).collect();
                    if sieve.is_exhausted() && !is_kept(header) {
                        // Costly filters are looked at by the process that has them.
                        sieve.leave_to_process(at);
                        chosen.all(at, there);
                    } else {
                        chosen.name(at, &named);
                    }
                }
            }
            Mechanism::Message { receiver } => {
                let is_receiver = |it: &Here| it.uses.reads && it.consumer.agent == *receiver;
                if let Some(index) = targets.here.iter().position(is_receiver) {
                    chosen.here.push(index);
                    return Ok(chosen);
                }
                let found = targets.there.iter().enumerate().find_map(|(at, there)| {
                    let is_receiver =
                        |it: &&There| it.uses.reads && it.subscription.agent == *receiver;
                    Some((at, there.subscriptions.iter().find(is_receiver)?))
                });
                let Some((at, found)) = found else {
                    return Err(PublishError::NotOnChannel {
                        receiver: receiver.clone(),
                        channel: header.channel.clone(),
                    });
                };
                chosen.name(at, &[found]);
            }
            Mechanism::Request { .. } => {
                for (index, it) in targets.here.iter().enumerate() {
                    if it.uses.answers
                        && it.consumer.agent != *publisher
                        && sieve.passes_here(index, it.consumer.filter.as_ref())
                    {
                        chosen.here.push(index);
                    }
                }
                for (at, there) in targets.there.iter().enumerate() {
                    sieve.begin_process();
                    let mut asked = |it: &There| {
                        it.uses.answers
                            && it.subscription.agent != *publisher
                            && sieve.passes_there(at, it.id, it.subscription.filter.as_ref())
                    };
                    let asked: Vec<&There> =
                        there.subscriptions.iter().filter(|it| asked(it)).collect();
                    chosen.name(at, &asked);
                }
            }
            Mechanism::Reply { .. } => {}
        }
        chosen.failed = sieve.failed();
        Ok(chosen)
    }

    /// Puts an event of this process into a queue of it.
    fn hand_over(
        &mut self,
        consumer: &Arc<Consumer>,
        event: ReceivedEvent,
        receipt: Option<&Arc<Receipt>>,
        now: Now,
    ) {
        let mut receipt_taken = None;
        if let Some(receipt) = receipt
            && event.header.qos.acknowledgement == Some(Acknowledgement::ReceiverAgent)
        {
            receipt.expect();
            receipt_taken = Some(receipt.clone());
        }
        self.enqueue(consumer, event, Source::Here(receipt_taken), now);
    }

    pub(super) fn enqueue(
        &mut self,
        consumer: &Arc<Consumer>,
        event: ReceivedEvent,
        source: Source,
        now: Now,
    ) -> Put {
        if event.header.expiry.is_some() || event.header.valid_from.is_some() {
            let moments = [event.header.valid_from, event.header.expiry];
            self.sweep_by(moments.into_iter().flatten().min(), now);
        }
        let mut aftermath = Aftermath::default();
        let put = consumer.put(event, source, now.moment, &mut aftermath);
        if !aftermath.is_empty() {
            self.settle(consumer.id, aftermath, now);
        }
        if matches!(put, Put::Taken | Put::Beyond) {
            return put;
        }
        if let Some(report) = consumer.report(now.moment) {
            self.outcomes.push(Outcome::Flow {
                agent: consumer.agent.clone(),
                pattern: consumer.options.pattern.clone(),
                report,
            });
        }
        if matches!(put, Put::Disconnected) {
            self.unsubscribe(consumer.id, Ended::Disconnected, now);
        }
        put
    }

    fn send_to_processes(
        &mut self,
        header: &ChannelHeader,
        encoded: Encoded,
        publication: &Publication<'_>,
        targets: &Targets,
        chosen: &Chosen,
        now: Now,
    ) {
        let is_best_effort = header.qos.reliability == Reliability::BestEffort;
        let head = Head::of(header);
        let Encoded {
            start,
            content,
            tail,
        } = encoded;
        let length = start.len() + content.len() + tail.len();
        // The last of the processes gets it, the others share it.
        let mut content = Some(content);
        for (left, there) in (0..chosen.there.len()).rev().zip(&chosen.there) {
            let Some(of_peer) = targets.there.get(there.at) else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(of_peer.peer) else {
                continue;
            };
            let cost = (length + MESSAGE_OVERHEAD) as u64;
            let mut subscriptions = of_peer.subscriptions.iter();
            let charged = there.charged.iter().filter(|_| !is_best_effort);
            for id in charged.flat_map(|ids| ids.iter()) {
                if let Some(it) = subscriptions.find(|it| it.id == *id) {
                    it.subscription.charge(cost);
                }
            }
            let stamp = Stamp {
                session: peer.session_out(),
                number: if is_best_effort {
                    peer.outgoing.next_datagram()
                } else {
                    peer.outgoing.next()
                },
            };
            let room = 64 + head.channel.len() + 2 * there.named.len() + start.len();
            let mut written = Vec::with_capacity(room);
            frame::begin_event(&mut written, stamp, &head, &there.named);
            let message_at = written.len();
            written.extend_from_slice(&start);
            let parcel = Parcel {
                author: Some(publication.publisher.clone()),
                head: written,
                message_at,
                content: match left {
                    0 => content.take(),
                    _ => content.clone(),
                }
                .unwrap_or_default(),
                tail,
            };
            if is_best_effort {
                peer.outgoing.push_datagram(parcel, &targets.counts);
            } else {
                let receipt = publication.receipt.cloned();
                if let Some(receipt) = &receipt {
                    receipt.expect();
                }
                let kept = Kept {
                    receipt,
                    charged: there.charged.clone(),
                    cost,
                    ..Kept::new(parcel)
                };
                peer.outgoing.push(kept, now.since_start);
            }
            if !std::mem::replace(&mut peer.is_ready, true) {
                self.ready.push_back(of_peer.peer);
            }
        }
        if !is_best_effort && !chosen.there.is_empty() {
            self.set_alarm(Some(now.since_start + self.config.absence));
        }
        if start.capacity() <= LARGEST_SPARE {
            self.encoded = start;
        }
    }

    /// Publishes an event.
    pub(crate) fn publish(
        &mut self,
        publication: &Publication<'_>,
        now: Now,
    ) -> Result<Attempt<Reach>, PublishError> {
        Ok(match self.put(publication, Mechanism::Event, now)? {
            Attempt::Done((reach, ..)) => Attempt::Done(reach),
            Attempt::Full(gate) => Attempt::Full(gate),
        })
    }

    /// Sends to one agent on the channel.
    pub(crate) fn send(
        &mut self,
        publication: &Publication<'_>,
        receiver: &Arc<str>,
        now: Now,
    ) -> Result<Attempt<Reach>, PublishError> {
        let mechanism = Mechanism::Message {
            receiver: receiver.clone(),
        };
        Ok(match self.put(publication, mechanism, now)? {
            Attempt::Done((reach, ..)) => Attempt::Done(reach),
            Attempt::Full(gate) => Attempt::Full(gate),
        })
    }

    /// Asks everyone on the channel who answers. The request is over after `within`, or with `first` answers.
    pub(crate) fn request(
        &mut self,
        publication: &Publication<'_>,
        within: Duration,
        first: Option<usize>,
        now: Now,
    ) -> Result<Attempt<Asked>, PublishError> {
        if self.asking.len() >= self.config.requests {
            return Err(PublishError::TooManyRequests(self.asking.len()));
        }
        let id = self.next_request;
        // Nobody needs to see it after the answers are due.
        let due = now.moment.plus(within);
        let mut qos = *publication.qos;
        let expiry = qos
            .expiry
            .map_or(due, |time| time.from(now.moment).min(due));
        qos.expiry = Some(crate::qos::Time::At(expiry));
        let publication = Publication {
            qos: &qos,
            ..*publication
        };
        let collector = Arc::<Collector>::default();
        let mut asking = Asking {
            awaiting: HashMap::new(),
            declined: Vec::new(),
            collector: collector.clone(),
            channel: publication.channel.clone(),
            wanted: first.unwrap_or(usize::MAX),
            deadline: now.since_start + within,
        };
        let mechanism = Mechanism::Request { id: RequestId(id) };
        self.declined_at_once.clear();
        let (_, chosen, targets) = match self.put(&publication, mechanism, now)? {
            Attempt::Done(done) => done,
            Attempt::Full(gate) => return Ok(Attempt::Full(gate)),
        };
        self.next_request += 1;
        self.set_alarm(Some(asking.deadline));
        for index in &chosen.here {
            if let Some(Here { consumer, .. }) = targets.here.get(*index) {
                let key = (None, consumer.id);
                if self.declined_at_once.contains(&consumer.id) {
                    asking.declined.push(consumer.agent.clone());
                } else {
                    asking.awaiting.insert(key, consumer.agent.clone());
                }
            }
        }
        for there in &chosen.there {
            let Some(of_peer) = targets.there.get(there.at) else {
                continue;
            };
            let mut subscriptions = of_peer.subscriptions.iter();
            for id in &there.named {
                if let Some(it) = subscriptions.find(|it| it.id == *id) {
                    asking
                        .awaiting
                        .insert((Some(of_peer.peer), *id), it.subscription.agent.clone());
                }
            }
        }
        let is_over = asking.awaiting.is_empty() || asking.wanted == 0;
        self.asking.insert(id, asking);
        if is_over {
            self.end_request(id);
        }
        Ok(Attempt::Done(Asked { id, collector }))
    }

    /// Answers a request that the subscription has taken.
    pub(crate) fn reply(
        &mut self,
        consumer: &Arc<Consumer>,
        request: &ReceivedEvent,
        message: &Arc<AclMessage>,
        turn: Turn<'_>,
        now: Now,
    ) -> Result<Attempt<()>, PublishError> {
        let path = &request.header.channel;
        if !self.rights.may(&consumer.agent, ChannelRight::Answer, path) {
            return Err(PublishError::MayNotAnswer {
                agent: consumer.agent.clone(),
                channel: path.clone(),
            });
        }
        let Some((source, id)) = consumer.close_request(request) else {
            return Err(PublishError::NotAsked);
        };
        let mut qos = request.header.qos;
        qos.valid_from = None;
        let header = ChannelHeader::new(
            Mechanism::Reply { id },
            path.clone(),
            qos,
            request.header.number,
            now.moment,
        );
        let Some(key) = source else {
            self.take_answer(None, consumer.id, &consumer.agent, id.0, || {
                let message = ReceivedMessage::shared(message.clone(), Provenance::SameProcess);
                ReceivedEvent::new(header, message)
            });
            return Ok(Attempt::Done(()));
        };
        let (most_frames, most_bytes) = (self.config.kept_frames, self.config.kept_bytes);
        let largest = self.config.largest_message;
        let Some(peer) = self.peer_of(key) else {
            return Err(PublishError::NotAsked);
        };
        let (frames, bytes) = peer.outgoing.size();
        let is_full = frames >= most_frames || bytes >= most_bytes;
        if is_full || turn.is_behind_others_at(&peer.gate) {
            let gate = peer.gate.clone();
            consumer.reopen_request(request, source, id);
            return Ok(Attempt::Full(gate));
        }
        let mut body = Vec::with_capacity(256);
        let encoded = bitefficient::encode(message, &mut body).map_err(PublishError::from);
        let checked = encoded.and_then(|()| {
            if body.len() > largest {
                return Err(PublishError::TooLarge {
                    size: body.len(),
                    limit: largest,
                });
            }
            Ok(())
        });
        if let Err(error) = checked {
            consumer.reopen_request(request, source, id);
            return Err(error);
        }
        let mut head = Vec::with_capacity(64 + path.as_str().len());
        Frame::Reply {
            stamp: peer.stamp(),
            head: Head::of(&header),
            subscription: consumer.id,
            body: &[],
        }
        .encode(&mut head);
        let parcel = Parcel {
            author: Some(consumer.agent.clone()),
            message_at: head.len(),
            head,
            content: body.into(),
            tail: &[],
        };
        peer.outgoing.push(Kept::new(parcel), now.since_start);
        self.mark_ready(key.index);
        let absence = Some(now.since_start + self.config.absence);
        self.set_alarm(absence);
        Ok(Attempt::Done(()))
    }

    /// The subscription does not answer a request it has taken.
    pub(crate) fn decline_request(
        &mut self,
        consumer: &Arc<Consumer>,
        request: &ReceivedEvent,
        now: Now,
    ) {
        if let Some(open) = consumer.close_request(request) {
            let aftermath = Aftermath {
                unanswered: vec![open],
                ..Aftermath::default()
            };
            self.settle(consumer.id, aftermath, now);
        }
    }

    /// Hands an answer to whom asked, if it is waited for.
    pub(super) fn take_answer(
        &mut self,
        process: Option<u32>,
        subscription: u32,
        agent: &str,
        request: u64,
        answer: impl FnOnce() -> ReceivedEvent,
    ) -> bool {
        let Some(asking) = self.asking.get_mut(&request) else {
            // It comes after the deadline, or after enough others.
            return true;
        };
        let key = (process, subscription);
        if asking
            .awaiting
            .get(&key)
            .is_none_or(|name| **name != *agent)
        {
            return false;
        }
        asking.awaiting.remove(&key);
        asking.collector.add(answer());
        asking.wanted -= 1;
        if asking.wanted == 0 || asking.awaiting.is_empty() {
            self.end_request(request);
        }
        true
    }
}
