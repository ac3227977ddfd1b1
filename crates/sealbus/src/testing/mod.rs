//! A test kit for agents: a platform in memory, a clock that moves only on request, probes, and faults on request.
//!
//! ```
//! use std::time::Duration;
//! use sealbus::testing::TestBed;
//! use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative};
//!
//! struct Waiter;
//!
//! impl Agent for Waiter {
//!     async fn on_message(&mut self, context: &mut Context, order: Message) -> AgentResult {
//!         context.clock().sleep(Duration::from_secs(3600)).await;
//!         context.reply(&order, Performative::Inform, "your tea").await?;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bed = TestBed::open().await?;
//! bed.start("waiter", Waiter).await?;
//! let mut guest = bed.probe("guest").await?;
//! let order = AclMessage::new(Performative::Request).with_receiver(guest.peer("waiter")?);
//! guest.send(order).await?;
//! guest.expect_nothing(Duration::from_secs(3599)).await;
//! guest.expect(Performative::Inform).text("your tea").within(Duration::from_secs(1)).await;
//! bed.close().await?;
//! # Ok(()) }
//! ```
//!
//! Time-outs, behaviours and deadlines of the agents go by the clock of the test bed. The clock moves in
//! [`VirtualClock::advance`] and [`VirtualClock::run`], and as far as needed in [`Probe::expect`] and at the end.
//! Agents finish all possible work of a moment before the next moment comes. The same [seed](TestBed::with_seed) gives
//! the same random faults.
//!
//! A test must run in a runtime of one thread, such as that of `#[tokio::test]`. Agents must wait by
//! [`Voice::clock`](crate::Voice::clock), not by tokio's time. The limits of hooks and of `teardown` at an agent's end,
//! persistent messages and the retention of channels go by the real clock.

mod clock;
mod fault;
mod probe;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sealbus_fipa::Aid;
use sealbus_process::OpenAgentError;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::agent::Agent;
use crate::clock::{Clock, Still};
use crate::context::Context;
use crate::crew::{AgentEnd, Crew};
use crate::platform::{Platform, PlatformError};
use crate::run::{AgentFailure, RunError, Running};

pub use clock::VirtualClock;
pub use fault::{Fault, Faults};
pub use probe::{Expectation, Probe};

/// The time at which the clock of a test bed begins: 1 January 2026.
const START: Duration = Duration::from_secs(1_767_225_600);

/// A platform in memory with a clock of its own; see [the module](self).
#[derive(Debug)]
pub struct TestBed {
    platform: Platform,
    clock: VirtualClock,
    faults: Faults,
    agents: Mutex<HashMap<String, Running>>,
}

impl TestBed {
    /// Starts a platform in memory, named `home`.
    ///
    /// # Errors
    /// As [`Platform::embedded`].
    ///
    /// # Panics
    /// In a runtime of several threads, where agents do not act in a fixed order.
    pub async fn open() -> Result<TestBed, PlatformError> {
        TestBed::with_seed(0).await
    }

    /// Like [`open`](Self::open). `seed` chooses the faults that happen with a probability.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub async fn with_seed(seed: u64) -> Result<TestBed, PlatformError> {
        let flavor = Handle::current().runtime_flavor();
        assert!(
            flavor == RuntimeFlavor::CurrentThread,
            "a test bed needs a runtime of one thread, and this one is {flavor:?}"
        );
        let still = Arc::new(Still::new(UNIX_EPOCH + START));
        let mut platform = Platform::embedded().await?;
        platform.clock = Clock::still(still.clone());
        let faults = Faults::new(platform.clock.clone(), seed);
        platform.interceptor = Some(faults.interceptor());
        Ok(TestBed {
            platform,
            clock: VirtualClock::new(still),
            faults,
            agents: Mutex::default(),
        })
    }

    /// The platform.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The clock of the agents.
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The time of day of the agents.
    pub fn time(&self) -> SystemTime {
        self.platform.clock.time()
    }

    /// The faults between the agents.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Starts an agent.
    ///
    /// # Errors
    /// If an agent has this name, or the name is not valid.
    pub async fn start(&self, name: &str, agent: impl Agent) -> Result<Aid, OpenAgentError> {
        self.faults.revive(name);
        let running = self.platform.start(name, agent).await?;
        let aid = running.aid().clone();
        self.agents.lock().insert(name.to_owned(), running);
        Ok(aid)
    }

    /// An agent of the test.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn probe(&self, name: &str) -> Result<Probe, OpenAgentError> {
        self.faults.revive(name);
        let handle = self.platform.agent(name).await?;
        let (crew, _) = Crew::new(&self.platform);
        Ok(Probe::new(Context::new(handle, crew), self.clock.clone()))
    }

    /// Ends an agent at once, as a crash does. The agent sends nothing more, and its `teardown` does not run. Returns
    /// whether there was such an agent.
    pub async fn kill(&self, name: &str) -> bool {
        let Some(running) = self.agents.lock().remove(name) else {
            return false;
        };
        self.faults.silence(name);
        running.abort().await;
        true
    }

    /// Asks all agents to leave, lets as much time pass as they need, and ends the platform.
    ///
    /// # Errors
    /// [`RunError::Agents`] if agents failed or panicked.
    pub async fn close(self) -> Result<(), RunError> {
        self.platform.process().stop("the test is over");
        let agents = std::mem::take(&mut *self.agents.lock());
        let mut failures = Vec::new();
        for (agent, running) in agents {
            let end = self.clock.run(running.wait()).await;
            if matches!(end, AgentEnd::Failed(_) | AgentEnd::Panicked(_)) {
                failures.push(AgentFailure { agent, end });
            }
        }
        self.platform.close().await;
        match failures.is_empty() {
            true => Ok(()),
            false => Err(RunError::Agents(failures)),
        }
    }
}
