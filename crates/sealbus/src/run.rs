//! Runs a program's agents to their end, and leaves cleanly.

use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesOrdered, StreamExt};
use sealbus_control::FaultCode;
use sealbus_fipa::Aid;
use sealbus_process::{AgentHandle, CertificationError, OpenAgentError, Process, ProcessEnd};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::cast::{CastError, Role, cast};
use crate::crew::{AgentEnd, Crew};
use crate::life::{HOOK_GRACE, TEARDOWN_LIMIT};
use crate::platform::{Platform, PlatformError};

/// One or more agents of a program, with the name that the program gives them; made by [`agent`] and [`agents`].
pub struct NamedAgents {
    role: Role,
    unless_revoked: bool,
    drive: Drive,
}

enum Drive {
    Once(Option<DriveOnce>),
    Often(DriveOften),
}

type DriveOnce = Box<dyn FnOnce(&Crew, AgentHandle) + Send>;
type DriveOften = Box<dyn FnMut(&Crew, AgentHandle) + Send>;

/// Names an agent.
///
/// By itself the program runs the agent under this name. On a platform the agent has the name under which the platform
/// placed it: the same name, a replica's name (`seller-2`), or, if it is the program's only agent, any name.
pub fn agent<A: Agent>(name: impl Into<String>, agent: A) -> NamedAgents {
    NamedAgents {
        role: Role {
            name: name.into(),
            count: None,
        },
        unless_revoked: false,
        drive: Drive::Once(Some(Box::new(|crew, handle| {
            drop(crew.drive(handle, agent))
        }))),
    }
}

/// Names several agents of one kind. `make` makes each from its name.
///
/// By itself the program runs `count` of them, `NAME-1`, `NAME-2` and so on. On a platform it runs the agents that are
/// placed there.
pub fn agents<A: Agent>(
    name: impl Into<String>,
    count: usize,
    mut make: impl FnMut(&str) -> A + Send + 'static,
) -> NamedAgents {
    NamedAgents {
        role: Role {
            name: name.into(),
            count: Some(count),
        },
        unless_revoked: false,
        drive: Drive::Often(Box::new(move |crew, handle| {
            let agent = make(handle.name());
            drop(crew.drive(handle, agent));
        })),
    }
}

impl NamedAgents {
    /// Lets the program run without those of these agents that an operator revoked. By default it does not start then.
    #[must_use]
    pub fn unless_revoked(self) -> Self {
        Self {
            unless_revoked: true,
            ..self
        }
    }

    fn drive(&mut self, crew: &Crew, handle: AgentHandle) {
        match &mut self.drive {
            // Casting gives a single role to one agent only.
            Drive::Once(drive) => {
                if let Some(drive) = drive.take() {
                    drive(crew, handle);
                }
            }
            Drive::Often(drive) => drive(crew, handle),
        }
    }
}

impl fmt::Debug for NamedAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedAgents").field(&self.role).finish()
    }
}

