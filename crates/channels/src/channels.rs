//! The AgentBus as agents use it: publish, send, request, subscribe. Around the [exchange](super::exchange), on the bus's
//! runtime.

mod kept;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sealbus_fipa::AclMessage;
use sealbus_seal::Identity;
use tokio::sync::Notify;

use super::declared::DeclaredChannels;
use super::event::ReceivedEvent;
use super::exchange::{
    Aftermath, Asked, Attempt, ChannelReport, Collector, Consumer, Ended, Exchange, ExchangeConfig,
    Now, Outcome, Publication, PublishError, Reach, Receipt, SubscribeError, SubscriptionOptions,
    SubscriptionReport, Turn,
};
use super::frame::Replay;
use super::log::{ChannelLogs, Feeds};
use super::path::ChannelPath;
use super::permission::ChannelPermissions;
use super::qos::{ChannelCapabilities, Qos, Reliability};
use sealbus_bus::LocalAgent;
use sealbus_bus::Moment;
use sealbus_bus::Outbox;
use sealbus_bus::ProcessEndpoint;
use sealbus_bus::RefusalReason;
use sealbus_bus::UndeliverableReason;
use sealbus_bus::{
    ArrivedFrame, FrameInlet, FrameSender, LostFrame, OutgoingFrame, ProcessDestination,
    RefusedFrame,
};
use sealbus_bus::{Bus, WeakBus};
use sealbus_bus::{Rejected, TransportError};

/// How long the first best-effort publisher of a process waits to hear who subscribes in other processes.
const INTRODUCTION: Duration = Duration::from_secs(1);
/// When a way to another process cannot be had it is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// When the connection of an agent has no room its frame is tried again after this.
const CONGESTION: Duration = Duration::from_millis(2);

/// The AgentBus of a process: [`Channels::of`]. Cloning it gives another handle to the same one.
#[derive(Clone)]
pub struct Channels {
    shared: Arc<Shared>,
}

/// Whom to ask how long: see [`Channels::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    /// How long answers are waited for.
    pub within: Duration,
    /// After so many answers the request is over; `None`: when all have answered.
    pub first: Option<usize>,
}

impl RequestOptions {
    /// All answers that come within this time.
    pub const fn within(time: Duration) -> Self {
        Self {
            within: time,
            first: None,
        }
    }

    /// The same, but over after so many answers.
    #[must_use]
    pub const fn first(mut self, count: usize) -> Self {
        self.first = Some(count);
        self
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The answers, in the order they came.
    pub replies: Vec<ReceivedEvent>,
    /// The agents that were asked and have not answered: they declined, are gone, or took too long.
    pub unanswered: Vec<Arc<str>>,
}

pub(crate) struct Shared {
    bus: WeakBus,
    /// Locked before anything of a transport.
    exchange: Mutex<Exchange>,
    start: Instant,
    /// Wakes the task that lets time pass, with the time of the next alarm.
    alarm: Arc<Notify>,
    alarm_at: Mutex<Option<Duration>>,
    endpoints: Mutex<HashMap<Identity, ProcessEndpoint>>,
    declared: Mutex<Arc<DeclaredChannels>>,
    ways: Mutex<BTreeMap<u32, Arc<dyn ProcessDestination>>>,
    capabilities: OnceLock<(ChannelCapabilities, &'static str)>,
    was_introduced: AtomicBool,
    introduced: Notify,
    /// Tasks that wait to be introduced.
    waiting: AtomicUsize,
    logs: OnceLock<Arc<dyn ChannelLogs>>,
    turns: kept::Turns,
    feeds: Arc<Feeds>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.alarm.notify_one();
    }
}

impl Channels {
    /// The AgentBus of a process. Asked for the first time it begins to take the frames of other processes, unless
    /// something else takes them already; so a process asks for it once its transport is set, that others
    /// hear what its agents subscribe to.
    pub fn of(bus: &Bus) -> Self {
        if let Some(channels) = Self::known(bus) {
            return channels;
        }
        let channels = Self::new(bus);
        if bus.set_frame_inlet(Arc::new(Inlet(channels.shared.clone()))) {
            return channels;
        }
        // Somebody was faster, with these channels or with an inlet of another kind.
        Self::known(bus).unwrap_or(channels)
    }

