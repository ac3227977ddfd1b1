//! Logs of persistent channels: the events that a node keeps for its processes' agents, and the readers of these logs.
//!
//! A node has one log for each channel. The log is a stream of the node's journal, and holds the events that agents of
//! the node's processes published on the channel. An event is acknowledged when it is on disk. A subscription reads the
//! logs of all nodes, and each node notes next to its own log how far a durable subscription has read. So no event
//! moves between nodes, and the death of a node holds back only the events of its own agents.
//!
//! **Once.** A process numbers its events, and sends an event again if an answer is lost. The log recognises the event
//! by process and number, even after the node was killed.

mod evidence;
mod judging;
mod keeping;
mod news;
mod origins;
mod reading;
mod retention;
#[cfg(test)]
mod tests;

/// The reader of kept messages, for the fuzz target.
#[doc(hidden)]
pub mod fuzzing {
    pub use super::evidence::check_record;
}

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_channels::{ChannelPath, ChannelPattern, ChannelPermissions};
use sealbus_journal::{
    Journal, JournalError, OpenReport, ReadFrom, Retention, Stream, StreamConfig,
};
use sealbus_seal::PlatformName;
use sealbus_seal::permission::ChannelRight;
use tokio::sync::watch;

use sealbus_control::channel_log::{KeptLog, LogAnswer, LogRequest};
use sealbus_control::{Fault, FaultCode, Rules};

use crate::reserve::Reserve;
use crate::storage;
use news::News;
use origins::{Given, Origins};
use retention::{Share, USUAL};

/// The most events in one request.
pub const MOST_EVENTS: usize = 512;
/// The most bytes of events in one request, unless a single event has more.
pub const MOST_BYTES: usize = 4 << 20;
/// The most channels of which a node keeps logs.
const MOST_LOGS: usize = 16_384;
/// The most channels of which a node keeps logs because one agent published there first.
const MOST_LOGS_OF_AGENT: usize = if cfg!(test) { 4 } else { 1024 };

const CHANNEL: &str = "channel";
/// The stream of the messages that agents received, with their proofs.
const RECORD: &str = "evidence";
/// The stream with a cursor for each durable subscription. The cursor is the time at which the subscription was made.
const DURABLE: &str = "durable";

/// The logs of a node.
pub struct KeptChannelLogs {
    node: String,
    platform: PlatformName,
    journal: Journal,
    /// The length of the longest event, in bytes.
    longest: usize,
    /// The part of the disk that events must leave free.
    reserve: Reserve,
    logs: Mutex<BTreeMap<ChannelPath, Arc<ChannelLog>>>,
    /// The shares of the agents that published first on some channel.
    shares: Mutex<HashMap<String, Share>>,
    durable: Stream,
    rules: Mutex<Arc<Obeyed>>,
    /// The number of bytes that were cut off on opening, by stream.
    torn: HashMap<String, u64>,
    /// Tells which events were kept.
    news: watch::Sender<News>,
}

/// The rules in force, compiled.
#[derive(Default)]
struct Obeyed {
    rules: Option<Rules>,
    permissions: ChannelPermissions,
    /// The retention of channels, if the manifest gives it.
    retention: Vec<(ChannelPattern, Option<Retention>)>,
    /// The retention of the record of received messages.
    recorded: Retention,
}

/// The log of one channel.
struct ChannelLog {
    channel: ChannelPath,
    /// The agent that published there first, if it is known.
    maker: Option<String>,
    stream: Stream,
    origins: Mutex<Origins>,
    /// For each durable subscription, the number after the last event that it was given. Deliveries before a restart of
    /// this node are not known.
    given: Mutex<HashMap<String, u64>>,
    /// The number after the last event when this node started.
    began: u64,
    /// The reason why a part of the log cannot be read.
    damage: Mutex<Option<String>>,
}

