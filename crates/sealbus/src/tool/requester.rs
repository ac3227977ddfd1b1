//! The conversation of a tool with one requester.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sealbus_bus::{SendError, until};
use sealbus_fipa::{AclMessage, Expression, Number, Performative};
use tokio::sync::Notify;

use super::{
    JSON, MOST_AHEAD, MOST_PARTS, PARTIAL, PATIENCE, PROGRESS, TAKEN, WINDOW, batch, count,
};
use crate::body::{Body, WrittenBody};
use crate::context::Voice;
use crate::conversation::new_conversation_id;
use crate::message::Message;
use crate::supervision::AgentResult;

/// The requester of a tool, and the way to send it messages.
pub(super) struct Requester {
    pub(super) voice: Voice,
    pub(super) request: Message,
    /// The `reply-with` of the messages. By it, the platform's notices about them come to the conversation.
    pub(super) tag: String,
    /// How many parts the requester takes ahead; `None` if it takes only a final reply.
    window: Option<u64>,
    sent: AtomicU64,
    taken: AtomicU64,
    has_agreed: AtomicBool,
    /// Whether the work itself decides when it agrees.
    is_relay: bool,
    /// Parameters of every message to the requester.
    notes: Mutex<Vec<(String, Expression)>>,
    /// Notified when a field above changes.
    changed: Notify,
    /// Notified when the requester takes nothing any more.
    pub(super) abandoned: Notify,
    /// The parts for a requester that takes none, in JSON.
    kept: Mutex<Vec<String>>,
}

impl Requester {
    pub(super) fn new(voice: Voice, request: Message, is_relay: bool) -> Requester {
        let window = count(&request, WINDOW).map(|window| window.clamp(1, MOST_AHEAD));
        Requester {
            voice,
            request,
            tag: new_conversation_id(),
            window,
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            has_agreed: AtomicBool::new(false),
            is_relay,
            notes: Mutex::default(),
            changed: Notify::new(),
            abandoned: Notify::new(),
            kept: Mutex::default(),
        }
    }

