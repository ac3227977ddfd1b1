//! The AgentBus as agents use it: publish, send, request, subscribe. This module wraps the [exchange](super::exchange)
//! and runs on the bus's runtime.

mod acquaintance;
mod inlet;
mod kept;
mod last;
mod publishing;
mod request;
mod subscription;
mod ways;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sealbus_seal::{Identity, SecurityLevel};
use tokio::sync::Notify;

use super::declared::DeclaredChannels;
use super::exchange::{
    Aftermath, ChannelReport, Consumer, Exchange, ExchangeConfig, Now, Outcome, SubscribeError,
    SubscriptionOptions, SubscriptionReport, UndeliveredEvents,
};
use super::log::{ChannelLogs, Feeds, Replay};
use super::path::ChannelPath;
use super::permission::ChannelPermissions;
use super::qos::{ChannelCapabilities, Qos};
use super::sealed::{EventSealer, Reader};
pub use acquaintance::ChannelRegistrar;
use acquaintance::Registration;
use inlet::Inlet;
pub use last::{LastError, LastEvents};
pub use request::{Answers, Replies, RequestOptions};
use sealbus_bus::{Bus, Moment, Outbox, ProcessDestination, ProcessEndpoint, WeakBus, until};
pub use subscription::Subscription;

/// The interval at which the arrival of a leaving agent's events is checked.
const ARRIVAL: Duration = Duration::from_millis(10);
/// The longest wait: a hundred years. A clock cannot name the end of every longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The AgentBus of a process: [`Channels::of`]. A clone is another handle to the same AgentBus.
#[derive(Clone)]
pub struct Channels {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    bus: WeakBus,
    /// Lock this before any lock of a transport.
    exchange: Mutex<Exchange>,
    start: Instant,
    /// Wakes the task that keeps time, with the time of the next alarm.
    alarm: Arc<Notify>,
    alarm_at: Mutex<Option<Duration>>,
    endpoints: Mutex<HashMap<Identity, ProcessEndpoint>>,
    declared: Mutex<Arc<DeclaredChannels>>,
    ways: Mutex<BTreeMap<u32, Arc<dyn ProcessDestination>>>,
    capabilities: OnceLock<(ChannelCapabilities, &'static str)>,
    was_introduced: AtomicBool,
    introduced: Notify,
    /// The number of tasks that wait for announcements.
    waiting: AtomicUsize,
    logs: OnceLock<Arc<dyn ChannelLogs>>,
    sealer: OnceLock<Arc<dyn EventSealer>>,
    registration: Registration,
    turns: kept::Turns,
    feeds: Arc<Feeds>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.alarm.notify_one();
    }
}

impl Channels {
    /// The AgentBus of a process. The first call lets the AgentBus take the frames of other processes, unless another
    /// inlet takes them already. Call this once the transport is set, so that other processes hear of the subscriptions
    /// of this process's agents.
    pub fn of(bus: &Bus) -> Self {
        if let Some(channels) = Self::known(bus) {
            return channels;
        }
        let channels = Self::new(bus);
        if bus.set_frame_inlet(Arc::new(Inlet(channels.shared.clone()))) {
            return channels;
        }
        // Another thread was first, with these channels or with an inlet of another kind.
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
        let hold_time = bus.config().hold_time.min(LONGEST_WAIT);
        config.absence = hold_time;
        config.introduction = hold_time;
        config.patience = hold_time;
        config.tap = bus.tap().clone();
        if let Some(transport) = bus.transport() {
            config.largest_message = transport.capabilities().largest_message;
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
            sealer: OnceLock::new(),
            registration: Registration::default(),
            turns: kept::Turns::default(),
            feeds: Arc::default(),
        });
        let alarm = shared.alarm.clone();
        bus.runtime()
            .spawn(keep_time(Arc::downgrade(&shared), alarm));
        Self { shared }
    }

    /// Sets the permissions for publishing, subscribing and answering from now on.
    pub fn set_permissions(&self, permissions: Arc<ChannelPermissions>) {
        self.shared
            .work(|exchange, _| exchange.set_permissions(permissions));
    }

    /// Declares these channels from now on.
    pub fn declare(&self, channels: DeclaredChannels) {
        let channels = Arc::new(channels);
        *self.shared.declared.lock() = channels.clone();
        self.shared.work(|exchange, _| exchange.declare(channels));
    }

    /// Sets the service that seals and opens events. Call this before the capabilities of channels are first asked for.
    /// Returns false if a service was set before.
    pub fn set_sealer(&self, sealer: Arc<dyn EventSealer>) -> bool {
        let is_first = self.shared.sealer.set(sealer.clone()).is_ok();
        if is_first {
            self.shared.work(|exchange, _| exchange.set_sealer(sealer));
        }
        is_first
    }

    /// The quality of service that the platform declares for a channel.
    pub fn qos_of(&self, channel: &ChannelPath) -> Qos {
        self.shared.declared.lock().qos(channel)
    }

    /// The qualities that channels can offer here.
    pub fn capabilities(&self) -> ChannelCapabilities {
        self.shared.capabilities().0.clone()
    }

    /// Waits until all processes of the platform have announced their subscriptions, for `limit` at most. Returns
    /// whether they have.
    ///
    /// Publishers and requesters wait for these announcements by themselves. The first best-effort event of a process
    /// waits for only up to a second, and later best-effort events do not wait.
    pub async fn ready(&self, limit: Duration) -> bool {
        self.shared.use_channels();
        let knows_all = |exchange: &mut Exchange, now| {
            exchange.take_interest(now);
            exchange.knows_all()
        };
        let is_ready = self.wait_until(limit, knows_all).await;
        self.shared.was_introduced.store(true, Ordering::Release);
        is_ready
    }

    /// Waits until `is_so` holds, for `limit` at most. Returns whether it does.
    async fn wait_until(
        &self,
        limit: Duration,
        mut is_so: impl FnMut(&mut Exchange, Now) -> bool,
    ) -> bool {
        let shared = &self.shared;
        let wait = until(&shared.introduced, || shared.work(&mut is_so).then_some(()));
        let _waiting = WaitingTask::new(&self.shared.waiting);
        match self.shared.bus.upgrade() {
            // The timer belongs to the bus's runtime, even if another runtime polls this future.
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
        }
    }

    /// Subscribes the agent of `outbox`. Other processes hear of the subscription at once or, if it is the first use of
    /// channels in this process, as soon as the process is [listed](Self::listed).
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
        self.shared.use_channels();
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

    /// The events of an agent of this process that have not arrived: events that no member of their group has, and
    /// events that another process has not acknowledged. They can be lost if the agent leaves now.
    pub fn undelivered(&self, agent: &str) -> Vec<UndeliveredEvents> {
        self.shared.work(|exchange, _| exchange.undelivered(agent))
    }

    /// Waits until the events of an agent have arrived, for `limit` at most. Returns the events that have not. Returns
    /// at once if all of these wait for a group without members.
    pub async fn until_delivered(&self, agent: &str, limit: Duration) -> Vec<UndeliveredEvents> {
        let until = self.shared.start.elapsed() + limit.min(LONGEST_WAIT);
        loop {
            let undelivered = self.undelivered(agent);
            let is_over = self.shared.start.elapsed() >= until;
            if is_over || !undelivered.iter().any(|it| it.is_awaited) {
                return undelivered;
            }
            let Some(bus) = self.shared.bus.upgrade() else {
                return undelivered;
            };
            // The timer belongs to the bus's runtime, even if another runtime polls this future.
            let sleep = {
                let _runtime = bus.runtime().enter();
                tokio::time::sleep(ARRIVAL)
            };
            drop(bus);
            sleep.await;
        }
    }

    /// The channels in use, by path.
    pub fn channels(&self) -> Vec<ChannelReport> {
        self.shared.exchange.lock().channel_reports()
    }

    /// All subscriptions, of this process and of others. The first call asks the other processes for theirs, which
    /// takes time: see [`ready`](Self::ready).
    pub fn subscriptions(&self) -> Vec<SubscriptionReport> {
        self.shared.use_channels();
        self.shared.work(|exchange, now| {
            exchange.take_interest(now);
            exchange.subscription_reports()
        })
    }
}

