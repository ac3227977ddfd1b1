//! Frames that come from other processes: their sessions and numbers, the checks, and what they do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_seal::Identity;
use sealbus_seal::permission::ChannelRight;

use super::consumer::{Aftermath, Consumer, Put, Source, TakenNote, not_taken};
use super::peer::{RemoteSubscription, acknowledge};
use super::stream::{Arrival, Kept};
use super::subscriptions::compile;
use super::targets::{Here, Targets as WhomFor};
use super::{Exchange, Now, Outcome};
use crate::event::{ChannelHeader, ReceivedEvent};
use crate::frame::{Announcement, Frame, Head, HeadMechanism, Targets};
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
use crate::qos::Reliability;
use sealbus_bus::Acknowledgement;
use sealbus_bus::MESSAGE_OVERHEAD;
use sealbus_bus::RefusalReason;
use sealbus_bus::UndeliverableReason;
use sealbus_bus::{ArrivedFrame, FrameOrigin, Refused, check_sender};
use sealbus_bus::{Provenance, ReceivedMessage};

/// So many times what publishers may keep for a process may be kept for it in all, with the answers to what it says.
const OVERFULL: usize = 4;

/// Why a frame of the right session is not accepted.
enum Objection {
    /// Somebody tried what it may not.
    Refused(Refused),
    /// The agent is not here.
    Absent,
}

impl From<Refused> for Objection {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

fn refuse(reason: RefusalReason, explanation: impl Into<String>) -> Objection {
    Objection::Refused(Refused {
        reason,
        explanation: explanation.into(),
    })
}

fn malformed(explanation: impl Into<String>) -> Refused {
    Refused {
        reason: RefusalReason::Malformed,
        explanation: explanation.into(),
    }
}

/// Where a frame came from.
struct Origin<'a> {
    index: u32,
    number: u64,
    arrived: &'a ArrivedFrame,
}

impl Exchange {
    /// Takes a frame from another process.
    ///
    /// # Errors
    /// The frame and why it is refused, if it is none, or cannot be of that process.
    pub(crate) fn take(
        &mut self,
        arrived: ArrivedFrame,
        now: Now,
    ) -> Result<(), Box<(ArrivedFrame, Refused)>> {
        let Some(index) = self.index_of_origin(&arrived.process) else {
            // Heard before the platform said that it is there: it will greet again.
            tracing::debug!(process = %arrived.process, "a frame of a process that is not known yet");
            return Ok(());
        };
        let frame = match Frame::decode(&arrived.payload) {
            Ok(frame) => frame,
            Err(error) => {
                let refused = malformed(error.to_string());
                return Err(Box::new((arrived, refused)));
            }
        };
        let Some(stamp) = frame.stamp() else {
            if let Frame::Hello { from, to } = frame {
                self.hello(index, from, to, now);
            }
            return Ok(());
        };
        let most = self.config.early_bytes;
        let pace = self.config.pace();
        let Some(peer) = self.peers.get_mut(index) else {
            return Ok(());
        };
        if !peer.is_introduced() || stamp.session != peer.session_in() {
            self.correct(index, now);
            return Ok(());
        }
        peer.is_heard = true;
        let is_acknowledgement = matches!(frame, Frame::Acknowledge { .. });
        if !is_acknowledgement && peer.outgoing.size().0 > OVERFULL * self.config.kept_frames {
            let refused = self.break_off(index, now);
            return Err(Box::new((arrived, refused)));
        }
        let Some(peer) = self.peers.get_mut(index) else {
            return Ok(());
        };
        if let Frame::Acknowledge {
            upto,
            beyond,
            after,
            ..
        } = frame
        {
            let taken = self.acknowledged(index, (upto, beyond, after), now);
            return taken.map_err(|refused| Box::new((arrived, refused)));
        }
        if let Frame::Event { head, .. } = &frame
            && head.reliability == Reliability::BestEffort
        {
            if peer.incoming.take_datagram(stamp.number, head.ordered) {
                self.handle(index, 0, &arrived, &frame, now);
            }
            return Ok(());
        }
        if stamp.number == 0 {
            let refused = malformed("a frame that must have a number has none");
            return Err(Box::new((arrived, refused)));
        }
        let size = arrived.payload.len();
        match peer.incoming.judge(stamp.number, size, most) {
            Arrival::Due => {
                peer.incoming.take_due();
                peer.incoming.owe(size, now.since_start, pace);
                self.handle(index, stamp.number, &arrived, &frame, now);
                self.take_early(index, now);
            }
            Arrival::Early => {
                let is_ordered = !matches!(&frame, Frame::Event { head, .. } if !head.ordered);
                peer.incoming.owe(size, now.since_start, pace);
                if is_ordered {
                    let kept = Some((arrived, size));
                    peer.incoming.keep_early(stamp.number, kept);
                } else {
                    peer.incoming.keep_early(stamp.number, None);
                    self.handle(index, stamp.number, &arrived, &frame, now);
                }
            }
            // The acknowledgement may have been lost.
            Arrival::Known => peer.incoming.owe(size, now.since_start, pace),
            Arrival::TooEarly => {}
        }
        self.acknowledge_if_due(index, now);
        Ok(())
    }

