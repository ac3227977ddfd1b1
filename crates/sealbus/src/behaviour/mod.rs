//! Behaviours: an agent's work of its own, at its own times and beside its hooks.
//!
//! A [`Step`] is a plain async function. [`Context::begin`] runs it by a [`Schedule`]:
//!
//! ```no_run
//! use std::time::Duration;
//! use sealbus::behaviour::every;
//! use sealbus::{AclMessage, Agent, AgentResult, Context, Performative, Voice, agent, run};
//!
//! struct Sensor;
//!
//! impl Agent for Sensor {
//!     async fn setup(&mut self, context: &mut Context) -> AgentResult {
//!         context.begin("measure", every(Duration::from_secs(1)), measure);
//!         Ok(())
//!     }
//! }
//!
//! async fn measure(voice: Voice) -> AgentResult {
//!     let value = AclMessage::new(Performative::Inform).with_content("21 degrees");
//!     voice.send(value.with_receiver(voice.peer("dashboard")?)).await?;
//!     Ok(())
//! }
//!
//! run([agent("sensor", Sensor)])?;
//! # Ok::<(), sealbus::RunError>(())
//! ```
//!
//! | schedule | runs |
//! |---|---|
//! | [`once`] | at once |
//! | [`every`] | in equal periods, which do not drift; missed periods are counted |
//! | [`at`] | at a point of time |
//! | [`daily`] | each day at a time of day |
//! | [`cyclic`] | again and again |
//!
//! Steps are composed: [`sequence`], [`parallel`], [`first_of`], and [`machine`], a finite-state machine.
//!
//! All times go by the agent's [`Clock`]. An error of a step is an error of a handler: it is logged
//! and counted, [`Agent::supervise`](crate::Agent::supervise) decides what follows, and the behaviour goes on.
//! Behaviours end when their agent ends, is restarted or moves: `setup` or `restore` begins them again.

mod schedule;
mod step;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::context::{Context, Voice};
use crate::labour::Labour;

pub use schedule::{Schedule, at, cyclic, daily, every, once};
pub use step::{Step, first_of, machine, parallel, sequence};

impl Context {
    /// Begins a behaviour. Logs and errors show it under this name.
    pub fn begin(
        &mut self,
        name: impl Into<String>,
        schedule: Schedule,
        step: impl Into<Step>,
    ) -> Behaviour {
        let behaviour = Behaviour(Arc::new(Account {
            name: name.into(),
            runs: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            state: Mutex::default(),
            is_done: AtomicBool::new(false),
            done: Notify::new(),
            cancelled: Notify::new(),
        }));
        let run = Run {
            voice: self.voice(),
            account: behaviour.0.clone(),
            labour: self.labour.clone(),
        };
        let step = step.into();
        self.labour.employ(async move {
            let _end = End(run.account.clone());
            tokio::select! {
                biased;
                () = run.account.cancelled.notified() => {}
                () = schedule.follow(&run, &step) => {}
            }
        });
        behaviour
    }
}

/// A behaviour that has begun; see [`Context::begin`]. Dropping this value does not end the behaviour.
#[derive(Clone)]
pub struct Behaviour(Arc<Account>);

struct Account {
    name: String,
    runs: AtomicU64,
    failures: AtomicU64,
    missed: AtomicU64,
    state: Mutex<Option<String>>,
    is_done: AtomicBool,
    done: Notify,
    cancelled: Notify,
}

impl Behaviour {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How often it has run.
    pub fn runs(&self) -> u64 {
        self.0.runs.load(Ordering::Relaxed)
    }

    /// How many of the runs ended with an error.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// The number of periods in which it did not run, because the run before took too long or the agent was about to
    /// move.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    /// The present or last state of its [`machine`].
    pub fn state(&self) -> Option<String> {
        self.0.state.lock().clone()
    }

    /// Whether the behaviour has ended.
    pub fn is_done(&self) -> bool {
        self.0.is_done.load(Ordering::Acquire)
    }

    /// Ends the behaviour, even in the middle of a run.
    pub fn cancel(&self) {
        self.0.cancelled.notify_one();
    }

    /// Waits until the behaviour has ended.
    pub async fn wait(&self) {
        loop {
            let done = self.0.done.notified();
            if self.is_done() {
                return;
            }
            done.await;
        }
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour")
            .field("name", &self.name())
            .field("runs", &self.runs())
            .finish_non_exhaustive()
    }
}

/// Marks a behaviour as done, however it ends.
struct End(Arc<Account>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Release);
        self.0.done.notify_waiters();
    }
}

/// The arguments of one run of a step.
#[derive(Clone)]
struct Run {
    voice: Voice,
    account: Arc<Account>,
    labour: Labour,
}

impl Run {
    fn clock(&self) -> &Clock {
        &self.voice.clock
    }

    /// Runs a step once, as soon as the agent is not about to move. Returns false if the step failed.
    async fn run(&self, step: &Step) -> bool {
        let _at_work = self.labour.work().await;
        self.clock().note();
        self.account.runs.fetch_add(1, Ordering::Relaxed);
        match self.labour.guard(step.run(self.clone())).await {
            Ok(()) => true,
            Err(error) => {
                if !self.voice.is_only_stopped(&*error) {
                    self.account.failures.fetch_add(1, Ordering::Relaxed);
                    let handled = format!("the behaviour {}", self.account.name);
                    self.labour.report(handled, error);
                }
                false
            }
        }
    }

    fn miss(&self, periods: u64) {
        self.account.missed.fetch_add(periods, Ordering::Relaxed);
    }
}

/// The pause of a [`cyclic`] behaviour after an error. It doubles with each further error, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// See [`FIRST_PAUSE`].
const LAST_PAUSE: Duration = Duration::from_secs(10);
