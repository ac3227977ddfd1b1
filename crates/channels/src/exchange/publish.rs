//! The publishing side of this process's agents: events, directed messages, requests and answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_bus::{Acknowledgement, MESSAGE_OVERHEAD, Provenance, ReceivedMessage, shared_size};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::ChannelRight;

use super::aftermath::{Aftermath, PeerKey, Source};
use super::chosen::{Chosen, ChosenThere};
use super::consumer::{Consumer, PutOutcome};
use super::encoding::Encoded;
use super::filter_errors::{FailedFilters, Sieve};
use super::publication::{Attempt, Publication, PublishError, Reach};
use super::receipt::Receipt;
use super::stream::KeptFrame;
use super::targets::{ChannelReceivers, Here, There, is_kept};
use super::{Ended, Exchange, Now, Outcome};
use crate::event::{ChannelHeader, Mechanism, ReceivedEvent};
use crate::frame::{Head, Stamp};
use crate::log::LogNote;
use crate::path::ChannelPath;
use crate::qos::{Qos, Reliability};
use crate::sealed::outline;

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

    /// Puts an event that was read from a log into the queue of a subscription. Returns false if the subscription has
    /// ended.
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

    /// Publishes an event, sends to one agent on the channel, or asks all agents, as `mechanism` says.
    pub(super) fn put(
        &mut self,
        publication: &Publication<'_>,
        mechanism: Mechanism,
        now: Now,
    ) -> Result<Attempt<(Reach, Chosen, Arc<ChannelReceivers>)>, PublishError> {
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
        let seals = self.is_to_seal(publisher, path, targets.level, qos, &mechanism)?;
        let qos = Qos {
            level: match seals {
                true => Some(SecurityLevel::Sealed),
                false => qos.level,
            },
            ..*qos
        };
        let header = ChannelHeader::new(mechanism, path.clone(), qos, number, published);
        if header.is_never_valid(now.moment) {
            return Err(PublishError::Expired);
        }
        let mut chosen = match self.choose(&header, publication, &targets) {
            // The agent may be on the channel in a process that has not announced its subscriptions yet.
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
        let sealed = match seals
            .then(|| self.seal(publication, &targets))
            .transpose()?
        {
            Some(Err(readers)) => return Ok(Attempt::Unknown(readers)),
            Some(Ok(sealed)) => {
                self.send_changes(&header, publisher, &targets, &sealed.changes, now)?;
                self.leave_out_readers(publication, &mut chosen, &targets, &sealed.left_out);
                Some(sealed)
            }
            None => None,
        };
        let inside = sealed.as_ref().map(|it| &it.inside);
        let message = sealed.as_ref().map_or(message, |it| &it.message);
        let mut groups = chosen.groups.iter();
        let goes_far = !chosen.there.is_empty() || groups.any(|it| self.groups.reaches_far(*it));
        let mut encoded = goes_far.then(|| self.encode(message)).transpose()?;
        if let Some(encoded) = encoded.as_mut().filter(|_| seals) {
            encoded.outline = Some(Arc::new(outline(publication.message)));
        }
        self.note_failed_filters(&targets, std::mem::take(&mut chosen.failed), now);
        self.note_passed(&header, publication, &targets, &chosen, now);
        // Events that are kept and other events of a channel are numbered separately.
        let counts = &targets.counts;
        match publication.kept {
            None => counts.published.store(number, Ordering::Relaxed),
            Some(_) => _ = counts.kept.fetch_add(1, Ordering::Relaxed),
        }
        let reach = Reach {
            here: chosen.here.len(),
            processes: chosen.there.len(),
            groups: chosen.groups.len(),
            kept: None,
        };
        if let Some(encoded) = encoded {
            self.send_to_processes(&header, &encoded, publication, &targets, &chosen, now);
            self.keep_buffer(encoded);
        }
        for member in &chosen.drawn {
            self.groups.take_turn(*member);
        }
        for group in &chosen.groups {
            self.hold(*group, &header, publication, now);
        }
        if !chosen.groups.is_empty() {
            self.serve_groups(now);
        }
        if let Some((last, others)) = chosen.here.split_last() {
            let message = ReceivedMessage::shared(message.clone(), Provenance::SameProcess)
                .opened(inside.cloned());
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

    /// The subscriptions that get the message.
    fn choose(
        &self,
        header: &ChannelHeader,
        publication: &Publication<'_>,
        targets: &ChannelReceivers,
    ) -> Result<Chosen, PublishError> {
        let view = publication.message.view();
        let publisher = publication.publisher;
        let mut chosen = Chosen {
            here: Vec::with_capacity(targets.here.len()),
            there: Vec::with_capacity(targets.there.len()),
            failed: FailedFilters::default(),
            passed_here: Vec::new(),
            passed_there: Vec::new(),
            groups: Vec::new(),
            passed_groups: Vec::new(),
            drawn: Vec::new(),
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
                        && header.qos.level != Some(SecurityLevel::Sealed)
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
                    // Each process gets as few frames as can name all of its subscriptions.
                    let named: Vec<&There> =
                        there.subscriptions.iter().filter(|it| wanted(it)).collect();
                    if sieve.is_exhausted() {
                        // A process evaluates its own costly filters.
                        sieve.leave_to_process(at);
                        chosen.all(at, there);
                    } else {
                        chosen.name(at, &named);
                    }
                }
                for id in &targets.groups {
                    let filter = self.groups.filter(*id);
                    if !sieve.passes_group(*id, filter, self.groups.payers(*id)) {
                        continue;
                    }
                    if header.qos.reliability == Reliability::BestEffort {
                        self.draw(*id, header, targets, &mut chosen);
                    } else {
                        chosen.groups.push(*id);
                    }
                }
                if header.qos.level == Some(SecurityLevel::Sealed) {
                    chosen.gather(targets);
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
                    // A process evaluates its costly filters itself, and declines for subscriptions whose filters the
                    // request does not pass.
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

    /// Puts an event of this process into the queue of one of its subscriptions.
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
    ) -> PutOutcome {
        // The events of the row came earlier.
        self.end_row(now);
        self.await_moments(&event.header, now);
        let mut aftermath = Aftermath::default();
        let from = source.frame().map(|frame| frame.0);
        let put = consumer.put(event, source, now.moment, &mut aftermath);
        self.have_put(consumer.id, from, aftermath, now);
        if matches!(put, PutOutcome::Lost | PutOutcome::Disconnected) {
            self.report_flow(consumer, now);
        }
        if matches!(put, PutOutcome::Disconnected) {
            self.unsubscribe(consumer.id, Ended::Disconnected, now);
        }
        put
    }

    /// Has the queues searched when the event becomes valid or expires.
    pub(super) fn await_moments(&mut self, header: &ChannelHeader, now: Now) {
        if header.expiry.is_some() || header.valid_from.is_some() {
            let moments = [header.valid_from, header.expiry];
            self.sweep_by(moments.into_iter().flatten().min(), now);
        }
    }

    /// Follows up on events that were put into the queue of a subscription. `from`: the process that waits until they
    /// have been read.
    pub(super) fn have_put(
        &mut self,
        subscription: u32,
        from: Option<PeerKey>,
        aftermath: Aftermath,
        now: Now,
    ) {
        if aftermath.is_unread
            && let Some(peer) = from.and_then(|key| self.peer_of(key))
        {
            peer.readers.insert(subscription);
        }
        if !aftermath.is_empty() {
            self.settle(subscription, aftermath, now);
        }
    }

    /// Reports that the policy of a subscription has acted.
    pub(super) fn report_flow(&mut self, consumer: &Consumer, now: Now) {
        if let Some(report) = consumer.report(now.moment) {
            self.outcomes.push(Outcome::Flow {
                agent: consumer.agent.clone(),
                pattern: consumer.options.pattern.clone(),
                report,
            });
        }
    }

    fn send_to_processes(
        &mut self,
        header: &ChannelHeader,
        encoded: &Encoded,
        publication: &Publication<'_>,
        targets: &ChannelReceivers,
        chosen: &Chosen,
        now: Now,
    ) {
        let is_best_effort = header.qos.reliability == Reliability::BestEffort;
        let most = self.config.kept_bytes;
        let is_returnable = !matches!(header.mechanism, Mechanism::Request { .. })
            && header.qos.acknowledgement != Some(Acknowledgement::ReceiverAgent);
        let head = Head::of(header);
        for there in &chosen.there {
            let Some(of_peer) = targets.there.get(there.at) else {
                continue;
            };
            let Some(peer) = self.peers.get_mut(of_peer.peer) else {
                continue;
            };
            let cost = (encoded.len() + MESSAGE_OVERHEAD) as u64;
            let mut subscriptions = of_peer.subscriptions.iter();
            let charged = there.charged.iter().filter(|_| !is_best_effort);
            for id in charged.flat_map(|ids| ids.iter()) {
                if let Some(it) = subscriptions.find(|it| it.id == *id) {
                    it.subscription.charge(cost);
                }
            }
            let stamp = Stamp {
                session: peer.session_out(),
                number: match is_best_effort {
                    true => 0,
                    false => peer.outgoing.next(),
                },
            };
            let parcel = encoded.parcel(publication.publisher, stamp, &head, &there.named);
            if is_best_effort {
                peer.outgoing.push_datagram(parcel, &targets.counts, most);
            } else {
                let receipt = publication.receipt.cloned();
                if let Some(receipt) = &receipt {
                    receipt.expect();
                }
                let kept = KeptFrame {
                    receipt,
                    charged: there.charged.clone(),
                    cost,
                    is_returnable,
                    ..KeptFrame::new(parcel)
                };
                peer.outgoing.push(kept, now.since_start);
            }
            self.mark_ready(of_peer.peer);
        }
    }

    /// Publishes an event.
    pub(crate) fn publish(
        &mut self,
        publication: &Publication<'_>,
        now: Now,
    ) -> Result<Attempt<Reach>, PublishError> {
        let attempt = self.put(publication, Mechanism::Event, now)?;
        Ok(attempt.map(|(reach, ..)| reach))
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
        let attempt = self.put(publication, mechanism, now)?;
        Ok(attempt.map(|(reach, ..)| reach))
    }
}
