//! Drivers with a client library that blocks. Each sender has a thread, and receivers use the library's own threads.

use std::error::Error;
use std::io::BufReader;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::clock::monotonic_ns;
use crate::order::{Answer, Kind, Order, Prepare, Scenario, read_order, say};
use crate::payload::fill;
use crate::played::{Part, Played};
use crate::tally::Tally;

/// How often the driver checks whether all messages have come.
const LOOK: Duration = Duration::from_millis(2);

/// The error of a driver.
pub type Fault = Box<dyn Error + Send + Sync>;

/// The messages that the receivers of a process have got. Each receiver has its own lock.
#[derive(Debug)]
pub struct Received {
    scenario: Scenario,
    tallies: Vec<Mutex<Tally>>,
    answered: AtomicU64,
}

impl Received {
    fn new(scenario: &Scenario) -> Self {
        let mut tallies = Vec::new();
        tallies.resize_with(scenario.receivers as usize, Mutex::default);
        Self {
            scenario: scenario.clone(),
            tallies,
            answered: AtomicU64::new(0),
        }
    }

    /// Counts a message of a stream that has just come.
    pub fn count(&self, receiver: u32, content: &[u8]) {
        let now_ns = monotonic_ns();
        if let Some(tally) = self.tallies.get(receiver as usize) {
            lock(tally).count(receiver, content, self.scenario.size, now_ns);
        }
    }

    /// Counts a question that was answered.
    pub fn count_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn begin(&self, round: u32, messages: u32) {
        self.answered.store(0, Ordering::Relaxed);
        for (number, tally) in (0..).zip(&self.tallies) {
            lock(tally).begin(round, number + 1, self.scenario.senders, messages);
        }
    }

