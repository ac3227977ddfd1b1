//! The tools of an agent, and the tasks that serve their requests.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use sealbus_bus::{Conversation, ConversationOpen, Mailbox, ReceivedMessage};
use sealbus_fipa::management::ServiceDescription;
use sealbus_fipa::{Expression, Performative};

use super::{PATIENCE, PROTOCOL, Requester, Tool};
use crate::context::Voice;
use crate::conversation::{Undelivered, new_conversation_id};
use crate::fault::AtFault;
use crate::filter::Filter;
use crate::labour::{Labour, LabourPermit};
use crate::message::Message;
use crate::supervision::{Refuse, answer, judge, saying};
use crate::trace::{self, Handling};

/// The tools of an agent.
#[derive(Default)]
pub(crate) struct Tools {
    list: Vec<Tool>,
}

impl Tools {
    pub(crate) fn offer(&mut self, tool: Tool) {
        self.list.retain(|other| other.name != tool.name);
        self.list.push(tool);
    }

    pub(crate) fn services(&self) -> Vec<ServiceDescription> {
        let entries = self.list.iter().filter(|it| !it.is_relay);
        entries.map(Tool::service).collect()
    }

    /// Gives a message to its tool. Returns the message if there is no such tool. A `cancel` ends a request that waits
    /// in the mailbox until its tool has room.
    pub(crate) fn serve(
        &self,
        received: ReceivedMessage,
        mailbox: &mut Mailbox,
        voice: &Voice,
        labour: &Labour,
    ) -> Option<ReceivedMessage> {
        if let Some(tool) = self.asked(&received) {
            let Some(place) = labour.place(&tool.places) else {
                return Some(received);
            };
            let request = Message::new(received);
            let serving = Serving {
                tool: tool.clone(),
                voice: voice.clone(),
                labour: labour.clone(),
            };
            // A `cancel` that follows at once also comes to the conversation.
            match serving.open(&request) {
                Ok(conversation) => {
                    let requester = Requester::new(voice.clone(), request, tool.is_relay);
                    conversation.expect_reply_to(&requester.tag);
                    let requester = Arc::new(requester);
                    let last_word = LastWord {
                        requester: Some(requester.clone()),
                        _place: place,
                    };
                    labour.employ(serving.serve(requester, conversation, last_word));
                }
                Err(taken) => serving.fail(&request, taken.into(), None),
            }
            return None;
        }
        if self.is_cancel(&received) {
            let cancel = Message::new(received);
            voice.tell(match self.withdraw(&cancel, mailbox) {
                Some(_) => cancel.create_reply(Performative::Inform),
                None => saying(&cancel, Performative::Failure, "it has ended already"),
            });
            return None;
        }
        Some(received)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    fn asked(&self, received: &ReceivedMessage) -> Option<&Tool> {
        let message = received.message();
        let is_only = self.list.len() == 1;
        self.list.iter().find(|it| it.is_asked(&message, is_only))
    }

    /// Whether a message must wait until its tool has room.
    pub(crate) fn is_waiting(&self, received: &ReceivedMessage) -> bool {
        self.asked(received)
            .is_some_and(|tool| tool.places.available_permits() == 0)
    }

    /// Takes out the request that a `cancel` is about. A request that is being served gets its `cancel` in its conversation.
    fn withdraw(&self, cancel: &Message, mailbox: &mut Mailbox) -> Option<ReceivedMessage> {
        let id = cancel
            .conversation_id
            .as_ref()
            .and_then(Expression::as_str)?;
        let from = Filter::sender(cancel.sender.as_ref()?);
        mailbox.try_receive_named(id, |it| {
            self.asked(it).is_some() && from.takes(&it.message())
        })
    }

    fn is_cancel(&self, received: &ReceivedMessage) -> bool {
        let message = received.message();
        !self.is_empty()
            && message.performative() == Performative::Cancel
            && message
                .protocol()
                .is_some_and(|it| it.eq_ignore_ascii_case(PROTOCOL))
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

struct Serving {
    tool: Tool,
    voice: Voice,
    labour: Labour,
}

/// How a tool's work for a request ended.
enum End {
    /// The work did not begin.
    Declined,
    /// The requester has the final reply.
    Answered,
    /// The requester has left. Its `cancel`, if it sent one.
    Unwanted(Option<Message>),
    /// The agent is leaving.
    Cut,
}

impl Serving {
    fn open(&self, request: &Message) -> Result<Conversation, ConversationOpen> {
        let conversations = &self.voice.conversations;
        let id = request.conversation_id.as_ref();
        match id.and_then(Expression::as_str) {
            Some(id) => conversations.open_with(id, request.sender_name()),
            None => Ok(conversations.open_reply(None, &new_conversation_id())),
        }
    }

    async fn serve(
        self,
        requester: Arc<Requester>,
        conversation: Conversation,
        mut last_word: LastWord,
    ) {
        self.voice.clock.note();
        let end = {
            let request = &requester.request;
            let own = self.voice.aid();
            let handling = Handling::of(own, request, request.provenance(), None);
            handling.within(self.work(&requester, &conversation)).await
        };
        if matches!(end, End::Cut) {
            return;
        }
        last_word.requester = None;
        drop(last_word);
        let answered = match end {
            End::Answered => true,
            End::Unwanted(None) => false,
            End::Unwanted(Some(cancel)) => {
                self.voice.tell(cancel.create_reply(Performative::Inform));
                return;
            }
            End::Declined | End::Cut => return,
        };
        // Later messages of the conversation are still for this request.
        let rest = async {
            while (!answered || requester.is_awaited())
                && let Ok(received) = self.voice.receive_in(&conversation, |_| true).await
            {
                requester.hear(&Message::new(received));
            }
        };
        let _ = self.voice.clock.timeout(PATIENCE, rest).await;
    }

    /// Works for a request.
    async fn work(&self, requester: &Arc<Requester>, conversation: &Conversation) -> End {
        let request = &requester.request;
        let is_cancel = |it: &ReceivedMessage| {
            let message = it.message();
            message.performative() == Performative::Cancel
                && (message.sender()).is_some_and(|it| it.name() == request.sender_name())
        };
        if let Some(cancel) = conversation.try_receive_matching(is_cancel) {
            return End::Unwanted(Some(Message::new(cancel)));
        }
        let mut work = match (self.tool.serve)(request, requester) {
            Ok(work) => Box::pin(self.labour.guard(work)),
            Err(error) => {
                self.fail(request, error, None);
                return End::Declined;
            }
        };
        // The function may refuse before it first waits.
        let first = std::future::poll_fn(|waiting| Poll::Ready(work.as_mut().poll(waiting))).await;
        let mut done = match first {
            Poll::Ready(Err(error)) if error.is::<Refuse>() => {
                self.fail(request, error, Some(requester));
                return End::Declined;
            }
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        };
        if !self.tool.is_relay
            && let Err(error) = requester.agree().await
        {
            tracing::debug!(agent = self.voice.agent(), %error, "a tool could not agree");
            return End::Declined;
        }
        let done = loop {
            if let Some(done) = done.take() {
                break done;
            }
            tokio::select! {
                biased;
                finished = &mut work => done = Some(finished),
                () = requester.abandoned.notified() => return End::Unwanted(None),
                received = self.voice.receive_in(conversation, |_| true) => {
                    let Ok(received) = received else {
                        return End::Cut;
                    };
                    let message = Message::new(received);
                    if Undelivered::read(&message).is_some() {
                        return End::Unwanted(None);
                    }
                    if message.sender_name() != request.sender_name() {
                        continue;
                    }
                    if message.performative == Performative::Cancel {
                        return End::Unwanted(Some(message));
                    }
                    requester.hear(&message);
                }
            }
        };
        match done {
            Ok(body) => {
                let mut reply = requester.reply(Performative::Inform);
                if let Some(body) = body {
                    body.put_into(&mut reply);
                }
                let said = async {
                    requester.agree().await?;
                    requester.send(reply).await
                };
                if let Err(error) = said.await {
                    self.fail(request, error.into(), Some(requester));
                }
            }
            Err(error) => self.fail(request, error, Some(requester)),
        }
        End::Answered
    }

    /// Answers a request that failed. After `agree`, a refusal comes too late and becomes a failure.
    fn fail(
        &self,
        request: &Message,
        error: Box<dyn Error + Send + Sync>,
        requester: Option<&Requester>,
    ) {
        let (fault, act, reason) = judge(&*error);
        let act = match act {
            Performative::Refuse if requester.is_some_and(Requester::has_agreed) => {
                Performative::Failure
            }
            act => act,
        };
        trace::failed(fault, &act, &*error);
        let is_only_stopped = self.voice.is_only_stopped(&*error);
        if let Some(mut answer) = answer(request, act, reason) {
            if is_only_stopped {
                answer = self.voice.farewell(answer);
            }
            if let Some(requester) = requester {
                requester.put_notes(&mut answer);
            }
            self.voice.tell(answer);
        }
        if fault == AtFault::Agent && !is_only_stopped {
            let handled = format!("{request} for the tool {}", self.tool.name);
            self.labour.report(handled, error);
        }
    }
}

/// If the tool is cut off, tells the requester that nothing more comes, before the agent comes to rest.
struct LastWord {
    requester: Option<Arc<Requester>>,
    _place: LabourPermit,
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if let Some(requester) = &self.requester {
            let failure = Performative::Failure;
            let word = saying(&requester.request, failure, "the agent has left");
            requester.voice.tell(requester.voice.farewell(word));
        }
    }
}
