//! Reading logs for a subscription.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sealbus_channels::frame::Frame;
use sealbus_channels::{
    ChannelFilter, ChannelPath, ChannelPattern, EvaluationError, EventKey, HIGHEST_COST, Moment,
    Persistence,
};
use sealbus_fipa::{Limits, bitefficient};
use sealbus_journal::{JournalError, ReadFrom, Record};
use sealbus_seal::permission::ChannelRight;

use super::news::News;
use super::{ChannelLog, KeptChannelLogs, durable_key, storage};
use sealbus_control::channel_log::{LogAnswer, LogPiece, LogQuestion, LogStart, StoredEvent};
use sealbus_control::{Blob, Fault, FaultCode};

/// The longest time that a reader may wait for events.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The most that is examined for one answer, of which a filter may leave little.
const MOST_EFFORT: Effort = Effort {
    events: 20_000,
    bytes: 32 << 20,
    cost: MOST_COST,
};
/// The most that evaluating filters may cost for one answer. Usual filters cost far less for that many events.
pub(super) const MOST_COST: u32 = 20 * HIGHEST_COST;
/// The most durable subscriptions of one agent.
pub(super) const MOST_DURABLE: usize = if cfg!(test) { 8 } else { 256 };
/// The most events and bytes of one answer.
const MOST_GIVEN: (usize, usize) = (512, 1 << 20);
/// The most events of one answer that gives the last event of each key.
const MOST_KEYS: usize = 16_384;

/// The amount that may still be examined for an answer.
struct Effort {
    events: usize,
    bytes: usize,
    /// The cost that filters may still have.
    cost: u32,
}

impl Effort {
    fn is_spent(&self) -> bool {
        self.events == 0 || self.bytes == 0 || self.cost == 0
    }
}

/// A question whose parts are checked.
struct CheckedQuestion {
    question: LogQuestion,
    agent: String,
    pattern: ChannelPattern,
    filter: Option<ChannelFilter>,
    last_per: Option<EventKey>,
    key: Option<String>,
}

impl CheckedQuestion {
    /// Whether a piece has something new for the subscription. Known damage to a log is not new.
    fn is_news(&self, piece: &LogPiece) -> bool {
        let positions = self.question.positions.as_ref();
        let position = positions.and_then(|positions| positions.get(&piece.channel));
        position != Some(&piece.next) || !piece.events.is_empty()
    }
}

impl KeptChannelLogs {
    /// Answers the question of a subscription.
    pub(super) async fn read(self: &Arc<Self>, question: LogQuestion) -> Result<LogAnswer, Fault> {
        let refuse = |text: String| Fault::new(FaultCode::BadRequest, text);
        let pattern =
            ChannelPattern::new(&question.pattern).map_err(|error| refuse(error.to_string()))?;
        let filter = match question.filter.as_str() {
            "" => None,
            text => Some(ChannelFilter::new(text).map_err(|error| refuse(error.to_string()))?),
        };
        let last_per = question.last_per.as_deref().map(EventKey::new).transpose();
        let last_per = last_per.map_err(|error| refuse(error.to_string()))?;
        let key = match &question.durable {
            Some(durable) => Some(durable_key(&question.agent, durable)?),
            None => None,
        };
        let wait = Duration::from_millis(question.wait).min(LONGEST_WAIT);
        let begins = question.positions.is_none();
        let wanted = Arc::new(CheckedQuestion {
            agent: format!("{}@{}", question.agent, self.platform),
            question,
            pattern,
            filter,
            last_per,
            key,
        });
        let until = tokio::time::Instant::now() + wait;
        let mut news = self.news.subscribe();
        let pieces = loop {
            let seen = news.borrow_and_update().next();
            let (logs, looking) = (self.clone(), wanted.clone());
            let found = tokio::task::spawn_blocking(move || logs.look(&looking)).await;
            let found = found.map_err(Fault::internal)?;
            let (pieces, begun) = found?;
            if begins {
                // The beginning must be on disk before the subscription learns of it.
                self.begin(&wanted, begun).await?;
                break pieces;
            }
            if pieces.iter().any(|piece| wanted.is_news(piece)) {
                break pieces;
            }
            // Readers of other channels do not look at their logs.
            let concerns = |news: &News| news.concern(&wanted.pattern, seen);
            let is_news = tokio::time::timeout_at(until, news.wait_for(concerns)).await;
            if !matches!(is_news, Ok(Ok(_))) {
                break pieces;
            }
        };
        self.note_given(&wanted, &pieces);
        Ok(LogAnswer::Read { pieces })
    }

    /// Notes which events a durable subscription has been given. A subscription that has not begun here leaves no note.
    fn note_given(&self, wanted: &CheckedQuestion, pieces: &[LogPiece]) {
        let Some(key) = &wanted.key else { return };
        if self.durable.cursor(key).is_none() {
            return;
        }
        for piece in pieces {
            let Some(log) = self.logs.lock().get(piece.channel.as_str()).cloned() else {
                continue;
            };
            let again = given_before(wanted, &log);
            let mut given = log.given.lock();
            let last = given.entry(key.clone()).or_insert(again);
            *last = piece.next.max(*last);
        }
    }