    /// The AgentBus that takes the frames of this bus.
    fn known(bus: &Bus) -> Option<Self> {
        let inlet: Arc<dyn Any + Send + Sync> = bus.frame_inlet()?;
        let inlet = inlet.downcast::<Inlet>().ok()?;
        Some(Self {
            shared: inlet.0.clone(),
        })
    }

    fn new(bus: &Bus) -> Self {
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |time| u64::try_from(time.as_micros()).unwrap_or(1));
        let mut config = ExchangeConfig::new(epoch);
        config.absence = bus.config().hold_time;
        config.introduction = bus.config().hold_time;
        config.patience = bus.config().hold_time;
        if let Some(transport) = bus.transport() {
            let capabilities = transport.capabilities();
            config.largest_message = capabilities.largest_message;
            if !capabilities.resumes {
                config.resend = Duration::from_millis(300);
            }
        }
        let shared = Arc::new(Shared {
            bus: bus.downgrade(),
            exchange: Mutex::new(Exchange::new(config)),
            start: Instant::now(),
            alarm: Arc::default(),
            alarm_at: Mutex::new(None),
            endpoints: Mutex::default(),
            declared: Mutex::default(),
            ways: Mutex::default(),
            capabilities: OnceLock::new(),
            was_introduced: AtomicBool::new(false),
            introduced: Notify::new(),
            waiting: AtomicUsize::new(0),
            logs: OnceLock::new(),
            turns: kept::Turns::default(),
            feeds: Arc::default(),
        });
        let alarm = shared.alarm.clone();
        bus.runtime()
            .spawn(keep_time(Arc::downgrade(&shared), alarm));
        Self { shared }
    }

    /// From now on these permissions hold, for what is published, subscribed to and answered.
    pub fn set_permissions(&self, permissions: Arc<ChannelPermissions>) {
        self.shared
            .work(|exchange, _| exchange.set_permissions(permissions));
    }

    /// From now on these channels are declared.
    pub fn declare(&self, channels: DeclaredChannels) {
        *self.shared.declared.lock() = Arc::new(channels);
    }

    /// The quality of service that the platform declares for a channel.
    pub fn qos_of(&self, channel: &ChannelPath) -> Qos {
        self.shared.declared.lock().qos(channel)
    }

    /// What can be promised on channels here.
    pub fn capabilities(&self) -> ChannelCapabilities {
        self.shared.capabilities().0.clone()
    }

    /// Waits until all processes of the platform have said what they subscribe to, for `limit` at most. Returns
    /// whether they have.
    ///
    /// Whatever is published or asked waits for this by itself, but for best-effort events, of which the first of a process
    /// waits up to a second.
    pub async fn ready(&self, limit: Duration) -> bool {
        let wait = async {
            loop {
                let news = self.shared.introduced.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                let knows_all = self.shared.work(|exchange, now| {
                    exchange.take_interest(now);
                    exchange.knows_all()
                });
                if knows_all {
                    break;
                }
                news.await;
            }
        };
        let _waiting = Waiting::new(&self.shared.waiting);
        let is_ready = match self.shared.bus.upgrade() {
            // The timer is that of the bus's runtime, whatever polls this.
            Some(bus) => {
                let sleep = {
                    let _runtime = bus.runtime().enter();
                    tokio::time::sleep(limit)
                };
                tokio::select! {
                    () = wait => true,
                    () = sleep => false,
                }
            }
            None => false,
        };
        self.shared.was_introduced.store(true, Ordering::Release);
        is_ready
    }

    /// The first best-effort event of a process gives others a little time to say that they want it.
    async fn introduce(&self, qos: &Qos) {
        if qos.reliability == Reliability::BestEffort
            && !self.shared.was_introduced.load(Ordering::Acquire)
        {
            self.ready(INTRODUCTION).await;
        }
    }

