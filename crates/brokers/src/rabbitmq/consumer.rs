//! What one agent receives from the broker.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lapin::message::Delivery;
use sealbus_acl::Limits;
use sealbus_acl::bitefficient::EncodedMessage;
use sealbus_bus::{
    Bus, Permit, Provenance, ReceivedMessage, RefusalReason, Window, WindowListener,
};
use sealbus_seal::Identity;
use tokio::time::timeout;

use super::acks::{Acks, Tag};
use super::link::Link;
use super::names;
use super::reader::{self, Receives, Refusal};
use super::stamp::Stamp;

/// How long a mailbox that was closed may take to be emptied.
const LEAVING: Duration = Duration::from_secs(1);
/// Senders remembered, so that the name of each is read once.
const SENDERS: usize = 65_536;

/// A message by its sender, that one's life, and its number.
type Key = (Arc<str>, u64, u64);

/// Hears from the mailbox.
struct Hearing(Weak<Link>);

impl WindowListener for Hearing {
    fn widened(&self, _: u64, _: u64) {}

    fn taken(&self, receipt: u64) {
        if let Some(link) = self.0.upgrade() {
            link.taken.lock().push(receipt);
            link.taken_news.notify_one();
        }
    }

    fn closed(&self) {
        if let Some(link) = self.0.upgrade() {
            link.taken_news.notify_one();
        }
    }
}

/// What outlives a connection.
struct Inbox {
    link: Arc<Link>,
    window: Window,
    next_receipt: u64,
    /// What lies in the mailbox: its last delivery.
    untaken: HashMap<u64, (Key, Tag)>,
    receipts: HashMap<Key, u64>,
    /// Senders by their users.
    senders: HashMap<String, (Arc<str>, Arc<Identity>)>,
}

/// Receives until the agent leaves.
pub(crate) async fn run(link: Arc<Link>) {
    let hearing = Arc::new(Hearing(Arc::downgrade(&link)));
    let window = link.agent.mailbox().open_window(hearing, 0);
    reader::run(Inbox {
        window,
        next_receipt: 0,
        untaken: HashMap::new(),
        receipts: HashMap::new(),
        senders: HashMap::new(),
        link,
    })
    .await;
}

impl Receives for Inbox {
    type Link = Link;
    type Item = (Key, ReceivedMessage);

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn name(&self) -> String {
        self.link.agent.name().to_string()
    }

    fn queue(&self) -> String {
        names::queue(self.link.agent.name())
    }

    fn check(
        &mut self,
        bus: &Bus,
        delivery: Delivery,
    ) -> Result<(Arc<str>, Stamp, Self::Item), Refusal> {
        let (sender, stamp, message) = self.checked(bus, delivery)?;
        let key = (sender.clone(), stamp.epoch, stamp.number);
        Ok((sender, stamp, (key, message)))
    }

    fn hand_over(&mut self, (key, message): Self::Item, tag: Tag, _: &mut Acks) {
        let receipt = self.next_receipt;
        self.next_receipt += 1;
        self.untaken.insert(receipt, (key.clone(), tag));
        self.receipts.insert(key.clone(), receipt);
        self.link.wire.received.fetch_add(1, Ordering::Relaxed);
        // A closed mailbox: the agent is leaving, and the broker keeps the message.
        if self.window.push_with_receipt(message, receipt).is_err() {
            self.untaken.remove(&receipt);
            self.receipts.remove(&key);
        }
    }

    fn came_again(&mut self, (key, _): Self::Item, tag: Tag, acks: &mut Acks) {
        match self.receipts.get(&key) {
            // It lies in the mailbox since a former connection.
            Some(receipt) => {
                if let Some((_, last)) = self.untaken.get_mut(receipt) {
                    *last = tag;
                }
            }
            None => acks.may(tag),
        }
    }

    fn note_taken(&mut self, acks: &mut Acks) {
        let taken = std::mem::take(&mut *self.link.taken.lock());
        for receipt in taken {
            if let Some((key, tag)) = self.untaken.remove(&receipt) {
                self.receipts.remove(&key);
                acks.may(tag);
            }
        }
    }

    async fn news(link: &Link) {
        link.taken_news.notified().await;
    }

    fn is_closed(&self) -> bool {
        self.link.agent.mailbox().closed().is_some()
    }

    async fn last_taken(&mut self, acks: &mut Acks) {
        let deadline = Instant::now() + LEAVING;
        loop {
            self.note_taken(acks);
            let left = deadline.saturating_duration_since(Instant::now());
            if self.untaken.is_empty() || left.is_zero() {
                return;
            }
            let _ = timeout(left, self.link.taken_news.notified()).await;
        }
    }
}

impl Inbox {
    /// Who the agent is that a user is.
    fn sender_of(&mut self, user: &str) -> Option<(Arc<str>, Arc<Identity>)> {
        if let Some(known) = self.senders.get(user) {
            return Some(known.clone());
        }
        let (name, identity) = names::sender_of_user(user, &self.link.wire.config().platform)?;
        if self.senders.len() >= SENDERS {
            self.senders.clear();
        }
        let known = (name, Arc::new(identity));
        self.senders.insert(user.to_owned(), known.clone());
        Some(known)
    }

    /// All checks, at one place.
    fn checked(
        &mut self,
        bus: &Bus,
        delivery: Delivery,
    ) -> Result<(Arc<str>, Stamp, ReceivedMessage), Refusal> {
        let link = self.link.clone();
        let config = link.wire.config();
        let receiver = link.agent.name();
        let user = delivery.properties.user_id().as_ref();
        let proved = user.map(|user| user.as_str().to_owned());
        let refused = |tried_by: &str, reason, explanation: String| Refusal {
            tried_by: tried_by.to_owned(),
            proved: proved.clone(),
            reason,
            explanation,
        };
        let by = proved.as_deref().unwrap_or("a message without user-id");
        if delivery.data.len() > config.largest_message {
            let text = format!(
                "{} bytes, and the limit is {}",
                delivery.data.len(),
                config.largest_message
            );
            return Err(refused(by, RefusalReason::TooLarge, text));
        }
        let message = EncodedMessage::new(Bytes::from(delivery.data), &Limits::default())
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
        let (sender, provenance) = if config.security.level().authenticates() {
            let user = proved.as_deref().ok_or_else(|| {
                let text = "the broker lets messages without user-id pass, so nobody knows who wrote this one";
                refused(&claimed, RefusalReason::NotProved, text.to_owned())
            })?;
            let (sender, identity) = self.sender_of(user).ok_or_else(|| {
                let text = format!("the user {user:?} is no agent of this platform");
                refused(&claimed, RefusalReason::WrongIdentity, text)
            })?;
            if *sender != *claimed {
                let text = format!(
                    "it says to be from {claimed}, and the broker knows that {sender} sent it"
                );
                return Err(refused(&claimed, RefusalReason::ForgedSender, text));
            }
            (sender, Provenance::Vouched(identity))
        } else {
            (Arc::from(claimed.as_str()), Provenance::Claimed)
        };
        bus.permits(&mut Permit::default(), &sender, receiver)
            .map_err(|it| refused(&claimed, it.reason, it.explanation))?;
        let stamp = delivery.properties.message_id().as_ref();
        let stamp = stamp
            .and_then(|id| Stamp::parse(id.as_str()))
            .ok_or_else(|| {
                let text = "its message-id does not say which of its sender's messages it is";
                refused(&claimed, RefusalReason::Malformed, text.to_owned())
            })?;
        Ok((sender, stamp, ReceivedMessage::encoded(message, provenance)))
    }
}
