//! The delivery of messages from agents of other processes: the checks, and the queues that the messages go to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sealbus_bus::{Acknowledgement, MESSAGE_OVERHEAD, ReceivedMessage, RefusalReason};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::ChannelRight;

use super::aftermath::{Aftermath, Source, TakenNote};
use super::arrival::{Objection, Origin, refuse};
use super::consumer::{Consumer, PutOutcome};
use super::row::{RowEvent, beyond_credit, take_rows};
use super::sealing::Opening;
use super::targets::{ChannelReceivers, Here};
use super::{Exchange, Now};
use crate::event::{ChannelHeader, ReceivedEvent};
use crate::frame::{Frame, Head, HeadMechanism, Targets};
use crate::path::ChannelPath;

/// Refuses an event that agents here could not open.
fn unless_failed(failed: Vec<String>) -> Result<(), Objection> {
    match failed.is_empty() {
        true => Ok(()),
        false => Err(refuse(RefusalReason::NotOpened, failed.join("; "))),
    }
}

impl Exchange {
    /// The ACL message of a frame, with its author and the known facts about the author.
    fn message<'a>(
        &mut self,
        from: &Origin<'a>,
        body: &[u8],
        level: Option<SecurityLevel>,
    ) -> Result<(&'a Arc<str>, ReceivedMessage), Objection> {
        let arrived = from.arrived;
        let body = arrived.payload.slice_ref(body);
        let (author, message) = self.judge.message(arrived, body)?;
        if level >= Some(SecurityLevel::Signed) && arrived.provenance.evidence().is_none() {
            return Err(refuse(
                RefusalReason::NotProved,
                format!("{author} did not sign it, and level=signed holds for it"),
            ));
        }
        let provenance = arrived.provenance.clone();
        Ok((author, ReceivedMessage::encoded(message, provenance)))
    }

    /// The message of an event, opened for the agents here that get it.
    fn checked(
        &mut self,
        from: &Origin<'_>,
        (head, named): (&Head<'_>, Targets<'_>),
        body: &[u8],
        path: &ChannelPath,
        targets: &ChannelReceivers,
    ) -> Result<(ReceivedMessage, Opening), Objection> {
        let level = head.level.max(targets.level);
        let (author, message) = self.message(from, body, level)?;
        let (rules, number) = (&self.rights, self.changes.number());
        if !self.judge.may_publish(author, path, rules, number) {
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the policy does not let {author} publish on {path}"),
            ));
        }
        let opening = self.open(author, path, &message, level, targets, named)?;
        Ok((message, opening))
    }

    fn path(&self, text: &str) -> Result<ChannelPath, Objection> {
        match self.channels.get_key_value(text) {
            Some((path, _)) => Ok(path.clone()),
            None => ChannelPath::new(text)
                .map_err(|error| refuse(RefusalReason::Malformed, error.to_string())),
        }
    }

    pub(super) fn event(
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
        let checked = self.checked(from, (head, named), body, &path, &targets);
        let cost = body.len() + MESSAGE_OVERHEAD;
        let (message, opening) = match checked {
            Ok(checked) => checked,
            Err(objection) => {
                self.refund_all(from, &targets, named, cost, now);
                return Err(objection);
            }
        };
        let (message, opened_by, not_opened) = match opening {
            Opening::Plain => (message, None, Vec::new()),
            // A change of a group takes no credit, and is handed to no subscription.
            Opening::Change(failed) => return unless_failed(failed),
            Opening::Event(opened, by, failed) => (message.opened(opened), Some(by), failed),
        };
        targets.counts.received.fetch_add(1, Ordering::Relaxed);
        let mut chosen = self.pick(from, &header, &message, &targets, named, cost, now);
        if let Some(opened_by) = opened_by {
            let (able, unable): (Vec<_>, Vec<_>) = chosen
                .into_iter()
                .partition(|consumer| opened_by.contains(&consumer.agent));
            let unpaid: Vec<u32> = unable.iter().map(|consumer| consumer.id).collect();
            self.refund(from, &unpaid, cost, now);
            chosen = able;
        }
        if let HeadMechanism::Request { id } = head.mechanism {
            // Subscriptions that were asked and are no longer here.
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
        // The publisher's process must learn whether a member has handled an event of its group.
        let mut named_here = named.iter().filter_map(|id| self.consumers.get(&id));
        let wants_agents = head.acknowledgement == Some(Acknowledgement::ReceiverAgent)
            || head.mechanism == HeadMechanism::Event
                && named_here.any(|it| it.options.group.is_some());
        if chosen.is_empty() {
            let is_message = matches!(head.mechanism, HeadMechanism::Message { .. });
            if is_message {
                return Err(Objection::Absent);
            }
            if wants_agents && not_opened.is_empty() {
                self.note_nobody(from, now);
            }
            return unless_failed(not_opened);
        }
        let Some(key) = self.peers.get(from.index).map(|peer| peer.key) else {
            return Ok(());
        };
        let note = (wants_agents && from.number != 0).then(|| {
            Arc::new(TakenNote {
                peer: key,
                number: from.number,
                state: Mutex::new((chosen.len(), false)),
            })
        });
        let event = ReceivedEvent::new(header, message);
        let is_event = head.mechanism == HeadMechanism::Event;
        if is_event && from.number != 0 && not_opened.is_empty() && take_rows(&chosen) {
            let number = from.number;
            let next = RowEvent {
                event,
                number,
                note,
            };
            self.join_row(key, &chosen, next, now);
            return Ok(());
        }
        let mut beyond = None;
        let mut hand_over = |consumer: &Arc<Consumer>, event| {
            let source = Source::There(key, from.number, note.clone());
            if let PutOutcome::Beyond = self.enqueue(consumer, event, source, now) {
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
            None => unless_failed(not_opened),
            Some(agent) => Err(beyond_credit(&agent).into()),
        }
    }

    /// The subscriptions that get an event. Gives back the credit of the others.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one event")]
    fn pick<'a>(
        &mut self,
        from: &Origin<'_>,
        header: &ChannelHeader,
        message: &ReceivedMessage,
        targets: &'a ChannelReceivers,
        named: Targets<'_>,
        cost: usize,
        now: Now,
    ) -> Vec<&'a Arc<Consumer>> {
        use crate::event::Mechanism;
        let is_wanted = |it: &Here| match &header.mechanism {
            Mechanism::Event => it.sees(header) || it.uses.shares && !named.is_all(),
            Mechanism::Message { receiver } => it.uses.reads && it.consumer.agent == *receiver,
            Mechanism::Request { .. } => it.uses.answers,
            Mechanism::Reply { .. } => false,
        };
        let here = &targets.here;
        let mut chosen = Vec::with_capacity(here.len());
        let (mut unpaid, mut failed) = (Vec::new(), Vec::new());
        let is_over = header.is_expired(now.moment);
        let mut view = None;
        let mut passes = |it: &Here| {
            it.consumer.filter.as_ref().is_none_or(|filter| {
                let view = view.get_or_insert_with(|| message.message());
                filter.matches(header, view).unwrap_or_else(|error| {
                    failed.push((it.consumer.clone(), error));
                    false
                })
            })
        };
        if named.is_all() {
            let is_event = header.mechanism == Mechanism::Event;
            unpaid.extend_from_slice(&targets.barred);
            for it in here.iter().filter(|_| is_event) {
                if is_wanted(it) && !is_over && passes(it) {
                    chosen.push(&it.consumer);
                } else if it.consumer.options.takes_events && it.consumer.options.group.is_none() {
                    unpaid.push(it.consumer.id);
                }
            }
        } else {
            // The asker's process also names subscriptions whose filters it has not evaluated.
            let is_request = matches!(header.mechanism, Mechanism::Request { .. });
            for id in named.iter() {
                let found = here
                    .binary_search_by_key(&id, |it| it.consumer.id)
                    .ok()
                    .and_then(|index| here.get(index))
                    .filter(|it| is_wanted(it) && !is_over);
                match found {
                    Some(it) if !is_request || passes(it) => chosen.push(&it.consumer),
                    // This includes agents that may not read the channel any more.
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
        targets: &ChannelReceivers,
        named: Targets<'_>,
        cost: usize,
        now: Now,
    ) {
        let unpaid: Vec<u32> = if named.is_all() {
            let here = targets.here.iter();
            here.filter(|it| it.consumer.options.takes_events)
                .filter(|it| it.consumer.options.group.is_none())
                .map(|it| it.consumer.id)
                .chain(targets.barred.iter().copied())
                .collect()
        } else {
            named.iter().collect()
        };
        self.refund(from, &unpaid, cost, now);
    }

    fn refund(&mut self, from: &Origin<'_>, ids: &[u32], cost: usize, now: Now) {
        // Best-effort events have no number and take no credit.
        if from.number == 0 || ids.is_empty() {
            return;
        }
        self.end_row(now);
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

    pub(super) fn answer(
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
        let least = self.asking.get(&id).and_then(|asking| asking.level);
        let level = head.level.max(least).max(self.declared.qos(&path).level);
        let (author, message) = self.message(from, body, level)?;
        if let Some(asking) = self.asking.get(&id)
            && asking.channel != path
        {
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the request was not made on {path}"),
            ));
        }
        if !self.rights.may(author, ChannelRight::Answer, &path) {
            self.decline((Some(from.index), subscription), id);
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the policy does not let {author} answer on {path}"),
            ));
        }
        let header = head.to_header(path);
        self.take_answer(Some(from.index), subscription, author, id, || {
            ReceivedEvent::new(header, message)
        })?;
        Ok(())
    }
}
