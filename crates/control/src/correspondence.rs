//! Requests and answers between the platform's own agents, as ACL messages over the bus: content in
//! JSON, ontology [`ONTOLOGY`]. A `request` is answered by `inform` or, with a [`Fault`], by
//! `failure`; a request that could not be delivered is answered by the AMS's `failure`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sealbus_bus::{Outbox, Provenance, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Performative};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::node::{LANGUAGE, ONTOLOGY};
use crate::{Fault, FaultCode};

/// How long the one who asked may take to make room for the answer.
const ANSWERING: Duration = Duration::from_secs(30);
/// Most requests of one agent that wait for answers; more are refused.
const MOST_PENDING: usize = 100_000;

type Answered = Result<String, Fault>;

/// The asking end of one of the platform's agents, and the place its messages are sorted.
#[derive(Clone)]
pub struct Correspondent {
    inner: Arc<Inner>,
}

struct Inner {
    outbox: Arc<Outbox>,
    /// Tells the answers to an earlier life of this agent from those to this one.
    life: u128,
    next: AtomicU64,
    pending: Mutex<HashMap<String, (String, oneshot::Sender<Answered>)>>,
}

/// A request of another agent, to be answered.
#[derive(Debug)]
pub struct Enquiry {
    /// Local name of the one who asks, as far as the bus knows it; the whole name if it is of another platform.
    pub from: String,
    content: String,
    reply: Reply,
}

/// The answer to an [`Enquiry`] to be.
pub struct Reply {
    outbox: Arc<Outbox>,
    message: Box<AclMessage>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl Correspondent {
    /// Sends through `outbox`.
    pub fn new(outbox: Arc<Outbox>) -> Self {
        let life = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        Self {
            inner: Arc::new(Inner {
                outbox,
                life,
                next: AtomicU64::new(0),
                pending: Mutex::default(),
            }),
        }
    }

    /// The path it sends through.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.inner.outbox
    }

    fn aid(&self, agent: &str) -> Result<Aid, Fault> {
        let platform = &self.inner.outbox.bus().config().platform;
        Aid::new(format!("{agent}@{platform}"))
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }

    /// Asks the agent with that local name, and waits for the answer, at most `patience`.
    ///
    /// # Errors
    /// Its fault, or [`FaultCode::Unavailable`] if it could not be reached in time.
    pub async fn ask<A: DeserializeOwned>(
        &self,
        agent: &str,
        request: &impl Serialize,
        patience: Duration,
    ) -> Result<A, Fault> {
        let content = to_json(request)?;
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let tag = format!("q{:x}-{number}", self.inner.life);
        let message = AclMessage::new(Performative::Request)
            .with_receiver(self.aid(agent)?)
            .with_ontology(ONTOLOGY)
            .with_language(LANGUAGE)
            .with_conversation_id(tag.as_str())
            .with_reply_with(tag.as_str())
            .with_content(content);
        let (answer, answered) = oneshot::channel();
        {
            let mut pending = self.inner.pending.lock();
            if pending.len() >= MOST_PENDING {
                return Err(Fault::new(
                    FaultCode::Unavailable,
                    "too many requests wait for answers",
                ));
            }
            pending.insert(tag.clone(), (agent.to_owned(), answer));
        }
        let forget = Forget {
            inner: &self.inner,
            tag,
        };
        let wait = async {
            self.inner
                .outbox
                .send(message)
                .await
                .map_err(|error| Fault::new(FaultCode::Unavailable, error.to_string()))?;
            answered
                .await
                .unwrap_or_else(|_| Err(Fault::new(FaultCode::Unavailable, "gone")))
        };
        let content = tokio::time::timeout(patience, wait).await.map_err(|_| {
            let message = format!("{agent} did not answer within {patience:?}");
            Fault::new(FaultCode::Unavailable, message)
        })??;
        drop(forget);
        serde_json::from_str(&content).map_err(|error| {
            let message = format!("the answer of {agent} could not be read: {error}");
            Fault::new(FaultCode::Internal, message).advise("both may be of different versions")
        })
    }

    /// Takes a message that came in: an answer goes to the one who waits for it, a request of the
    /// platform's ontology is returned, anything else is answered with `not-understood`.
    pub fn receive(&self, received: ReceivedMessage) -> Option<Enquiry> {
        let provenance = received.provenance().clone();
        // The platform's own agents speak with nobody outside.
        if matches!(provenance, Provenance::Foreign(_)) {
            return None;
        }
        let message = received.into_message();
        let platform = self.inner.outbox.bus().config().platform.as_str();
        let from = sender(&message, &provenance, platform);
        let tag = message.in_reply_to.as_ref().and_then(|tag| tag.as_str());
        if let Some(tag) = tag {
            let mut pending = self.inner.pending.lock();
            let notice = matches!(provenance, Provenance::Platform);
            let fits = pending
                .get(tag)
                .is_some_and(|(asked, _)| notice || *asked == from);
            if fits && let Some((asked, answer)) = pending.remove(tag) {
                let _ = answer.send(answer_of(&message, notice, &asked));
            }
            return None;
        }
        let ours = message.ontology.as_ref().and_then(|o| o.as_str()) == Some(ONTOLOGY);
        if ours
            && message.performative == Performative::Request
            && let Some(content) = message.content_text()
        {
            let reply = Reply {
                outbox: self.inner.outbox.clone(),
                message: Box::new(answer(&message, Performative::Inform)),
            };
            return Some(Enquiry {
                from,
                content: content.to_owned(),
                reply,
            });
        }
        let silent = [
            Performative::NotUnderstood,
            Performative::Failure,
            Performative::Inform,
        ];
        if !silent.contains(&message.performative) {
            let mut reply = answer(&message, Performative::NotUnderstood);
            reply.content = message.content.clone();
            // An asker that is not understood has to read the answer, or loses it.
            let _ = self.inner.outbox.try_send(reply);
        }
        None
    }
}

