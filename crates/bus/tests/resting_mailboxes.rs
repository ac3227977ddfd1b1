//! The mailbox of an agent that is being moved: its messages are carried, go on here, or go back, and only one of the three.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sealbus_bus::{
    Bus, BusConfig, Mailbox, MailboxLimits, MailboxSender, MailboxWindow, Provenance,
    ReceivedMessage, RestingMailbox, UndeliverableReason, WindowListener, mailbox,
};
use sealbus_fipa::{AclMessage, Expression, Performative, bitefficient};
use sealbus_seal::PlatformName;
use tokio::runtime::Handle;

/// A writer in another process.
#[derive(Default)]
struct Writer {
    unread: AtomicUsize,
    taken: AtomicU64,
    widened: AtomicUsize,
}

impl WindowListener for Writer {
    fn widened(&self, _: u64, _: u64) {
        self.widened.fetch_add(1, Ordering::Relaxed);
    }

    fn taken(&self, receipt: u64) {
        self.taken.fetch_add(receipt, Ordering::Relaxed);
    }

    fn unread(&self, messages: Vec<ReceivedMessage>) {
        self.unread.fetch_add(messages.len(), Ordering::Relaxed);
    }
}

fn message() -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform).with_content("x".repeat(1000));
    ReceivedMessage::shared(Arc::new(message), Provenance::Claimed)
}

fn open() -> (MailboxSender, Mailbox, Arc<Writer>, MailboxWindow) {
    let (sender, reader) = mailbox(MailboxLimits::default());
    let writer = Arc::<Writer>::default();
    let window = sender.open_window(&"node-2".into(), writer.clone(), 0);
    (sender, reader, writer, window)
}

/// A mailbox at rest with two messages of one writer. A process that keeps messages until they are taken wrote another one.
fn at_rest() -> (RestingMailbox, Arc<Writer>) {
    let (_, reader, writer, window) = open();
    window.push(message()).unwrap();
    window.push_with_receipt(message(), 7).unwrap();
    window.push(message()).unwrap();
    let resting = reader.rest();
    assert_eq!(resting.messages().count(), 3);
    // The broker would deliver the message again, although the agent has it.
    assert_eq!(writer.taken.load(Ordering::Relaxed), 7);
    assert_eq!(writer.unread.load(Ordering::Relaxed), 0);
    (resting, writer)
}

#[test]
fn what_is_carried_comes_back_to_nobody() {
    let (resting, writer) = at_rest();
    assert_eq!(resting.carried().len(), 3);
    assert_eq!(writer.unread.load(Ordering::Relaxed), 0);
}

#[test]
fn what_an_agent_leaves_behind_at_rest_comes_back() {
    let (resting, writer) = at_rest();
    drop(resting);
    assert_eq!(writer.unread.load(Ordering::Relaxed), 2);
}

#[test]
fn what_goes_on_here_is_read_or_comes_back() {
    let (resting, writer) = at_rest();
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    sender.resume(resting);
    assert_eq!((reader.len(), sender.counts().waiting), (3, 3));
    assert!(reader.try_recv().is_some());
    drop(reader);
    assert_eq!(writer.unread.load(Ordering::Relaxed), 1);
    assert_eq!(sender.counts().bytes, 0);
}

/// Otherwise a writer would gain room by each failed move.
#[test]
fn what_goes_on_here_counts_against_the_next_window_of_its_writer() {
    let (_, reader, _, first) = open();
    let size = first.first_limit();
    let mut written = 0;
    while written < size {
        let message = message();
        written += (message.size() + sealbus_bus::MESSAGE_OVERHEAD) as u64;
        first.push(message).unwrap();
    }
    let (sender, mut reader) = {
        let (sender, new) = mailbox(MailboxLimits::default());
        sender.resume(reader.rest());
        (sender, new)
    };
    drop(first);
    let writer = Arc::<Writer>::default();
    let next = sender.open_window(&"node-2".into(), writer.clone(), 0);
    assert_eq!(next.first_limit(), 0);
    while reader.try_recv().is_some() {}
    assert!(writer.widened.load(Ordering::Relaxed) > 0);
}

/// Reports that a message of alice did not reach bob.
fn fail(bus: &Bus, conversation: &str) {
    let message = AclMessage::new(Performative::Request)
        .with_sender(sealbus_bus::aid_of("alice@factory"))
        .with_conversation_id(conversation);
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    let reason = UndeliverableReason::ReceiverGone;
    bus.undeliverable("alice@factory", "bob@factory", &payload, &reason);
}

#[tokio::test]
async fn an_agent_that_goes_on_hears_what_failed_while_it_rested() {
    let config = BusConfig::new(PlatformName::new("factory").unwrap());
    let bus = Bus::new(config, Handle::current());
    let (_alice, reader) = bus.attach("alice@factory", None, None).unwrap();
    let talk = reader.conversations().open("talk-1").unwrap();
    let mut resting = reader.rest();
    fail(&bus, "talk-2");
    resting.take_notices_along();
    assert_eq!(resting.messages().count(), 1);
    // These come after the agent was packed.
    fail(&bus, "talk-1");
    fail(&bus, "talk-3");
    assert_eq!(resting.messages().count(), 1);
    assert!(talk.try_recv().is_none(), "the agent rests");
    let (_alice, mut reader) = bus.attach_again("alice@factory", resting).unwrap();
    let notices = [reader.try_recv(), reader.try_recv(), talk.try_recv()];
    let conversations = notices.map(|notice| {
        let notice = notice.unwrap();
        assert!(matches!(notice.provenance(), Provenance::Platform));
        let message = notice.into_message();
        assert_eq!(message.performative, Performative::Failure);
        message.conversation_id.clone()
    });
    let named = ["talk-2", "talk-3", "talk-1"].map(|name| Some(Expression::from(name)));
    assert_eq!(conversations, named);
    assert!(reader.try_recv().is_none());
}

#[tokio::test]
async fn an_agent_that_moves_takes_the_notices_along_that_came_before_it_was_packed() {
    let config = BusConfig::new(PlatformName::new("factory").unwrap());
    let bus = Bus::new(config, Handle::current());
    let (_alice, reader) = bus.attach("alice@factory", None, None).unwrap();
    let mut resting = reader.rest();
    fail(&bus, "talk-1");
    resting.take_notices_along();
    fail(&bus, "talk-2");
    assert_eq!(resting.carried().len(), 1);
    // The mailbox is over, so a failure is only logged now.
    fail(&bus, "talk-3");
    assert_eq!(bus.counters().undeliverable, 3);
}
