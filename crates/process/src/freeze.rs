//! Moving: all agents of the process come to rest, hand over state and unread messages, and wait for the outcome.
//!
//! This takes two steps, so that nothing is lost between agents of the same process. While one agent still works, the
//! mailboxes of agents at rest stay open. When all agents rest, their mailboxes are emptied and closed as moving.
//! Senders then hold later messages until the agents are found in their new place.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sealbus_bus::{
    ANY_LENGTH, Delivery, ForeignOrigin, Letter, Mailbox, Outbox, Post, Provenance,
    ReceivedMessage, RestingMailbox,
};
use sealbus_channels::Channels;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_proof::{Evidence, Statement};
use sealbus_seal::{Identity, SecurityLevel, VerifiedIdentity};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::agent::{Entry, Wish};
use super::rest::{AtRest, Drain, Ready, Rest};
use super::{ProcessEnd, Shared};
use sealbus_control::attachment::ask;
use sealbus_control::clock::now;
use sealbus_control::names::AMS;
use sealbus_control::{Blob, FrozenAgent, WaitingMessage, WaitingProvenance};

/// How long all agents may take to come to rest.
const COME_TO_REST: Duration = Duration::from_secs(15);

/// How long the nodes may take to note the events that the agents have handled.
const LAST_EVENTS: Duration = Duration::from_secs(3);

/// How long the node may take to tell whether it has the agents of a process that ends, and again to keep the notices for
/// agents that have moved.
const LAST_WORD: Duration = Duration::from_secs(3);

/// An agent that has handed over everything. Dropping this value tells the agent that it has ended here, and the
/// senders of its unread messages that it has ended.
pub(super) struct Resting {
    entry: Arc<Entry>,
    mailbox: RestingMailbox,
    thaw: oneshot::Sender<(Arc<Outbox>, Mailbox)>,
}

impl Resting {
    /// The agent's name.
    pub(super) fn name(&self) -> &str {
        &self.entry.aid.name
    }

    /// The messages that it has not read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &ReceivedMessage> {
        self.mailbox.messages()
    }

    /// Packs what the agent takes along: this state, and its unread messages.
    fn pack(&mut self, state: Vec<u8>) -> Result<FrozenAgent, String> {
        self.mailbox.take_notices_along();
        let mailbox: Result<Vec<_>, String> = self.mailbox.messages().map(pack).collect();
        Ok(FrozenAgent {
            agent: self.entry.aid.local_name().to_owned(),
            state: Blob(state),
            mailbox: mailbox?,
        })
    }

    /// The notices that have come since the agent was packed, as letters to it.
    fn late_notices(&mut self, ams: &Arc<str>) -> Vec<Letter> {
        let packed = self.mailbox.messages().count();
        self.mailbox.take_notices_along();
        let late = self.mailbox.messages().skip(packed);
        let letters = late.filter_map(|notice| {
            let encoded = notice.to_bytes();
            let encoded = encoded.inspect_err(|error| {
                let agent = self.name();
                tracing::error!(agent, %error, "a notice cannot be encoded");
            });
            Some(Letter {
                sender: ams.clone(),
                receiver: self.name().to_owned(),
                message: encoded.ok()?,
                delivery: Delivery::persistent(),
                evidence: None,
            })
        });
        letters.collect()
    }
}

/// Brings all agents to rest and collects their state and messages.
pub(super) async fn freeze_all(shared: &Shared) -> Result<Vec<FrozenAgent>, String> {
    let entries: Vec<Arc<Entry>> = shared.agents.lock().by_number.values().cloned().collect();
    match come_to_rest(&entries).await {
        Ok(ready) => {
            let (frozen, resting) = collect(shared, entries, ready).await?;
            *shared.resting.lock() = resting;
            Ok(frozen)
        }
        Err(reason) => {
            for entry in &entries {
                entry.withdraw_freeze();
            }
            Err(reason)
        }
    }
}

