//! The protocol between the instrument and a driver.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The agents that a driver's process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agents that send or ask.
    Send,
    /// The agents that receive or answer.
    Receive,
    /// All agents, for systems that are measured inside one process.
    Both,
}

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Messages go one way.
    Stream,
    /// Each message is answered with its own content before the next one is sent.
    RoundTrip,
}

/// The senders and their receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Sender i to receiver i.
    OneToOne,
    /// All senders to the one receiver.
    ManyToOne,
    /// Every sender to every receiver, over one topic.
    Broadcast,
}

/// The time that a message carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// The time at which it was handed to the system, as in the papers.
    #[default]
    Sent,
    /// The time at which it was due. Waiting because the system cannot keep up then counts.
    Due,
}

/// The senders, receivers and messages, the same for all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The kind of work.
    pub kind: Kind,
    /// The senders and their receivers.
    pub shape: Shape,
    /// Sending agents.
    pub senders: u32,
    /// Receiving agents.
    pub receivers: u32,
    /// Bytes of content. Fewer than 32 are for round trips only.
    pub size: usize,
    /// Whether senders connect and prove their identity only when they first ask, so that the time for it counts.
    #[serde(default)]
    pub first_contact: bool,
}

/// The settings of a system from its file under bench/systems, and a folder to work in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// The side that this process plays.
    pub role: Role,
    /// The scenario.
    pub scenario: Scenario,
    /// The settings.
    pub system: Value,
    /// A folder for this run, shared by all its processes.
    pub folder: String,
    /// A part of the names of queues and topics that keeps runs apart.
    pub run: String,
    /// The receiving side's report after its preparation.
    #[serde(default)]
    pub there: Value,
}

/// The orders of the instrument. A round goes: expect (receivers), run (senders), report (receivers).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Make the agents and connect them. Receivers come first.
    Prepare(Box<Prepare>),
    /// For receivers: the senders' report.
    Meet {
        /// The senders' report.
        there: Value,
    },
    /// For receivers: a round begins.
    Expect {
        /// The round's number.
        round: u32,
        /// Messages of each sender.
        messages: u32,
    },
    /// For senders: play a round.
    Run {
        /// The round's number.
        round: u32,
        /// Messages of each sender.
        messages: u32,
        /// Nanoseconds between two messages of a sender; 0 for none.
        interval_ns: u64,
        /// The time that a message carries.
        #[serde(default)]
        stamp: Stamp,
        /// The time to begin.
        start_ns: u64,
    },
    /// For receivers: report as soon as `expected` messages have come, or none for `quiet_ms`.
    Report {
        /// The number of all messages of the round.
        expected: u64,
        /// How long to wait for one more message.
        quiet_ms: u64,
    },
    /// End.
    Stop,
}

/// The answers of a driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The order was carried out.
    #[default]
    Ready,
    /// To `prepare`.
    Prepared {
        /// The facts that the other side needs.
        #[serde(default)]
        here: Value,
        /// The client library and its version.
        #[serde(default)]
        client: String,
    },
    /// To `run`.
    Done {
        /// Messages that the system accepted.
        sent: u64,
        /// When the first message was sent.
        first_ns: u64,
        /// When the last message was sent or answered.
        last_ns: u64,
        /// Round trips: the number of right answers.
        #[serde(default)]
        answered: u64,
        /// Round trips: how long they took.
        #[serde(default)]
        times: Vec<(u64, u64)>,
        /// Round trips: their mean, in nanoseconds.
        #[serde(default)]
        mean_ns: f64,
    },
    /// To `report`.
    Report {
        /// Distinct messages that came.
        received: u64,
        /// Messages that came again.
        duplicated: u64,
        /// Messages overtaken by a later one of the same sender.
        disordered: u64,
        /// Messages of an earlier round.
        #[serde(default)]
        late: u64,
        /// Messages that nobody sent.
        #[serde(default)]
        corrupt: u64,
        /// When the last message came.
        last_ns: u64,
        /// Times from sending to receiving, in buckets.
        #[serde(default)]
        times: Vec<(u64, u64)>,
        /// The mean of these times, in nanoseconds.
        #[serde(default)]
        mean_ns: f64,
        /// Further facts from the driver.
        #[serde(default)]
        remarks: Value,
    },
    /// The order could not be carried out.
    Error {
        /// The fault and its remedy.
        text: String,
    },
}

/// Waits for the next order; `None` when the instrument has gone.
///
/// # Errors
/// If a line is not an order.
pub fn read_order(input: &mut impl BufRead) -> io::Result<Option<Order>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let order = serde_json::from_str(&line)?;
    Ok(Some(order))
}

/// Writes an answer.
///
/// # Errors
/// If the instrument has gone.
pub fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
