//! The shared part of this program's drivers, which follow the instrument's orders with agents of one system.

use std::future::Future;
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bench_driver::{
    Answer, Kind, Order, Part, Played, Prepare, Scenario, Schedule, Tally, fill, monotonic_ns,
    read_order, say,
};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::drivers::sleep::{Sleeper, Timer};

/// How often the driver checks whether all messages have come.
const LOOK: Duration = Duration::from_millis(2);

/// The reason why a driver could not go on.
#[derive(Debug, Error)]
pub(crate) enum DriverError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Failed(String),
}

pub(crate) fn failed(error: impl std::fmt::Display) -> DriverError {
    DriverError::Failed(error.to_string())
}

/// The messages that the receivers of a process have got.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) tally: Mutex<Tally>,
    /// Round trips: messages answered.
    pub(crate) answered: AtomicU64,
    /// Messages that will not come because the driver itself dropped them.
    pub(crate) dropped: AtomicU64,
}

/// An agent that sends.
pub(crate) trait Sender: Send + 'static {
    /// Hands a message over. Waits while there is no room.
    fn send(&mut self, content: &[u8]) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Sends waiting messages now, because none follows for the moment.
    fn flush(&mut self) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Sends a message and waits for its answer. Returns whether the answer was the same.
    fn ask(&mut self, content: &[u8]) -> impl Future<Output = Result<bool, DriverError>> + Send;
}

/// A system: the agents of one side.
pub(crate) trait System: Sized + Send + 'static {
    type Sender: Sender;

    /// Makes the agents of this process.
    fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> impl Future<Output = Result<Prepared<Self>, DriverError>> + Send;

    /// Gives receivers the senders' report.
    fn meet(&mut self, there: &Value) -> Result<(), DriverError>;

    /// Adds the driver's own facts to its report.
    fn remark(&self, _report: &mut Answer) {}

    /// Ends the agents.
    fn leave(self) -> impl Future<Output = ()> + Send;
}

/// The senders or receivers that were made.
pub(crate) struct Prepared<S: System> {
    pub(crate) system: S,
    pub(crate) senders: Vec<S::Sender>,
    /// The facts that the other side needs.
    pub(crate) here: Value,
    pub(crate) client: String,
}

struct Stage<S: System> {
    system: S,
    senders: Vec<S::Sender>,
    scenario: Scenario,
}

/// Follows orders until there are no more.
pub(crate) async fn serve<S: System>() -> Result<(), DriverError> {
    let (forward, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        loop {
            let order = read_order(&mut input).transpose();
            let is_last = !matches!(order, Some(Ok(_)));
            if let Some(order) = order
                && forward.send(order).is_err()
            {
                return;
            }
            if is_last {
                return;
            }
        }
    });
    let received = Arc::new(Received::default());
    let mut stage = None;
    while let Some(order) = orders.recv().await {
        let order = order?;
        if matches!(order, Order::Stop) {
            break;
        }
        let answer = match follow::<S>(order, &mut stage, &received).await {
            Ok(answer) => answer,
            Err(error) => Answer::Error {
                text: error.to_string(),
            },
        };
        say(&answer)?;
    }
    if let Some(Stage {
        system, senders, ..
    }) = stage
    {
        drop(senders);
        system.leave().await;
    }
    Ok(())
}

async fn follow<S: System>(
    order: Order,
    stage: &mut Option<Stage<S>>,
    received: &Arc<Received>,
) -> Result<Answer, DriverError> {
    if let Order::Prepare(order) = order {
        let prepared = S::prepare(&order, received.clone()).await?;
        *stage = Some(Stage {
            system: prepared.system,
            senders: prepared.senders,
            scenario: order.scenario,
        });
        return Ok(Answer::Prepared {
            here: prepared.here,
            client: prepared.client,
        });
    }
    let stage = stage
        .as_mut()
        .ok_or_else(|| failed("the first order must be prepare"))?;
    let scenario = stage.scenario.clone();
    match order {
        Order::Prepare(_) | Order::Stop => {}
        Order::Meet { there } => stage.system.meet(&there)?,
        Order::Expect { round, messages } => {
            let mut tally = received.tally.lock();
            tally.begin(round, scenario.receivers, scenario.senders, messages);
            received.answered.store(0, Ordering::Relaxed);
            received.dropped.store(0, Ordering::Relaxed);
        }
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
            return run(&mut stage.senders, &scenario, part).await;
        }
        Order::Report { expected, quiet_ms } => {
            let quiet = Duration::from_millis(quiet_ms);
            let mut report = report(&scenario, received, expected, quiet).await;
            stage.system.remark(&mut report);
            return Ok(report);
        }
    }
    Ok(Answer::Ready)
}

