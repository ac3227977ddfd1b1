//! Logs of persistent channels: what a node keeps of the events of its processes' agents, and who reads it.
//!
//! A node has one log for each channel, a stream of its journal, for what was published there by agents of its processes.
//! An event is acknowledged when it is on disk. A subscription reads the logs of all nodes; how far a durable one has come
//! each node notes beside its own log. So no event is moved from node to node, and the death of a node holds back what its own
//! agents published, and nothing else.
//!
//! **Once.** A process numbers what it gives, and gives it again if an answer is lost; the log knows by process and number
//! what it has had, also after the node was killed.

mod keeping;
mod origins;
mod reading;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_channels::{ChannelPath, ChannelPattern, ChannelPermissions};
use sealbus_journal::{
    Journal, JournalError, OpenReport, ReadFrom, Retention, Stream, StreamConfig,
};
use sealbus_seal::PlatformName;
use tokio::sync::watch;

use sealbus_control::channel_log::{KeptLog, LogAnswer, LogRequest};
use sealbus_control::{Fault, FaultCode, Rules};

use origins::{Given, Origins};

/// Most events in one request.
pub const MOST_EVENTS: usize = 512;
/// Most bytes of events in one request, unless one alone has more.
pub const MOST_BYTES: usize = 4 << 20;
/// Most channels that a node keeps logs of.
const MOST_LOGS: usize = 16_384;
/// How much is kept of a channel that the manifest says nothing about.
const USUAL: Retention = Retention {
    age: Some(Duration::from_secs(7 * 24 * 3600)),
    count: None,
    bytes: Some(1 << 30),
};
/// How often it is looked for what is too old.
const TIDYING: Duration = Duration::from_secs(60);

const CHANNEL: &str = "channel";
/// The stream whose cursors are the durable subscriptions there are, each with the time it was made.
const DURABLE: &str = "durable";

/// The logs of a node.
pub struct ChannelLogs {
    node: String,
    platform: PlatformName,
    journal: Journal,
    /// Longest event, in bytes.
    longest: usize,
    logs: Mutex<BTreeMap<ChannelPath, Arc<ChannelLog>>>,
    durable: Stream,
    rules: Mutex<Arc<Obeyed>>,
    /// Bytes that were cut off on opening, by stream.
    torn: HashMap<String, u64>,
    /// Something was kept.
    news: watch::Sender<u64>,
}

/// The rules in force, compiled.
#[derive(Default)]
struct Obeyed {
    rules: Option<Rules>,
    permissions: ChannelPermissions,
    retention: Vec<(ChannelPattern, Retention)>,
}

/// The log of one channel.
struct ChannelLog {
    channel: ChannelPath,
    stream: Stream,
    origins: Mutex<Origins>,
    /// By durable subscription, the number after the last event that it was given. What a former life of this node
    /// gave it is not known.
    given: Mutex<HashMap<String, u64>>,
    /// Number after the last event when this node began.
    began: u64,
    /// Why a part of it cannot be read.
    damage: Mutex<Option<String>>,
}