/// An answer to the sender of a message alone: whoever else its `reply-to` names may be one that the sender must not
/// write to.
fn answer(message: &AclMessage, performative: Performative) -> AclMessage {
    let mut answer = message.create_reply(performative);
    answer.receivers = message.sender.iter().cloned().collect();
    answer
}

/// Who wrote a message: the local name of an agent of this platform, the whole name of another, which is never a local
/// one, because it holds an `@`. At the levels that prove it the claimed name is proved, or the bus had refused the
/// message.
fn sender(message: &AclMessage, provenance: &Provenance, platform: &str) -> String {
    if matches!(provenance, Provenance::Platform) {
        return String::new();
    }
    match &message.sender {
        Some(sender) if sender.platform() == Some(platform) => sender.local_name().to_owned(),
        Some(sender) => format!(
            "{}@{}",
            sender.local_name(),
            sender.platform().unwrap_or_default()
        ),
        None => String::new(),
    }
}

fn answer_of(message: &AclMessage, notice: bool, asked: &str) -> Answered {
    let content = message.content_text().unwrap_or_default();
    match &message.performative {
        Performative::Inform => Ok(content.to_owned()),
        Performative::Failure if !notice => match serde_json::from_str(content) {
            Ok(fault) => Err(fault),
            Err(_) => Err(Fault::new(
                FaultCode::Internal,
                format!("{asked}: {content}"),
            )),
        },
        Performative::Failure => {
            let message = format!("{asked} could not be reached: {content}");
            Err(Fault::new(FaultCode::Unavailable, message))
        }
        other => {
            let message = format!("{asked} answered {other}: {content}");
            Err(Fault::new(FaultCode::BadRequest, message))
        }
    }
}

struct Forget<'a> {
    inner: &'a Inner,
    tag: String,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.inner.pending.lock().remove(&self.tag);
    }
}

impl Enquiry {
    /// Refuses it at once. One who takes no answers does not learn of it.
    pub fn refuse(self, fault: &Fault) {
        let Reply {
            outbox,
            mut message,
        } = self.reply;
        message.performative = Performative::Failure;
        message.content = Some(to_json(fault).unwrap_or_default().into());
        let _ = outbox.try_send(*message);
    }

    /// Reads what is asked, and says where to answer.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`], to be answered.
    pub fn open<T: DeserializeOwned>(self) -> (String, Result<T, Fault>, Reply) {
        let request = serde_json::from_str(&self.content).map_err(|error| {
            Fault::new(
                FaultCode::BadRequest,
                format!("the request could not be read: {error}"),
            )
        });
        (self.from, request, self.reply)
    }
}

impl Reply {
    /// Answers.
    pub async fn send(mut self, result: Result<impl Serialize, Fault>) {
        let content = match result.and_then(|answer| to_json(&answer)) {
            Ok(content) => content,
            Err(fault) => {
                self.message.performative = Performative::Failure;
                to_json(&fault).unwrap_or_default()
            }
        };
        self.message.content = Some(content.into());
        let name = self.outbox.name().clone();
        match tokio::time::timeout(ANSWERING, self.outbox.send(*self.message)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(agent = %name, %error, "an answer could not be sent");
            }
            Err(_) => {
                tracing::warn!(agent = %name, "an answer is given up: its receiver takes none")
            }
        }
    }
}

fn to_json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_asker_is_answered_whatever_its_reply_to_says() {
        let mut message = AclMessage::new(Performative::Request)
            .with_sender(Aid::new("mallory@factory").unwrap());
        for number in 0..20_000 {
            message
                .reply_to
                .push(Aid::new(format!("victim{number}@factory")).unwrap());
        }
        let answer = answer(&message, Performative::Inform);
        assert_eq!(answer.receivers, [Aid::new("mallory@factory").unwrap()]);
    }

    #[test]
    fn a_name_of_another_platform_is_never_taken_for_ours() {
        let from = |name: &str| {
            let message =
                AclMessage::new(Performative::Inform).with_sender(Aid::new(name).unwrap());
            sender(&message, &Provenance::Claimed, "factory")
        };
        assert_eq!(from("ams@factory"), "ams");
        assert_eq!(from("ams@elsewhere"), "ams@elsewhere");
        assert_eq!(from("ams@factory@elsewhere"), "ams@factory@elsewhere");
        assert_eq!(from("ams@Factory"), "ams@Factory");
        // Without a platform it is nobody's.
        assert_eq!(from("ams"), "ams@");
        let message = AclMessage::new(Performative::Inform);
        assert_eq!(sender(&message, &Provenance::Claimed, "factory"), "");
    }
}