/// Returns one [`Ready`] for each entry, in the entries' order.
async fn come_to_rest(entries: &[Arc<Entry>]) -> Result<Vec<Ready>, String> {
    let (to, mut at_rest) = mpsc::unbounded_channel();
    for entry in entries {
        *entry.rest.lock() = Some(Rest {
            number: entry.number,
            to: to.clone(),
        });
        entry.wish(Wish::Freeze);
    }
    drop(to);
    let deadline = Instant::now() + COME_TO_REST;
    let name = |number| {
        let entry = entries.iter().find(|entry| entry.number == number);
        entry.map_or("an agent", |entry| entry.aid.local_name())
    };
    let mut ready = std::collections::HashMap::with_capacity(entries.len());
    while ready.len() < entries.len() {
        match timeout_at(deadline, at_rest.recv()).await {
            Ok(Some(AtRest {
                number,
                outcome: Ok(state),
            })) => {
                ready.insert(number, state);
            }
            Ok(Some(AtRest {
                number,
                outcome: Err(reason),
            })) => {
                return Err(format!("{} cannot be moved: {reason}", name(number)));
            }
            Ok(None) => return Err("an agent ended while the process was to be moved".to_owned()),
            Err(_) => {
                let busy = entries
                    .iter()
                    .find(|entry| !ready.contains_key(&entry.number));
                return Err(format!(
                    "{} did not come to rest within {} s: a hook of it is still running",
                    busy.map_or("an agent", |entry| entry.aid.local_name()),
                    COME_TO_REST.as_secs()
                ));
            }
        }
    }
    Ok(entries
        .iter()
        .filter_map(|entry| ready.remove(&entry.number))
        .collect())
}

async fn collect(
    shared: &Shared,
    entries: Vec<Arc<Entry>>,
    ready: Vec<Ready>,
) -> Result<(Vec<FrozenAgent>, Vec<Resting>), String> {
    let mut states = Vec::with_capacity(entries.len());
    let mut resting = Vec::with_capacity(entries.len());
    let mut failed = None;
    for (entry, Ready { state, drain }) in entries.into_iter().zip(ready) {
        let (thaw, thawed) = oneshot::channel();
        let (mailbox, handed_over) = oneshot::channel();
        // If the agent has ended, nobody hands its mailbox over.
        let _ = drain.send(Drain { mailbox, thawed });
        let Ok(mailbox) = handed_over.await else {
            failed = Some("an agent ended while the process was to be moved".to_owned());
            continue;
        };
        // Kept messages travel separately.
        shared.inbox.left(entry.aid.local_name());
        states.push(state);
        resting.push(Resting {
            entry,
            mailbox,
            thaw,
        });
    }
    // Otherwise the next process would get letters and events a second time that were taken here.
    if failed.is_none() {
        failed = shared.inbox.all_confirmed().await.err();
    }
    if failed.is_none() {
        note_progress(shared, &resting).await;
    }
    // This comes last, so that the agents take along notices that came in the meantime.
    let frozen: Result<Vec<_>, String> = match failed {
        None => {
            let agents = states.into_iter().zip(&mut resting);
            agents.map(|(state, agent)| agent.pack(state)).collect()
        }
        Some(error) => Err(error),
    };
    match frozen {
        Ok(frozen) => Ok((frozen, resting)),
        Err(error) => {
            thaw(shared, resting);
            Err(error)
        }
    }
}

/// Waits until the nodes know which events the agents have handled. Without that note the events come again, marked.
async fn note_progress(shared: &Shared, resting: &[Resting]) {
    let channels = Channels::of(&shared.bus);
    let noting = resting.iter().map(|Resting { entry, .. }| async {
        let agent = &entry.aid.name;
        if !channels.rest_is_noted(agent, LAST_EVENTS).await {
            tracing::warn!(
                agent,
                "a node did not take note of the events that were dealt with: they may come again"
            );
        }
    });
    join_all(noting).await;
}

