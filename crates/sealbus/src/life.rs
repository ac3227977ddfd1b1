//! The life of an agent: a task of its own drives it through its hooks, to its end.

use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::FutureExt;
use sealbus_fipa::{AclMessage, Aid};
use sealbus_process::{AgentHandle, OpenAgentError, Parting, Process, Thawed, Wishes};

use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::context::{Context, Next, Voice};
use crate::crew::{AgentEnd, Crew};
use crate::fault::AtFault;
use crate::labour::panic_text;
use crate::message::Message;
use crate::supervision::AgentResult;
use crate::supervision::{HandlerError, LEAVING_PARAMETER, Supervision, answer, judge};
use crate::trace::{self, Handling};

/// How long a hook may go on after its agent was asked to stop, before it is cancelled at its next `.await`.
pub const HOOK_GRACE: Duration = Duration::from_secs(1);

/// How long [`Agent::teardown`] may take.
pub const TEARDOWN_LIMIT: Duration = Duration::from_secs(5);

impl Crew {
    /// Opens an agent on the bus and starts driving it.
    pub(crate) async fn start<A: Agent>(
        &self,
        process: &Process,
        name: &str,
        agent: A,
    ) -> Result<Aid, OpenAgentError> {
        let handle = process.agent(name).await?;
        let aid = handle.aid().clone();
        drop(self.drive(handle, agent));
        Ok(aid)
    }

    /// Drives an agent that is on the bus.
    pub(crate) fn drive<A: Agent>(&self, handle: AgentHandle, agent: A) -> JoinHandle<()> {
        tokio::spawn(drive(agent, Context::new(handle, self.clone())))
    }
}

impl Context {
    /// Starts another agent in this process, if the platform lets it run here.
    pub async fn spawn(&self, name: &str, agent: impl Agent) -> Result<Aid, OpenAgentError> {
        let _hold = self.clock().hold();
        self.crew.start(self.handle.process(), name, agent).await
    }
}

async fn drive<A: Agent>(mut agent: A, mut context: Context) {
    let end = match AssertUnwindSafe(live(&mut agent, &mut context))
        .catch_unwind()
        .await
    {
        Ok(end) => end,
        Err(panic) => AgentEnd::Panicked(panic_text(&*panic)),
    };
    let (handle, crew) = context.into_parts();
    let name = handle.aid().name.clone();
    // If the agent's destructor panics, the report must still be sent.
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(agent))) {
        tracing::error!(
            agent = name,
            "panicked while it was dropped: {}",
            panic_text(&*panic)
        );
    }
    let parting = match &end {
        AgentEnd::Left => {
            tracing::debug!(agent = name, "left");
            Parting::Ended
        }
        AgentEnd::Moved => {
            tracing::info!(agent = name, "moved to another process");
            Parting::Moved
        }
        AgentEnd::Failed(_) | AgentEnd::Panicked(_) => {
            tracing::error!(agent = name, "{end}");
            Parting::Failed(end.to_string())
        }
    };
    if parting != Parting::Moved {
        handle.until_delivered(TEARDOWN_LIMIT).await;
    }
    handle.leave(parting);
    // If the program has ended without waiting, nobody listens.
    let _ = crew.ends.send((name, end));
}

/// Drives an agent from `setup` or `restore` to `teardown`.
async fn live<A: Agent>(agent: &mut A, context: &mut Context) -> AgentEnd {
    let mut end = match work(agent, context).await {
        Ok(Course::Leave) => AgentEnd::Left,
        Ok(Course::Moved) => {
            // The agent goes on elsewhere, with the state that it had before these errors.
            while let Some(failed) = context.labour.waiting_error() {
                note_failure(context, &failed);
            }
            return AgentEnd::Moved;
        }
        Err(error) => AgentEnd::Failed(error),
    };
    context.labour.end(HOOK_GRACE).await;
    if let Some(error) = judge_last_errors(agent, context)
        && matches!(end, AgentEnd::Left)
    {
        end = AgentEnd::Failed(error);
    }
    hear_failures(agent, context).await;
    context.begin_teardown();
    match tokio::time::timeout(TEARDOWN_LIMIT, Box::pin(agent.teardown(context))).await {
        Ok(Ok(())) => end,
        // Report the first failure only.
        _ if matches!(end, AgentEnd::Failed(_)) => end,
        Ok(Err(error)) => AgentEnd::Failed(format!("in teardown: {error}").into()),
        Err(_) => AgentEnd::Failed(
            format!("teardown took longer than {} s", TEARDOWN_LIMIT.as_secs()).into(),
        ),
    }
}