/// Counts one more waiting task.
struct WaitingTask<'a>(&'a AtomicUsize);

impl<'a> WaitingTask<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for WaitingTask<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn now(&self) -> Now {
        Now {
            since_start: self.start.elapsed(),
            moment: Moment::now(),
        }
    }

    fn capabilities(&self) -> &(ChannelCapabilities, &'static str) {
        // The transport is set before agents publish. A later one could only add capabilities.
        self.capabilities.get_or_init(|| {
            let bus = self.bus.upgrade();
            let level = bus.as_ref().and_then(Bus::level);
            let transport = bus.and_then(|bus| bus.transport().cloned());
            let (mut capabilities, name) = match transport {
                Some(transport) => (
                    ChannelCapabilities::over(&transport.capabilities()),
                    transport.name(),
                ),
                None => (ChannelCapabilities::in_process(), "in-process"),
            };
            // Agents can seal their messages above the transport.
            capabilities.level = level.unwrap_or(capabilities.level);
            if self.sealer.get().is_some() {
                capabilities.levels.push(SecurityLevel::Sealed);
            }
            if self.logs.get().is_some() {
                capabilities = capabilities.with_log();
            }
            (capabilities, name)
        })
    }

    /// Works on the exchange, then sends the frames and delivers the notices that result.
    fn work<T>(self: &Arc<Self>, work: impl FnOnce(&mut Exchange, Now) -> T) -> T {
        let now = self.now();
        let mut exchange = self.exchange.lock();
        let result = work(&mut exchange, now);
        while let Some(index) = exchange.next_ready() {
            self.pump(&mut exchange, index, None);
        }
        let alarm = exchange.take_alarm();
        let outcomes = exchange.take_outcomes();
        let look_ups = exchange.take_look_ups();
        drop(exchange);
        self.set_alarm(alarm);
        if !outcomes.is_empty() {
            self.tell(outcomes);
        }
        if !look_ups.is_empty() {
            self.look_up(look_ups);
        }
        result
    }

    /// Looks up the keys of readers, and then sends the events that wait for them.
    fn look_up(self: &Arc<Self>, readers: Vec<Reader>) {
        let (Some(sealer), Some(bus)) = (self.sealer.get().cloned(), self.bus.upgrade()) else {
            return;
        };
        let shared = Arc::downgrade(self);
        bus.runtime().spawn(async move {
            sealer.look_up(&readers).await;
            if let Some(shared) = shared.upgrade() {
                shared.work(|exchange, now| exchange.looked_up(&readers, now));
            }
        });
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

    /// Handles the aftermath of events that have left a queue.
    fn settle(self: &Arc<Self>, consumer: &Consumer, aftermath: Aftermath) {
        if aftermath.is_empty() {
            if aftermath.frees_room() {
                consumer.open_gate();
            }
            return;
        }
        self.work(|exchange, now| exchange.settle(consumer.id, aftermath, now));
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

/// Keeps time for the exchange as long as the exchange exists.
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

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}
