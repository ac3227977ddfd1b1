//! The stream of news to the page: first everything, then the changes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sealbus_bus::milliseconds;
use sealbus_control::Fault;
use sealbus_control::admin::{AgentStatus, NodeStatus, PlatformStatus, SilentNode, ask};
use sealbus_control::operators;
use sealbus_control::rpc::RpcCaller;
use sealbus_control::traffic::{MessageHead, Watch};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::board::{AgentRow, Board, ChannelRow, Look, sum};
use crate::remedy::Explained;
use crate::rights::Rights;
use crate::seen::{Seen, fresh};

/// How often the platform is asked for messages. Every second time, the counters are compared and everything else is
/// asked for.
const LOOK: Duration = Duration::from_millis(500);
/// How long the Master may take for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long the page may take no bytes.
const STALLED: Duration = Duration::from_secs(30);
/// The pause before the Master is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Most rows or messages in one line.
const BATCH: usize = 500;

/// One line of the stream.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event<'a> {
    /// The beginning. The page's former contents are no longer true.
    Hello {
        platform: &'a str,
        level: &'a str,
        is_recording: bool,
        #[serde(flatten)]
        rights: Rights,
    },
    Status {
        status: &'a PlatformStatus,
    },
    Nodes {
        nodes: &'a [NodeStatus],
    },
    Agents(Change<Agent>),
    Channels(Change<ChannelRow>),
    Totals(Totals),
    /// Refused attempts that are new.
    Refused {
        records: Vec<Explained>,
    },
    /// New messages, and the number of messages that passed and were not looked at.
    Heads {
        heads: &'a [MessageHead],
        skipped: u64,
    },
    /// The Master does not answer. The window tries again.
    Away {
        why: String,
    },
    /// The end of a recording.
    End,
}

/// An agent of the platform, with its counters if its process reported them.
#[derive(Clone, PartialEq, Serialize)]
struct Agent {
    #[serde(flatten)]
    status: AgentStatus,
    traffic: Option<AgentRow>,
}

/// The sums of all processes.
#[derive(Serialize)]
struct Totals {
    sent_rate: f64,
    waiting: u64,
    refused: u64,
    undeliverable: u64,
    processes: usize,
    left_out: u64,
    silent: Vec<SilentNode>,
    /// Milliseconds that the platform took for the answers.
    took: u64,
}

/// The rows that differ from those sent before.
#[derive(Serialize)]
struct Change<R> {
    changed: Vec<R>,
    gone: Vec<String>,
}

/// The rows that the page knows, by name.
struct Told<R>(HashMap<String, R>);

impl<R: Clone + PartialEq> Told<R> {
    /// Takes the present rows. Returns those that changed, and the names of those that are gone.
    fn change(&mut self, rows: impl Iterator<Item = (String, R)>) -> (Vec<R>, Vec<String>) {
        let mut now = HashMap::new();
        let mut changed = Vec::new();
        for (name, row) in rows {
            if self.0.remove(&name).as_ref() != Some(&row) {
                changed.push(row.clone());
            }
            now.insert(name, row);
        }
        let gone = std::mem::replace(&mut self.0, now).into_keys().collect();
        (changed, gone)
    }
}

