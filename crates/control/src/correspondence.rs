//! Requests and answers between the platform's own agents, as ACL messages over the bus. The content is JSON, the
//! ontology [`ONTOLOGY`]. The answer to a `request` is `inform` or, with a [`Fault`], `failure`. If a request could not
//! be delivered, the AMS answers with `failure`.

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

/// How long the asker may take to make room for the answer.
const ANSWERING: Duration = Duration::from_secs(30);
/// Most requests of one agent that wait for answers. Further requests are refused.
const MOST_PENDING: usize = 100_000;

type Answered = Result<String, Fault>;

/// The asking end of one of the platform's agents. It also sorts the agent's messages.
#[derive(Clone)]
pub struct Correspondent {
    inner: Arc<Inner>,
}

struct Inner {
    outbox: Arc<Outbox>,
    /// Distinguishes answers to this life of the agent from answers to an earlier one.
    life: u128,
    next: AtomicU64,
    pending: Mutex<HashMap<String, (String, oneshot::Sender<Answered>)>>,
}

/// A request from another agent that needs an answer.
#[derive(Debug)]
pub struct Enquiry {
    /// Local name of the asker, as far as the bus knows it; the whole name if the asker is of another platform.
    pub from: String,
    content: String,
    reply: Reply,
}

/// The right to answer an [`Enquiry`].
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
    /// Makes a correspondent that sends through `outbox`.
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

    /// The outbox it sends through.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.inner.outbox
    }

    fn aid(&self, agent: &str) -> Result<Aid, Fault> {
        let platform = &self.inner.outbox.bus().config().platform;
        Aid::new(format!("{agent}@{platform}"))
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }

    /// Asks the agent with that local name, and waits for the answer for at most `patience`.
    ///
    /// # Errors
    /// The agent's fault, or [`FaultCode::Unavailable`] if the agent could not be reached in time.
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

    /// Takes a message that came in. An answer goes to the task that waits for it. A request in the platform's ontology
    /// is returned. Any other message is answered with `not-understood`.
    pub fn receive(&self, received: ReceivedMessage) -> Option<Enquiry> {
        let provenance = received.provenance().clone();
        // The platform's own agents do not speak with other platforms.
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
            // If the asker does not read the answer, the answer is lost.
            let _ = self.inner.outbox.try_send(reply);
        }
        None
    }
}

/// An answer to the sender of a message alone. A `reply-to` may name agents that the sender must not write to.
fn answer(message: &AclMessage, performative: Performative) -> AclMessage {
    let mut answer = message.create_reply(performative);
    answer.receivers = message.sender.iter().cloned().collect();
    answer
}

/// The sender of a message: the local name of an agent of this platform, or the whole name of another. A whole name is
/// never a local one, because it has an `@`. At the levels with proof the claimed name is proved; otherwise the bus
/// would have refused the message.
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
    /// Refuses the request at once. An asker without room for the answer does not learn of it.
    pub fn refuse(self, fault: &Fault) {
        let Reply {
            outbox,
            mut message,
        } = self.reply;
        message.performative = Performative::Failure;
        message.content = Some(to_json(fault).unwrap_or_default().into());
        let _ = outbox.try_send(*message);
    }

    /// Reads the request. Returns the asker, the request, and the right to answer.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`], which the caller must send as the answer.
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
    /// Sends the answer.
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
        // Without a platform the name belongs to no agent.
        assert_eq!(from("ams"), "ams@");
        let message = AclMessage::new(Performative::Inform);
        assert_eq!(sender(&message, &Provenance::Claimed, "factory"), "");
    }
}