/// Lets a leaving agent judge the errors that its tasks had meanwhile. Returns the first error that it fails with.
fn judge_last_errors<A: Agent>(
    agent: &mut A,
    context: &mut Context,
) -> Option<Box<dyn Error + Send + Sync>> {
    let mut first = None;
    while let Some(failed) = context.labour.waiting_error() {
        note_failure(context, &failed);
        // The agent leaves in any case, so it is not set up again.
        if agent.supervise(&failed) == Supervision::End {
            first.get_or_insert(failed.error);
        }
    }
    first
}

/// When the platform has given up the process, its agents hear of each message that may not have arrived.
async fn hear_failures<A: Agent>(agent: &mut A, context: &mut Context) {
    let hearing = async {
        while let Some(failure) = context.handle().try_receive_failure() {
            if let Err(error) = agent.on_message(context, Message::new(failure)).await {
                tracing::warn!(agent = context.name(), %error, "failed while it heard what was not delivered");
                return;
            }
        }
    };
    let heard = tokio::time::timeout(TEARDOWN_LIMIT, Box::pin(hearing)).await;
    if heard.is_err() {
        tracing::warn!(
            agent = context.name(),
            "did not hear of all messages that were not delivered within {} s",
            TEARDOWN_LIMIT.as_secs()
        );
    }
}

enum Course {
    Leave,
    Moved,
}

async fn work<A: Agent>(agent: &mut A, context: &mut Context) -> AgentResult<Course> {
    let wishes = context.handle().wishes();
    let began = match context.handle().take_state() {
        Some(state) => within_grace(&wishes, Box::pin(agent.restore(context, state))).await,
        None => within_grace(&wishes, Box::pin(agent.setup(context))).await,
    };
    let Some(()) = began.transpose()? else {
        return Ok(Course::Leave);
    };
    while !context.is_leaving() {
        let failed = match context.next().await {
            Next::Stop => break,
            Next::Failed(failed) => Some(failed),
            Next::Message(message) => {
                let origin = message.shared();
                let handling = Handling::of(context.aid(), &origin, message.provenance(), None);
                let hook = handling.within(agent.on_message(context, message));
                match within_grace(&wishes, Box::pin(hook)).await {
                    None => break,
                    Some(Ok(())) => None,
                    Some(Err(error)) => handling.enter(|| message_failed(context, &origin, error)),
                }
            }
            Next::Event(event) => {
                let channel = event.channel().clone();
                let question = event.is_request().then(|| event.clone());
                let place = Some(channel.as_str());
                let handling = Handling::of(context.aid(), &event, event.provenance(), place);
                let hook: Pin<Box<dyn Future<Output = AgentResult> + Send>> = match &question {
                    Some(_) => Box::pin(agent.on_question(context, event)),
                    None => Box::pin(agent.on_event(context, event)),
                };
                match within_grace(&wishes, Box::pin(handling.within(hook))).await {
                    None => break,
                    Some(Ok(())) => {
                        context.settle_events();
                        None
                    }
                    Some(Err(error)) => {
                        let (fault, act, _) = judge(&*error);
                        handling.enter(|| trace::failed(fault, &act, &*error));
                        if let Some(question) = question {
                            // This has no effect if the question was answered.
                            context.decline(&question);
                        }
                        let handled = format!("an event on {channel}");
                        Some(HandlerError { handled, error })
                    }
                }
            }
            Next::Freeze => {
                context.come_to_rest();
                // Once the move is wished, no task begins to work until the agent goes on.
                let labour = context.labour.clone();
                let mut rest = pin!(labour.rest());
                let _at_rest = tokio::time::timeout(HOOK_GRACE, &mut rest).await;
                match within_grace(&wishes, Box::pin(agent.save(context))).await {
                    None => {
                        context.handle().decline_move("it is being stopped");
                        break;
                    }
                    Some(Err(error)) => context.handle().decline_move(&error.to_string()),
                    Some(Ok(state)) => match context.handle().hand_over(state).await {
                        Thawed::GoOn => {}
                        Thawed::Gone => return Ok(Course::Moved),
                    },
                }
                None
            }
        };
        if let Some(failed) = failed
            && !go_on_after(agent, context, &wishes, failed).await?
        {
            break;
        }
    }
    Ok(Course::Leave)
}