    fn report(&self, expected: u64, quiet: Duration) -> Answer {
        let so_far = || match self.scenario.kind {
            Kind::Stream => self.tallies.iter().map(|it| lock(it).received).sum(),
            Kind::RoundTrip => self.answered.load(Ordering::Relaxed),
        };
        let (mut seen, mut since): (u64, _) = (so_far(), Instant::now());
        while seen < expected && since.elapsed() < quiet {
            thread::sleep(LOOK);
            let now = so_far();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        let mut sum = Tally::default();
        for tally in &self.tallies {
            sum.add(&lock(tally));
        }
        sum.to_answer(so_far())
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An agent that sends.
pub trait Sender: Send + 'static {
    /// Hands a message over.
    ///
    /// # Errors
    /// If the system does not take the message.
    fn send(&mut self, content: &[u8]) -> Result<(), Fault>;

    /// Sends a message and waits for its answer. Returns whether the answer was the same.
    ///
    /// # Errors
    /// If the system does not take the message, or no answer comes.
    fn ask(&mut self, content: &[u8]) -> Result<bool, Fault>;
}

/// The senders or receivers that were made for one side.
#[derive(Debug)]
pub struct Prepared<S: System> {
    /// The agents.
    pub system: S,
    /// The agents that send.
    pub senders: Vec<S::Sender>,
    /// The facts that the other side needs.
    pub here: Value,
    /// The client library and its version.
    pub client: String,
}

/// A system: the agents of one side.
pub trait System: Sized {
    /// An agent that sends.
    type Sender: Sender;

    /// Makes the agents of this process.
    ///
    /// # Errors
    /// If the system cannot be used.
    fn prepare(order: &Prepare, received: Arc<Received>) -> Result<Prepared<Self>, Fault>;

    /// Gives receivers the senders' report.
    ///
    /// # Errors
    /// If the report is not understood.
    fn meet(&mut self, _there: &Value) -> Result<(), Fault> {
        Ok(())
    }

    /// Makes senders wait until they can be heard.
    ///
    /// # Errors
    /// If they cannot be heard.
    fn begin(&mut self, _senders: &mut [Self::Sender]) -> Result<(), Fault> {
        Ok(())
    }
}

struct Stage<S: System> {
    system: S,
    senders: Vec<S::Sender>,
    scenario: Scenario,
    received: Arc<Received>,
}

/// Follows the orders on the standard input until there are no more.
///
/// # Errors
/// If the instrument has gone, or sends something that is not an order.
pub fn serve<S: System>() -> Result<(), Fault> {
    let mut input = BufReader::new(std::io::stdin());
    let mut stage = None;
    while let Some(order) = read_order(&mut input)? {
        if matches!(order, Order::Stop) {
            break;
        }
        let answer = follow::<S>(order, &mut stage).unwrap_or_else(|error| Answer::Error {
            text: error.to_string(),
        });
        say(&answer)?;
    }
    Ok(())
}

fn follow<S: System>(order: Order, stage: &mut Option<Stage<S>>) -> Result<Answer, Fault> {
    if let Order::Prepare(order) = order {
        let received = Arc::new(Received::new(&order.scenario));
        let Prepared {
            system,
            senders,
            here,
            client,
        } = S::prepare(&order, received.clone())?;
        *stage = Some(Stage {
            system,
            senders,
            scenario: order.scenario,
            received,
        });
        return Ok(Answer::Prepared { here, client });
    }
    let stage = stage.as_mut().ok_or("the first order must be prepare")?;
    match order {
        Order::Prepare(_) | Order::Stop => {}
        Order::Meet { there } => stage.system.meet(&there)?,
        Order::Expect { round, messages } => stage.received.begin(round, messages),
        Order::Run {
            round,
            messages,
            interval_ns,
            stamp,
            start_ns,
        } => {
            let part = Part {
                round,
                messages,
                interval_ns,
                stamp,
                start_ns,
            };
            stage.system.begin(&mut stage.senders)?;
            return run(&mut stage.senders, &stage.scenario, part);
        }
        Order::Report { expected, quiet_ms } => {
            let quiet = Duration::from_millis(quiet_ms);
            return Ok(stage.received.report(expected, quiet));
        }
    }
    Ok(Answer::Ready)
}

fn sleep_until(due_ns: u64) {
    let left = due_ns.saturating_sub(monotonic_ns());
    if left > 0 {
        thread::sleep(Duration::from_nanos(left));
    }
}

fn run<A: Sender>(senders: &mut Vec<A>, scenario: &Scenario, part: Part) -> Result<Answer, Fault> {
    let number_of_senders = u32::try_from(senders.len())?;
    let Scenario { kind, size, .. } = *scenario;
    let mut all = Played::nothing();
    let tasks: Vec<_> = (0..)
        .zip(senders.drain(..))
        .map(|(number, mut sender)| {
            thread::spawn(move || {
                let played = match kind {
                    Kind::Stream => stream(&mut sender, number, number_of_senders, size, part),
                    Kind::RoundTrip => round_trips(&mut sender, number, size, part),
                };
                (sender, played)
            })
        })
        .collect();
    for task in tasks {
        let (sender, played) = task.join().map_err(|_| "a sender's thread ended")?;
        senders.push(sender);
        all.add(&played?);
    }
    Ok(all.to_answer())
}

fn stream(
    sender: &mut impl Sender,
    number: u32,
    senders: u32,
    size: usize,
    part: Part,
) -> Result<Played, Fault> {
    let schedule = part.schedule(number, senders);
    sleep_until(schedule.due_ns(0));
    let mut content = fill(size);
    let mut played = Played::begin();
    for message in 0..part.messages {
        let due_ns = schedule.due_ns(message);
        if !schedule.is_flat_out() {
            sleep_until(due_ns);
        }
        part.write(&mut content, number, message, due_ns);
        sender.send(&content)?;
        played.sent += 1;
    }
    played.last_ns = monotonic_ns();
    Ok(played)
}

fn round_trips(
    sender: &mut impl Sender,
    number: u32,
    size: usize,
    part: Part,
) -> Result<Played, Fault> {
    sleep_until(part.start_ns);
    let mut content = vec![b'x'; size];
    let mut played = Played::begin();
    for message in 0..part.messages {
        part.write_question(&mut content, number, message);
        let began = monotonic_ns();
        played.sent += 1;
        if sender.ask(&content)? {
            played.answered += 1;
            played.times.record(monotonic_ns() - began);
        }
    }
    played.last_ns = monotonic_ns();
    Ok(played)
}