impl KeptChannelLogs {
    /// Opens the logs in a journal. This reads all of them, so call it only where blocking is allowed.
    ///
    /// # Errors
    /// If the journal cannot be used.
    pub fn open(
        journal: Journal,
        report: &OpenReport,
        node: &str,
        platform: PlatformName,
        longest: usize,
    ) -> Result<Self, JournalError> {
        let mut torn = HashMap::new();
        for tail in &report.torn {
            *torn.entry(tail.stream.clone()).or_default() += tail.bytes;
        }
        let durable = journal.open_stream(DURABLE, StreamConfig::default())?;
        let mut makers = makers(&durable);
        let mut logs = BTreeMap::new();
        let mut shares: HashMap<String, Share> = HashMap::new();
        for stream in journal.streams() {
            let Some(path) = stream.name().strip_prefix(CHANNEL) else {
                continue;
            };
            let Ok(channel) = ChannelPath::new(path) else {
                continue;
            };
            let mut log = ChannelLog::load(channel.clone(), stream)?;
            log.maker = makers.remove(channel.as_str());
            if let Some(maker) = &log.maker {
                // Logs that were long already are measured at their maker's next event.
                shares.entry(maker.clone()).or_default().grown += log.stream.info().bytes;
            }
            logs.insert(channel, Arc::new(log));
        }
        Ok(Self {
            node: node.to_owned(),
            platform,
            reserve: Reserve::of(journal.folder()),
            durable,
            journal,
            longest,
            logs: Mutex::new(logs),
            shares: Mutex::new(shares),
            rules: Mutex::default(),
            torn,
            news: watch::Sender::default(),
        })
    }

    /// Puts these rules in force. Before the first call, nothing is kept and nothing is read.
    pub fn obey(&self, rules: &Rules) {
        let mut obeyed = self.rules.lock();
        if obeyed.rules.as_ref() == Some(rules) {
            return;
        }
        let permissions = match ChannelPermissions::compile(&rules.permission, &self.platform) {
            Ok(permissions) => permissions,
            Err(error) => {
                // The manifest was checked, so this cannot happen. The earlier rules stay in force.
                tracing::error!(%error, "the platform's policy for channels cannot be obeyed");
                return;
            }
        };
        let retention = rules.channels.iter().filter_map(|entry| {
            let pattern: ChannelPattern = entry.path.parse().ok()?;
            Some((pattern, Obeyed::given(entry.retention)))
        });
        *obeyed = Arc::new(Obeyed {
            permissions,
            retention: retention.collect(),
            recorded: Obeyed::given(rules.evidence.retention).unwrap_or(USUAL),
            rules: Some(rules.clone()),
        });
        let obeyed = obeyed.clone();
        let logs: Vec<_> = self.logs.lock().values().cloned().collect();
        for log in logs {
            self.keep_as_told(&obeyed, &log);
        }
    }

    fn obeyed(&self) -> Result<Arc<Obeyed>, Fault> {
        let obeyed = self.rules.lock().clone();
        if obeyed.rules.is_none() {
            return Err(Fault::new(
                FaultCode::Unavailable,
                "the node does not know the platform's rules yet",
            ));
        }
        Ok(obeyed)
    }