/// Ends a failed move: agents at rest go on with the messages that they had.
pub(super) fn thaw(shared: &Shared, resting: Vec<Resting>) {
    for Resting {
        entry,
        mailbox,
        thaw,
    } in resting
    {
        entry.withdraw_freeze();
        let name = &entry.aid.name;
        match shared.bus.attach_again(name, mailbox) {
            Ok((outbox, mailbox)) => {
                let outbox = Arc::new(outbox);
                entry.outbox.store(outbox.clone());
                // If the agent no longer waits for this, it has ended in the meantime.
                let _ = thaw.send((outbox, mailbox));
            }
            Err(error) => {
                tracing::error!(agent = name, %error, "cannot go on after a move that failed")
            }
        }
    }
}

/// Ends agents at rest, because their process ends. If the node has their unread messages, for the place to which they
/// move or for answers to the senders, nothing is reported here. Otherwise the senders are told from here.
pub(super) async fn end_at_rest(shared: &Shared) {
    let _turn = shared.ending_at_rest.lock().await;
    if shared.resting.lock().is_empty() {
        return;
    }
    let reason = "its process ends".to_owned();
    let asked = shared.host.ask(ask::NotFrozen { reason });
    // If a node does not answer, it is gone, and so is everything that it had.
    let is_handed_in = matches!(timeout(LAST_WORD, asked).await, Ok(Ok(true)));
    if is_handed_in {
        send_notices_after(shared).await;
    }
    // In the meantime the move may have succeeded or failed.
    let resting = std::mem::take(&mut *shared.resting.lock());
    if is_handed_in {
        carried(resting);
    }
}

/// Gives the node the notices that came too late for agents at rest to take along. The node keeps them for the agents,
/// wherever the agents are.
async fn send_notices_after(shared: &Shared) {
    let ams: Arc<str> = format!("{AMS}@{}", shared.platform).into();
    let late: Vec<Letter> = {
        let mut resting = shared.resting.lock();
        let late = resting.iter_mut().map(|agent| agent.late_notices(&ams));
        late.flatten().collect()
    };
    let count = late.len();
    let Some(post) = shared.post.as_ref().filter(|_| count > 0) else {
        return;
    };
    let keeping: Vec<_> = late.into_iter().map(|notice| post.keep(notice)).collect();
    let kept = timeout(LAST_WORD, join_all(keeping)).await;
    let kept = kept.unwrap_or_default().into_iter();
    let untold = count - kept.filter(Result::is_ok).count();
    if untold > 0 {
        tracing::warn!(
            untold,
            "messages of agents failed during their move, and their node does not keep these notices for them"
        );
    }
}

fn carried(resting: Vec<Resting>) {
    for Resting { mailbox, .. } in resting {
        mailbox.carried();
    }
}

/// Ends a successful move. The process is over here.
pub(super) async fn moved(shared: &Shared) {
    // Messages whose receivers are not found by now fail: the process has no time left.
    shared.bus.settle(Duration::ZERO).await;
    send_notices_after(shared).await;
    let resting = std::mem::take(&mut *shared.resting.lock());
    shared.end(ProcessEnd::Moved);
    carried(resting);
}

fn pack(message: &ReceivedMessage) -> Result<WaitingMessage, String> {
    let bytes = message
        .to_bytes()
        .map_err(|error| format!("an unread message cannot be encoded: {error}"))?;
    let provenance = match message.provenance() {
        Provenance::SameProcess => match sender(message) {
            Some(identity) => WaitingProvenance::SameProcess {
                identity: identity.to_string(),
            },
            None => WaitingProvenance::Claimed,
        },
        Provenance::Proved(verified) => proved(verified),
        Provenance::Signed(evidence) => {
            let mut encoded = Vec::new();
            match evidence.encode(&mut encoded) {
                Ok(()) => WaitingProvenance::Signed {
                    identity: evidence.author().identity().to_string(),
                    evidence: Blob(encoded),
                },
                Err(error) => return Err(error.to_string()),
            }
        }
        // The agent has moved twice. The first knowledge is still valid.
        Provenance::Vouched(identity) | Provenance::Carried(identity) => {
            WaitingProvenance::SameProcess {
                identity: identity.to_string(),
            }
        }
        Provenance::Foreign(_) => WaitingProvenance::Foreign,
        Provenance::Claimed => WaitingProvenance::Claimed,
        Provenance::Platform => WaitingProvenance::Platform,
    };
    Ok(WaitingMessage {
        message: Blob(bytes.to_vec()),
        provenance,
    })
}