    /// Publishes an event: everyone gets it whose subscription matches. Waits until every process of the platform has announced
    /// what it subscribes to; while a subscription that pushes back, or a process, has no room; and for acknowledgements, if
    /// the QoS asks for them.
    ///
    /// What was accepted reaches every process that is known to subscribe, or its publisher finds a `failure` message
    /// in its mailbox that names the channel; unless the QoS is best-effort.
    ///
    /// What is persistent is on the disk of this process's node before anybody gets it.
    ///
    /// # Errors
    /// [`PublishError`]; nobody has it then, but for [`PublishError::Unacknowledged`].
    pub async fn publish(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        self.introduce(qos).await;
        if qos.persistence.is_persistent() {
            return self.publish_kept(outbox, channel, qos, &message).await;
        }
        self.put(
            outbox,
            channel,
            qos,
            &message,
            None,
            |exchange, publication, now| exchange.publish(publication, now),
        )
        .await
    }

    /// Publishes an event if there is room for it everywhere, and every process has announced what it subscribes to; `None`
    /// if not, and always for what is persistent. Waits for nothing, nor for acknowledgements.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn try_publish(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Option<Reach>, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        if qos.persistence.is_persistent() {
            return Ok(None);
        }
        let publication = Publication {
            publisher: outbox.name(),
            channel,
            qos,
            message: &message,
            kept: None,
            receipt: None,
            turn: Turn::of(outbox.agent().number()),
        };
        let attempt = self
            .shared
            .work(|exchange, now| exchange.publish(&publication, now));
        Ok(match attempt? {
            Attempt::Done(reach) => Some(reach),
            Attempt::Full(_) => None,
        })
    }

    /// Sends to the one agent `receiver` on the channel. Waits as [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`PublishError::NotOnChannel`] if the agent has no subscription that matches, else as `publish`. If it goes away
    /// before it has the message, that comes back as a `failure`.
    pub async fn send(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        receiver: &str,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        let mut message = self.prepare(outbox, qos, message.into())?;
        if message.receivers.is_empty() {
            Arc::make_mut(&mut message).receivers = vec![sealbus_bus::aid_of(receiver)];
        }
        self.introduce(qos).await;
        let receiver: Arc<str> = receiver.into();
        self.put(
            outbox,
            channel,
            qos,
            &message,
            None,
            |exchange, publication, now| exchange.send(publication, &receiver, now),
        )
        .await
    }

    /// Asks everyone on the channel who answers requests. The answers come as they are given.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). That nobody answers is none.
    pub async fn request(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
        options: RequestOptions,
    ) -> Result<Replies, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        self.introduce(qos).await;
        let qos = Qos {
            // The answers say who has it.
            acknowledgement: None,
            ..*qos
        };
        let Asked { id, collector } = self
            .put(
                outbox,
                channel,
                &qos,
                &message,
                None,
                |exchange, publication, now| {
                    exchange.request(publication, options.within, options.first, now)
                },
            )
            .await?;
        Ok(Replies {
            channels: self.clone(),
            id,
            collector,
        })
    }

    /// Subscribes the agent of `outbox`. Other processes hear of it at once.
    ///
    /// # Errors
    /// [`SubscribeError`].
    pub fn subscribe(
        &self,
        outbox: &Outbox,
        options: SubscriptionOptions,
    ) -> Result<Subscription, SubscribeError> {
        if outbox.agent().mailbox().closed().is_some() {
            return Err(SubscribeError::Detached(outbox.name().clone()));
        }
        let wants_log = options.durable.is_some() || options.replay != Replay::Now;
        if wants_log && self.shared.logs.get().is_none() {
            return Err(SubscribeError::NoLog);
        }
        let consumer = self
            .shared
            .work(|exchange, now| exchange.subscribe(outbox.name(), options, now))?;
        self.feed(&consumer);
        Ok(Subscription {
            channels: self.clone(),
            agent: outbox.agent().clone(),
            consumer,
        })
    }

    /// The channels in use, by path.
    pub fn channels(&self) -> Vec<ChannelReport> {
        self.shared.exchange.lock().channel_reports()
    }

    /// The subscriptions there are, here and in other processes.
    pub fn subscriptions(&self) -> Vec<SubscriptionReport> {
        self.shared.exchange.lock().subscription_reports()
    }

    /// Checks what is asked, and fills in the sender.
    fn prepare(
        &self,
        outbox: &Outbox,
        qos: &Qos,
        message: Arc<AclMessage>,
    ) -> Result<Arc<AclMessage>, PublishError> {
        if outbox.agent().mailbox().is_barred() {
            return Err(PublishError::Barred(outbox.name().clone()));
        }
        let (capabilities, transport) = self.shared.capabilities();
        qos.check_against(capabilities, transport)?;
        sign(outbox.agent(), message)
    }

    async fn put<T>(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: &Arc<AclMessage>,
        kept: Option<(u64, Moment)>,
        mut put: impl FnMut(&mut Exchange, &Publication<'_>, Now) -> Result<Attempt<T>, PublishError>,
    ) -> Result<T, PublishError> {
        let receipt = qos.acknowledgement.is_some().then(Arc::<Receipt>::default);
        let done = self
            .shared
            .pass(outbox.agent().number(), |turn| {
                let publication = Publication {
                    publisher: outbox.name(),
                    channel,
                    qos,
                    message,
                    kept,
                    receipt: receipt.as_ref(),
                    turn,
                };
                self.shared
                    .work(|exchange, now| put(exchange, &publication, now))
            })
            .await?;
        if let Some(receipt) = receipt {
            receipt.wait().await.map_err(PublishError::Unacknowledged)?;
        }
        // A publisher that never has to wait must not keep the thread from everybody else.
        tokio::task::consume_budget().await;
        Ok(done)
    }
}