    /// Answers a request to the logs of this node. The caller has checked that the requester may ask. `asker` is the
    /// process that submits events, as this node knows it.
    ///
    /// # Errors
    /// The reason why the request is not carried out.
    pub async fn answer(
        self: &Arc<Self>,
        asker: &str,
        request: LogRequest,
    ) -> Result<LogAnswer, Fault> {
        match request {
            LogRequest::Keep { events } => {
                if events.len() > MOST_EVENTS {
                    return Err(Fault::new(
                        FaultCode::BadRequest,
                        format!("at most {MOST_EVENTS} events are taken at once"),
                    ));
                }
                let (logs, process) = (self.clone(), Arc::from(asker));
                // Work that has begun is finished even if nobody waits for it any more.
                let keeping = tokio::spawn(async move { logs.keep(&process, events).await });
                let outcomes = keeping.await.map_err(Fault::internal)??;
                Ok(LogAnswer::Kept { outcomes })
            }
            LogRequest::Since { agent, durable } => {
                let since = self.durable.cursor(&durable_key(&agent, &durable)?);
                Ok(LogAnswer::Since { since })
            }
            LogRequest::Read { question } => self.read(question).await,
            LogRequest::Settle {
                agent,
                durable,
                cursors,
            } => {
                let key = durable_key(&agent, &durable)?;
                if self.durable.cursor(&key).is_none() {
                    let message = format!(
                        "{} knows no durable subscription {durable} of {agent}",
                        self.node
                    );
                    return Err(Fault::new(FaultCode::Unknown, message));
                }
                self.settle(&agent, &key, cursors).await?;
                Ok(LogAnswer::Done)
            }
            LogRequest::Judge { filters, event, .. } => {
                let judging = tokio::task::spawn_blocking(move || judging::judge(&filters, event));
                let verdicts = judging.await.map_err(Fault::internal)??;
                Ok(LogAnswer::Judged { verdicts })
            }
            LogRequest::List => Ok(LogAnswer::List { logs: self.list() }),
            LogRequest::Record { messages } => {
                self.record(&messages).await?;
                Ok(LogAnswer::Done)
            }
            LogRequest::Evidence { question } => {
                let page = self.page(question).await?;
                Ok(LogAnswer::Evidence { page })
            }
        }
    }

    /// The log of a channel. If there is none, it is made for the agent that publishes there first.
    fn log(
        &self,
        obeyed: &Obeyed,
        channel: &ChannelPath,
        publisher: &str,
    ) -> Result<Arc<ChannelLog>, Fault> {
        let mut logs = self.logs.lock();
        if let Some(log) = logs.get(channel) {
            return Ok(log.clone());
        }
        self.reserve.check(&self.node)?;
        let full = |message: String| {
            let advice = "publish on fewer channels, with properties for filters";
            Err(Fault::new(FaultCode::Full, message).advise(advice))
        };
        if logs.len() >= MOST_LOGS {
            return full(format!(
                "{} keeps {MOST_LOGS} channels, which is the limit",
                self.node
            ));
        }
        let is_theirs = |log: &&Arc<ChannelLog>| log.maker.as_deref() == Some(publisher);
        if logs.values().filter(is_theirs).count() >= MOST_LOGS_OF_AGENT {
            return full(format!(
                "{} keeps {MOST_LOGS_OF_AGENT} channels on which {publisher} published first, which is the limit",
                self.node
            ));
        }
        let name = format!("{CHANNEL}{channel}");
        let config = self.config_of(obeyed, channel, Some(publisher));
        let stream = self.journal.open_stream(&name, config).map_err(storage)?;
        self.shares.lock().entry(publisher.to_owned()).or_default();
        let mut log = ChannelLog::new(channel.clone(), stream);
        log.maker = Some(publisher.to_owned());
        let log = Arc::new(log);
        logs.insert(channel.clone(), log.clone());
        // Only a count depends on this mark, so nobody waits until it is on disk.
        drop(self.durable.set_cursor(&mark_of(channel, publisher), 1));
        Ok(log)
    }

    /// How far a durable subscription has read a log.
    fn cursor(&self, log: &ChannelLog, key: &str) -> Option<u64> {
        let beside = self.durable.cursor(&beside(&log.channel, key));
        let cursor = log.stream.cursor(key).max(beside)?;
        Some(cursor.min(log.stream.end()))
    }