fn proved(verified: &VerifiedIdentity) -> WaitingProvenance {
    WaitingProvenance::Proved {
        identity: verified.identity().to_string(),
        serial: verified.serial().to_string(),
    }
}

fn sender(message: &ReceivedMessage) -> Option<Identity> {
    let view = message.message();
    Identity::from_agent_name(view.sender()?.name()).ok()
}

/// Why a message from a node is refused.
#[derive(Debug, Error)]
pub(super) enum Unreadable {
    #[error("{0}")]
    Malformed(String),
    #[error("an unread message of {sender} is not proved: {why}")]
    NotProved { sender: String, why: String },
}

impl Shared {
    /// Unpacks the mailbox of an agent that moved here. The mailbox came over the node's connection, and is checked
    /// like any data from outside.
    pub(super) fn revive(
        &self,
        mailbox: Vec<WaitingMessage>,
        receiver: &str,
    ) -> Result<Vec<ReceivedMessage>, Unreadable> {
        let mut messages = Vec::with_capacity(mailbox.len());
        for waiting in mailbox {
            // A sealed message whose key was lost on the way is noted as refused, and does not hold up others.
            if let Ok(message) = self.opened(self.unpack(waiting, receiver)?, receiver) {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    /// Unpacks a message for an agent of this process, given by its whole name.
    pub(super) fn unpack(
        &self,
        waiting: WaitingMessage,
        receiver: &str,
    ) -> Result<ReceivedMessage, Unreadable> {
        // Its length was limited on the way here.
        let message =
            EncodedMessage::new(Bytes::from(waiting.message.0), &ANY_LENGTH).map_err(|error| {
                Unreadable::Malformed(format!("an unread message does not decode: {error}"))
            })?;
        let is_from = |proved: &Identity| match message.message().sender() {
            Some(sender) if proved.is_agent_named(sender.name()) => Ok(()),
            _ => Err(Unreadable::Malformed(format!(
                "an unread message is not from {proved}, who was proved to have sent it"
            ))),
        };
        let provenance = match waiting.provenance {
            WaitingProvenance::SameProcess { identity }
            | WaitingProvenance::Proved { identity, .. } => {
                let proved: Identity = identity
                    .parse()
                    .map_err(|error| Unreadable::Malformed(format!("{error}")))?;
                is_from(&proved)?;
                Provenance::Carried(Arc::new(proved))
            }
            WaitingProvenance::Signed { identity, evidence } => {
                let statement = Statement::direct(receiver, message.bytes());
                let evidence = Evidence::decode(
                    &evidence.0,
                    statement,
                    SecurityLevel::Signed,
                    &self.trust,
                    now(),
                );
                let checked = evidence.map_err(|error| error.to_string());
                let checked = checked.and_then(|evidence| {
                    is_from(evidence.author().identity()).map_err(|error| error.to_string())?;
                    Ok(evidence)
                });
                let not_proved = |why| Unreadable::NotProved {
                    sender: identity,
                    why,
                };
                Provenance::Signed(checked.map_err(not_proved)?)
            }
            WaitingProvenance::Foreign => {
                let origin = ForeignOrigin::read(&message.message());
                Provenance::Foreign(Arc::new(origin))
            }
            WaitingProvenance::Claimed => Provenance::Claimed,
            WaitingProvenance::Platform => {
                let ams = format!("{AMS}@{}", self.platform);
                match message.message().sender() {
                    Some(sender) if sender.name() == ams => Provenance::Platform,
                    sender => {
                        let sender = sender.map(|it| it.name().to_owned());
                        return Err(Unreadable::NotProved {
                            sender: sender.unwrap_or_default(),
                            why: "the platform writes in the name of its AMS alone".to_owned(),
                        });
                    }
                }
            }
        };
        Ok(ReceivedMessage::encoded(message, provenance))
    }
}
