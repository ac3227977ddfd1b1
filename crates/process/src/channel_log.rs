//! Persistent channels in a process. The process sends its events to its node in batches, and reads the logs of all
//! nodes through that node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{BoxFuture, NotKept, Provenance, RefusalReason, WeakBus, milliseconds};
use sealbus_channels::frame::{Frame, Head, Stamp};
use sealbus_channels::{
    ChannelHeader, ChannelLogs, ChannelPath, Channels, EventToKeep, LogCursor, LogPart, LogPlace,
    LogReading, LogRetention, LoggedEvent, Moment, NotRead, ReceivedEvent, Replay,
};
use sealbus_fipa::split_name;
use sealbus_journal::Retention;
use sealbus_proof::{Evidence, Hash};
use sealbus_seal::{SecurityLevel, Trust};

use super::judgement::revoked_since;
use super::node_queue::{Keeper, NodeQueue};
use sealbus_control::ask::Ask;
use sealbus_control::attachment::ask::{ChannelLog, Nodes};
use sealbus_control::channel_log::{
    KeepOutcome, LogAnswer, LogQuestion, LogRequest, LogStart, PostedEvent, ask,
};
use sealbus_control::clock::now;
use sealbus_control::host::Host;
use sealbus_control::{Blob, Fault};
use sealbus_keeping::channel_log::{MOST_BYTES, MOST_EVENTS};
use sealbus_keeping::post::new_origin;

/// The logs of all nodes, through this process's own.
pub(super) struct NodeLogs {
    host: Arc<dyn Host>,
    /// This process's own node.
    node: Arc<str>,
    /// The nodes that it named last, including itself.
    nodes: Mutex<BTreeSet<Arc<str>>>,
    bus: WeakBus,
    trust: Arc<Trust>,
    level: SecurityLevel,
    events: NodeQueue<EventKeeper>,
}

impl NodeLogs {
    /// Opens a way to the logs. Submitted events go on as long as the way is held.
    ///
    /// `trust` proves the authors of events, and knows which of them were revoked. `level` is the platform's.
    pub(super) fn start(
        host: Arc<dyn Host>,
        bus: WeakBus,
        trust: Arc<Trust>,
        level: SecurityLevel,
    ) -> Arc<Self> {
        let node: Arc<str> = host.membership().node.as_str().into();
        let keeper = EventKeeper {
            host: host.clone(),
            node: node.clone(),
            origin: new_origin(),
            sequence: 0,
        };
        Arc::new(Self {
            host,
            nodes: Mutex::new(BTreeSet::from([node.clone()])),
            node,
            bus,
            trust,
            level,
            events: NodeQueue::start(keeper),
        })
    }

    /// Asks the logs of `node`.
    async fn ask<A>(&self, node: &str, ask: A) -> Result<A::Answer, NotRead>
    where
        A: Ask<Requests = LogRequest, Answers = LogAnswer>,
    {
        let (node, request) = (node.to_owned(), ask.into());
        let answer = self.host.ask(ChannelLog { node, request }).await;
        answer
            .and_then(A::take)
            .map_err(|fault| match fault.may_pass() {
                true => NotRead::Away(fault.to_string()),
                false => NotRead::Refused(fault.to_string()),
            })
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The part of an agent's name by which its node knows the agent.
fn local(agent: &str) -> String {
    split_name(agent).0.to_owned()
}

impl ChannelLogs for NodeLogs {
    fn nodes(&self) -> BoxFuture<'_, Vec<Arc<str>>> {
        Box::pin(async move {
            match self.host.ask(Nodes).await {
                Ok(nodes) => {
                    let nodes = nodes.into_iter().map(Arc::from);
                    *self.nodes.lock() = nodes.chain([self.node.clone()]).collect();
                }
                Err(fault) => {
                    tracing::debug!(%fault, "the node does not say which nodes keep logs");
                }
            }
            self.nodes.lock().iter().cloned().collect()
        })
    }

    fn keep(&self, event: EventToKeep) -> BoxFuture<'_, Result<LogPlace, NotKept>> {
        Box::pin(async move {
            Ok(LogPlace {
                number: self.events.keep(event).await?,
                node: self.node.clone(),
            })
        })
    }

    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        retention: LogRetention,
    ) -> BoxFuture<'a, Result<(), NotRead>> {
        let retention = Retention {
            age: retention.age,
            count: retention.count,
            bytes: retention.bytes,
        };
        Box::pin(async move {
            let retained = self.host.retain(channel, retention).await;
            retained.map_err(|fault| NotRead::Refused(fault.to_string()))
        })
    }

    fn known_since<'a>(
        &'a self,
        agent: &'a str,
        durable: &'a str,
    ) -> BoxFuture<'a, Result<Option<SystemTime>, NotRead>> {
        let request = ask::Since {
            agent: local(agent),
            durable: durable.to_owned(),
        };
        Box::pin(async move {
            let since = self.ask(&self.node, request).await?;
            Ok(since.map(|since| UNIX_EPOCH + Duration::from_micros(since)))
        })
    }

    fn read<'a>(
        &'a self,
        node: &'a str,
        reading: LogReading,
    ) -> BoxFuture<'a, Result<Vec<LogPart>, NotRead>> {
        Box::pin(async move {
            let question = question(reading);
            let pieces = self.ask(node, ask::Read { question }).await?;
            pieces
                .into_iter()
                .map(|piece| {
                    let channel = ChannelPath::new(&piece.channel)
                        .map_err(|error| NotRead::Refused(error.to_string()))?;
                    let events = piece.events.into_iter().map(|event| LoggedEvent {
                        number: event.number,
                        kept: event.time.map(Moment::from_unix_ms),
                        frame: Bytes::from(event.frame.0),
                        again: event.again,
                        missed: event.missed,
                    });
                    Ok(LogPart {
                        channel,
                        events: events.collect(),
                        next: piece.next,
                        has_more: piece.has_more,
                        missed: piece.missed,
                        filter_errors: (piece.filter_errors, piece.filter_problem),
                        damage: piece.damage,
                    })
                })
                .collect()
        })
    }

    fn proved(
        &self,
        evidence: &[u8],
        statement: Hash,
        header: &ChannelHeader,
    ) -> Result<Option<Evidence>, String> {
        if evidence.is_empty() {
            let bus = self.bus.upgrade();
            let declared = bus.and_then(|bus| Channels::of(&bus).qos_of(&header.channel).level);
            let level = declared.max(header.qos.level).max(Some(self.level));
            return match level >= Some(SecurityLevel::Signed) {
                true => Err("its publisher did not sign it".to_owned()),
                false => Ok(None),
            };
        }
        Evidence::decode(
            evidence,
            statement,
            SecurityLevel::Signed,
            &self.trust,
            now(),
        )
        .map(Some)
        .map_err(|error| error.to_string())
    }

    /// As for letters, events that an agent published before an operator revoked it are not handed out.
    fn may_hand_out(&self, event: &ReceivedEvent, kept: Moment, reader: &str) -> bool {
        let publisher = match event.provenance() {
            Provenance::Carried(identity) => identity.as_ref(),
            Provenance::Signed(evidence) => evidence.author().identity(),
            _ => return true,
        };
        let Some(denial) = revoked_since(&self.trust, publisher, kept.unix_ms()) else {
            return true;
        };
        if let Some(bus) = self.bus.upgrade() {
            let message = event.message.message();
            let name = message.sender().map_or("", |sender| sender.name());
            let why = format!(
                "{name} was revoked at {}, after it had published this event on {}: {}",
                denial.at, event.header.channel, denial.reason
            );
            let proved = Some(publisher.to_string());
            bus.refused(name, proved, Some(reader), RefusalReason::Revoked, why);
        }
        false
    }

    fn settle<'a>(
        &'a self,
        node: &'a str,
        agent: &'a str,
        durable: &'a str,
        cursors: Vec<LogCursor>,
    ) -> BoxFuture<'a, Result<(), NotRead>> {
        let cursors = cursors.into_iter();
        let request = ask::Settle {
            agent: local(agent),
            durable: durable.to_owned(),
            cursors: cursors
                .map(|(channel, position)| (channel.to_string(), position))
                .collect(),
        };
        Box::pin(self.ask(node, request))
    }
}