    /// The events for a subscription now and, if it begins now, its first position in each log. This blocks.
    fn look(
        &self,
        wanted: &CheckedQuestion,
    ) -> Result<(Vec<LogPiece>, BTreeMap<String, u64>), Fault> {
        let obeyed = self.obeyed()?;
        let logs: Vec<Arc<ChannelLog>> = self.logs.lock().values().cloned().collect();
        let mut pieces = Vec::new();
        let mut begun = BTreeMap::new();
        let question = &wanted.question;
        let most = match wanted.last_per {
            Some(_) => MOST_KEYS,
            None => MOST_GIVEN.0,
        };
        let mut room = (
            (question.events as usize).clamp(1, most),
            (question.bytes as usize).clamp(1, MOST_GIVEN.1),
        );
        let mut effort = MOST_EFFORT;
        for log in logs {
            let may_read = |path: &ChannelPath| {
                obeyed
                    .permissions
                    .may(&wanted.agent, ChannelRight::Subscribe, path)
            };
            if !wanted.pattern.matches(&log.channel) || !may_read(&log.channel) {
                continue;
            }
            let position = match &question.positions {
                Some(positions) => positions.get(log.channel.as_str()).copied().unwrap_or(1),
                None => {
                    let start = self.start(wanted, &log)?;
                    begun.insert(log.channel.to_string(), start);
                    start
                }
            };
            let is_known = question.positions.is_some();
            // There may be damage behind the last event.
            if is_known && position >= log.stream.end() && log.damage.lock().is_none() {
                continue;
            }
            if is_known && (room.0 == 0 || room.1 == 0 || effort.is_spent()) {
                continue;
            }
            let piece = piece(wanted, &log, position, &mut room, &mut effort);
            if let Some(damage) = &piece.damage {
                log.lament(damage);
            }
            pieces.push(piece);
        }
        Ok((pieces, begun))
    }

    /// The position at which a subscription begins in a log.
    fn start(&self, wanted: &CheckedQuestion, log: &ChannelLog) -> Result<u64, Fault> {
        let question = &wanted.question;
        let mut from = match question.start {
            LogStart::Now => ReadFrom::Time(time_of(question.began)),
            LogStart::Since { time } => {
                ReadFrom::Time(SystemTime::from(Moment::from_unix_ms(time)))
            }
            LogStart::Last { count } => ReadFrom::Last(count),
            LogStart::Number { number } => ReadFrom::Number(number),
        };
        if let Some(key) = &wanted.key {
            if let Some(cursor) = self.cursor(log, key) {
                return Ok(cursor);
            }
            if question.resumes {
                // The subscription is older than this log, or older than its first contact with this node.
                from = ReadFrom::Time(time_of(question.began));
            }
        }
        let mut reader = log.stream.read(from);
        match reader.next_record() {
            Ok(Some(record)) => Ok(record.number),
            // The position is before the damage. Reading from there reports the damage, and does not hold up other logs.
            Ok(None) | Err(JournalError::Damaged(_)) => Ok(reader.position()),
            Err(error) => Err(storage(error)),
        }
    }

    /// Checks whether an agent may have another durable subscription.
    fn check_room_for(&self, agent: &str) -> Result<(), Fault> {
        let prefix = format!("{agent}/");
        let names = self.durable.cursors();
        let names = names.keys().filter(|name| name.starts_with(&prefix));
        if names.count() < MOST_DURABLE {
            return Ok(());
        }
        let message = format!(
            "{agent} has {MOST_DURABLE} durable subscriptions on {}, which is the limit",
            self.node
        );
        let advice = "subscribe under a durable name that it had before";
        Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
    }

    /// Notes where a durable subscription begins.
    async fn begin(
        &self,
        wanted: &CheckedQuestion,
        begun: BTreeMap<String, u64>,
    ) -> Result<(), Fault> {
        let Some(key) = &wanted.key else {
            return Ok(());
        };
        let is_new = self.durable.cursor(key).is_none();
        if is_new {
            self.check_room_for(&wanted.question.agent)?;
        }
        self.settle(&wanted.question.agent, key, begun).await?;
        if is_new {
            let written = self.durable.set_cursor(key, wanted.question.began);
            written.map_err(storage)?.await.map_err(storage)?;
        }
        Ok(())
    }
}