/// One task more that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The message under the agent's own name.
fn sign(agent: &LocalAgent, mut message: Arc<AclMessage>) -> Result<Arc<AclMessage>, PublishError> {
    match &message.sender {
        Some(sender) if sender.name == **agent.name() => {}
        Some(sender) => {
            return Err(PublishError::ForgedSender {
                agent: agent.name().clone(),
                claimed: sender.name.clone(),
            });
        }
        None => Arc::make_mut(&mut message).sender = Some(agent.aid()),
    }
    Ok(message)
}

/// A subscription of an agent; dropping it ends it.
pub struct Subscription {
    channels: Channels,
    agent: Arc<LocalAgent>,
    consumer: Arc<Consumer>,
}

impl Subscription {
    /// Waits for the next event, message or request. `None`: the subscription has [ended](Self::ended). Safe to cancel.
    pub async fn recv(&mut self) -> Option<ReceivedEvent> {
        // Nor must a subscriber that never has to; before the event is taken, so that none is lost on cancellation.
        tokio::task::consume_budget().await;
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Waits until there is an event, message or request, then appends up to `most` of them to `out`. Returns how many; 0
    /// only if the subscription has [ended](Self::ended). Safe to cancel.
    pub async fn recv_many(&mut self, out: &mut Vec<ReceivedEvent>, most: usize) -> usize {
        tokio::task::consume_budget().await;
        poll_fn(|context| match self.take_many(Some(context), out, most) {
            0 if self.consumer.ended().is_none() => Poll::Pending,
            count => Poll::Ready(count),
        })
        .await
    }

    /// As [`recv`](Self::recv), for those who write futures themselves. Only the last who polled is woken.
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<ReceivedEvent>> {
        match self.take(Some(context)) {
            Some(event) => Poll::Ready(Some(event)),
            None if self.consumer.ended().is_some() => Poll::Ready(None),
            None => Poll::Pending,
        }
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
        let now = Moment::from(SystemTime::now());
        let waker = context.map(Context::waker);
        let count = self.consumer.take(now, waker, most, out, &mut aftermath);
        self.channels.shared.settle(&self.consumer, aftermath);
        count
    }

    /// Answers a request that came from this subscription. Each is answered once.
    ///
    /// Make the message with `create_reply`, so that the requester knows the conversation again.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if it was answered before, or too late; and what hinders publishing.
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

    /// Lets the requester know that this subscription does not answer.
    pub fn decline(&self, request: &ReceivedEvent) {
        self.channels
            .shared
            .work(|exchange, now| exchange.decline_request(&self.consumer, request, now));
    }

    /// Why it has ended, if it has; what was taken before can still be received.
    pub fn ended(&self) -> Option<Ended> {
        self.consumer.ended()
    }

    /// What was subscribed to.
    pub fn options(&self) -> &SubscriptionOptions {
        &self.consumer.options
    }

    /// Events that wait, their bytes, and what happened so far.
    pub fn counts(&self) -> (usize, usize, super::queue::QueueCounters) {
        self.consumer.counts()
    }

    /// The logs that it cannot read further, if it reads kept events.
    pub fn damaged(&self) -> Vec<super::log::DamagedLog> {
        let tracker = self.consumer.tracker.as_ref();
        tracker.map_or_else(Vec::new, |tracker| tracker.damaged())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.channels
            .shared
            .work(|exchange, now| exchange.unsubscribe(self.consumer.id, Ended::Cancelled, now));
    }
}

/// The answers to a request, as they come; dropping it ends the request.
pub struct Replies {
    channels: Channels,
    id: u64,
    collector: Arc<Collector>,
}

impl Replies {
    /// Waits for the next answer. `None`: all have answered, enough have, or the time is over. Safe to cancel.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            match self.collector.take() {
                Ok(Some(reply)) => return Some(reply),
                Ok(None) => self.collector.news().await,
                Err(()) => return None,
            }
        }
    }

    /// Waits until the request is over, and gives all answers that were not taken yet.
    pub async fn all(mut self) -> Answers {
        let mut replies = Vec::new();
        while let Some(reply) = self.next().await {
            replies.push(reply);
        }
        Answers {
            replies,
            unanswered: self.collector.unanswered(),
        }
    }

    /// The agents that were asked and have not answered; complete once [`next`](Self::next) has given `None`.
    pub fn unanswered(&self) -> Vec<Arc<str>> {
        self.collector.unanswered()
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.channels
            .shared
            .work(|exchange, _| exchange.end_request(self.id));
    }
}

