//! Conversations in the SDK: the cost of a protocol object compared with a bare request, in turns, and ten thousand
//! conversations of one agent at once. All agents are in one process, where nothing else hides the cost.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use sealbus::{
    AclMessage, Agent, AgentResult, Aid, Context, Message, Performative, RunError, agent, run,
};
use serde::Serialize;

use crate::mesh::idle::resident;

/// A wait that never ends a measurement.
const WITHIN: Duration = Duration::from_secs(600);
/// How often each way has its turn.
const TURNS: usize = 21;
/// An `ontology` that asks for an answer by a protocol object.
const BY_PROTOCOL: &str = "by-protocol";

/// The options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the figures as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Round trips in each turn
    #[arg(long, default_value_t = 5000)]
    trips: usize,
    /// Conversations at once
    #[arg(long, default_value_t = 10_000)]
    at_once: usize,
}

/// A fault of this measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConversationsError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the agents ended before all was measured")]
    Incomplete,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

#[derive(Clone, Serialize)]
struct Figures {
    /// Microseconds of a round trip: the middle of all turns.
    request_us: f64,
    protocol_us: f64,
    both_protocol_us: f64,
    at_once: usize,
    /// Resident bytes for each open conversation, with its message at both ends.
    bytes_each: u64,
    at_once_seconds: f64,
}

/// Measures and prints.
pub(crate) fn run_all(arguments: &Arguments) -> Result<(), ConversationsError> {
    let figures = Arc::new(Mutex::new(None));
    let asker = Asker {
        trips: arguments.trips,
        at_once: arguments.at_once,
        figures: figures.clone(),
    };
    let keeper = Keeper {
        wanted: arguments.at_once,
        kept: Vec::new(),
    };
    run([
        agent("echo", Echo),
        agent("keeper", keeper),
        agent("asker", asker),
    ])?;
    let figures: Figures = figures
        .lock()
        .clone()
        .ok_or(ConversationsError::Incomplete)?;
    println!("round trips in one process, µs (the middle of {TURNS} turns)");
    println!("  request                       {:8.2}", figures.request_us);
    println!(
        "  asked by a protocol object    {:8.2}",
        figures.protocol_us
    );
    println!(
        "  answered by one, too          {:8.2}",
        figures.both_protocol_us
    );
    println!(
        "{} conversations at once: {} bytes each, {:.2} s",
        figures.at_once, figures.bytes_each, figures.at_once_seconds
    );
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}

/// Answers at once.
struct Echo;

impl Agent for Echo {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        let is_by_protocol =
            (message.ontology.as_ref()).is_some_and(|it| it.as_str() == Some(BY_PROTOCOL));
        if is_by_protocol {
            let mut part = context.participate(&message)?;
            part.answer(Performative::Inform, "done").await?;
        } else {
            context
                .reply(&message, Performative::Inform, "done")
                .await?;
        }
        Ok(())
    }
}

/// Answers when everybody has asked. The answer is the resident memory by then.
struct Keeper {
    wanted: usize,
    kept: Vec<Message>,
}

impl Agent for Keeper {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        self.kept.push(message);
        if self.kept.len() == self.wanted {
            let bytes = resident()?.to_string();
            for message in self.kept.drain(..) {
                context
                    .reply(&message, Performative::Inform, bytes.as_str())
                    .await?;
            }
        }
        Ok(())
    }
}

struct Asker {
    trips: usize,
    at_once: usize,
    figures: Arc<Mutex<Option<Figures>>>,
}

fn question(to: &Aid) -> AclMessage {
    AclMessage::new(Performative::Request)
        .with_receiver(to.clone())
        .with_content("do it")
}

impl Asker {
    /// Microseconds of one round trip, in a turn of each way.
    async fn turn(&self, context: &Context, echo: &Aid) -> AgentResult<[f64; 3]> {
        let each = |began: Instant| began.elapsed().as_secs_f64() * 1e6 / self.trips as f64;
        let began = Instant::now();
        for _ in 0..self.trips {
            context.request(question(echo), WITHIN).await?;
        }
        let request = each(began);
        let mut took = [request, 0.0, 0.0];
        for (slot, ontology) in [(1, "bare"), (2, BY_PROTOCOL)] {
            let began = Instant::now();
            for _ in 0..self.trips {
                let question = question(echo).with_ontology(ontology);
                let answers = context.ask_all(echo.clone(), question, WITHIN).await?;
                if answers.done.len() != 1 {
                    return Err("an answer is missing".into());
                }
            }
            took[slot] = each(began);
        }
        Ok(took)
    }
}

impl Agent for Asker {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (echo, keeper) = (context.peer("echo")?, context.peer("keeper")?);
        self.turn(context, &echo).await?;
        let mut turns: [Vec<f64>; 3] = Default::default();
        for _ in 0..TURNS {
            let took = self.turn(context, &echo).await?;
            for (all, one) in turns.iter_mut().zip(took) {
                all.push(one);
            }
        }
        let [request_us, protocol_us, both_protocol_us] = turns.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });

        let before = resident()?;
        let began = Instant::now();
        let asked = (0..self.at_once).map(|_| context.request(question(&keeper), WITHIN));
        let mut most = before;
        for answer in join_all(asked).await {
            most = most.max(answer?.text()?.parse()?);
        }
        *self.figures.lock() = Some(Figures {
            request_us,
            protocol_us,
            both_protocol_us,
            at_once: self.at_once,
            bytes_each: (most - before) / self.at_once as u64,
            at_once_seconds: began.elapsed().as_secs_f64(),
        });
        context.stop_all();
        Ok(())
    }
}
