//! The tasks that read the logs for one subscription, one for each node. For a durable subscription, each task
//! also tells its node which events are settled.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::until;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{
    ChannelLogs, FilterErrorSink, GATHERING, LogNote, LogPart, LogReading, Logged, LoggedEvent,
    NotRead, Replay, Tracker, gather,
};
use crate::event::ReceivedEvent;
use crate::filter::EventKey;
use crate::flow::QueueLimits;
use crate::path::ChannelPath;

/// The interval at which the list of nodes is checked.
const LOOK: Duration = Duration::from_millis(500);
/// The first and the longest pause before a node that did not answer is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The pause after a refusal, which a change of the rules may end.
const REFUSED: Duration = Duration::from_secs(5);
/// How long a node waits for events before it answers that there are none.
const WAIT: Duration = Duration::from_secs(4);
/// The time between two notes of settled events.
const NOTE: Duration = Duration::from_millis(25);
/// How long the last note may take.
const LAST_NOTE: Duration = Duration::from_secs(5);
/// The most events and bytes of one answer.
const MOST: (usize, usize) = (512, 512 << 10);

/// Gives an event to the subscription. Returns false once the subscription has ended.
pub(crate) type FeedSink = Arc<dyn Fn(ReceivedEvent, LogNote) -> bool + Send + Sync>;

/// A durable subscription: its agent and its name.
type Durable = (Arc<str>, String);

/// The running feeds of a process.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    /// The number of feeds of each durable subscription, and of all other subscriptions together.
    counts: Mutex<HashMap<Option<Durable>, usize>>,
    ended: Notify,
}

impl Feeds {
    /// Waits until all ending feeds have noted the handled events.
    pub(crate) async fn all_ended(&self) {
        self.until(HashMap::is_empty).await;
    }

    async fn until(&self, is_so: impl Fn(&HashMap<Option<Durable>, usize>) -> bool) {
        until(&self.ended, || is_so(&self.counts.lock()).then_some(())).await;
    }
}

/// One running feed.
struct RunningFeed {
    feeds: Arc<Feeds>,
    durable: Option<Durable>,
}

impl RunningFeed {
    fn new(feeds: Arc<Feeds>, reading: &LogReading) -> Self {
        let durable = reading.durable.clone();
        let durable = durable.map(|durable| (reading.agent.clone(), durable));
        *feeds.counts.lock().entry(durable.clone()).or_default() += 1;
        Self { feeds, durable }
    }

    /// Waits until earlier feeds of the same durable subscription have noted the handled events.
    async fn is_alone(&self) {
        if self.durable.is_some() {
            let is_alone = |counts: &HashMap<_, usize>| counts.get(&self.durable) == Some(&1);
            self.feeds.until(is_alone).await;
        }
    }
}

impl Drop for RunningFeed {
    fn drop(&mut self) {
        let mut counts = self.feeds.counts.lock();
        if let Entry::Occupied(mut count) = counts.entry(self.durable.take()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(counts);
        self.feeds.ended.notify_waiters();
    }
}

/// The reader of the logs for one subscription.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) logs: Arc<dyn ChannelLogs>,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) sink: FeedSink,
    pub(crate) filter_errors: FilterErrorSink,
    /// The wanted logs. Positions and room are filled in for each question.
    pub(crate) reading: LogReading,
    pub(crate) limits: QueueLimits,
}

impl Feed {
    /// Reads until the tracker is finished.
    pub(crate) fn start(mut self, runtime: &Handle, feeds: &Arc<Feeds>) {
        let there = RunningFeed::new(feeds.clone(), &self.reading);
        runtime.spawn(async move {
            let tracker = self.tracker.clone();
            let reading = async {
                there.is_alone().await;
                self.run().await;
            };
            tokio::select! {
                () = reading => {}
                () = finished(&tracker) => {}
            }
            self.note_the_last().await;
            drop(there);
        });
    }

