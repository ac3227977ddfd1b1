//! Rates, from two looks at the counters of a platform.

use std::collections::{BTreeMap, HashMap};

use sealbus_control::RefusalRecord;
use sealbus_control::admin::SilentNode;
use sealbus_control::traffic::{AgentTraffic, ChannelTraffic, ProcessTraffic, Traffic};
use serde::Serialize;

/// One look at a platform.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The counters.
    pub traffic: Traffic,
    /// The refused attempts that the Master remembers.
    pub refused: Vec<RefusalRecord>,
}

/// An agent between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentRow {
    /// Full name.
    pub agent: String,
    /// Its node.
    pub node: String,
    /// Its process.
    pub process: String,
    /// Messages a second that were accepted from it.
    pub sent_rate: f64,
    /// Messages a second that arrived for it.
    pub received_rate: f64,
    /// Messages since the start of its process.
    pub sent: u64,
    /// Messages since the start of its process.
    pub received: u64,
    /// Messages that it has not read.
    pub waiting: u64,
    /// The bytes of these messages.
    pub waiting_bytes: u64,
    /// Refused attempts of the agent, or at it, among the latest that the Master remembers.
    pub refused: u64,
}

/// A channel between two looks, in all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelRow {
    /// The channel.
    pub channel: String,
    /// Events a second.
    pub published_rate: f64,
    /// Events since the start of the processes.
    pub published: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Best-effort events that were not sent to another process because there was no room.
    pub dropped: u64,
    /// How often a filter could not be evaluated.
    pub filter_errors: u64,
}

/// A process between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// The process.
    pub process: String,
    /// Its node.
    pub node: String,
    /// Messages a second that were accepted from its agents.
    pub sent_rate: f64,
    /// Messages a second that arrived for its agents.
    pub received_rate: f64,
    /// Messages since its start.
    pub sent: u64,
    /// Messages since its start.
    pub received: u64,
    /// Messages that its agents have not read.
    pub waiting: u64,
    /// Messages that could not be delivered.
    pub undeliverable: u64,
    /// Refused attempts that the process counted.
    pub refused: u64,
}

/// The activity between two looks.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// The agents.
    pub agents: Vec<AgentRow>,
    /// The channels.
    pub channels: Vec<ChannelRow>,
    /// The processes.
    pub processes: Vec<ProcessRow>,
    /// Agents and channels that nodes left out, because there are too many.
    pub left_out: u64,
    /// Nodes that did not answer.
    pub silent: Vec<SilentNode>,
}

/// Whether the typed name means the full name `name`: the same, or its local part.
pub fn is_agent(name: &str, typed: &str) -> bool {
    name == typed || local(name) == typed
}

fn local(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The growth of a counter, a second. A process that was started again counts from 0.
fn rate(before: Option<u64>, after: u64, milliseconds: u64) -> f64 {
    let grown = before.map_or(0, |before| after.saturating_sub(before));
    #[allow(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
    let rate = grown as f64 * 1000.0 / milliseconds.max(1) as f64;
    rate
}

/// Adds to a sum. A process may report any number, so the sum saturates.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// The sum of numbers that processes report. It saturates.
pub(crate) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The counters of one process at an earlier look, by name.
struct Former<'a> {
    process: &'a ProcessTraffic,
    agents: HashMap<&'a str, &'a AgentTraffic>,
    channels: HashMap<&'a str, &'a ChannelTraffic>,
}

impl<'a> Former<'a> {
    fn new(process: &'a ProcessTraffic) -> Self {
        let agents = process.agents.iter();
        let channels = process.channels.iter();
        Self {
            process,
            agents: agents.map(|agent| (agent.agent.as_str(), agent)).collect(),
            channels: channels.map(|it| (it.channel.as_str(), it)).collect(),
        }
    }
}

/// Refused attempts by the names in them, full or local. An attempt of an agent at itself counts once.
fn refused_by_name(records: &[RefusalRecord]) -> HashMap<&str, u64> {
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for record in records {
        add(counts.entry(&record.who).or_default(), record.count);
        let is_other = |name: &&str| !is_agent(name, &record.who) && !is_agent(&record.who, name);
        if let Some(receiver) = record.receiver.as_deref().filter(is_other) {
            add(counts.entry(receiver).or_default(), record.count);
        }
    }
    counts
}