/// The reason why a program's agents did not end well.
///
/// A `main` that returns this error ends with its `Debug` form. Print it with `{}` for a readable line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The runtime could not be started.
    #[error("cannot start the program's runtime: {0}")]
    Runtime(std::io::Error),
    /// The process did not get its place on a platform.
    #[error(transparent)]
    Join(#[from] PlatformError),
    /// The program's agents are not those that the platform placed here.
    #[error(transparent)]
    Cast(#[from] CastError),
    /// An agent could not be started.
    #[error(transparent)]
    Open(#[from] OpenAgentError),
    /// The process had to leave the platform.
    #[error("the program had to stop: {0}")]
    Ended(ProcessEnd),
    /// Agents failed; the others ran to their end.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Agents(Vec<AgentFailure>),
    /// The agents did not leave in time after a second Ctrl-C, or the platform's grace.
    #[error("agents did not leave in time and were cut off")]
    CutOff,
}

/// An agent that failed or panicked.
#[derive(Debug, thiserror::Error)]
#[error("{agent} {end}")]
pub struct AgentFailure {
    /// The agent.
    pub agent: String,
    /// How the agent ended.
    pub end: AgentEnd,
}

/// Runs agents until all of them have left, or the program is told to stop by Ctrl-C, SIGTERM or its platform.
///
/// The environment decides where the agents run: on an embedded platform by default, attached to the node that started
/// the program, or on a platform joined with a ticket. See the [crate's page](crate).
///
/// Everything runs in one thread, in which the agents' hooks and the sockets take turns. In a runtime of several threads,
/// [`run_agents`] uses several. An agent that fails or panics does not end the others. The error is returned at the end.
///
/// If the program has no global `tracing` subscriber, `run` installs one that writes to standard error; see
/// [`log_to_stderr`](crate::log_to_stderr). To log in another way, install a subscriber before the call.
///
/// # Errors
/// [`RunError`] names the agent and the cause. The program's `main` may just return the error.
pub fn run(agents: impl IntoIterator<Item = NamedAgents>) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?;
    runtime.block_on(run_agents(agents))
}

/// Like [`run`], inside the program's own runtime. Logs go to standard error in the same way.
///
/// In a runtime of several threads, connections and agents share the threads. This pays off when several connections
/// are busy and processors are free:
///
/// ```no_run
/// # struct Seller;
/// # impl sealbus::Agent for Seller {}
/// #[tokio::main(flavor = "multi_thread", worker_threads = 2)]
/// async fn main() -> Result<(), sealbus::RunError> {
///     sealbus::run_agents([sealbus::agent("seller", Seller)]).await
/// }
/// ```
///
/// # Errors
/// As [`run`].
pub async fn run_agents(agents: impl IntoIterator<Item = NamedAgents>) -> Result<(), RunError> {
    crate::platform::log_to_stderr();
    let platform = Platform::join().await?;
    let outcome = platform.run(agents).await;
    platform.close().await;
    outcome
}

/// The most agents that are opened at the same time. The CA may be on another machine.
const OPENED_AT_ONCE: usize = 64;

impl Platform {
    /// Runs agents until all of them have left, or the program is told to stop by Ctrl-C, SIGTERM or its platform.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub async fn run(&self, agents: impl IntoIterator<Item = NamedAgents>) -> Result<(), RunError> {
        run_on(self, agents.into_iter().collect()).await
    }

    /// Starts an agent beside the program's own work.
    ///
    /// # Errors
    /// If the platform does not let it run here, or an agent has this name.
    pub async fn start(&self, name: &str, agent: impl Agent) -> Result<Running, OpenAgentError> {
        let (crew, ends) = Crew::new(self);
        let handle = self.process().agent(name).await?;
        let aid = handle.aid().clone();
        let task = crew.drive(handle, agent);
        Ok(Running { aid, task, ends })
    }
}

/// An agent that [`Platform::start`] started. Dropping this value does not end the agent.
#[derive(Debug)]
pub struct Running {
    aid: Aid,
    task: JoinHandle<()>,
    ends: mpsc::UnboundedReceiver<(String, AgentEnd)>,
}

impl Running {
    /// The agent's identifier.
    pub fn aid(&self) -> &Aid {
        &self.aid
    }

    /// Waits for the agent's end.
    pub async fn wait(mut self) -> AgentEnd {
        // The agents that this agent spawned report here too.
        while let Some((name, end)) = self.ends.recv().await {
            if name == self.aid.name {
                return end;
            }
        }
        AgentEnd::Left
    }