    async fn run(&mut self) {
        if let Some(durable) = self.reading.durable.clone() {
            let agent = self.reading.agent.clone();
            let mut pause = PAUSE.0;
            loop {
                match self.logs.known_since(&agent, &durable).await {
                    Ok(None) => break,
                    Ok(Some(since)) => {
                        self.reading.began = since;
                        self.reading.resumes = true;
                        break;
                    }
                    Err(problem) => {
                        tracing::debug!(%agent, durable, %problem, "a durable subscription waits for its node");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE.1);
                    }
                }
            }
        }
        if let Replay::LastPerKey(key) = self.reading.replay.clone() {
            self.begin_with_last(&key).await;
        }
        // The tasks end when this set is dropped.
        let mut tasks = JoinSet::new();
        let mut readers: HashMap<Arc<str>, tokio::task::AbortHandle> = HashMap::new();
        loop {
            let nodes = self.logs.nodes().await;
            readers.retain(|node, task| {
                let stays = nodes.contains(node);
                if !stays {
                    task.abort();
                }
                stays
            });
            for node in nodes {
                if let Entry::Vacant(place) = readers.entry(node) {
                    let feed = self.clone();
                    let task = tasks.spawn(feed.follow(place.key().clone()));
                    place.insert(task);
                }
            }
            while tasks.try_join_next().is_some() {}
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Delivers the last event of each key. The subscription goes on behind the last event read. A node that does not
    /// answer in time gives its last events when it does.
    async fn begin_with_last(&self, key: &EventKey) {
        let errors = &self.filter_errors;
        let gathered = gather(&*self.logs, &self.reading, key, GATHERING, errors).await;
        for (node, problem) in &gathered.missing {
            tracing::warn!(
                agent = %self.reading.agent, channels = %self.reading.pattern, %node, %problem,
                "a subscription begins without all last events of a node: they come later, each event by itself"
            );
        }
        for (node, parts) in gathered.latest.into_parts() {
            for part in parts {
                self.deliver_part(&node, part).await;
            }
        }
    }

    /// Gives the events of a part to the subscription as it takes them.
    async fn deliver_part(&self, node: &Arc<str>, part: LogPart) {
        let mut events = part.events.into_iter().peekable();
        loop {
            let (count, bytes) = self.room().await;
            let mut given = LogPart::empty(part.channel.clone(), part.next);
            let mut size = 0;
            while given.events.len() < count
                && let Some(event) =
                    events.next_if(|event| size == 0 || size + event.frame.len() <= bytes)
            {
                size += event.frame.len();
                given.events.push(event);
            }
            if let (Some(_), Some(last)) = (events.peek(), given.events.last()) {
                given.next = last.number + 1;
            }
            if !self.deliver(node, self.tracker.take_in(node, vec![given])) {
                return;
            }
            if events.peek().is_none() {
                return;
            }
        }
    }

    /// Reads the logs of one node for ever.
    async fn follow(self, node: Arc<str>) {
        tokio::select! {
            () = self.read(&node) => {}
            () = self.note(&node) => {}
        }
    }

    async fn read(&self, node: &Arc<str>) {
        let mut pause = PAUSE.0;
        let mut was_refused = false;
        let mut lamented = HashSet::new();
        loop {
            let (events, bytes) = self.room().await;
            let positions = self.tracker.positions(node);
            let reading = LogReading {
                last_per: match &self.reading.replay {
                    Replay::LastPerKey(key) if positions.is_none() => Some(key.clone()),
                    _ => None,
                },
                positions,
                events,
                bytes,
                wait: WAIT,
                ..self.reading.clone()
            };
            match self.logs.read(node, reading).await {
                Ok(parts) => {
                    pause = PAUSE.0;
                    was_refused = false;
                    for part in &parts {
                        let (count, problem) = &part.filter_errors;
                        if *count > 0 {
                            (self.filter_errors)(*count, problem);
                        }
                        self.lament(node, part, &mut lamented);
                    }
                    if !self.deliver(node, self.tracker.take_in(node, parts)) {
                        return std::future::pending().await;
                    }
                }
                Err(NotRead::Away(problem)) => {
                    tracing::debug!(%node, problem, "logs of channels wait for a node");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
                Err(NotRead::Refused(problem)) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        tracing::warn!(
                            agent = %self.reading.agent, channels = %self.reading.pattern, %node, problem,
                            "kept events cannot be read"
                        );
                    }
                    tokio::time::sleep(REFUSED).await;
                }
            }
        }
    }

