//! The task that receives one agent's messages from the broker.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use sealbus_bus::{
    ANY_LENGTH, Bus, ExplainedRefusal, MailboxWindow, Permit, Provenance, ReceivedMessage,
    RefusalReason, WindowListener, asks_for_proof, sleep_until,
};
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_proof::{Statement, Verifier};
use sealbus_seal::{Identity, SecurityLevel, Trust};

use crate::acks::MANY;
use crate::authorship::{self, LastNumbers};
use crate::deliveries::{Delivered, Deliveries};
use crate::envelope::BrokerDelivery;
use crate::held::Tag;
use crate::link::Link;
use crate::reconnecting::{Inbox, RefusedDelivery, receive};
use crate::stamp::OrderStamp;

/// The number of users remembered, so that the name of each is read once.
const USERS: usize = 4096;
/// The number of taken messages remembered that were not acknowledged.
const UNACKNOWLEDGED: usize = 4096;
/// How long a closed mailbox may take to be emptied.
const LEAVING: std::time::Duration = std::time::Duration::from_secs(1);

type Key = (Arc<str>, u64, u64);

/// A message that was checked.
struct Checked {
    key: Key,
    message: ReceivedMessage,
}

/// Learns from the mailbox which messages were taken.
struct Taken(Weak<Link>);

impl WindowListener for Taken {
    fn widened(&self, _: u64, _: u64) {}

    fn taken(&self, receipt: u64) {
        if let Some(link) = self.0.upgrade() {
            let mut taken = link.taken.lock();
            taken.push(receipt);
            // The others are found with the first, and acknowledged together.
            if taken.len() == 1 || taken.len() == MANY {
                link.taken_news.notify_one();
            }
        }
    }

    fn closed(&self) {
        if let Some(link) = self.0.upgrade() {
            link.taken_news.notify_one();
        }
    }
}

/// The state that outlives a connection.
struct AgentInbox {
    link: Arc<Link>,
    window: MailboxWindow,
    deliveries: Deliveries<Checked>,
    next_receipt: u64,
    /// Messages in the mailbox, by receipt, and the delivery of each.
    untaken: HashMap<u64, (Key, Tag)>,
    receipts: HashMap<Key, u64>,
    /// Messages that were taken out of the mailbox and are acknowledged when they come again, by their deliveries.
    unacknowledged: HashMap<Key, Tag>,
    /// Agents that wrote, by their users.
    users: HashMap<String, User>,
    last_numbers: LastNumbers,
}

/// An agent that wrote, as the broker proves it.
struct User {
    name: Arc<str>,
    identity: Arc<Identity>,
    /// Checks what the agent signed.
    verifier: Verifier,
}

/// Receives until the agent leaves.
pub(crate) async fn run(link: Arc<Link>) {
    // All messages come from the broker, whoever wrote them.
    let writer = "the broker".into();
    let listener = Arc::new(Taken(Arc::downgrade(&link)));
    let window = link.agent.mailbox().open_window(&writer, listener, 0);
    receive(AgentInbox {
        window,
        deliveries: Deliveries::new(link.wire.config().reorder_time, link.wire.config().prefetch),
        next_receipt: 0,
        untaken: HashMap::new(),
        receipts: HashMap::new(),
        unacknowledged: HashMap::new(),
        users: HashMap::new(),
        last_numbers: LastNumbers::default(),
        link,
    })
    .await;
}

impl Inbox for AgentInbox {
    type Link = Link;
    type Content = Checked;

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn receiver(&self) -> String {
        self.link.agent.name().to_string()
    }

    fn deliveries(&mut self) -> &mut Deliveries<Checked> {
        &mut self.deliveries
    }

    fn check(
        &mut self,
        bus: &Bus,
        delivery: BrokerDelivery,
    ) -> Result<(Arc<str>, OrderStamp, Checked), RefusedDelivery> {
        let (sender, stamp, message) = self.check_message(bus, delivery)?;
        let key = (sender.clone(), stamp.epoch, stamp.number);
        Ok((sender, stamp, Checked { key, message }))
    }