    /// A process makes this one keep ever more answers and acknowledges none: what is kept for it is given up.
    fn break_off(&mut self, index: u32, now: Now) -> Refused {
        let explanation = "it asks on and on, and acknowledges none of the answers";
        let reason = UndeliverableReason::Refused {
            reason: RefusalReason::OverLimit,
            explanation: explanation.to_owned(),
        };
        if let Some(peer) = self.peers.get_mut(index) {
            peer.own_epoch = peer.own_epoch.saturating_add(1);
        }
        self.lose(index, &reason, now);
        self.excuse(index);
        self.begin(index, now);
        Refused {
            reason: RefusalReason::OverLimit,
            explanation: explanation.to_owned(),
        }
    }

    /// The index of the process that a frame came from, which is mostly that of the frame before.
    fn index_of_origin(&mut self, process: &Arc<Identity>) -> Option<u32> {
        if let Some((known, index)) = &self.heard
            && Arc::ptr_eq(known, process)
        {
            return Some(*index);
        }
        let index = self.index_of(process)?;
        self.heard = Some((process.clone(), index));
        Some(index)
    }

    fn take_early(&mut self, index: u32, now: Now) {
        while let Some(peer) = self.peers.get_mut(index) {
            let Some(arrived) = peer.incoming.next_due() else {
                break;
            };
            // It was decoded once.
            if let Ok(frame) = Frame::decode(&arrived.payload)
                && let Some(stamp) = frame.stamp()
            {
                self.handle(index, stamp.number, &arrived, &frame, now);
            }
        }
        if let Some(peer) = self.peers.get_mut(index)
            && let Some(early) = peer.early_acknowledgement.take()
        {
            // What it says was checked when it came.
            let _ = self.acknowledged(index, early, now);
        }
    }

    fn acknowledge_if_due(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let at = peer.incoming.deadline();
        if at.is_some_and(|at| at <= now.since_start) {
            acknowledge(peer);
            self.mark_ready(index);
        } else {
            self.set_alarm(at);
        }
    }

    // ---- sessions ----

    fn hello(&mut self, index: u32, from: u64, to: u64, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        // A former life of it, which is over; whoever lives now hears what is known of it, and takes a higher
        // epoch if its clock was set back.
        if from < peer.epoch {
            return self.correct(index, now);
        }
        let has_outlived = to > peer.own_epoch;
        if from > peer.epoch || has_outlived {
            let was_introduced = peer.is_introduced();
            if was_introduced {
                let reason = UndeliverableReason::ProcessUnreachable(format!(
                    "{} was started anew, or has given this process up",
                    peer.identity
                ));
                self.lose(index, &reason, now);
            }
            let Some(peer) = self.peers.get_mut(index) else {
                return;
            };
            peer.epoch = from;
            // It announces its subscriptions now.
            peer.is_excused = false;
            self.all_announced = false;
            if has_outlived {
                peer.own_epoch = to.saturating_add(1);
            }
            peer.is_wanted = true;
            peer.greet_at
                .get_or_insert(now.since_start + peer.greet_pause);
            if peer.own_epoch != to {
                peer.greet();
            } else {
                peer.is_heard = true;
            }
            let at = peer.greet_at;
            self.begin(index, now);
            self.set_alarm(at);
        } else if to == peer.own_epoch {
            peer.is_heard = true;
        } else {
            // It does not know the epoch of this process yet, or not any more.
            peer.greet();
            self.mark_ready(index);
        }
    }