async fn run<A: Sender>(
    senders: &mut Vec<A>,
    scenario: &Scenario,
    part: Part,
) -> Result<Answer, DriverError> {
    let number_of_senders = u32::try_from(senders.len()).map_err(failed)?;
    let Scenario { kind, size, .. } = *scenario;
    let timer = Timer::new()?;
    let mut tasks = Vec::new();
    for (number, mut sender) in (0..).zip(senders.drain(..)) {
        let sleeper = timer.sleeper();
        tasks.push(tokio::spawn(async move {
            let result = match kind {
                Kind::Stream => {
                    let schedule = part.schedule(number, number_of_senders);
                    stream(&mut sender, sleeper, number, schedule, size, part).await
                }
                Kind::RoundTrip => round_trips(&mut sender, sleeper, number, size, part).await,
            };
            (sender, result)
        }));
    }
    let mut all = Played::nothing();
    let mut failure = None;
    for task in tasks {
        let (sender, result) = task.await.map_err(failed)?;
        senders.push(sender);
        match result {
            Ok(played) => all.add(&played),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or_else(|| Ok(all.to_answer()), Err)
}

async fn stream<A: Sender>(
    sender: &mut A,
    mut sleeper: Sleeper,
    number: u32,
    schedule: Schedule,
    size: usize,
    part: Part,
) -> Result<Played, DriverError> {
    sleeper.until(schedule.due_ns(0)).await?;
    let mut content = fill(size);
    let mut played = Played::begin();
    for message in 0..part.messages {
        let due_ns = schedule.due_ns(message);
        if !schedule.is_flat_out() && monotonic_ns() < due_ns {
            sender.flush().await?;
            sleeper.until(due_ns).await?;
        }
        part.write(&mut content, number, message, due_ns);
        sender.send(&content).await?;
        played.sent += 1;
    }
    sender.flush().await?;
    played.last_ns = monotonic_ns();
    Ok(played)
}

async fn round_trips<A: Sender>(
    sender: &mut A,
    mut sleeper: Sleeper,
    number: u32,
    size: usize,
    part: Part,
) -> Result<Played, DriverError> {
    sleeper.until(part.start_ns).await?;
    let mut content = vec![b'x'; size];
    let mut played = Played::begin();
    for message in 0..part.messages {
        part.write_question(&mut content, number, message);
        let began = monotonic_ns();
        played.sent += 1;
        if sender.ask(&content).await? {
            played.answered += 1;
            played.times.record(monotonic_ns() - began);
        }
    }
    played.last_ns = monotonic_ns();
    Ok(played)
}

async fn report(
    scenario: &Scenario,
    received: &Received,
    expected: u64,
    quiet: Duration,
) -> Answer {
    let so_far = || match scenario.kind {
        Kind::Stream => received.tally.lock().received + received.dropped.load(Ordering::Relaxed),
        Kind::RoundTrip => received.answered.load(Ordering::Relaxed),
    };
    let (mut seen, mut since) = (so_far(), Instant::now());
    while seen < expected && since.elapsed() < quiet {
        tokio::time::sleep(LOOK).await;
        let now = so_far();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    let tally = received.tally.lock();
    tally.to_answer(match scenario.kind {
        Kind::Stream => tally.received,
        Kind::RoundTrip => seen,
    })
}