impl Board {
    /// The activity between two looks.
    pub fn between(before: &Look, after: &Look) -> Self {
        let processes = before.traffic.processes.iter();
        let former: HashMap<&str, Former<'_>> = processes
            .map(|process| (process.process.as_str(), Former::new(process)))
            .collect();
        let refused = refused_by_name(&after.refused);
        let refused = |name: &str| refused.get(name).copied().unwrap_or_default();
        let mut board = Self {
            silent: after.traffic.silent.clone(),
            ..Self::default()
        };
        let mut channels: BTreeMap<&str, ChannelRow> = BTreeMap::new();
        for process in &after.traffic.processes {
            let former = former.get(process.process.as_str());
            let before = former.map(|it| it.process);
            let passed = before.map_or(0, |before| process.at.saturating_sub(before.at));
            add(&mut board.left_out, process.agents_left_out);
            add(&mut board.left_out, process.channels_left_out);
            board.processes.push(ProcessRow {
                process: process.process.clone(),
                node: process.node.clone(),
                sent_rate: rate(before.map(|it| it.sent), process.sent, passed),
                received_rate: rate(before.map(|it| it.received), process.received, passed),
                sent: process.sent,
                received: process.received,
                waiting: sum(process.agents.iter().map(|agent| agent.waiting)),
                undeliverable: process.undeliverable,
                refused: sum(process.refused.values().copied()),
            });
            for agent in &process.agents {
                let known = former.and_then(|it| it.agents.get(agent.agent.as_str()));
                let short = local(&agent.agent);
                let named = if short == agent.agent {
                    0
                } else {
                    refused(short)
                };
                board.agents.push(AgentRow {
                    agent: agent.agent.clone(),
                    node: process.node.clone(),
                    process: process.process.clone(),
                    sent_rate: rate(known.map(|it| it.sent), agent.sent, passed),
                    received_rate: rate(known.map(|it| it.received), agent.received, passed),
                    sent: agent.sent,
                    received: agent.received,
                    waiting: agent.waiting,
                    waiting_bytes: agent.waiting_bytes,
                    refused: refused(&agent.agent).saturating_add(named),
                });
            }
            for channel in &process.channels {
                let known = former.and_then(|it| it.channels.get(channel.channel.as_str()));
                let row = channels.entry(&channel.channel).or_default();
                row.published_rate += rate(known.map(|it| it.published), channel.published, passed);
                add(&mut row.published, channel.published);
                add(&mut row.subscriptions, channel.subscriptions);
                add(&mut row.dropped, channel.dropped);
                add(&mut row.filter_errors, channel.filter_errors);
            }
        }
        let named = channels.into_iter().map(|(channel, row)| ChannelRow {
            channel: channel.to_owned(),
            ..row
        });
        board.channels = named.collect();
        board
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: u64, agents: &[(&str, u64, u64)], published: u64) -> Look {
        let agents = agents.iter().map(|(name, sent, waiting)| AgentTraffic {
            agent: format!("{name}@factory"),
            sent: *sent,
            waiting: *waiting,
            ..AgentTraffic::default()
        });
        let agents: Vec<_> = agents.collect();
        let process = ProcessTraffic {
            at,
            process: "p.1".to_owned(),
            sent: agents.iter().map(|agent| agent.sent).sum(),
            agents,
            channels: vec![ChannelTraffic {
                channel: "/tea".to_owned(),
                published,
                ..ChannelTraffic::default()
            }],
            ..ProcessTraffic::default()
        };
        let mut other = process.clone();
        other.process = "q.1".to_owned();
        other.agents.clear();
        let refused = |who: &str, receiver: Option<&str>, count| RefusalRecord {
            at,
            who: who.to_owned(),
            proved: None,
            receiver: receiver.map(str::to_owned),
            reason: "not-permitted".to_owned(),
            count,
            by: None,
        };
        Look {
            traffic: Traffic {
                processes: vec![process, other],
                silent: Vec::new(),
            },
            refused: vec![
                refused("ben@factory", None, 4),
                refused("ben", Some("ben@factory"), 2),
                refused("mallory", Some("ann"), 1),
            ],
        }
    }

    #[test]
    fn two_looks_give_rates() {
        let before = look(1_000, &[("ann", 10, 9), ("ben", 10, 1)], 5);
        let after = look(3_000, &[("ann", 12, 9), ("ben", 410, 1), ("new", 7, 0)], 25);
        let board = Board::between(&before, &after);
        let rates: Vec<_> = board.agents.iter().map(|it| it.sent_rate).collect();
        // An agent that was not there before has no rate yet.
        assert_eq!(rates, [1.0, 200.0, 0.0]);
        let refused: Vec<_> = board.agents.iter().map(|it| it.refused).collect();
        assert_eq!(refused, [1, 6, 0]);
        // Both processes published on the channel.
        let [channel] = &board.channels[..] else {
            panic!("{board:?}")
        };
        assert_eq!((channel.published, channel.published_rate), (50, 20.0));
    }

    #[test]
    fn no_process_turns_the_sums_of_all_around() {
        let mut look = look(1_000, &[("ann", 1, u64::MAX), ("ben", 1, 2)], u64::MAX);
        for process in &mut look.traffic.processes {
            process.agents_left_out = u64::MAX;
            process.channels_left_out = 1;
            process.refused = [("a".to_owned(), u64::MAX), ("b".to_owned(), 1)].into();
        }
        for record in &mut look.refused {
            record.count = u64::MAX;
        }
        let board = Board::between(&look, &look);
        let process = &board.processes[0];
        assert_eq!((process.waiting, process.refused), (u64::MAX, u64::MAX));
        assert_eq!(board.channels[0].published, u64::MAX);
        assert_eq!(board.agents[1].refused, u64::MAX);
        assert_eq!(board.left_out, u64::MAX);
    }

    #[test]
    fn a_process_that_starts_again_has_no_negative_rate() {
        let board = Board::between(
            &look(1_000, &[("ann", 500, 0)], 9),
            &look(2_000, &[("ann", 3, 0)], 1),
        );
        assert_eq!(board.agents[0].sent_rate, 0.0);
    }
}