impl ChannelLogs {
    /// The logs in a journal. Reads all of them, so call it where blocking is allowed.
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
        let mut logs = BTreeMap::new();
        for stream in journal.streams() {
            let Some(path) = stream.name().strip_prefix(CHANNEL) else {
                continue;
            };
            let Ok(channel) = ChannelPath::new(path) else {
                continue;
            };
            let log = ChannelLog::load(channel.clone(), stream)?;
            logs.insert(channel, Arc::new(log));
        }
        Ok(Self {
            node: node.to_owned(),
            platform,
            durable: journal.open_stream(DURABLE, StreamConfig::default())?,
            journal,
            longest,
            logs: Mutex::new(logs),
            rules: Mutex::default(),
            torn,
            news: watch::Sender::new(0),
        })
    }

    /// From now on these rules hold. Until then nothing is kept and nothing is read.
    pub fn obey(&self, rules: &Rules) {
        let mut obeyed = self.rules.lock();
        if obeyed.rules.as_ref() == Some(rules) {
            return;
        }
        let permissions = match ChannelPermissions::compile(&rules.permission, &self.platform) {
            Ok(permissions) => permissions,
            Err(error) => {
                // The manifest was checked. What held before holds on.
                tracing::error!(%error, "the platform's policy for channels cannot be obeyed");
                return;
            }
        };
        let retention = rules.channels.iter().filter_map(|entry| {
            let pattern: ChannelPattern = entry.path.parse().ok()?;
            let given = entry.retention;
            let given = Retention {
                age: given.age.map(Duration::from_secs),
                count: given.count,
                bytes: given.bytes,
            };
            let is_given = given != Retention::default();
            Some((pattern, if is_given { given } else { USUAL }))
        });
        *obeyed = Arc::new(Obeyed {
            permissions,
            retention: retention.collect(),
            rules: Some(rules.clone()),
        });
        let obeyed = obeyed.clone();
        let logs: Vec<_> = self.logs.lock().values().cloned().collect();
        for log in logs {
            let config = self.config(obeyed.retention(&log.channel));
            if let Err(error) = self.journal.open_stream(log.stream.name(), config) {
                tracing::error!(channel = %log.channel, %error, "its retention is not obeyed");
            }
        }
    }

    /// Keeps so much of one channel; of an embedded platform, which has no manifest.
    pub fn retain(&self, channel: &ChannelPath, retention: Retention) -> Result<(), Fault> {
        {
            let mut obeyed = self.rules.lock();
            let mut entries = obeyed.retention.clone();
            entries.retain(|(pattern, _)| pattern.as_path().as_ref() != Some(channel));
            entries.insert(0, (ChannelPattern::from(channel), retention));
            *obeyed = Arc::new(Obeyed {
                rules: obeyed.rules.clone(),
                permissions: obeyed.permissions.clone(),
                retention: entries,
            });
        }
        if let Some(log) = self.logs.lock().get(channel) {
            let config = self.config(retention);
            self.journal
                .open_stream(log.stream.name(), config)
                .map_err(storage)?;
        }
        Ok(())
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

    fn config(&self, retention: Retention) -> StreamConfig {
        let segment_bytes = retention
            .bytes
            // So that what is cut is a part of what is kept.
            .map_or(16 << 20, |bytes| (bytes / 8).clamp(64 << 10, 16 << 20));
        StreamConfig {
            retention,
            segment_bytes: u32::try_from(segment_bytes).unwrap_or(16 << 20),
            largest_payload: self.longest + 4096,
        }
    }

    /// Answers what is asked of the logs of this node, by somebody who may ask it. `asker` is the process that gives events,
    /// as this node knows it.
    ///
    /// # Errors
    /// Why it is not done.
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
                // Work that has begun is finished, even if nobody waits for it any more.
                let keeping = tokio::spawn(async move { logs.keep(&process, events).await });
                let outcomes = keeping
                    .await
                    .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))??;
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
                self.settle(&key, cursors).await?;
                Ok(LogAnswer::Settled)
            }
            LogRequest::List => Ok(LogAnswer::List { logs: self.list() }),
        }
    }

    /// The log of a channel, made if it is not there.
    fn log(&self, obeyed: &Obeyed, channel: &ChannelPath) -> Result<Arc<ChannelLog>, Fault> {
        let mut logs = self.logs.lock();
        if let Some(log) = logs.get(channel) {
            return Ok(log.clone());
        }
        if logs.len() >= MOST_LOGS {
            return Err(Fault::new(
                FaultCode::Full,
                format!(
                    "{} keeps {MOST_LOGS} channels, as many as it may",
                    self.node
                ),
            ));
        }
        let name = format!("{CHANNEL}{channel}");
        let config = self.config(obeyed.retention(channel));
        let stream = self.journal.open_stream(&name, config).map_err(storage)?;
        let log = Arc::new(ChannelLog::new(channel.clone(), stream));
        logs.insert(channel.clone(), log.clone());
        Ok(log)
    }

    /// How far a durable subscription has come in a log.
    fn cursor(&self, log: &ChannelLog, key: &str) -> Option<u64> {
        let beside = self.durable.cursor(&beside(&log.channel, key));
        let cursor = log.stream.cursor(key).max(beside)?;
        Some(cursor.min(log.stream.end()))
    }

    /// Notes how far a durable subscription has come.
    async fn settle(&self, key: &str, cursors: BTreeMap<String, u64>) -> Result<(), Fault> {
        let mut under_way = Vec::with_capacity(cursors.len());
        for (channel, position) in cursors {
            let Some(log) = self.logs.lock().get(channel.as_str()).cloned() else {
                continue;
            };
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
                // A log that is damaged where it is written holds up neither its readers nor other logs.
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

    /// Gives back the room of what is too old, for ever.
    pub async fn tidy(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TIDYING).await;
            let logs: Vec<_> = self.logs.lock().values().cloned().collect();
            for log in logs {
                if let Ok(retained) = log.stream.retain() {
                    // An error is reported where the write happens.
                    let _ = retained.await;
                }
            }
        }
    }
}

impl Obeyed {
    fn retention(&self, channel: &ChannelPath) -> Retention {
        let entry = self
            .retention
            .iter()
            .find(|(pattern, _)| pattern.matches(channel));
        entry.map_or(USUAL, |(_, retention)| *retention)
    }
}

impl ChannelLog {
    fn new(channel: ChannelPath, stream: Stream) -> Self {
        Self {
            channel,
            began: stream.end(),
            damage: Mutex::new(stream.info().damage.map(|damage| damage.to_string())),
            stream,
            origins: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Notes that it cannot be read, for those who look at what is kept; says it once.
    fn lament(&self, damage: &str) {
        let former = self.damage.lock().replace(damage.to_owned());
        if former.as_deref() != Some(damage) {
            tracing::error!(channel = %self.channel, damage, "kept events cannot be read");
        }
    }

    /// A log with what it holds.
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
                    // Later events are known all the same, so that they are not kept a second time.
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

/// The name of a cursor that could not be noted in its log. No agent's name begins as a channel's path does.
fn beside(channel: &ChannelPath, key: &str) -> String {
    format!("{channel}\0{key}")
}

fn storage(error: JournalError) -> Fault {
    let code = match error {
        JournalError::Busy { .. } => FaultCode::Full,
        _ => FaultCode::Storage,
    };
    Fault::new(code, format!("the node's journal: {error}"))
}