    /// Notes how far a durable subscription has read. Logs that its agent may not read are skipped.
    async fn settle(
        &self,
        agent: &str,
        key: &str,
        cursors: BTreeMap<String, u64>,
    ) -> Result<(), Fault> {
        let obeyed = self.obeyed()?;
        let name = format!("{agent}@{}", self.platform);
        let mut under_way = Vec::new();
        for (channel, position) in cursors {
            let Some(log) = self.logs.lock().get(channel.as_str()).cloned() else {
                continue;
            };
            if !obeyed
                .permissions
                .may(&name, ChannelRight::Subscribe, &log.channel)
            {
                continue;
            }
            let position = position.min(log.stream.end());
            if self
                .cursor(&log, key)
                .is_none_or(|former| former < position)
            {
                let written = log.stream.set_cursor(key, position).map_err(storage)?;
                under_way.push((log, position, written));
            }
        }
        for (log, position, written) in under_way {
            match written.await {
                Ok(_) => {}
                // A log that cannot be written because of damage does not hold up its readers or other logs.
                Err(JournalError::Damaged(_)) => {
                    let name = beside(&log.channel, key);
                    let written = self.durable.set_cursor(&name, position);
                    written.map_err(storage)?.await.map_err(storage)?;
                }
                Err(error) => return Err(storage(error)),
            }
        }
        Ok(())
    }

    fn list(&self) -> Vec<KeptLog> {
        let logs = self.logs.lock();
        logs.values()
            .map(|log| {
                let info = log.stream.info();
                KeptLog {
                    channel: log.channel.to_string(),
                    node: self.node.clone(),
                    events: info.records,
                    bytes: info.bytes,
                    first: info.first,
                    next: info.end,
                    torn: self.torn.get(log.stream.name()).copied().unwrap_or(0),
                    damage: log.damage.lock().clone(),
                    durable: log.stream.cursors(),
                }
            })
            .collect()
    }
}

impl ChannelLog {
    fn new(channel: ChannelPath, stream: Stream) -> Self {
        Self {
            channel,
            maker: None,
            began: stream.end(),
            damage: Mutex::new(stream.info().damage.map(|damage| damage.to_string())),
            stream,
            origins: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Notes that the log cannot be read, and logs each kind of damage once.
    fn lament(&self, damage: &str) {
        let former = self.damage.lock().replace(damage.to_owned());
        if former.as_deref() != Some(damage) {
            tracing::error!(channel = %self.channel, damage, "kept events cannot be read");
        }
    }

    /// Loads a log with its events.
    fn load(channel: ChannelPath, stream: Stream) -> Result<Self, JournalError> {
        let mut origins = Origins::default();
        let mut reader = stream.read(ReadFrom::Start);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    if let Some(given) = Given::from_key(&record.key) {
                        origins.found(&given, record.number);
                    }
                }
                Ok(None) => break,
                Err(error @ JournalError::Damaged(_)) => {
                    tracing::error!(
                        %channel, %error,
                        "kept events cannot be read, and their subscribers wait before them"
                    );
                    // Later events are still noted, so that they are not kept a second time.
                    if !reader.seek_next_file() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let mut log = Self::new(channel, stream);
        log.origins = Mutex::new(origins);
        Ok(log)
    }
}

/// The name under which a node knows a durable subscription.
fn durable_key(agent: &str, durable: &str) -> Result<String, Fault> {
    let key = format!("{agent}/{durable}");
    if key.len() > 1000 {
        return Err(Fault::new(
            FaultCode::BadRequest,
            "the names of the agent and of its durable subscription are too long",
        ));
    }
    Ok(key)
}

/// The prefix of cursor names that name the maker of a log. No agent's name and no channel begins with it.
const MAKER: &str = "\0";

/// The name of the cursor that notes that an agent was the first to publish on a channel.
fn mark_of(channel: &ChannelPath, publisher: &str) -> String {
    format!("{MAKER}{publisher}{channel}")
}

/// The makers of the logs, by channel.
fn makers(durable: &Stream) -> HashMap<String, String> {
    let marks = durable.cursors().into_keys();
    let maker = |mark: String| {
        let (publisher, channel) = mark.strip_prefix(MAKER)?.split_once('/')?;
        Some((format!("/{channel}"), publisher.to_owned()))
    };
    marks.filter_map(maker).collect()
}

/// The name of a cursor that could not be noted in its log. It begins like a channel's path, unlike any agent's name.
fn beside(channel: &ChannelPath, key: &str) -> String {
    format!("{channel}\0{key}")
}
