//! A subscription, as its agent sees it: the agent takes events from it and answers requests.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use sealbus_bus::{LocalAgent, Moment};
use sealbus_fipa::AclMessage;

use super::Channels;
use super::publishing::sign;
use crate::event::ReceivedEvent;
use crate::exchange::{Aftermath, Consumer, Ended, PublishError, SubscriptionOptions};
use crate::log::DamagedLog;
use crate::queue::QueueCounters;

/// A subscription of an agent. Dropping this value ends it. The next durable subscription of the same name begins with
/// the events that the agent took and did not [settle](Self::settle).
pub struct Subscription {
    pub(super) channels: Channels,
    pub(super) agent: Arc<LocalAgent>,
    pub(super) consumer: Arc<Consumer>,
}

impl Subscription {
    /// Waits for the next event, message or request. `None`: the subscription has [ended](Self::ended). Safe to cancel.
    pub async fn recv(&mut self) -> Option<ReceivedEvent> {
        // A subscriber that never has to wait must still yield. It yields before it takes an event, so that
        // cancellation loses none.
        tokio::task::consume_budget().await;
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Waits until there is an event, message or request, then appends up to `most` of them to `out`. Returns their
    /// number; 0 only if the subscription has [ended](Self::ended). Safe to cancel. The events of one call count as
    /// handled together, when the agent asks for the next ones.
    pub async fn recv_many(&mut self, out: &mut Vec<ReceivedEvent>, most: usize) -> usize {
        tokio::task::consume_budget().await;
        poll_fn(|context| match self.take_many(Some(context), out, most) {
            0 if self.consumer.ended().is_none() => Poll::Pending,
            count => Poll::Ready(count),
        })
        .await
    }

    /// As [`recv`](Self::recv), for hand-written futures. Only the task that polled last is woken.
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<ReceivedEvent>> {
        match self.take(Some(context)) {
            Some(event) => Poll::Ready(Some(event)),
            None if self.consumer.ended().is_some() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// Waits until an event, message or request can be taken, without taking it. False if the subscription has
    /// [ended](Self::ended) and is empty. For hand-written futures; only the task that polled last is woken.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<bool> {
        let mut aftermath = Aftermath::default();
        let now = Moment::now();
        let polled = self
            .consumer
            .poll_ready(now, context.waker(), &mut aftermath);
        self.channels.shared.settle(&self.consumer, aftermath);
        polled
    }

    /// Reports that the agent has handled everything that it took, as asking for the next event does. If the
    /// subscription ends before the agent has handled an event of a group, the event goes to another member.
    pub fn settle(&self) {
        let mut aftermath = Aftermath::default();
        self.consumer.settle(&mut aftermath);
        self.channels.shared.settle(&self.consumer, aftermath);
    }

    /// The next event, message or request, if one is there.
    pub fn try_recv(&self) -> Option<ReceivedEvent> {
        self.take(None)
    }

    fn take(&self, context: Option<&Context<'_>>) -> Option<ReceivedEvent> {
        let mut event = None;
        self.take_into(context, |taken| event = Some(taken), 1);
        event
    }

    fn take_many(
        &self,
        context: Option<&Context<'_>>,
        out: &mut Vec<ReceivedEvent>,
        most: usize,
    ) -> usize {
        self.take_into(context, |event| out.push(event), most)
    }

    fn take_into(
        &self,
        context: Option<&Context<'_>>,
        out: impl FnMut(ReceivedEvent),
        most: usize,
    ) -> usize {
        let mut aftermath = Aftermath::default();
        let now = Moment::now();
        let waker = context.map(Context::waker);
        let count = self.consumer.take(now, waker, most, out, &mut aftermath);
        self.channels.shared.settle(&self.consumer, aftermath);
        count
    }

    /// Answers a request that came from this subscription. Each request is answered once.
    ///
    /// Make the message with `create_reply`, so that the requester recognises the conversation.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if the request was answered before, or the answer is too late; otherwise as
    /// [`Channels::publish`].
    pub async fn reply(
        &self,
        request: &ReceivedEvent,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<(), PublishError> {
        if self.agent.mailbox().is_barred() {
            return Err(PublishError::Barred(self.agent.name().clone()));
        }
        let message = sign(&self.agent, message.into())?;
        let shared = &self.channels.shared;
        shared
            .pass(self.agent.number(), |turn| {
                shared.work(|exchange, now| {
                    exchange.reply(&self.consumer, request, &message, turn, now)
                })
            })
            .await
    }

    /// Tells the requester that this subscription does not answer.
    pub fn decline(&self, request: &ReceivedEvent) {
        self.channels
            .shared
            .work(|exchange, now| exchange.decline_request(&self.consumer, request, now));
    }

    /// Waits until the other processes whose agents use channels have heard of this one. For the first subscription of
    /// a process this takes a moment. From then on, each event of a publisher reaches this subscription. Returns false
    /// if the platform does not confirm this within the time for which messages are held; the subscription then goes
    /// on, and is listed later.
    pub async fn listed(&self) -> bool {
        let shared = &self.channels.shared;
        let limit = shared.bus.upgrade().map(|bus| bus.config().hold_time);
        let is_listed = self.channels.listed(limit.unwrap_or_default()).await;
        if !is_listed {
            tracing::warn!(
                agent = %self.consumer.agent, channels = %self.consumer.options.pattern,
                "the platform does not know yet that channels are used here: a subscription misses what other processes publish until it does"
            );
        }
        is_listed
    }

    /// Whether [`listed`](Self::listed) would not wait.
    pub fn is_listed(&self) -> bool {
        self.channels.is_listed()
    }

    /// The reason why the subscription has ended, if it has. Events that came before can still be received.
    pub fn ended(&self) -> Option<Ended> {
        self.consumer.ended()
    }

    /// The options of the subscription.
    pub fn options(&self) -> &SubscriptionOptions {
        &self.consumer.options
    }

    /// The number of waiting events, their bytes, and the counters so far.
    pub fn counts(&self) -> (usize, usize, QueueCounters) {
        self.consumer.counts()
    }

    /// The logs that the subscription cannot read further, if it reads kept events.
    pub fn damaged(&self) -> Vec<DamagedLog> {
        let tracker = self.consumer.tracker.as_ref();
        tracker.map_or_else(Vec::new, |tracker| tracker.damaged())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.channels
            .shared
            .work(|exchange, now| exchange.drop_subscription(&self.consumer, now));
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("agent", &self.consumer.agent)
            .field("pattern", &self.consumer.options.pattern)
            .finish_non_exhaustive()
    }
}