    /// A process speaks in a session there is not: it hears the epochs, but not all the time.
    fn correct(&mut self, index: u32, now: Now) {
        let pause = self.config.greet.0;
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let is_soon = peer
            .corrected
            .is_some_and(|last| now.since_start.saturating_sub(last) < pause);
        if is_soon {
            return;
        }
        peer.corrected = Some(now.since_start);
        peer.greet();
        self.mark_ready(index);
    }

    fn acknowledged(
        &mut self,
        index: u32,
        (upto, beyond, after): (u64, u64, u64),
        now: Now,
    ) -> Result<(), Refused> {
        let Some(peer) = self.peers.get_mut(index) else {
            return Ok(());
        };
        if after > peer.incoming.upto() {
            if peer
                .early_acknowledgement
                .is_none_or(|(before, ..)| before <= upto)
            {
                peer.early_acknowledgement = Some((upto, beyond, after));
            }
            return Ok(());
        }
        let mut untaken = Vec::new();
        let result = peer
            .outgoing
            .acknowledge(upto, beyond, now.since_start, |number, kept| {
                let Some(receipt) = kept.receipt else {
                    return;
                };
                let waits_for_agents = matches!(
                    Frame::decode(&kept.parcel.head),
                    Ok(Frame::Event { head, .. })
                        if head.acknowledgement == Some(Acknowledgement::ReceiverAgent)
                );
                if waits_for_agents {
                    untaken.push((number, receipt));
                } else {
                    receipt.acknowledge();
                }
            });
        peer.untaken.extend(untaken);
        if result.is_err() {
            return Err(malformed("it acknowledges what was never sent"));
        }
        peer.gate.open();
        let at = peer.outgoing.deadline();
        self.set_alarm(at);
        if self
            .peers
            .get(index)
            .is_some_and(|peer| peer.outgoing.peek(true).is_some())
        {
            self.mark_ready(index);
        }
        Ok(())
    }

    // ---- frames of a session, each once and in order ----

