//! Requests and answers between the platform's own agents, as ACL messages over the bus. The content is JSON, and the
//! ontology is [`ONTOLOGY`]. The answer to a `request` is `inform` or, with a [`Fault`], `failure`. If a request could
//! not be delivered, the AMS answers with `failure`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealbus_bus::{Outbox, Provenance, ReceivedMessage, TrySendError};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ask::Ask;
use crate::asker::{Answered, Asker, parse, read, to_json};
use crate::node::{LANGUAGE, ONTOLOGY};
use crate::text::excerpt;
use crate::turns::{Turn, Turns};
use crate::{Fault, FaultCode, Term};

/// The user-defined parameter with the term of the asking Master, if there may be several.
const TERM: &str = "X-term";
/// How long the asker may take to make room for the answer.
const ANSWERING: Duration = Duration::from_secs(30);
/// The most characters of a receiver in the log.
const LONGEST_NAME: usize = 256;
/// The room for what is added to a message when it is sent.
const ADDED: usize = 1024;

/// The asking side of one of the platform's agents. It also sorts the agent's messages.
#[derive(Clone)]
pub struct Correspondent {
    outbox: Arc<Outbox>,
    /// The beginning of the `reply-with` of its requests, which the request's number follows. It distinguishes answers
    /// to this life of the agent from answers to an earlier one.
    life: Arc<str>,
    asker: Asker,
    /// The term of the asking Master.
    term: Option<Term>,
}

/// A request from another agent that needs an answer.
#[derive(Debug)]
pub struct Enquiry {
    /// Local name of the asker, as far as the bus knows it; the whole name if the asker belongs to another platform.
    pub from: String,
    /// The term in which the Master asks, if there may be several.
    pub term: Option<Term>,
    content: String,
    reply: EnquiryReply,
}

/// The right to answer an [`Enquiry`].
pub struct EnquiryReply {
    outbox: Arc<Outbox>,
    message: Box<AclMessage>,
}