impl Shared {
    fn now(&self) -> Now {
        Now {
            since_start: self.start.elapsed(),
            moment: Moment::from(SystemTime::now()),
        }
    }

    fn capabilities(&self) -> &(ChannelCapabilities, &'static str) {
        // The transport is set before agents publish; one that came later could only add to what is there.
        self.capabilities.get_or_init(|| {
            let transport = self.bus.upgrade().and_then(|bus| bus.transport().cloned());
            let (mut capabilities, name) = match transport {
                Some(transport) => (
                    ChannelCapabilities::over(&transport.capabilities()),
                    transport.name(),
                ),
                None => (ChannelCapabilities::in_process(), "in-process"),
            };
            if self.logs.get().is_some() {
                capabilities = capabilities.with_log();
            }
            (capabilities, name)
        })
    }

    /// Works on the exchange, then sends what there is to send and tells what there is to tell.
    fn work<T>(self: &Arc<Self>, work: impl FnOnce(&mut Exchange, Now) -> T) -> T {
        let now = self.now();
        let mut exchange = self.exchange.lock();
        let result = work(&mut exchange, now);
        while let Some(index) = exchange.next_ready() {
            self.pump(&mut exchange, index, None, now);
        }
        let alarm = exchange.take_alarm();
        let outcomes = exchange.take_outcomes();
        drop(exchange);
        self.set_alarm(alarm);
        if !outcomes.is_empty() {
            self.tell(outcomes);
        }
        result
    }

    fn set_alarm(&self, at: Option<Duration>) {
        let Some(at) = at else { return };
        let mut alarm_at = self.alarm_at.lock();
        if alarm_at.is_none_or(|old| at < old) {
            *alarm_at = Some(at);
            drop(alarm_at);
            self.alarm.notify_one();
        }
    }

    /// Repeats an attempt of the agent of this number, waiting at the gates it is sent to.
    async fn pass<T>(
        &self,
        agent: u64,
        mut attempt: impl FnMut(Turn<'_>) -> Result<Attempt<T>, PublishError>,
    ) -> Result<T, PublishError> {
        let mut gate = match attempt(Turn::of(agent))? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Full(gate) => gate,
        };
        loop {
            let answer = gate
                .pass_as(agent, || match attempt(Turn::at(agent, &gate)) {
                    Ok(Attempt::Full(other)) if Arc::ptr_eq(&other, &gate) => None,
                    answer => Some(answer),
                })
                .await;
            match answer? {
                Attempt::Done(done) => return Ok(done),
                Attempt::Full(other) => gate = other,
            }
        }
    }