/// Why a stream ended.
enum Ended {
    /// The page stopped reading.
    Unread,
    Fault(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The writing end of a stream.
pub(crate) struct Lines(mpsc::Sender<Bytes>);

impl Lines {
    pub(crate) fn new(lines: mpsc::Sender<Bytes>) -> Self {
        Self(lines)
    }

    /// Waits until the page stops reading.
    pub(crate) async fn unread(&self) {
        self.0.closed().await;
    }

    /// Writes one line. A page that is slow to read holds the stream up, and nothing else.
    async fn tell(&self, event: &Event<'_>) -> Result<(), Ended> {
        let mut line =
            serde_json::to_vec(event).map_err(|error| Ended::Fault(Fault::internal(error)))?;
        line.push(b'\n');
        let sent = self.0.send_timeout(line.into(), STALLED).await;
        sent.map_err(|_| Ended::Unread)
    }

    async fn tell_changes<R: Clone + PartialEq>(
        &self,
        told: &mut Told<R>,
        rows: impl Iterator<Item = (String, R)>,
        event: impl Fn(Change<R>) -> Event<'static>,
    ) -> Result<(), Ended> {
        let (changed, gone) = told.change(rows);
        for changed in changed.chunks(BATCH) {
            let (changed, gone) = (changed.to_vec(), Vec::new());
            self.tell(&event(Change { changed, gone })).await?;
        }
        for gone in gone.chunks(BATCH) {
            let (changed, gone) = (Vec::new(), gone.to_vec());
            self.tell(&event(Change { changed, gone })).await?;
        }
        Ok(())
    }
}

/// Opens an operator's connection that only reads. With `bodies` it also reads the bodies of messages.
pub(crate) async fn open(directory: &Path, bodies: bool) -> Result<RpcCaller, Fault> {
    let caller = operators::connect(directory).await?;
    caller.ask(ask::Narrow { bodies }, PATIENCE).await?;
    Ok(caller)
}

/// Tells the page about a running platform until the page stops reading. While the Master is away, it tries again.
pub(crate) async fn follow(directory: &Path, rights: Rights, watch: Option<&Watch>, lines: &Lines) {
    loop {
        let followed = follow_once(directory, rights, watch, lines).await;
        let Err(Ended::Fault(fault)) = followed else {
            return;
        };
        let why = fault.message;
        if lines.tell(&Event::Away { why }).await.is_err() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow_once(
    directory: &Path,
    rights: Rights,
    watch: Option<&Watch>,
    lines: &Lines,
) -> Result<std::convert::Infallible, Ended> {
    let caller = open(directory, rights.bodies).await?;
    let mut status = caller.ask(ask::Status, PATIENCE).await?;
    let hello = Event::Hello {
        platform: &status.name,
        level: &status.level,
        is_recording: false,
        rights,
    };
    lines.tell(&hello).await?;
    lines.tell(&Event::Status { status: &status }).await?;
    let (mut agents, mut channels) = (Told(HashMap::new()), Told(HashMap::new()));
    let mut known = Vec::new();
    let mut before: Option<Look> = None;
    let mut is_whole = false;
    loop {
        is_whole = !is_whole;
        let began = Instant::now();
        let asked = ask::Observe {
            watch: watch.cloned(),
        };
        let mut traffic = caller.ask(asked, PATIENCE).await?;
        let (mut heads, mut skipped) = (Vec::new(), 0);
        for process in &mut traffic.processes {
            heads.append(&mut process.heads);
            skipped = process.skipped.saturating_add(skipped);
        }
        heads.sort_by_key(|head| head.at);
        for heads in heads.chunks(BATCH) {
            lines.tell(&Event::Heads { heads, skipped: 0 }).await?;
        }
        if skipped > 0 {
            let heads = &[];
            lines.tell(&Event::Heads { heads, skipped }).await?;
        }
        let refused = caller.ask(ask::Refusals, PATIENCE).await?;
        let news = fresh(&known, &refused);
        if !news.is_empty() {
            let records = news.iter().cloned().map(Explained::from).collect();
            lines.tell(&Event::Refused { records }).await?;
        }
        known.clone_from(&refused);
        if is_whole {
            let now = Look { traffic, refused };
            let board = Board::between(before.as_ref().unwrap_or(&now), &now);
            let latest = caller.ask(ask::Status, PATIENCE).await?;
            if latest != status {
                status = latest;
                lines.tell(&Event::Status { status: &status }).await?;
            }
            let all = ask::Nodes::default();
            let nodes = caller.list(all, PATIENCE).await?;
            lines.tell(&Event::Nodes { nodes: &nodes }).await?;
            let mut rows: HashMap<String, AgentRow> = board
                .agents
                .into_iter()
                .map(|row| (row.agent.clone(), row))
                .collect();
            let all = ask::Agents::default();
            let all = caller.list(all, PATIENCE).await?;
            let all = all.into_iter().map(|status| {
                let traffic = rows.remove(&status.name);
                (status.name.clone(), Agent { status, traffic })
            });
            lines.tell_changes(&mut agents, all, Event::Agents).await?;
            let all = board.channels.into_iter();
            let all = all.map(|row| (row.channel.clone(), row));
            lines
                .tell_changes(&mut channels, all, Event::Channels)
                .await?;
            let processes = &board.processes;
            let totals = Totals {
                sent_rate: processes.iter().map(|it| it.sent_rate).sum(),
                waiting: sum(processes.iter().map(|it| it.waiting)),
                refused: sum(processes.iter().map(|it| it.refused)),
                undeliverable: sum(processes.iter().map(|it| it.undeliverable)),
                processes: processes.len(),
                left_out: board.left_out,
                silent: board.silent,
                took: milliseconds(began.elapsed()),
            };
            lines.tell(&Event::Totals(totals)).await?;
            before = Some(now);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells the page a recording.
pub(crate) async fn replay(recording: Arc<[Seen]>, lines: &Lines) {
    // A page that reads no more has seen enough.
    let _ = replay_once(&recording, lines).await;
}

async fn replay_once(recording: &[Seen], lines: &Lines) -> Result<(), Ended> {
    let hello = Event::Hello {
        platform: "recording",
        level: "",
        is_recording: true,
        rights: Rights::default(),
    };
    lines.tell(&hello).await?;
    for seen in recording {
        match seen {
            Seen::Message(head) => {
                let heads = std::slice::from_ref(head);
                lines.tell(&Event::Heads { heads, skipped: 0 }).await?;
            }
            Seen::Refused(record) => {
                let records = vec![Explained::from(record.clone())];
                lines.tell(&Event::Refused { records }).await?;
            }
            Seen::Skipped { count } => {
                let skipped = *count;
                lines
                    .tell(&Event::Heads {
                        heads: &[],
                        skipped,
                    })
                    .await?;
            }
        }
    }
    lines.tell(&Event::End).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told() {
        let mut told = Told(HashMap::new());
        let mut change = |rows: &[(&str, u8)]| {
            let rows = rows.iter().map(|(name, row)| ((*name).to_owned(), *row));
            told.change(rows)
        };
        assert_eq!(change(&[("a", 1), ("b", 2)]).0, [1, 2]);
        assert_eq!(change(&[("a", 1), ("b", 2)]), (vec![], vec![]));
        let (changed, gone) = change(&[("b", 3), ("new", 4)]);
        assert_eq!(changed, [3, 4]);
        assert_eq!(gone, ["a"]);
    }

    #[tokio::test]
    async fn a_recording_is_told_line_by_line() {
        let (sender, mut receiver) = mpsc::channel(1);
        let recording: Arc<[Seen]> = vec![Seen::Skipped { count: 7 }].into();
        let lines = Lines::new(sender);
        let telling = replay(recording, &lines);
        let reading = async {
            let mut lines = Vec::new();
            while let Some(line) = receiver.recv().await {
                let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
                lines.push(line);
                if lines.len() == 3 {
                    break;
                }
            }
            lines
        };
        let ((), lines) = tokio::join!(telling, reading);
        assert_eq!(lines[0]["event"], "hello");
        assert_eq!(lines[0]["is_recording"], true);
        assert_eq!(lines[1]["skipped"], 7);
        assert_eq!(lines[2]["event"], "end");
    }
}
