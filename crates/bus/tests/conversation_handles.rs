//! Waiting for the messages of conversations, and the notices to their writers.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sealbus_bus::{
    Closed, Kept, KeptListener, KeptOutcome, Mailbox, MailboxLimits, MailboxSender, Provenance,
    PushError, ReceivedMessage, WindowListener, mailbox,
};
use sealbus_fipa::{AclMessage, Performative};

const LIMITS: MailboxLimits = MailboxLimits {
    messages: 25,
    bytes: 1 << 20,
};

fn talk(number: u8) -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform)
        .with_conversation_id(format!("talk-{number}"))
        .with_content(number.to_string());
    ReceivedMessage::shared(Arc::new(message), Provenance::SameProcess)
}

fn number(message: &ReceivedMessage) -> u64 {
    message.message().content_text().unwrap().parse().unwrap()
}

#[tokio::test]
async fn ten_thousand_conversations_wait_at_once() {
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    let talks = reader.conversations();
    let name = |number: u64| format!("many-{number}");
    let waiting: Vec<_> = (0..10_000)
        .map(|number| {
            let talk = talks.open(&name(number)).unwrap();
            tokio::spawn(async move {
                talk.recv()
                    .await
                    .map(|it| it.message().content_text().unwrap().into_owned())
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for number in (0..10_000).rev() {
        let message = AclMessage::new(Performative::Inform)
            .with_conversation_id(name(number))
            .with_content(number.to_string());
        let message = ReceivedMessage::shared(Arc::new(message), Provenance::SameProcess);
        sender.try_push(message).unwrap();
    }
    for (number, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(waiting.await.unwrap(), Some(number.to_string()));
    }
    assert!(reader.try_recv().is_none() && talks.is_empty());
}

#[tokio::test]
async fn a_closed_mailbox_ends_the_wait_of_its_conversations() {
    let (sender, reader) = mailbox(LIMITS);
    let (one, two) = (
        reader.conversations().open("talk-1"),
        reader.conversations().open("talk-2"),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    sender.try_push(talk(1)).unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    let count = called.clone();
    two.set_hook(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let waiting = tokio::spawn(async move { two.recv().await.is_none() });
    tokio::task::yield_now().await;
    sender.close(Closed::Gone);
    assert!(waiting.await.unwrap());
    assert_eq!(called.load(Ordering::Relaxed), 1);
    // Its queued message is still there.
    assert_eq!(one.recv().await.map(|it| number(&it)), Some(1));
    assert!(one.recv().await.is_none() && one.is_closed());
}

#[tokio::test]
async fn conversations_rest_during_a_move_and_end_with_it() {
    for goes_on in [true, false] {
        let (_sender, reader) = mailbox(LIMITS);
        let open = reader.conversations().open("talk-1").unwrap();
        let waiting = tokio::spawn(async move { open.recv().await.map(|it| number(&it)) });
        tokio::task::yield_now().await;
        let resting = reader.rest();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let (sender, _other) = mailbox(LIMITS);
        if goes_on {
            sender.resume(resting);
            sender.try_push(talk(1)).unwrap();
            assert_eq!(waiting.await.unwrap(), Some(1));
        } else {
            drop(resting);
            assert_eq!(waiting.await.unwrap(), None);
        }
    }
}

#[test]
fn a_hook_is_called_once_for_what_comes_after_a_vain_attempt() {
    let (sender, reader) = mailbox(LIMITS);
    let open = reader.conversations().open("talk-1").unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    let count = called.clone();
    open.set_hook(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    for _ in 0..2 {
        sender.try_push(talk(1)).unwrap();
        sender.try_push(talk(1)).unwrap();
        sender.try_push(talk(2)).unwrap();
    }
    assert_eq!(called.load(Ordering::Relaxed), 1);
    while open.try_recv().is_some() {}
    sender.try_push(talk(1)).unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 2);
}

#[derive(Default)]
struct Notes {
    limit: AtomicU64,
    taken: AtomicU64,
    kept: AtomicUsize,
}

impl WindowListener for Notes {
    fn widened(&self, _: u64, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn taken(&self, receipt: u64) {
        self.taken.fetch_add(receipt, Ordering::Relaxed);
    }
}

impl KeptListener for Notes {
    fn settled(&self, _: u64, outcome: KeptOutcome) {
        assert_eq!(outcome, KeptOutcome::Taken);
        self.kept.fetch_add(1, Ordering::Relaxed);
    }
}

fn noted(sender: &MailboxSender) -> (Arc<Notes>, sealbus_bus::MailboxWindow) {
    let notes = Arc::new(Notes::default());
    let window = sender.open_window(&"node-2".into(), notes.clone(), 0);
    (notes, window)
}

#[test]
fn writers_hear_when_a_conversation_takes_a_message_or_ignores_it() {
    let (sender, reader): (MailboxSender, Mailbox) = mailbox(LIMITS);
    let (notes, window) = noted(&sender);
    let kept = |number| {
        let kept = Kept {
            number,
            again: false,
            expiry: None,
            listener: notes.clone(),
        };
        talk(1).with_kept(kept)
    };
    let open = reader.conversations().open("talk-1").unwrap();
    window.push_with_receipt(talk(1), 1).unwrap();
    sender.push_accepted(kept(1)).unwrap();
    let told = || {
        (
            notes.taken.load(Ordering::Relaxed),
            notes.kept.load(Ordering::Relaxed),
        )
    };
    assert_eq!(told(), (0, 0));
    assert!(open.try_recv().is_some() && open.try_recv().is_some());
    assert_eq!(told(), (1, 1));
    // Unread at the end.
    window.push_with_receipt(talk(1), 10).unwrap();
    drop(open);
    assert_eq!(told(), (11, 1));
    // Late.
    window.push_with_receipt(talk(1), 100).unwrap();
    sender.push_accepted(kept(2)).unwrap();
    assert_eq!(told(), (111, 2));
    assert_eq!(reader.conversations().ignored(), 3);
    assert!(reader.is_empty());
}

#[test]
fn a_conversation_that_nobody_reads_counts_against_the_mailbox() {
    let (sender, reader) = mailbox(MailboxLimits {
        messages: 2,
        bytes: 1 << 20,
    });
    let open = reader.conversations().open("talk-1").unwrap();
    sender.try_push(talk(1)).unwrap();
    sender.try_push(talk(1)).unwrap();
    assert!(matches!(sender.try_push(talk(2)), Err(PushError::Full(_))));
    assert!(open.try_recv().is_some());
    sender.try_push(talk(2)).unwrap();
}