    fn is_here(&self, content: &Checked) -> bool {
        self.receipts.contains_key(&content.key)
    }

    fn hand_over(&mut self, delivered: Delivered<Checked>) -> Result<(), RefusedDelivery> {
        // The message lies in the mailbox. Its sender has had so many lives since that the order of this life was
        // forgotten.
        if self.is_here(&delivered.content) {
            self.not_needed(&delivered);
            return Ok(());
        }
        let message = &delivered.content.message;
        if let Some(evidence) = message.provenance().evidence()
            && let Err(refused) = self.last_numbers.next(evidence)
        {
            return Err(RefusedDelivery {
                tried_by: delivered.content.key.0.to_string(),
                proved: Some(evidence.author().identity().to_string()),
                refused,
            });
        }
        let receipt = self.next_receipt;
        self.next_receipt += 1;
        let tag = delivered.tag;
        let Checked { key, message } = delivered.content;
        self.untaken.insert(receipt, (key.clone(), tag));
        self.receipts.insert(key.clone(), receipt);
        self.link.wire.received.fetch_add(1, Ordering::Relaxed);
        // The mailbox is closed: the agent is leaving, and the broker keeps the message.
        if self.window.push_with_receipt(message, receipt).is_err() {
            self.untaken.remove(&receipt);
            self.receipts.remove(&key);
        }
        Ok(())
    }

    fn not_needed(&mut self, spare: &Delivered<Checked>) {
        let mut tag = spare.tag;
        self.unacknowledged.remove(&spare.content.key);
        if let Some(receipt) = self.receipts.get(&spare.content.key)
            && let Some((_, of_mailbox)) = self.untaken.get_mut(receipt)
        {
            // The earlier copy lies in the mailbox, usually since a former connection. This copy is acknowledged in its
            // place.
            tag = std::mem::replace(of_mailbox, tag);
        }
        self.deliveries.may_acknowledge(tag);
    }

    fn taken(&self) -> usize {
        self.link.taken.lock().len()
    }

    fn note_taken(&mut self) {
        let taken = std::mem::take(&mut *self.link.taken.lock());
        for receipt in taken {
            if let Some((key, tag)) = self.untaken.remove(&receipt) {
                self.receipts.remove(&key);
                self.deliveries.may_acknowledge(tag);
                if self.deliveries.comes_again(tag) {
                    if self.unacknowledged.len() >= UNACKNOWLEDGED {
                        self.unacknowledged.clear();
                    }
                    self.unacknowledged.insert(key, tag);
                }
            }
        }
    }

    fn expects_copies(&self) -> bool {
        let mut tags = self.unacknowledged.values();
        tags.any(|tag| self.deliveries.comes_again(*tag))
    }

    async fn changed(&self) {
        self.link.taken_news.notified().await;
    }

    fn is_closed(&self) -> bool {
        self.link.agent.mailbox().closed().is_some()
    }

    /// Waits until the mailbox is emptied, unless it is left unread.
    async fn last_taken(&mut self) {
        let deadline = Instant::now() + LEAVING;
        loop {
            self.note_taken();
            if self.untaken.is_empty() || Instant::now() >= deadline {
                return;
            }
            tokio::select! {
                () = self.link.taken_news.notified() => {}
                () = sleep_until(Some(deadline)) => {}
            }
        }
    }
}

impl AgentInbox {
    /// The agent that a user stands for. Each user is read once.
    fn agent_of(&mut self, user: &str, trust: &Trust) -> Option<&mut User> {
        if !self.users.contains_key(user) {
            let broker = &self.link.wire.broker;
            let identity = broker.client.identity_of(user)?;
            let known = User {
                name: identity.agent_name()?.into(),
                identity: Arc::new(identity),
                verifier: authorship::verifier(trust),
            };
            if self.users.len() >= USERS {
                self.users.clear();
            }
            self.users.insert(user.to_owned(), known);
        }
        self.users.get_mut(user)
    }