    fn handle(
        &mut self,
        index: u32,
        number: u64,
        arrived: &ArrivedFrame,
        frame: &Frame<'_>,
        now: Now,
    ) {
        let from = Origin {
            index,
            number,
            arrived,
        };
        let result = match *frame {
            Frame::Hello { .. } | Frame::Acknowledge { .. } => Ok(()),
            Frame::Void { .. } => {
                self.tell_credit(index, now);
                Ok(())
            }
            Frame::Announce { announcement, .. } => self.announced(&from, &announcement, now),
            Frame::Withdraw { subscription, .. } => {
                self.withdrawn(index, subscription);
                Ok(())
            }
            Frame::Credit {
                subscription,
                limit,
                ..
            } => {
                if let Some(peer) = self.peers.get(index)
                    && let Some(subscription) = peer.subscriptions.get(&subscription)
                {
                    subscription.raise(limit);
                }
                self.tell_missed(index, subscription, now);
                Ok(())
            }
            Frame::Missed {
                subscription,
                count,
                ..
            } => {
                if let Some(consumer) = self.consumers.get(&subscription).cloned() {
                    self.note_missed(&consumer, count, now);
                }
                Ok(())
            }
            Frame::FilterErrors {
                subscription,
                count,
                text,
                ..
            } => {
                if let Some(consumer) = self.consumers.get(&subscription).cloned() {
                    self.count_filter_errors(&consumer, count, text);
                }
                Ok(())
            }
            Frame::Known { .. } => {
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.is_known = true;
                    peer.awaited_until = None;
                    // Those that it has not announced again have ended.
                    self.forget_away(index, None);
                    self.announcements.open_all();
                }
                Ok(())
            }
            Frame::Taken { taken, .. } => {
                self.with_receipt(index, taken, |receipt| receipt.acknowledge());
                Ok(())
            }
            Frame::Event {
                head,
                targets,
                body,
                ..
            } => self.event(&from, &head, targets, body, now),
            Frame::Reply {
                head,
                subscription,
                body,
                ..
            } => self.answer(&from, &head, subscription, body),
            Frame::NoAnswer {
                request,
                subscription,
                ..
            } => {
                self.decline((Some(index), subscription), request);
                Ok(())
            }
            Frame::Refusal {
                refused,
                reason,
                text,
                ..
            } => {
                self.refused(index, refused, reason, text);
                Ok(())
            }
            Frame::Absent { message, .. } => {
                self.absent(index, message);
                Ok(())
            }
            Frame::Keep { .. } => Err(refuse(
                RefusalReason::NotPermitted,
                "this process keeps no log of channels",
            )),
        };
        if let Err(objection) = result {
            self.object(&from, frame, objection, now);
        }
    }

    /// Notes what is not accepted, and tells the other process.
    fn object(&mut self, from: &Origin<'_>, frame: &Frame<'_>, objection: Objection, now: Now) {
        if let Objection::Refused(refused) = &objection {
            let channel = match frame {
                Frame::Event { head, .. } | Frame::Reply { head, .. } => Some(head.channel),
                Frame::Announce { announcement, .. } => Some(announcement.pattern),
                _ => None,
            };
            let proved = match &from.arrived.provenance {
                Provenance::Proved(verified) => verified.identity().to_string(),
                _ => from.arrived.process.to_string(),
            };
            self.outcomes.push(Outcome::Refused {
                tried_by: author(from.arrived),
                proved: Some(proved),
                channel: channel.map(str::to_owned),
                reason: refused.reason,
                explanation: refused.explanation.clone(),
            });
        }
        let Some(peer) = self.peers.get_mut(from.index) else {
            return;
        };
        // What has no number is not kept, so there is nothing to be told about.
        if from.number == 0 {
            return;
        }
        peer.last_report = peer.outgoing.next();
        match &objection {
            Objection::Refused(refused) => {
                peer.tell(None, now.since_start, |stamp| Frame::Refusal {
                    stamp,
                    refused: from.number,
                    reason: refused.reason,
                    text: &refused.explanation,
                });
            }
            Objection::Absent => peer.tell(None, now.since_start, |stamp| Frame::Absent {
                stamp,
                message: from.number,
            }),
        }
        self.mark_ready(from.index);
    }

    fn announced(
        &mut self,
        from: &Origin<'_>,
        announcement: &Announcement<'_>,
        now: Now,
    ) -> Result<(), Objection> {
        let FrameOrigin::Agent(agent) = &from.arrived.origin else {
            return Err(refuse(
                RefusalReason::NotProved,
                "a subscription is announced by its agent",
            ));
        };
        let most = self.config.subscriptions_per_process;
        let pattern = ChannelPattern::new(announcement.pattern)
            .map_err(|error| refuse(RefusalReason::Malformed, error.to_string()))?;
        let filter = compile(announcement.filter)
            .map_err(|error| refuse(RefusalReason::Malformed, error.to_string()))?;
        if !self.may_subscribe(agent, &pattern, announcement.answers) {
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the policy does not let {agent} subscribe to {pattern}"),
            ));
        }
        self.withdrawn(from.index, announcement.subscription);
        let former = self.forget_away(from.index, Some(announcement.subscription));
        let Some(peer) = self.peers.get_mut(from.index) else {
            return Ok(());
        };
        if peer.subscriptions.len() >= most {
            return Err(refuse(
                RefusalReason::OverLimit,
                format!("a process may have {most} subscriptions"),
            ));
        }
        let subscription =
            RemoteSubscription::new(agent.clone(), pattern.clone(), filter, announcement);
        if let Some(former) = former
            && former.agent == subscription.agent
            && former.pattern == subscription.pattern
        {
            subscription.inherit(&former);
        }
        peer.subscriptions
            .insert(announcement.subscription, Arc::new(subscription));
        self.there
            .insert(&pattern, (from.index, announcement.subscription));
        self.generation += 1;
        self.tell_missed(from.index, announcement.subscription, now);
        Ok(())
    }

    fn withdrawn(&mut self, index: u32, id: u32) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(subscription) = peer.subscriptions.remove(&id) else {
            return;
        };
        self.there
            .remove(&subscription.pattern, |other| *other == (index, id));
        self.generation += 1;
        subscription.gate.open_all();
        self.stop_awaiting(Some(index), Some(id));
    }

    fn with_receipt(
        &mut self,
        index: u32,
        number: u64,
        act: impl FnOnce(&super::receipt::Receipt),
    ) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let receipt = match peer.untaken.remove(&number) {
            Some(receipt) => Some(receipt),
            None => peer
                .outgoing
                .kept(number)
                .and_then(|kept| kept.receipt.take()),
        };
        if let Some(receipt) = receipt {
            act(&receipt);
        }
    }

    fn absent(&mut self, index: u32, number: u64) {
        let is_message = self.peers.get_mut(index).is_some_and(|peer| {
            peer.outgoing.kept(number).is_some_and(|kept| {
                matches!(
                    Frame::decode(&kept.parcel.head),
                    Ok(Frame::Event { head, .. }) if matches!(head.mechanism, HeadMechanism::Message { .. })
                )
            })
        });
        if is_message {
            self.give_back(index, number, &UndeliverableReason::ReceiverGone);
        } else {
            self.with_receipt(index, number, |receipt| receipt.fail(&not_taken()));
        }
    }

    fn refused(&mut self, index: u32, number: u64, reason: RefusalReason, text: &str) {
        let reason = UndeliverableReason::Refused {
            reason,
            explanation: text.to_owned(),
        };
        self.give_back(index, number, &reason);
    }

    /// A frame was not accepted: its author is told.
    fn give_back(&mut self, index: u32, number: u64, reason: &UndeliverableReason) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let identity = peer.identity.clone();
        let Some(kept) = peer.outgoing.kept(number).filter(|kept| !kept.is_settled) else {
            return;
        };
        kept.is_settled = true;
        let receipt = kept.receipt.take();
        let parcel = kept.parcel.clone();
        match Frame::decode(&parcel.head) {
            Ok(Frame::Announce { announcement, .. }) => {
                tracing::warn!(
                    process = %identity,
                    agent = parcel.author.as_deref().unwrap_or_default(),
                    channels = announcement.pattern,
                    "a subscription is not accepted by another process: {reason}"
                );
            }
            Ok(Frame::Event { head, targets, .. }) => {
                if let HeadMechanism::Request { id } = head.mechanism {
                    for subscription in targets.iter() {
                        self.decline((Some(index), subscription), id);
                    }
                }
            }
            _ => {}
        }
        let kept = Kept {
            receipt,
            ..Kept::new(parcel)
        };
        self.report(kept, &identity, reason);
    }

    // ---- what agents of other processes wrote ----

    /// The ACL message of a frame, with what is known about its sender.
    fn message(
        &self,
        from: &Origin<'_>,
        body: &[u8],
    ) -> Result<(Arc<str>, ReceivedMessage), Objection> {
        let arrived = from.arrived;
        let limits = Limits {
            message_length: self.config.largest_message,
            ..Limits::default()
        };
        let bytes: Bytes = arrived.payload.slice_ref(body);
        let message = EncodedMessage::new(bytes, &limits)
            .map_err(|error| refuse(RefusalReason::Malformed, error.to_string()))?;
        if message.length() != message.bytes().len() {
            return Err(refuse(
                RefusalReason::Malformed,
                "there are bytes after the ACL message",
            ));
        }
        let (author, provenance) = match &arrived.origin {
            FrameOrigin::Agent(name) => {
                check_sender(name, &message.message())?;
                (name.clone(), arrived.provenance.clone())
            }
            FrameOrigin::Process => {
                return Err(refuse(
                    RefusalReason::ForgedSender,
                    format!(
                        "{} sent an agent's message as its own, which only the agent may",
                        arrived.process
                    ),
                ));
            }
        };
        Ok((author, ReceivedMessage::encoded(message, provenance)))
    }

    fn path(&self, text: &str) -> Result<ChannelPath, Objection> {
        match self.channels.get_key_value(text) {
            Some((path, _)) => Ok(path.clone()),
            None => ChannelPath::new(text)
                .map_err(|error| refuse(RefusalReason::Malformed, error.to_string())),
        }
    }

    fn event(
        &mut self,
        from: &Origin<'_>,
        head: &Head<'_>,
        named: Targets<'_>,
        body: &[u8],
        now: Now,
    ) -> Result<(), Objection> {
        let (path, targets) = match self.known(head.channel) {
            Some(known) => known,
            None => {
                let path = self.path(head.channel)?;
                let targets = self.targets(&path);
                (path, targets)
            }
        };
        let header = head.to_header(path.clone());
        let checked = self.message(from, body).and_then(|(author, message)| {
            if self.rights.may(&author, ChannelRight::Publish, &path) {
                Ok(message)
            } else {
                Err(refuse(
                    RefusalReason::NotPermitted,
                    format!("the policy does not let {author} publish on {path}"),
                ))
            }
        });
        let cost = body.len() + MESSAGE_OVERHEAD;
        let message = match checked {
            Ok(message) => message,
            Err(objection) => {
                self.refund_all(from, &targets, named, cost, now);
                return Err(objection);
            }
        };
        targets.counts.received.fetch_add(1, Ordering::Relaxed);
        let chosen = self.pick(from, &header, &message, &targets, named, cost, now);
        if let HeadMechanism::Request { id } = head.mechanism {
            // Those that are asked and are not here any more.
            let missing: Vec<u32> = named
                .iter()
                .filter(|id| !chosen.iter().any(|consumer| consumer.id == *id))
                .collect();
            if let Some(peer) = self.peers.get_mut(from.index) {
                for subscription in missing {
                    peer.tell(None, now.since_start, |stamp| Frame::NoAnswer {
                        stamp,
                        request: id,
                        subscription,
                    });
                }
                self.mark_ready(from.index);
            }
        }
        if chosen.is_empty() {
            let is_message = matches!(head.mechanism, HeadMechanism::Message { .. });
            let wants_agent = head.acknowledgement == Some(Acknowledgement::ReceiverAgent);
            if is_message {
                return Err(Objection::Absent);
            }
            if wants_agent {
                self.note_nobody(from, now);
            }
            return Ok(());
        }
        let Some(key) = self.peers.get(from.index).map(|peer| peer.key) else {
            return Ok(());
        };
        let note = (head.acknowledgement == Some(Acknowledgement::ReceiverAgent)
            && from.number != 0)
            .then(|| {
                Arc::new(TakenNote {
                    peer: key,
                    number: from.number,
                    state: Mutex::new((chosen.len(), false)),
                })
            });
        let event = ReceivedEvent::new(header, message);
        let mut beyond = None;
        let mut hand_over = |consumer: &Arc<Consumer>, event| {
            let source = Source::There(key, note.clone());
            if let Put::Beyond = self.enqueue(consumer, event, source, now) {
                beyond = Some(consumer.agent.clone());
            }
        };
        if let Some((last, others)) = chosen.split_last() {
            for consumer in others {
                hand_over(consumer, event.clone());
            }
            hand_over(last, event);
        }
        match beyond {
            None => Ok(()),
            Some(agent) => Err(refuse(
                RefusalReason::OverLimit,
                format!("more was sent to {agent} than its subscription has given credit for"),
            )),
        }
    }

    /// The subscriptions that get an event; the credit of those that do not is given back.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one event")]
    fn pick<'a>(
        &mut self,
        from: &Origin<'_>,
        header: &ChannelHeader,
        message: &ReceivedMessage,
        targets: &'a WhomFor,
        named: Targets<'_>,
        cost: usize,
        now: Now,
    ) -> Vec<&'a Arc<Consumer>> {
        use crate::event::Mechanism;
        let is_wanted = |it: &Here| match &header.mechanism {
            Mechanism::Event => it.sees(header),
            Mechanism::Message { receiver } => it.uses.reads && it.consumer.agent == *receiver,
            Mechanism::Request { .. } => it.uses.answers,
            Mechanism::Reply { .. } => false,
        };
        let here = &targets.here;
        let mut chosen = Vec::with_capacity(here.len());
        let (mut unpaid, mut failed) = (Vec::new(), Vec::new());
        let is_over = header.is_expired(now.moment);
        if named.is_all() {
            let is_event = header.mechanism == Mechanism::Event;
            unpaid.extend_from_slice(&targets.barred);
            for it in here.iter().filter(|_| is_event) {
                let is_wanted = is_wanted(it) && !is_over;
                let passes = match it.consumer.filter.as_ref() {
                    Some(filter) if is_wanted => filter
                        .matches(header, &message.message())
                        .unwrap_or_else(|error| {
                            failed.push((it.consumer.clone(), error));
                            false
                        }),
                    _ => true,
                };
                if is_wanted && passes {
                    chosen.push(&it.consumer);
                } else if it.consumer.options.takes_events {
                    unpaid.push(it.consumer.id);
                }
            }
        } else {
            for id in named.iter() {
                let found = here
                    .binary_search_by_key(&id, |it| it.consumer.id)
                    .ok()
                    .and_then(|index| here.get(index))
                    .filter(|it| is_wanted(it));
                match found {
                    Some(it) if !is_over => chosen.push(&it.consumer),
                    // Also of those that may not read the channel any more.
                    _ => unpaid.push(id),
                }
            }
        }
        self.refund(from, &unpaid, cost, now);
        for (consumer, error) in failed {
            self.count_filter_errors(&consumer, 1, &error.to_string());
        }
        chosen
    }

    fn refund_all(
        &mut self,
        from: &Origin<'_>,
        targets: &WhomFor,
        named: Targets<'_>,
        cost: usize,
        now: Now,
    ) {
        let unpaid: Vec<u32> = if named.is_all() {
            let here = targets.here.iter();
            here.filter(|it| it.consumer.options.takes_events)
                .map(|it| it.consumer.id)
                .chain(targets.barred.iter().copied())
                .collect()
        } else {
            named.iter().collect()
        };
        self.refund(from, &unpaid, cost, now);
    }

    fn refund(&mut self, from: &Origin<'_>, ids: &[u32], cost: usize, now: Now) {
        // Best-effort events, which have no number here, take no credit.
        if from.number == 0 {
            return;
        }
        let Some(key) = self.peers.get(from.index).map(|peer| peer.key) else {
            return;
        };
        for id in ids {
            if let Some(consumer) = self.consumers.get(id).cloned() {
                let mut aftermath = Aftermath::default();
                consumer.refund(key, cost, &mut aftermath);
                self.settle(*id, aftermath, now);
            }
        }
    }

    /// No agent takes an event whose publisher waits for that.
    fn note_nobody(&mut self, from: &Origin<'_>, now: Now) {
        if let Some(peer) = self.peers.get_mut(from.index)
            && from.number != 0
        {
            peer.last_report = peer.outgoing.next();
            peer.tell(None, now.since_start, |stamp| Frame::Absent {
                stamp,
                message: from.number,
            });
            self.mark_ready(from.index);
        }
    }

    fn answer(
        &mut self,
        from: &Origin<'_>,
        head: &Head<'_>,
        subscription: u32,
        body: &[u8],
    ) -> Result<(), Objection> {
        let HeadMechanism::Reply { id } = head.mechanism else {
            return Err(refuse(RefusalReason::Malformed, "it answers no request"));
        };
        let path = self.path(head.channel)?;
        let (author, message) = self.message(from, body)?;
        if let Some(asking) = self.asking.get(&id)
            && asking.channel != path
        {
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the request was not made on {path}"),
            ));
        }
        if !self.rights.may(&author, ChannelRight::Answer, &path) {
            self.decline((Some(from.index), subscription), id);
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the policy does not let {author} answer on {path}"),
            ));
        }
        let header = head.to_header(path);
        let is_asked = self.take_answer(Some(from.index), subscription, &author, id, || {
            ReceivedEvent::new(header, message)
        });
        if is_asked {
            Ok(())
        } else {
            Err(refuse(
                RefusalReason::NotPermitted,
                format!("{author} was not asked"),
            ))
        }
    }
}

/// Who wrote a frame, for the log of refusals.
fn author(arrived: &ArrivedFrame) -> String {
    match &arrived.origin {
        FrameOrigin::Agent(name) => name.to_string(),
        FrameOrigin::Process => arrived.process.to_string(),
    }
}
