//! Requests under way: the agents that have not answered yet, those that never will, and the end of each request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{ExplainedRefusal, Provenance, ReceivedMessage, RefusalReason};
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::ChannelRight;

use super::aftermath::Aftermath;
use super::collector::{self, Collector};
use super::consumer::Consumer;
use super::publication::{Attempt, Publication, PublishError, SentRequest, Turn};
use super::stream::{KeptFrame, Parcel};
use super::targets::Here;
use super::{Exchange, Now};
use crate::event::{ChannelHeader, Mechanism, ReceivedEvent, RequestId};
use crate::frame::{Frame, Head};
use crate::path::ChannelPath;

/// A request under way.
pub(super) struct Asking {
    /// The subscriptions that were asked and have not answered, by process; `None` is this process.
    pub(super) awaiting: HashMap<(Option<u32>, u32), Arc<str>>,
    /// The asked agents that will not answer.
    pub(super) declined: Vec<Arc<str>>,
    pub(super) collector: Arc<Collector>,
    pub(super) channel: ChannelPath,
    /// The least security level of the answers.
    pub(super) level: Option<SecurityLevel>,
    /// The number of answers that are still wanted.
    pub(super) wanted: usize,
    pub(super) deadline: Duration,
}

impl Exchange {
    /// Notes that a subscription will not answer a request.
    pub(super) fn decline(&mut self, who: (Option<u32>, u32), request: u64) {
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

    /// Notes that a process, or one of its subscriptions, will give no more answers.
    pub(super) fn stop_awaiting(&mut self, process: Option<u32>, subscription: Option<u32>) {
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

    /// Ends a request: no more answers to it are wanted, or can come.
    pub(crate) fn end_request(&mut self, request: u64) {
        if let Some(asking) = self.asking.remove(&request) {
            let mut unanswered: Vec<_> = asking.declined;
            unanswered.extend(asking.awaiting.into_values());
            unanswered.sort();
            asking.collector.close(unanswered);
        }
    }

    /// Asks all agents on the channel that answer requests. The request ends after `within`, or with `first` answers.
    pub(crate) fn request(
        &mut self,
        publication: &Publication<'_>,
        within: Duration,
        first: Option<usize>,
        now: Now,
    ) -> Result<Attempt<SentRequest>, PublishError> {
        if self.asking.len() >= self.config.requests {
            return Err(PublishError::TooManyRequests(self.asking.len()));
        }
        let id = self.next_request;
        // The request has no use after its answers are due.
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
            level: publication.qos.level,
            wanted: first.unwrap_or(usize::MAX),
            deadline: now.since_start + within,
        };
        let mechanism = Mechanism::Request { id: RequestId(id) };
        self.declined_at_once.clear();
        let (_, chosen, targets) = match self.put(&publication, mechanism, now)? {
            Attempt::Done(done) => done,
            Attempt::Full(gate) => return Ok(Attempt::Full(gate)),
            Attempt::Unknown(readers) => return Ok(Attempt::Unknown(readers)),
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
        Ok(Attempt::Done(SentRequest { id, collector }))
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
            let agent = &consumer.agent;
            let taken = self.take_answer(None, consumer.id, agent, id.0, || {
                let message = ReceivedMessage::shared(message.clone(), Provenance::SameProcess);
                ReceivedEvent::new(header, message)
            });
            if let Err(refused) = taken
                && refused.reason == RefusalReason::OverLimit
            {
                self.tell_publisher(agent, path, message, refused.into());
            }
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
            outline: None,
            author: Some(consumer.agent.clone()),
            message_at: head.len(),
            head,
            content: body.into(),
            tail: &[],
            is_signed: header.qos.level >= Some(SecurityLevel::Signed),
        };
        peer.outgoing.push(KeptFrame::new(parcel), now.since_start);
        self.mark_ready(key.index);
        Ok(Attempt::Done(()))
    }

    /// Declines to answer a request that the subscription has taken.
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

    /// Hands an answer to the requester, if it is awaited.
    ///
    /// # Errors
    /// If the agent was not asked; or if too many answers wait for the requester, and then the agent counts as one that
    /// does not answer.
    pub(super) fn take_answer(
        &mut self,
        process: Option<u32>,
        subscription: u32,
        agent: &str,
        request: u64,
        answer: impl FnOnce() -> ReceivedEvent,
    ) -> Result<(), ExplainedRefusal> {
        let Some(asking) = self.asking.get_mut(&request) else {
            // The answer comes after the deadline, or after enough others.
            return Ok(());
        };
        let key = (process, subscription);
        if asking
            .awaiting
            .get(&key)
            .is_none_or(|name| **name != *agent)
        {
            return Err(ExplainedRefusal {
                reason: RefusalReason::NotPermitted,
                explanation: format!("{agent} was not asked"),
            });
        }
        if !asking.collector.add(answer()) {
            self.decline(key, request);
            return Err(ExplainedRefusal {
                reason: RefusalReason::OverLimit,
                explanation: format!(
                    "the answer of {agent} finds no room: answers of {} MiB wait for the asker, which is the limit for one \
                     question: answer with less, or let the asker take answers as they come",
                    collector::MOST_BYTES >> 20
                ),
            });
        }
        asking.awaiting.remove(&key);
        asking.wanted -= 1;
        if asking.wanted == 0 || asking.awaiting.is_empty() {
            self.end_request(request);
        }
        Ok(())
    }
}