fn question(reading: LogReading) -> LogQuestion {
    let positions = reading.positions.map(|positions| {
        let positions = positions.into_iter();
        positions
            .map(|(channel, next)| (channel.to_string(), next))
            .collect()
    });
    LogQuestion {
        agent: local(&reading.agent),
        pattern: reading.pattern.to_string(),
        filter: reading.filter,
        durable: reading.durable,
        start: match reading.replay {
            Replay::Now | Replay::Resume => LogStart::Now,
            Replay::Since(time) => LogStart::Since {
                time: time.unix_ms(),
            },
            Replay::Last(count) => LogStart::Last { count },
            Replay::From(number) => LogStart::Number { number },
            Replay::LastPerKey(_) => LogStart::Number { number: 1 },
        },
        last_per: reading.last_per.map(|key| key.to_string()),
        began: micros(reading.began),
        resumes: reading.resumes,
        positions,
        events: u32::try_from(reading.events).unwrap_or(u32::MAX),
        bytes: u32::try_from(reading.bytes).unwrap_or(u32::MAX),
        wait: milliseconds(reading.wait),
    }
}

/// Events on their way to the node.
struct EventKeeper {
    host: Arc<dyn Host>,
    node: Arc<str>,
    origin: u64,
    sequence: u64,
}

impl Keeper for EventKeeper {
    type Item = EventToKeep;
    type Prepared = PostedEvent;
    type Answer = u64;

    const MOST: (usize, usize) = (MOST_EVENTS, MOST_BYTES);

    fn size(event: &EventToKeep) -> usize {
        event.body.len() + event.evidence.len()
    }

    fn prepare(&mut self, event: EventToKeep) -> Result<(PostedEvent, Option<Moment>), NotKept> {
        self.sequence += 1;
        let expiry = event.header.expiry;
        Ok((posted(&event, self.origin, self.sequence), expiry))
    }

    async fn ask(&self, events: Vec<PostedEvent>) -> Result<Vec<Result<u64, Fault>>, Fault> {
        let (node, request) = (self.node.to_string(), LogRequest::Keep { events });
        let outcomes = ask::Keep::take(self.host.ask(ChannelLog { node, request }).await?)?;
        let outcomes = outcomes.into_iter().map(|outcome| match outcome {
            KeepOutcome::Kept { number } => Ok(number),
            KeepOutcome::Refused { fault } => Err(fault),
        });
        Ok(outcomes.collect())
    }
}

fn posted(event: &EventToKeep, origin: u64, sequence: u64) -> PostedEvent {
    let mut frame = Vec::with_capacity(128 + event.body.len());
    Frame::Keep {
        stamp: Stamp {
            session: origin,
            number: sequence,
        },
        head: Head::of(&event.header),
        evidence: &event.evidence,
        body: &event.body,
    }
    .encode(&mut frame);
    PostedEvent {
        publisher: local(&event.publisher),
        frame: Blob(frame),
    }
}