    /// Does what is to be done after events have left a queue.
    fn settle(self: &Arc<Self>, consumer: &Consumer, aftermath: Aftermath) {
        if aftermath.is_empty() {
            if aftermath.frees_room() {
                consumer.open_gate();
            }
            return;
        }
        self.work(|exchange, now| exchange.settle(consumer.id, aftermath, now));
    }

    /// Hands the transport what there is for a process. `waiter`: the way whose gate the caller waits at. Returns
    /// whether that one is full still.
    fn pump(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        index: u32,
        waiter: Option<&Arc<dyn ProcessDestination>>,
        now: Now,
    ) -> bool {
        let Some(bus) = self.bus.upgrade() else {
            return false;
        };
        let mut has_asked = false;
        while let Some(parcel) = exchange.next_parcel(index) {
            let way = match self.way(&bus, exchange, index) {
                Ok(way) => way,
                Err(error) => {
                    tracing::debug!(%error, "no way to another process");
                    exchange.block(index);
                    self.try_later(&bus, index, ASK_AGAIN);
                    return false;
                }
            };
            let agent = match &parcel.author {
                None => None,
                Some(name) => match bus.agent(name) {
                    Some(agent) => Some(agent),
                    None => {
                        let reason = UndeliverableReason::Refused {
                            reason: RefusalReason::NotProved,
                            explanation: format!(
                                "{name} has left, and cannot prove itself any more"
                            ),
                        };
                        exchange.impossible(index, &reason, now);
                        continue;
                    }
                },
            };
            let sent = way.try_send(&OutgoingFrame {
                sender: agent
                    .as_ref()
                    .map_or(FrameSender::Process, FrameSender::Agent),
                head: &parcel.head,
                body: &parcel.content,
                tail: parcel.tail,
                is_deferred: false,
            });
            match sent {
                Ok(()) => exchange.sent(index, now),
                Err(Rejected::Impossible(reason)) => exchange.impossible(index, &reason, now),
                // The agent's own connection has no room; no gate of the way opens for that.
                Err(Rejected::Congested) => {
                    exchange.block(index);
                    self.try_later(&bus, index, CONGESTION);
                    return false;
                }
                Err(Rejected::Full) => {
                    exchange.block(index);
                    if waiter.is_some_and(|waiter| Arc::ptr_eq(waiter, &way)) {
                        return true;
                    }
                    self.wait_for_room(&bus, index, way);
                    return false;
                }
                Err(Rejected::Closed | Rejected::Moving) => {
                    self.ways.lock().remove(&index);
                    if has_asked {
                        exchange.block(index);
                        self.try_later(&bus, index, ASK_AGAIN);
                        return false;
                    }
                    has_asked = true;
                }
            }
        }
        false
    }

    fn way(
        &self,
        bus: &Bus,
        exchange: &Exchange,
        index: u32,
    ) -> Result<Arc<dyn ProcessDestination>, TransportError> {
        if let Some(way) = self.ways.lock().get(&index) {
            return Ok(way.clone());
        }
        let gone = || TransportError::OverLimit("the process is not known".to_owned());
        let identity = exchange.identity(index).ok_or_else(gone)?;
        let endpoint = self.endpoints.lock().get(&**identity).cloned();
        let endpoint = endpoint.ok_or_else(gone)?;
        let transport = bus.transport().ok_or_else(|| {
            TransportError::OverLimit("this process has no transport to other processes".to_owned())
        })?;
        let way = transport.process_destination(&endpoint)?;
        self.ways.lock().insert(index, way.clone());
        Ok(way)
    }

    fn wait_for_room(self: &Arc<Self>, bus: &Bus, index: u32, way: Arc<dyn ProcessDestination>) {
        let weak = Arc::downgrade(self);
        bus.runtime().spawn(async move {
            way.gate()
                .pass(|| {
                    let shared = weak.upgrade()?;
                    let is_full = shared.work(|exchange, now| {
                        exchange.unblock(index);
                        shared.pump(exchange, index, Some(&way), now)
                    });
                    (!is_full).then_some(())
                })
                .await;
        });
    }