    /// Sends `agree`, once.
    pub(super) async fn agree(&self) -> Result<(), SendError> {
        if self.has_agreed() {
            return Ok(());
        }
        self.send(self.reply(Performative::Agree)).await?;
        self.has_agreed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Whether the tool has sent `agree`.
    pub(super) fn has_agreed(&self) -> bool {
        self.has_agreed.load(Ordering::Relaxed)
    }

    /// Waits for `agree`, which comes before any part of the result.
    async fn begin(&self) -> AgentResult {
        if self.is_relay {
            self.agree().await?;
        }
        self.until(|| self.has_agreed()).await;
        Ok(())
    }

    /// Takes a message in which the requester tells how many parts it has taken.
    pub(super) fn hear(&self, message: &AclMessage) {
        let sent = self.sent.load(Ordering::Relaxed);
        let taken = count(message, TAKEN).unwrap_or(0).min(sent);
        self.taken.fetch_max(taken, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    fn ahead(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) - self.taken.load(Ordering::Relaxed)
    }

    /// Whether the requester still has to tell how many parts it has taken.
    pub(super) fn is_awaited(&self) -> bool {
        self.window
            .is_some_and(|window| self.ahead() >= batch(window))
    }

    /// The final reply of a tool that answers in parts. It has no content if the requester has got the parts.
    pub(super) fn kept(&self) -> Option<WrittenBody> {
        self.window.is_none().then(|| WrittenBody {
            content: format!("[{}]", self.kept.lock().join(",")).into(),
            language: Some(JSON.to_owned()),
            ontology: None,
        })
    }

    /// Waits until `is_so` holds.
    async fn until(&self, is_so: impl Fn() -> bool) {
        until(&self.changed, || is_so().then_some(())).await;
    }

    async fn give(&self, part: WrittenBody) -> AgentResult {
        let Some(window) = self.window else {
            return self.keep(part);
        };
        self.begin().await?;
        let room = self.until(|| self.ahead() < window);
        if self.voice.clock().timeout(PATIENCE, room).await.is_err() {
            self.abandoned.notify_one();
            // The tool is cancelled.
            std::future::pending::<()>().await;
        }
        let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let mut message = self.inform(PARTIAL, number.to_string());
        part.put_into(&mut message);
        Ok(self.send(message).await?)
    }

    fn keep(&self, part: WrittenBody) -> AgentResult {
        let Some(text) = part.content.as_text() else {
            return Err(format!("the parts are bytes: ask with {WINDOW}").into());
        };
        let text = match part.language {
            Some(_) => text.to_owned(),
            None => serde_json::to_string(text)?,
        };
        let mut kept = self.kept.lock();
        if kept.len() == MOST_PARTS {
            return Err(
                format!("there are more than {MOST_PARTS} parts: ask with {WINDOW}").into(),
            );
        }
        kept.push(text);
        Ok(())
    }

    /// Sends a message to the requester, which must make room for it within a minute, because others wait for its place.
    pub(super) async fn send(&self, message: AclMessage) -> Result<(), SendError> {
        let sending = self.voice.send(message);
        let sent = self.voice.clock().timeout(PATIENCE, sending).await;
        sent.unwrap_or_else(|_| {
            Err(SendError::AnswerNotTaken {
                sender: self.voice.agent().into(),
                receiver: self.request.sender_name().to_owned(),
            })
        })
    }

    /// A message to the requester.
    pub(super) fn reply(&self, performative: Performative) -> AclMessage {
        let mut reply = self.request.create_reply(performative);
        self.put_notes(&mut reply);
        reply.with_reply_with(self.tag.as_str())
    }

    /// Adds the parameters of every message.
    pub(super) fn put_notes(&self, message: &mut AclMessage) {
        message
            .user_defined
            .extend(self.notes.lock().iter().cloned());
    }

    fn inform(&self, name: &str, number: String) -> AclMessage {
        let message = self.reply(Performative::Inform);
        match Number::parse(&number) {
            Some(number) => message.with_user_defined(name, Expression::Number(number)),
            None => message,
        }
    }
}

/// The partial results of a tool; see [`Tool::streaming`](super::Tool::streaming).
pub struct Parts<C> {
    requester: Arc<Requester>,
    gives: PhantomData<fn(C)>,
}

impl<C: Body> Parts<C> {
    pub(super) fn new(requester: Arc<Requester>) -> Parts<C> {
        Parts {
            requester,
            gives: PhantomData,
        }
    }

    /// Gives a part to the requester. Waits while the requester has no room for a further part. After a minute of
    /// waiting, the tool is cancelled.
    ///
    /// # Errors
    /// If the part cannot be written or sent, or if there are more than 65,536 for a requester that takes no parts.
    pub async fn give(&self, part: &C) -> AgentResult {
        self.requester.give(part.write()?).await
    }

    /// Whether the requester takes parts. Otherwise it gets only the final reply.
    pub fn are_taken(&self) -> bool {
        self.requester.window.is_some()
    }

    /// Sends `agree`, if this is a [`relay`](super::Tool::relay) that has not agreed yet. Any other tool has agreed.
    ///
    /// # Errors
    /// If the message cannot be sent.
    pub async fn begin(&self) -> AgentResult {
        self.requester.begin().await
    }

    /// Adds this user-defined parameter to every further message to the requester.
    pub fn note(&self, name: impl Into<String>, value: impl Into<Expression>) {
        let note = (name.into(), value.into());
        self.requester.notes.lock().push(note);
    }

    /// Reports the progress of the tool, from 0 to 1, and its present work, for people.
    ///
    /// # Errors
    /// If the message cannot be sent.
    pub async fn progress(&self, done: f64, text: impl Into<String>) -> AgentResult {
        let requester = &self.requester;
        if requester.window.is_none() {
            return Ok(());
        }
        requester.begin().await?;
        let message = requester
            .inform(PROGRESS, format!("{done:?}"))
            .with_content(text.into());
        Ok(requester.send(message).await?)
    }
}

impl<C> fmt::Debug for Parts<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("request", &self.requester.request.to_string())
            .finish_non_exhaustive()
    }
}