/// Answers a message whose handler returned an error. Returns the error if the agent must deal with it.
fn message_failed(
    context: &mut Context,
    message: &AclMessage,
    error: Box<dyn Error + Send + Sync>,
) -> Option<HandlerError> {
    let (fault, failed) = context.answer_error(message, error);
    if fault == AtFault::Sender {
        context.count_failed();
    }
    (fault == AtFault::Agent).then_some(failed)
}

/// Counts and logs an error of a handler.
fn note_failure(context: &mut Context, failed: &HandlerError) {
    context.count_failed();
    let HandlerError { handled, error } = failed;
    tracing::error!(agent = context.name(), handled, %error, "a handler failed");
}

/// Carries out the agent's decision about an error of a handler. Returns false if the agent is being stopped.
async fn go_on_after<A: Agent>(
    agent: &mut A,
    context: &mut Context,
    wishes: &Wishes,
    failed: HandlerError,
) -> AgentResult<bool> {
    note_failure(context, &failed);
    match agent.supervise(&failed) {
        Supervision::Ignore => Ok(true),
        Supervision::End => Err(failed.error),
        Supervision::Restart => {
            context.labour.end(HOOK_GRACE).await;
            context.tools.clear();
            context.handlers.clear();
            let teardown = Box::pin(agent.teardown(context));
            if tokio::time::timeout(TEARDOWN_LIMIT, teardown)
                .await
                .is_err()
            {
                let limit = TEARDOWN_LIMIT.as_secs();
                return Err(format!("teardown took longer than {limit} s before a restart").into());
            }
            let began = within_grace(wishes, Box::pin(agent.setup(context))).await;
            Ok(began.transpose()?.is_some())
        }
    }
}

/// Runs a hook to its end. Once the agent must stop, the hook may run for at most [`HOOK_GRACE`] more. Returns `None`
/// if it was cancelled.
///
/// The hook is boxed: it may need kilobytes of memory while it runs, and an idle agent should not hold these.
async fn within_grace<T>(
    wishes: &Wishes,
    mut hook: Pin<Box<impl Future<Output = AgentResult<T>> + ?Sized>>,
) -> Option<AgentResult<T>> {
    let done = tokio::select! {
        biased;
        done = &mut hook => done,
        () = wishes.stop_wished() => match tokio::time::timeout(HOOK_GRACE, &mut hook).await {
            Ok(done) => done,
            Err(_) => return None,
        },
    };
    match done {
        // The stop interrupted the hook's wait. This is no failure of the agent.
        Err(error) if wishes.is_stop_wished() && is_stopping(&*error) => None,
        done => Some(done),
    }
}

impl Voice {
    /// Answers a message whose handler returned an error, and returns the party that must deal with the error.
    pub(crate) fn answer_error(
        &self,
        message: &AclMessage,
        error: Box<dyn Error + Send + Sync>,
    ) -> (AtFault, HandlerError) {
        let (fault, act, reason) = judge(&*error);
        trace::failed(fault, &act, &*error);
        let agent = self.name();
        let sender = message.sender.as_ref().map_or("nobody", |it| &it.name);
        let handled = format!("{} from {sender}", message.performative);
        match fault {
            AtFault::Nobody => tracing::debug!(agent, handled, "answers {act}: {reason}"),
            AtFault::Sender => tracing::warn!(agent, handled, "cannot be read: {reason}"),
            AtFault::Agent => {}
        }
        if let Some(answer) = answer(message, act, reason) {
            // The answer does not wait. So an agent that does not read its answers holds nobody up.
            let _ = self.try_send(answer);
        }
        (fault, HandlerError { handled, error })
    }

    /// The last message about something that was cut off. It is marked if the agent is being stopped.
    pub(crate) fn farewell(&self, word: AclMessage) -> AclMessage {
        match self.wishes.is_stop_wished() {
            true => word.with_user_defined(LEAVING_PARAMETER, "yes"),
            false => word,
        }
    }

    /// Whether an error only says that the agent is being stopped.
    pub(crate) fn is_only_stopped(&self, error: &(dyn Error + Send + Sync + 'static)) -> bool {
        self.wishes.is_stop_wished() && is_stopping(error)
    }
}

/// Whether an error only says that the agent is being stopped.
fn is_stopping(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    use crate::context::{ReceiveError, RequestError};
    let stopping = |error: &ReceiveError| {
        matches!(
            error,
            ReceiveError::Stopping { .. } | ReceiveError::Closed { .. }
        )
    };
    error.downcast_ref::<ReceiveError>().is_some_and(stopping)
        || error
            .downcast_ref::<RequestError>()
            .is_some_and(|error| matches!(error, RequestError::Receive(error) if stopping(error)))
}