    /// Reports once for each log that it cannot be read further.
    fn lament(&self, node: &str, part: &LogPart, lamented: &mut HashSet<ChannelPath>) {
        let Some(damage) = &part.damage else {
            lamented.remove(&part.channel);
            return;
        };
        if lamented.insert(part.channel.clone()) {
            tracing::error!(
                agent = %self.reading.agent, channel = %part.channel, node, next = part.next, damage,
                "kept events cannot be read: the subscription waits before the damage"
            );
        }
    }

    /// Waits until there is room for more. Returns the room.
    async fn room(&self) -> (usize, usize) {
        let most = (
            self.limits.events.clamp(1, MOST.0),
            self.limits.bytes.clamp(1, MOST.1),
        );
        let room = || {
            let (events, bytes) = self.tracker.waiting();
            // Asks for at least half of the room at a time, and not for each event.
            let is_half = events <= most.0 / 2 && bytes <= most.1 / 2;
            is_half.then(|| (most.0 - events, most.1 - bytes))
        };
        until(&self.tracker.news, room).await
    }

    /// Gives events to the subscription. Returns false if the subscription has ended.
    fn deliver(&self, node: &Arc<str>, events: Vec<(LoggedEvent, Logged, LogNote)>) -> bool {
        for (event, logged, note) in events {
            if logged.missed > 0 {
                tracing::warn!(
                    target: "sealbus::flow",
                    agent = %self.reading.agent, channels = %self.reading.pattern, %node, missed = logged.missed,
                    "events were not kept long enough for a subscription: see `retention`"
                );
            }
            let reader = &self.reading.agent;
            match event.open(&*self.logs, node, logged.missed, reader) {
                Ok(Some(received)) => {
                    if !(self.sink)(received, note) {
                        return false;
                    }
                }
                Ok(None) => note.lost(),
                Err(problem) => {
                    tracing::error!(
                        %node, number = event.number, problem,
                        "a kept event cannot be read; a newer version may have written it"
                    );
                    note.lost();
                }
            }
        }
        true
    }

    /// Tells a node which events are settled, for ever.
    async fn note(&self, node: &str) {
        let Some(durable) = self.reading.durable.as_deref() else {
            return std::future::pending().await;
        };
        let unnoted = || Some(self.tracker.unnoted(node)).filter(|cursors| !cursors.is_empty());
        loop {
            // Events that do not pass the filter are settled as well, but no news reports them.
            let cursors = tokio::time::timeout(LOOK, until(&self.tracker.news, unnoted));
            if let Ok(cursors) = cursors.await {
                self.note_once(node, durable, cursors).await;
                tokio::time::sleep(NOTE).await;
            }
        }
    }

    async fn note_once(&self, node: &str, durable: &str, cursors: Vec<(ChannelPath, u64)>) -> bool {
        let agent = &self.reading.agent;
        match self
            .logs
            .settle(node, agent, durable, cursors.clone())
            .await
        {
            Ok(()) => {
                self.tracker.noted(node, &cursors);
                true
            }
            Err(problem) => {
                tracing::debug!(node, %agent, durable, %problem, "what was dealt with is not noted yet");
                tokio::time::sleep(PAUSE.0).await;
                false
            }
        }
    }

    async fn note_the_last(&self) {
        let Some(durable) = self.reading.durable.as_deref() else {
            return;
        };
        let note = |node: Arc<str>| async move {
            loop {
                let cursors = self.tracker.unnoted(&node);
                if cursors.is_empty() || self.note_once(&node, durable, cursors).await {
                    return;
                }
            }
        };
        let all = async {
            let nodes = self.logs.nodes().await;
            futures_util::future::join_all(nodes.into_iter().map(note)).await;
        };
        if tokio::time::timeout(LAST_NOTE, all).await.is_err() {
            tracing::warn!(
                agent = %self.reading.agent, durable,
                "a node did not take note of the last events that a durable subscription has had: they may come again"
            );
        }
    }
}

async fn finished(tracker: &Tracker) {
    until(&tracker.news, || tracker.is_over().then_some(())).await;
}