    /// Ends the agent at once, without its `teardown`.
    pub(crate) async fn abort(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn run_on(platform: &Platform, mut agents: Vec<NamedAgents>) -> Result<(), RunError> {
    let process = platform.process();
    let roles: Vec<Role> = agents.iter().map(|agent| agent.role.clone()).collect();
    let parts = cast(&roles, platform.placed())?;
    let (crew, ends) = Crew::new(platform);

    // All agents are on the bus before the first one acts, so that they find each other.
    let mut opening = FuturesOrdered::new();
    let mut opened = Vec::with_capacity(parts.len());
    for part in &parts {
        if opening.len() == OPENED_AT_ONCE
            && let Some(handle) = opening.next().await
        {
            opened.push(handle?);
        }
        let unless_revoked = agents[part.role].unless_revoked;
        opening.push_back(open(process, &part.name, unless_revoked));
    }
    while let Some(handle) = opening.next().await {
        opened.push(handle?);
    }
    process.announce().await.map_err(PlatformError::from)?;
    for (part, handle) in parts.iter().zip(opened) {
        if let Some(handle) = handle {
            agents[part.role].drive(&crew, handle);
        }
    }
    drop((crew, agents));
    until_all_have_left(process, ends).await
}

/// Puts an agent of a program on the platform. None if an operator revoked it and the program runs without it.
async fn open(
    process: &Process,
    name: &str,
    unless_revoked: bool,
) -> Result<Option<AgentHandle>, OpenAgentError> {
    match process.agent(name).await {
        // The platform gives an agent that it placed here this code for no other reason.
        Err(OpenAgentError::Certification {
            agent,
            source: CertificationError::Refused(fault),
        }) if unless_revoked && fault.code == FaultCode::NotPermitted => {
            tracing::warn!(target: "sealbus::revocation", agent, %fault,
                "the program runs without this agent");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

async fn until_all_have_left(
    process: &Process,
    mut ends: mpsc::UnboundedReceiver<(String, AgentEnd)>,
) -> Result<(), RunError> {
    let mut failures = Vec::new();
    let mut interruptions = 0;
    let mut signals = Signals::new().map_err(RunError::Runtime)?;
    let cut_off = cut_off(process);
    tokio::pin!(cut_off);
    loop {
        tokio::select! {
            end = ends.recv() => match end {
                Some((agent, end @ (AgentEnd::Failed(_) | AgentEnd::Panicked(_)))) => {
                    failures.push(AgentFailure { agent, end });
                }
                Some(_) => {}
                None => break,
            },
            signal = signals.next() => {
                interruptions += 1;
                if interruptions > 1 {
                    return Err(RunError::CutOff);
                }
                tracing::info!("{signal}: the agents are asked to leave");
                process.stop(signal);
            }
            () = &mut cut_off => return Err(RunError::CutOff),
        }
    }
    match process.end() {
        Some(end @ (ProcessEnd::PlatformGone { .. } | ProcessEnd::Revoked { .. })) => {
            Err(RunError::Ended(end))
        }
        _ if !failures.is_empty() => Err(RunError::Agents(failures)),
        _ => Ok(()),
    }
}

/// Ends when agents that were asked to leave have used up the time for hooks and teardown, or the platform's grace if
/// that is shorter.
async fn cut_off(process: &Process) {
    const MARGIN: Duration = Duration::from_secs(1);
    // In a process that was given up, agents first hear of messages that were not delivered.
    let longest = HOOK_GRACE + TEARDOWN_LIMIT * 2 + MARGIN;
    let stopping = process.stopping().await;
    // The rest of the time is for the goodbye to the platform.
    let given = stopping
        .grace
        .map_or(longest, |grace| longest.min(grace.mul_f32(0.8)));
    tokio::time::sleep(given).await;
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted (Ctrl-C)",
            _ = self.terminate.recv() => "terminated (SIGTERM)",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "interrupted (Ctrl-C)"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::{BoxFuture, ready};
    use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};
    use sealbus_control::host::{Command, Host, Membership};
    use sealbus_control::{Fault, Subject};
    use sealbus_master::embedded::EmbeddedPlatform;
    use sealbus_seal::PlatformName;

    use super::*;
    use crate::{AgentResult, Context};

    /// An embedded platform whose operator revoked the agent `auditor`.
    struct Refusing(Arc<dyn Host>);

    impl Host for Refusing {
        fn membership(&self) -> &Membership {
            self.0.membership()
        }

        fn answer(
            &self,
            request: AttachmentRequest,
        ) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
            match &request {
                AttachmentRequest::Certify {
                    subject: Subject::Agent { name },
                    ..
                } if name == "auditor" => {
                    let message = "auditor was revoked by an operator";
                    Box::pin(ready(Err(Fault::new(FaultCode::NotPermitted, message))))
                }
                _ => self.0.answer(request),
            }
        }

        fn commands(&self) -> Option<mpsc::Receiver<Command>> {
            self.0.commands()
        }
    }

    struct Leaver;

    impl Agent for Leaver {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context.stop();
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_program_runs_without_an_agent_that_was_revoked_only_if_it_says_so() {
        let name = PlatformName::new("home").unwrap();
        let embedded = EmbeddedPlatform::start(name).await.unwrap();
        let host = Arc::new(Refusing(embedded.host()));
        let platform = Platform::open(host, Some(embedded.bus())).await.unwrap();
        let refused = platform.run([agent("auditor", Leaver)]).await;
        assert!(matches!(
            refused,
            Err(RunError::Open(OpenAgentError::Certification { .. }))
        ));
        let auditor = agent("auditor", Leaver).unless_revoked();
        let ran = platform.run([auditor, agent("door", Leaver)]).await;
        ran.unwrap();
        platform.close().await;
    }
}
