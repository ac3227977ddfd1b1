//! The mailbox of an agent that is being moved: its messages are carried, go on here, or go back, and only one of these.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sealbus_bus::{
    Mailbox, MailboxLimits, MailboxSender, MailboxWindow, Provenance, ReceivedMessage,
    RestingMailbox, WindowListener, mailbox,
};
use sealbus_fipa::{AclMessage, Performative};

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
    // The broker would deliver it again, though the agent has it.
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

/// Otherwise a writer would gain room by each move that fails.
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