    /// Makes all checks of a message.
    fn check_message(
        &mut self,
        bus: &Bus,
        delivery: BrokerDelivery,
    ) -> Result<(Arc<str>, OrderStamp, ReceivedMessage), RefusedDelivery> {
        let link = self.link.clone();
        let config = link.wire.config();
        let receiver = link.agent.name();
        let proved = delivery.from;
        let refused = |tried_by: &str, reason, explanation: String| RefusedDelivery {
            tried_by: tried_by.to_owned(),
            proved: proved.clone(),
            refused: ExplainedRefusal {
                reason,
                explanation,
            },
        };
        let by = proved.as_deref().unwrap_or("a message of nobody");
        if delivery.payload.len() > config.largest_message {
            let text = format!(
                "{} bytes, and the limit is {}",
                delivery.payload.len(),
                config.largest_message
            );
            return Err(refused(by, RefusalReason::TooLarge, text));
        }
        let message = EncodedMessage::new(delivery.payload, &ANY_LENGTH)
            .ok()
            .filter(|message| message.length() == message.bytes().len())
            .ok_or_else(|| {
                let text = "the payload is no ACL message".to_owned();
                refused(by, RefusalReason::Malformed, text)
            })?;
        let claimed = message
            .message()
            .sender()
            .map(|sender| sender.name().to_owned())
            .ok_or_else(|| {
                let text = "the message has no sender".to_owned();
                refused(by, RefusalReason::Malformed, text)
            })?;
        let view = message.message();
        let level = config.security.level();
        let (sender, provenance) = if let Some(trust) = config.security.certified() {
            let user = proved.as_deref().ok_or_else(|| {
                let text = "the broker does not say who sent it, so nobody knows who wrote it";
                refused(&claimed, RefusalReason::NotProved, text.to_owned())
            })?;
            let known = self.agent_of(user, trust).ok_or_else(|| {
                let text = format!("the user {user:?} is not an agent of this platform");
                refused(&claimed, RefusalReason::WrongIdentity, text)
            })?;
            let sender = known.name.clone();
            if *sender != *claimed {
                let text = format!(
                    "it says to be from {claimed}, and the broker knows that {sender} sent it"
                );
                return Err(refused(&claimed, RefusalReason::ForgedSender, text));
            }
            let is_signed = level >= SecurityLevel::Signed
                || delivery.evidence.is_some()
                || asks_for_proof(&view);
            let provenance = if is_signed {
                let statement = Some(Statement::direct(receiver, message.bytes()));
                let (verifier, shown) = (&mut known.verifier, delivery.evidence.as_ref());
                authorship::verify(verifier, shown, statement, &sender, trust)
                    .map(Provenance::Signed)
                    .map_err(|it| refused(&claimed, it.reason, it.explanation))?
            } else {
                Provenance::Vouched(known.identity.clone())
            };
            (sender, provenance)
        } else {
            (Arc::from(claimed.as_str()), Provenance::Claimed)
        };
        bus.permits_message(&mut Permit::default(), &sender, receiver, &view)
            .map_err(|it| refused(&claimed, it.reason, it.explanation))?;
        let stamp = delivery.stamp.ok_or_else(|| {
            let text = "it does not say which of its sender's messages it is";
            refused(&claimed, RefusalReason::Malformed, text.to_owned())
        })?;
        let opened = bus.open(&view, receiver).map_err(|not_opened| {
            let it = ExplainedRefusal::from(not_opened);
            refused(&claimed, it.reason, it.explanation)
        })?;
        if opened.is_some() && provenance.evidence().is_none() {
            let text = "it is sealed, and its author did not sign it".to_owned();
            return Err(refused(&claimed, RefusalReason::NotProved, text));
        }
        let received = ReceivedMessage::encoded(message, provenance).opened(opened);
        Ok((sender, stamp, received))
    }
}