    fn try_later(self: &Arc<Self>, bus: &Bus, index: u32, after: Duration) {
        let weak = Arc::downgrade(self);
        bus.runtime().spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(shared) = weak.upgrade() {
                shared.work(|exchange, _| exchange.unblock(index));
            }
        });
    }

    fn tell(&self, outcomes: Vec<Outcome>) {
        let Some(bus) = self.bus.upgrade() else {
            return;
        };
        for outcome in outcomes {
            match outcome {
                Outcome::Failed {
                    publisher,
                    receiver,
                    body,
                    reason,
                } => bus.undeliverable(&publisher, &receiver, &body, &reason),
                Outcome::Refused {
                    tried_by,
                    proved,
                    channel,
                    reason,
                    explanation,
                } => bus.refused(&tried_by, proved, channel.as_deref(), reason, explanation),
                Outcome::Flow {
                    agent,
                    pattern,
                    report,
                } => tracing::warn!(
                    target: "sealbus::flow",
                    %agent,
                    channels = %pattern,
                    policy = %report.policy,
                    "{report}"
                ),
                Outcome::Missed {
                    agent,
                    pattern,
                    missed,
                } => tracing::warn!(
                    target: "sealbus::flow",
                    %agent,
                    channels = %pattern,
                    missed,
                    "events passed a subscription by: its process was silent, or it pushed back for too long without taking anything"
                ),
                Outcome::FilterError {
                    agent,
                    pattern,
                    filter,
                    problem,
                } => tracing::warn!(
                    target: "sealbus::flow",
                    %agent,
                    channels = %pattern,
                    filter,
                    problem,
                    "the filter of a subscription cannot be evaluated for some messages, which do not come to it; \
                     they are counted, and this is said once"
                ),
            }
        }
    }
}

/// Lets time pass for the exchange, as long as it is there.
async fn keep_time(weak: Weak<Shared>, alarm: Arc<Notify>) {
    loop {
        let (at, start) = match weak.upgrade() {
            Some(shared) => (*shared.alarm_at.lock(), shared.start),
            None => return,
        };
        let Some(at) = at else {
            alarm.notified().await;
            continue;
        };
        let due = tokio::time::Instant::from_std(start + at);
        tokio::select! {
            () = alarm.notified() => continue,
            () = tokio::time::sleep_until(due) => {}
        }
        let Some(shared) = weak.upgrade() else { return };
        *shared.alarm_at.lock() = None;
        let next = shared.work(|exchange, now| exchange.tick(now));
        shared.set_alarm(next);
    }
}

struct Inlet(Arc<Shared>);

impl FrameInlet for Inlet {
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        let result = self.0.work(|exchange, now| {
            let taken = frames.drain(..).map(|frame| exchange.take(frame, now));
            let refused = taken.enumerate().filter_map(|(place, taken)| {
                let (frame, refused) = *taken.err()?;
                Some(RefusedFrame {
                    place,
                    frame,
                    refused,
                })
            });
            refused.collect()
        });
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            self.0.introduced.notify_waiters();
        }
        result
    }

    fn process_joined(&self, process: &ProcessEndpoint) {
        let former = self
            .0
            .endpoints
            .lock()
            .insert(process.identity.clone(), process.clone());
        self.0.work(|exchange, now| {
            if former.is_some_and(|former| former != *process)
                && let Some(index) = exchange.index_of(&process.identity)
            {
                self.0.ways.lock().remove(&index);
            }
            exchange.process_joined(&process.identity, now);
        });
    }

    /// Its subscriptions end.
    fn agent_left(&self, name: &str) {
        self.0.work(|exchange, now| exchange.agent_left(name, now));
        self.0.turns.forget(name);
    }

    fn process_left(&self, process: &Identity) {
        self.0.endpoints.lock().remove(process);
        self.0.work(|exchange, now| {
            if let Some(index) = exchange.index_of(process) {
                self.0.ways.lock().remove(&index);
            }
            exchange.process_left(process, now);
        });
        self.0.introduced.notify_waiters();
    }

    fn lost(&self, process: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason) {
        self.0.work(|exchange, now| match reason {
            UndeliverableReason::Refused { .. } | UndeliverableReason::TooLarge { .. } => {
                for frame in frames {
                    exchange.frame_refused(process, &frame.payload, reason, now);
                }
            }
            // The exchange keeps what is to be sent again, and knows by its numbers what comes twice.
            _ => exchange.frames_lost(process, now),
        });
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
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

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
