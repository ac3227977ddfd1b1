//! Messages that come after the conversation with their sender has ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sealbus_bus::Conversation;
use sealbus_protocols::Initiator;

use super::timeline::Timeline;
use crate::context::Voice;
use crate::message::Message;
use crate::supervision::AgentResult;

/// How long an ended conversation rejects proposals.
const REJECTS: Duration = Duration::from_secs(60);
/// The handler of late messages.
#[derive(Clone)]
pub(super) struct LateHandler(
    Arc<dyn Fn(Voice, Message) -> BoxFuture<'static, AgentResult> + Send + Sync>,
);

impl LateHandler {
    pub(super) fn new<F, W>(handler: F) -> Self
    where
        F: Fn(Voice, Message) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        Self(Arc::new(move |voice, message| {
            handler(voice, message).boxed()
        }))
    }

    /// Gives the handler a message, in a task of its own.
    pub(super) fn give(&self, voice: &Voice, message: Message) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (voice, work) = (voice.clone(), (self.0)(voice.clone(), message));
        runtime.spawn(async move {
            if let Err(error) = work.await
                && !voice.is_only_stopped(&*error)
            {
                let agent = voice.name();
                tracing::warn!(agent, %error, "the handler of a late message failed");
            }
        });
    }
}

/// Answers the proposals that come after the end, and gives late messages to the handler.
pub(super) async fn linger(
    mut machine: Initiator,
    messages: Conversation,
    voice: Voice,
    time: Timeline,
    late: Option<LateHandler>,
) {
    let is_wanted = late.is_some();
    let entered = is_wanted.then(|| voice.lingering.enter());
    let rejecting = voice.clock.clone();
    let over = async move {
        match entered {
            Some(ends) => drop(ends.await),
            None => rejecting.sleep(REJECTS).await,
        }
    };
    let mut over = std::pin::pin!(over);
    while is_wanted || machine.may_come_late() {
        let received = tokio::select! {
            received = voice.receive_in(&messages, |_| true) => received,
            () = &mut over => return,
        };
        let Ok(received) = received else {
            return;
        };
        let message = Message::new(received);
        let Err(refused) = machine.receive(&message, time.now()) else {
            continue;
        };
        let is_late = refused.is_late();
        if let Some(answer) = refused.answer {
            voice.tell(*answer);
        }
        if let Some(late) = late.as_ref().filter(|_| is_late) {
            late.give(&voice, message);
        }
    }
}