/// The events of one log from `position` on, as far as there is room and they are readable.
fn piece(
    wanted: &CheckedQuestion,
    log: &ChannelLog,
    position: u64,
    room: &mut (usize, usize),
    effort: &mut Effort,
) -> LogPiece {
    let again = given_before(wanted, log);
    let mut piece = LogPiece {
        channel: log.channel.to_string(),
        events: Vec::new(),
        next: position,
        has_more: true,
        missed: 0,
        filter_errors: 0,
        filter_problem: String::new(),
        damage: None,
    };
    let now = Moment::now();
    // The events by number, and the number of the last event of each key.
    let mut events = BTreeMap::new();
    let mut last_of = HashMap::new();
    let mut reader = log.stream.read(ReadFrom::Number(position));
    while room.0 > 0 && !effort.is_spent() {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => {
                let next = reader.position().max(piece.next);
                piece.missed += next - piece.next;
                piece.next = next;
                piece.has_more = false;
                break;
            }
            // Events before the damage are delivered. Events behind it wait; they are not skipped.
            Err(error) => {
                piece.damage = Some(error.to_string());
                break;
            }
        };
        let size = record.payload.len();
        effort.events -= 1;
        effort.bytes = effort.bytes.saturating_sub(size);
        let wish = wish(wanted, &record, now, &mut effort.cost).unwrap_or_else(|problem| {
            if piece.filter_errors == 0 {
                piece.filter_problem = problem.to_string();
            }
            piece.filter_errors += 1;
            Wish::Nothing
        });
        if let Wish::LastOf(key) = &wish
            && let Some(former) = last_of.remove(key)
            && let Some(StoredEvent { frame, .. }) = events.remove(&former)
        {
            room.0 += 1;
            room.1 += frame.0.len();
        }
        if wish != Wish::Nothing && size > room.1 && !events.is_empty() {
            break;
        }
        piece.missed += record.number.saturating_sub(piece.next);
        piece.next = record.number + 1;
        match wish {
            Wish::Nothing => continue,
            Wish::Each => {}
            Wish::LastOf(key) => _ = last_of.insert(key, record.number),
        }
        room.0 -= 1;
        room.1 = room.1.saturating_sub(size);
        let event = StoredEvent {
            number: record.number,
            time: Some(Moment::from(record.time).unix_ms()),
            again: record.number < again,
            missed: std::mem::take(&mut piece.missed),
            frame: Blob(record.payload.to_vec()),
        };
        events.insert(record.number, event);
        if room.1 == 0 {
            break;
        }
    }
    piece.events = events.into_values().collect();
    if wanted.last_per.is_some() {
        // Earlier events are not wanted, whether they are kept or not.
        piece.missed = 0;
        piece.events.iter_mut().for_each(|event| event.missed = 0);
    }
    piece
}

/// The number after the last event that a durable subscription may have been given.
fn given_before(wanted: &CheckedQuestion, log: &ChannelLog) -> u64 {
    let Some(key) = &wanted.key else { return 0 };
    let given = log.given.lock().get(key).copied();
    given.unwrap_or(match wanted.question.resumes {
        // This node may have delivered all these events before it was restarted.
        true => log.began,
        false => 0,
    })
}

/// A subscription's wish for an event.
#[derive(PartialEq, Eq)]
enum Wish {
    Nothing,
    /// The event itself.
    Each,
    /// The event, unless a later one has the same key.
    LastOf(String),
}

/// Decides what the subscription wants of an event, and subtracts the cost of its filter from `cost`. Fails if the
/// filter cannot be evaluated for the event, or if the event has no key.
fn wish(
    wanted: &CheckedQuestion,
    record: &Record,
    now: Moment,
    cost: &mut u32,
) -> Result<Wish, EvaluationError> {
    // Every reader reports that the event cannot be read.
    let unreadable = || {
        Ok(match wanted.last_per {
            Some(_) => Wish::Nothing,
            None => Wish::Each,
        })
    };
    let bytes: &Bytes = &record.payload;
    let Ok(Frame::Keep { head, body, .. }) = Frame::decode(bytes) else {
        return unreadable();
    };
    if head.expiry.is_some_and(|expiry| expiry <= now) {
        return Ok(Wish::Nothing);
    }
    if let Persistence::PersistentFor(lifetime) = head.persistence
        && head.published.plus(lifetime) <= now
    {
        return Ok(Wish::Nothing);
    }
    if wanted.filter.is_none() && wanted.last_per.is_none() {
        return Ok(Wish::Each);
    }
    let limits = Limits {
        message_length: body.len(),
        ..Limits::default()
    };
    let Ok(view) = bitefficient::decode_ref(body, &limits) else {
        return unreadable();
    };
    let Ok(channel) = ChannelPath::new(head.channel) else {
        return unreadable();
    };
    let mut header = head.to_header(channel);
    header.number = record.number;
    if let Some(filter) = &wanted.filter {
        let (passes, spent) = filter.evaluate(&header, &view);
        *cost = cost.saturating_sub(spent);
        if !passes? {
            return Ok(Wish::Nothing);
        }
    }
    match &wanted.last_per {
        None => Ok(Wish::Each),
        Some(key) => key.of(&header, &view).map(Wish::LastOf),
    }
}

fn time_of(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}
