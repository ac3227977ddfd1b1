//! The agent of this crate: a value with hooks, driven by its messages.

use std::future::Future;

use crate::channel::ChannelEvent;
use crate::context::Context;
use crate::message::Message;
use crate::supervision::{AgentResult, HandlerError, Supervision};
use sealbus_fipa::Performative;

/// An agent: its state, and its reactions to events.
///
/// All hooks have a default, and all are plain `async fn`s in an implementation. They run one after the other, so an
/// agent never sees itself half changed. Thousands of agents share one thread, so a hook must wait with `.await` and
/// never block.
///
/// | hook | when | default |
/// |---|---|---|
/// | [`setup`](Agent::setup) | once, when the agent is certified and on the bus | nothing |
/// | [`on_message`](Agent::on_message) | for each message that no `receive` or `request` took | answers `not-understood` |
/// | [`on_event`](Agent::on_event) | for each event of the channels the agent [listens](Context::listen) to | nothing |
/// | [`on_question`](Agent::on_question) | for each request to everyone on them | declines |
/// | [`teardown`](Agent::teardown) | once, before the agent leaves: on its own wish, Ctrl-C, SIGTERM, `sealbus kill` | nothing |
/// | [`save`](Agent::save) | before the agent moves to another node | an empty state |
/// | [`restore`](Agent::restore) | instead of `setup`, at the node it moved to | `setup` |
///
/// An error of a handler (`on_message`, `on_event`, `on_question`) is an answer: the sender gets `failure` without
/// the error's text, which is for the log, or `not-understood` for a [`ContentError`](crate::ContentError), or the act
/// and the reason of a [`Refuse`](crate::Refuse), [`NotUnderstood`](crate::NotUnderstood) or
/// [`Failure`](crate::Failure). The agent lives. A panic, and an error in another hook, ends this agent and no other.
///
/// ```
/// use sealbus::{AclMessage, Agent, AgentResult, Context, Performative, Message, agent, run};
///
/// struct Echo;
///
/// impl Agent for Echo {
///     async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
///         context.reply(&message, Performative::Inform, message.text()?).await?;
///         Ok(())
///     }
/// }
///
/// struct Caller;
///
/// impl Agent for Caller {
///     async fn setup(&mut self, context: &mut Context) -> AgentResult {
///         let call = AclMessage::new(Performative::Request)
///             .with_receiver(context.peer("echo")?)
///             .with_content("anybody there?");
///         let answer = context.request(call, std::time::Duration::from_secs(5)).await?;
///         assert_eq!(answer.text()?, "anybody there?");
///         context.stop_all();
///         Ok(())
///     }
/// }
///
/// run([agent("echo", Echo), agent("caller", Caller)])?;
/// # Ok::<(), sealbus::RunError>(())
/// ```
pub trait Agent: Send + 'static {
    /// Called once, when the agent has its certificate and can send and receive.
    ///
    /// The hook may take any time. An agent that only acts, and never waits for questions, does all its work here and
    /// ends with [`Context::stop`]. Messages that arrive in the meantime wait in the mailbox, in order. An agent can be
    /// moved once this hook has returned.
    fn setup(&mut self, context: &mut Context) -> impl Future<Output = AgentResult> + Send {
        let _ = context;
        async { Ok(()) }
    }

    /// Called with each message, in the order of arrival, one after the other.
    ///
    /// The default answers `not-understood`, as FIPA requires of an agent that cannot handle a message. It does not
    /// answer the acts `not-understood` and `failure`, which end an exchange.
    fn on_message(
        &mut self,
        context: &mut Context,
        message: Message,
    ) -> impl Future<Output = AgentResult> + Send {
        async move {
            if matches!(
                message.performative,
                Performative::NotUnderstood | Performative::Failure
            ) {
                return Ok(());
            }
            let answer = message.create_reply(Performative::NotUnderstood);
            context.send(answer).await?;
            Ok(())
        }
    }

    /// Called with each event, and each message to this agent, of the channels the agent [listens](Context::listen) to.
    fn on_event(
        &mut self,
        context: &mut Context,
        event: ChannelEvent,
    ) -> impl Future<Output = AgentResult> + Send {
        let _ = (context, event);
        async { Ok(()) }
    }

    /// Called with each request to everyone on a channel that the agent listens to, if it listens with
    /// [`answering`](crate::channel::Subscribing::answering). Answer with [`Context::answer`].
    ///
    /// The default declines, so that the requester does not wait.
    fn on_question(
        &mut self,
        context: &mut Context,
        question: ChannelEvent,
    ) -> impl Future<Output = AgentResult> + Send {
        async move {
            context.decline(&question);
            Ok(())
        }
    }

    /// Decides how the agent goes on after an error of a handler. The error is answered already. A
    /// [`Refuse`](crate::Refuse), a [`NotUnderstood`](crate::NotUnderstood) and an unreadable message are not faults of
    /// the agent, and do not come here.
    ///
    /// By default the agent goes on.
    fn supervise(&mut self, failed: &HandlerError) -> Supervision {
        let _ = failed;
        Supervision::Ignore
    }

    /// Called once before the agent leaves. The agent can still send, search and deregister, for at most
    /// [`TEARDOWN_LIMIT`](crate::process::TEARDOWN_LIMIT).
    fn teardown(&mut self, context: &mut Context) -> impl Future<Output = AgentResult> + Send {
        let _ = context;
        async { Ok(()) }
    }

    /// Returns the state to carry to another node. Called between two messages when the agent is moved.
    ///
    /// Messages that the agent has not seen yet travel with it, and messages sent in the meantime follow it. No message
    /// is lost, and none comes twice. After an error the agent stays at its node and goes on running.
    ///
    /// The agent's subscriptions, including those that its tasks read, rest before this call. They hand out nothing
    /// until the agent goes on. A durable subscription continues at the other node from the same event. Any other
    /// subscription ends with the move, and the log says how many events it missed.
    fn save(&mut self, context: &mut Context) -> impl Future<Output = AgentResult<Vec<u8>>> + Send {
        let _ = context;
        async { Ok(Vec::new()) }
    }

    /// Takes over the state that [`save`](Agent::save) returned at the previous node. Called instead of
    /// [`setup`](Agent::setup).
    fn restore(
        &mut self,
        context: &mut Context,
        state: Vec<u8>,
    ) -> impl Future<Output = AgentResult> + Send {
        drop(state);
        self.setup(context)
    }
}