impl std::fmt::Debug for EnquiryReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnquiryReply").finish_non_exhaustive()
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
            outbox,
            life: format!("q{life:x}-").into(),
            asker: Asker::default(),
            term: None,
        }
    }

    /// The same correspondent, for a Master that asks in its term.
    #[must_use]
    pub fn in_term(self, term: Option<Term>) -> Self {
        Self { term, ..self }
    }

    /// The outbox it sends through.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    fn aid(&self, agent: &str) -> Result<Aid, Fault> {
        let platform = &self.outbox.bus().config().platform;
        Aid::new(format!("{agent}@{platform}"))
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }

    /// Asks the agent with that local name, and waits for the answer for at most `patience`.
    ///
    /// # Errors
    /// The agent's fault, [`FaultCode::TooLarge`] if the request can never be sent, or [`FaultCode::Unavailable`] if
    /// the agent could not be reached in time.
    pub async fn ask<A: Ask>(
        &self,
        agent: &str,
        ask: A,
        patience: Duration,
    ) -> Result<A::Answer, Fault> {
        let content = content_of::<A::Requests>(&ask.into())?;
        let answer = self.answer(agent, content, patience).await?;
        A::take(read(agent, &answer)?)
    }

    async fn answer(&self, agent: &str, content: String, patience: Duration) -> Answered {
        let asked = self.asker.begin(agent)?;
        let tag = format!("{}{}", self.life, asked.number);
        let mut message = AclMessage::new(Performative::Request)
            .with_receiver(self.aid(agent)?)
            .with_ontology(ONTOLOGY)
            .with_language(LANGUAGE)
            .with_conversation_id(tag.as_str())
            .with_reply_with(tag)
            .with_content(content);
        if let Some(term) = self.term {
            message = message.with_user_defined(TERM, term.to_string());
        }
        let sending = async {
            check_size(&self.outbox, &message)?;
            let sent = self.outbox.send(message).await;
            sent.map(drop)
                .map_err(|error| Fault::new(FaultCode::Unavailable, error.to_string()))
        };
        asked.answer(sending, patience).await
    }

    /// Takes a message that came in, and gives a request its sender's turn. A request beyond the sender's turns is
    /// refused.
    pub fn receive_in_turn(
        &self,
        received: ReceivedMessage,
        turns: &Turns,
    ) -> Option<(Enquiry, Turn)> {
        let bytes = received.size();
        let enquiry = self.receive(received)?;
        let Some(turn) = turns.take(&enquiry.from, bytes) else {
            let message = "too many requests of yours wait for their answers";
            enquiry.refuse(&Fault::new(FaultCode::Unavailable, message));
            return None;
        };
        Some((enquiry, turn))
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
        let platform = self.outbox.bus().config().platform.as_str();
        let from = sender(&message, &provenance, platform);
        let tag = message.in_reply_to.as_ref().and_then(|tag| tag.as_str());
        if let Some(tag) = tag {
            let number = tag.strip_prefix(&*self.life).map(str::parse);
            if let Some(Ok(number)) = number {
                let notice = matches!(provenance, Provenance::Platform);
                self.asker.answered(number, |asked| {
                    (notice || asked == from).then(|| answer_of(&message, notice, asked))
                });
            }
            return None;
        }
        let ours = message.ontology.as_ref().and_then(|o| o.as_str()) == Some(ONTOLOGY);
        if ours
            && message.performative == Performative::Request
            && let Some(content) = message.content_text()
        {
            let reply = EnquiryReply {
                outbox: self.outbox.clone(),
                message: Box::new(answer(&message, Performative::Inform)),
            };
            let term = message.user_defined_value(TERM);
            return Some(Enquiry {
                from,
                term: term.and_then(|term| term.as_str()?.parse().ok()),
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
            let _ = self.outbox.try_send(reply);
        }
        None
    }
}

/// An answer that goes only to the sender of a message. A `reply-to` may name agents that the sender must not write to.
fn answer(message: &AclMessage, performative: Performative) -> AclMessage {
    let mut answer = message.create_reply(performative);
    answer.receivers = message.sender.iter().cloned().collect();
    answer
}

/// The sender of a message: the local name of an agent of this platform, or the whole name of any other. A whole name
/// is never a local one, because it has an `@`. At levels with proof, the claimed name is proved; otherwise the bus
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
        Performative::Inform => Ok(content.into()),
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

impl Enquiry {
    /// Refuses the request at once. If the asker has no room for the answer, it is not told.
    fn refuse(self, fault: &Fault) {
        let EnquiryReply {
            outbox,
            mut message,
        } = self.reply;
        message.performative = Performative::Failure;
        message.content = Some(content_of(fault).unwrap_or_default().into());
        let _ = outbox.try_send(*message);
    }

    /// Reads the request. Returns the asker, the request, and the right to answer.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`], which the caller must send as the answer.
    pub fn open<T: DeserializeOwned>(self) -> (String, Result<T, Fault>, EnquiryReply) {
        let request = parse(&self.content);
        (self.from, request, self.reply)
    }
}

impl EnquiryReply {
    /// Sends the answer.
    pub async fn send(self, result: Result<impl Serialize, Fault>) {
        self.send_if(result, |_| Ok(())).await;
    }

    /// Sends the answer to a request that has its sender's turn. If there is no room, and too many bytes of answers
    /// already wait for the sender, the answer is lost.
    pub async fn send_in(self, turn: &Turn, result: Result<impl Serialize, Fault>) {
        self.send_if(result, |bytes| turn.holds(bytes)).await;
    }

    /// Sends the answer. If there is no room, it waits if `may_wait` allows this for its length.
    async fn send_if(
        mut self,
        result: Result<impl Serialize, Fault>,
        may_wait: impl FnOnce(usize) -> Result<(), Fault>,
    ) {
        let answered = result.and_then(|answer| {
            self.message.content = Some(content_of(&answer)?.into());
            check_size(&self.outbox, &self.message)
        });
        if let Err(fault) = answered {
            self.message.performative = Performative::Failure;
            self.message.content = Some(content_of(&fault).unwrap_or_default().into());
        }
        let outbox = self.outbox;
        let receivers = self.message.receivers.iter();
        let receiver: String = receivers
            .map(|it| excerpt(&it.name, LONGEST_NAME))
            .collect();
        let bytes = self.message.content_bytes().map_or(0, <[u8]>::len);
        let lost = match outbox.try_send(*self.message) {
            Ok(()) => return,
            Err(TrySendError::Failed(error)) => error.to_string(),
            Err(TrySendError::Full(mut unsent)) => match may_wait(bytes) {
                Err(fault) => fault.message,
                Ok(()) => match tokio::time::timeout(ANSWERING, outbox.finish(&mut unsent)).await {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "its receiver takes none".to_owned(),
                },
            },
        };
        if let Some(left_out) = outbox.bus().admit_line(&receiver) {
            let agent = outbox.name();
            tracing::warn!(%agent, receiver, left_out, "an answer is given up: {lost}");
        }
    }
}

/// Refuses a message that is too large for other processes. The bus might find out only when nobody is left to be told.
fn check_size(outbox: &Outbox, message: &AclMessage) -> Result<(), Fault> {
    let Some(transport) = outbox.bus().transport() else {
        return Ok(());
    };
    let limit = transport.capabilities().largest_message;
    let content = message.content_bytes().map_or(0, <[u8]>::len);
    if content <= limit / 2 {
        return Ok(());
    }
    let mut encoded = Vec::new();
    bitefficient::encode(message, &mut encoded).map_err(Fault::internal)?;
    match encoded.len() + ADDED <= limit {
        true => Ok(()),
        false => {
            let message = format!(
                "the {} of {content} bytes is too large",
                message.performative
            );
            Err(Fault::new(FaultCode::TooLarge, message).advise(format!(
                "a message to another process has at most {limit} bytes"
            )))
        }
    }
}

/// A request, an answer or a fault as the content of a message.
fn content_of<T: Serialize>(value: &T) -> Result<String, Fault> {
    Ok(Box::<str>::from(to_json(value)?).into_string())
}

#[cfg(test)]
mod tests {
    use sealbus_bus::{Bus, BusConfig, MailboxLimits};
    use sealbus_seal::PlatformName;
    use tokio::runtime::Handle;
    use tokio::task::JoinSet;

    use super::*;
    use crate::turns::BYTES_OF_MEMBER;

    #[tokio::test]
    async fn answers_that_a_member_does_not_read_fill_no_memory() {
        const LONG: usize = 8 << 20;
        let platform = PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let (outbox, mut mailbox) = bus.attach("master@factory", None, None).unwrap();
        let narrow = MailboxLimits {
            messages: 1,
            bytes: 2 * LONG,
        };
        let (asker, _unread) = bus.attach("node-1@factory", None, Some(narrow)).unwrap();
        let (master, turns) = (Correspondent::new(Arc::new(outbox)), Turns::default());
        let mut answering = JoinSet::new();
        for number in 0..30 {
            let request = AclMessage::new(Performative::Request)
                .with_receiver(Aid::new("master@factory").unwrap())
                .with_ontology(ONTOLOGY)
                .with_reply_with(number.to_string())
                .with_content("{}");
            asker.send(request).await.unwrap();
            let received = mailbox.recv().await.unwrap();
            let (enquiry, turn) = master.receive_in_turn(received, &turns).unwrap();
            turn.is_members();
            let (_, _, reply) = enquiry.open::<serde_json::Value>();
            answering.spawn(async move { reply.send_in(&turn, Ok("x".repeat(LONG))).await });
        }
        // Answers that may not wait end at once, and those that wait would do so for long.
        let mut ended = 0;
        for _ in 0..1000 {
            ended += usize::from(answering.try_join_next().is_some());
            tokio::task::yield_now().await;
        }
        let waiting = answering.len();
        assert_eq!(ended + waiting, 30);
        assert!(
            (1..=BYTES_OF_MEMBER / LONG).contains(&waiting),
            "{waiting} wait"
        );
    }

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
        // Without a platform, the name belongs to no agent.
        assert_eq!(from("ams"), "ams@");
        let message = AclMessage::new(Performative::Inform);
        assert_eq!(sender(&message, &Provenance::Claimed, "factory"), "");
    }
}
