//! Mailboxes: bounded, in order, with one reader and many writers; and the allowances of writers in other processes.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use proptest::prelude::*;
use sealbus_bus::{
    Closed, Late, MESSAGE_OVERHEAD, Mailbox, MailboxLimits, MailboxSender, Provenance, PushError,
    ReceivedMessage, WindowListener, mailbox,
};
use sealbus_fipa::{AclMessage, Aid, Performative};

fn message(number: u64) -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform).with_content(number.to_string());
    ReceivedMessage::shared(Arc::new(message), Provenance::SameProcess)
}

fn number(message: &ReceivedMessage) -> u64 {
    message.message().content_text().unwrap().parse().unwrap()
}

fn is_even(message: &ReceivedMessage) -> bool {
    number(message).is_multiple_of(2)
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Receive,
    ReceiveEven,
    ReceiveMany(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Push),
        2 => Just(Step::Receive),
        1 => Just(Step::ReceiveEven),
        1 => (0..5usize).prop_map(Step::ReceiveMany),
    ]
}

proptest! {
    /// After any steps, a mailbox behaves like a plain queue of bounded length.
    #[test]
    fn it_behaves_as_a_bounded_queue(steps in prop::collection::vec(step(), 1..200)) {
        let limits = MailboxLimits { messages: 10, bytes: 1 << 20 };
        let (sender, mut reader) = mailbox(limits);
        let mut model = VecDeque::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Push => {
                    let pushed = sender.try_push(message(next));
                    if model.len() < limits.messages {
                        prop_assert!(pushed.is_ok());
                        model.push_back(next);
                    } else {
                        prop_assert!(matches!(pushed, Err(PushError::Full(_))));
                    }
                    next += 1;
                }
                Step::Receive => {
                    prop_assert_eq!(reader.try_recv().as_ref().map(number), model.pop_front());
                }
                Step::ReceiveEven => {
                    let expected = model.iter().position(|number| number % 2 == 0);
                    let expected = expected.and_then(|index| model.remove(index));
                    let found = reader.try_receive_matching(is_even);
                    prop_assert_eq!(found.as_ref().map(number), expected);
                }
                Step::ReceiveMany(most) => {
                    let mut out = Vec::new();
                    reader.try_recv_many(&mut out, most);
                    let expected: Vec<_> = model.drain(..most.min(model.len())).collect();
                    prop_assert_eq!(out.iter().map(number).collect::<Vec<_>>(), expected);
                }
            }
            prop_assert_eq!(reader.len(), model.len());
        }
    }
}

/// A message from a sender, with a number.
fn message_of(sender: u8, number: u64) -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(format!("agent-{sender}@factory")).unwrap())
        .with_conversation_id(format!("talk-{sender}").as_str())
        .with_content(number.to_string());
    ReceivedMessage::shared(Arc::new(message), Provenance::SameProcess)
}

fn sender_of(message: &ReceivedMessage) -> String {
    message.message().sender().unwrap().name().to_owned()
}

#[test]
fn a_sender_that_writes_much_does_not_make_others_wait() {
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    for number in 0..20_000 {
        sender.try_push(message_of(0, number)).unwrap();
    }
    let mut of_the_other = Vec::new();
    for number in 0..3 {
        sender.try_push(message_of(1, number)).unwrap();
    }
    for _ in 0..50 {
        let received = reader.try_recv().unwrap();
        sender.try_push(message_of(0, 20_000)).unwrap();
        if sender_of(&received) == "agent-1@factory" {
            of_the_other.push(number(&received));
        }
    }
    assert_eq!(of_the_other, [0, 1, 2]);
    // Later the sender has its turn after at most eight more messages of the other one.
    sender.try_push(message_of(1, 3)).unwrap();
    let mut next = (0..9).map(|_| reader.try_recv().unwrap());
    assert!(next.any(|it| sender_of(&it) == "agent-1@factory"));
}

#[test]
fn a_reader_that_waits_for_one_message_gets_it_in_its_turn() {
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    for number in 0..100 {
        sender.try_push(message_of(0, number)).unwrap();
    }
    let is_of_the_other = |it: &ReceivedMessage| sender_of(it) == "agent-1@factory";
    let mut waiting = std::pin::pin!(reader.receive_matching(is_of_the_other));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    sender.try_push(message_of(1, 7)).unwrap();
    let std::task::Poll::Ready(Some(received)) = waiting.as_mut().poll(&mut context) else {
        panic!("the message was not seen");
    };
    assert_eq!(number(&received), 7);
}

proptest! {
    /// After any steps, nothing is lost, and each sender's messages stay in order.
    #[test]
    fn each_senders_messages_stay_in_order(steps in prop::collection::vec((0..8u8, 0..4u8, 1..60u64), 1..120)) {
        let (sender, mut reader) = mailbox(MailboxLimits::default());
        let conversations = reader.conversations();
        let mut talk = None;
        let (mut pushed, mut taken) = ([0u64; 4], [0u64; 4]);
        let mut take = |received: ReceivedMessage| {
            let of = usize::from(sender_of(&received).as_bytes()[6] - b'0');
            let expected = taken[of];
            taken[of] += 1;
            prop_assert_eq!(number(&received), expected);
            Ok(())
        };
        for (step, who, count) in steps {
            match step {
                0..=2 => for _ in 0..count {
                    let number = &mut pushed[usize::from(who)];
                    sender.try_push(message_of(who, *number)).unwrap();
                    *number += 1;
                },
                3 => for _ in 0..count {
                    reader.try_recv().map(&mut take).transpose()?;
                },
                4 => {
                    let name = format!("agent-{who}@factory");
                    let found = reader.try_receive_matching(|it| sender_of(it) == name);
                    found.map(&mut take).transpose()?;
                }
                5 => {
                    let mut out = Vec::new();
                    reader.try_recv_many(&mut out, usize::try_from(count).unwrap());
                    out.into_iter().try_for_each(&mut take)?;
                }
                // For a while, the messages of one sender belong to a conversation.
                _ => {
                    talk = talk.is_none().then(|| {
                        let peer = format!("agent-{who}@factory");
                        let talk = conversations.open_with(&format!("talk-{who}"), &peer).unwrap();
                        talk.set_late(Late::Received);
                        talk
                    });
                }
            }
        }
        drop(talk);
        while let Some(received) = reader.try_recv() {
            take(received)?;
        }
        prop_assert_eq!(pushed, taken);
    }
}

#[tokio::test]
async fn a_waiting_reader_gets_the_message_it_waits_for_and_the_rest_stay_in_order() {
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    let writer = tokio::spawn(async move {
        for number in [1, 3, 5, 6, 7] {
            sender.try_push(message(number)).unwrap();
            tokio::task::yield_now().await;
        }
        sender
    });
    assert_eq!(number(&reader.receive_matching(is_even).await.unwrap()), 6);
    let _sender = writer.await.unwrap();
    for expected in [1, 3, 5, 7] {
        assert_eq!(number(&reader.recv().await.unwrap()), expected);
    }
}

#[tokio::test]
async fn writers_wait_in_turn_and_all_get_in() {
    let (sender, mut reader) = mailbox(MailboxLimits {
        messages: 2,
        bytes: 1 << 20,
    });
    let writers: Vec<_> = (0..50)
        .map(|number| {
            let sender = sender.clone();
            tokio::spawn(async move {
                sender
                    .gate()
                    .pass(|| match sender.try_push(message(number)) {
                        Ok(()) => Some(()),
                        Err(PushError::Full(_)) => None,
                        Err(PushError::Closed(..)) => panic!("closed"),
                    })
                    .await;
            })
        })
        .collect();
    let mut seen: Vec<_> = Vec::new();
    for _ in 0..50 {
        seen.push(number(&reader.recv().await.unwrap()));
        assert!(reader.len() <= 2);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..50));
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn a_writer_that_gives_up_waiting_passes_its_turn_on() {
    let (sender, mut reader) = mailbox(MailboxLimits {
        messages: 1,
        bytes: 1 << 20,
    });
    sender.try_push(message(0)).unwrap();
    let wait = |number| {
        let sender = sender.clone();
        tokio::spawn(async move {
            sender
                .gate()
                .pass(|| sender.try_push(message(number)).ok())
                .await;
        })
    };
    let (first, second) = (wait(1), wait(2));
    tokio::task::yield_now().await;
    // The turn goes to the first sender, which has left before it can take the turn.
    assert!(reader.try_recv().is_some());
    first.abort();
    second.await.unwrap();
    assert_eq!(number(&reader.recv().await.unwrap()), 2);
}

#[test]
fn writers_on_many_threads() {
    let (sender, mut reader) = mailbox(MailboxLimits {
        messages: 100,
        bytes: 1 << 20,
    });
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    reader.set_hook(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for number in 0..1_000 {
                    while sender.try_push(message(thread * 1_000 + number)).is_err() {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0, 1_000, 2_000, 3_000];
    let mut out = Vec::new();
    while next != [1_000, 2_000, 3_000, 4_000] {
        reader.try_recv_many(&mut out, 64);
        for message in out.drain(..) {
            let number = number(&message);
            let expected = &mut next[(number / 1_000) as usize];
            assert_eq!(number, *expected);
            *expected += 1;
        }
        std::thread::yield_now();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    // The very first message, at least, had to wake somebody.
    assert!(woken.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_closed_mailbox_gives_back_what_comes() {
    let (sender, reader) = mailbox(MailboxLimits::default());
    sender.try_push(message(1)).unwrap();
    sender.try_push(message(2)).unwrap();
    let carried: Vec<_> = reader.drain().iter().map(number).collect();
    assert_eq!(carried, [1, 2]);
    let Err(PushError::Closed(Closed::Moving, back)) = sender.try_push(message(3)) else {
        panic!("taken");
    };
    assert_eq!(number(&back), 3);

    let (sender, reader) = mailbox(MailboxLimits::default());
    drop(reader);
    assert!(matches!(
        sender.try_push(message(1)),
        Err(PushError::Closed(Closed::Gone, _))
    ));
}

#[derive(Default)]
struct Limit(AtomicU64);

impl WindowListener for Limit {
    fn widened(&self, tag: u64, limit: u64) {
        assert_eq!(tag, 7);
        let before = self.0.swap(limit, Ordering::Relaxed);
        assert!(limit > before, "a limit only rises");
    }
}

fn with_window(
    limits: MailboxLimits,
) -> (
    MailboxSender,
    Mailbox,
    sealbus_bus::MailboxWindow,
    Arc<Limit>,
) {
    let (sender, reader) = mailbox(limits);
    let limit = Arc::new(Limit::default());
    let window = sender.open_window(&"node-2".into(), limit.clone(), 7);
    limit.0.store(window.first_limit(), Ordering::Relaxed);
    (sender, reader, window, limit)
}

#[test]
fn a_window_is_widened_as_its_messages_are_taken_and_never_by_more() {
    let limits = MailboxLimits {
        messages: 1_000_000,
        bytes: 100_000,
    };
    let (_sender, mut reader, window, limit) = with_window(limits);
    let mut sent = 0;
    let mut held = 0_u64;
    for round in 0..10_000 {
        // As a writer does that keeps to its allowance.
        while sent < limit.0.load(Ordering::Relaxed) {
            let encoded = sealbus_acl_encoded(round);
            let cost = (encoded.len() + MESSAGE_OVERHEAD) as u64;
            let received =
                ReceivedMessage::from_bytes(encoded.into(), Provenance::Claimed).unwrap();
            window.push(received).unwrap();
            sent += cost;
            held += cost;
        }
        assert!(held < 2 * limits.bytes as u64, "{held} bytes held");
        for _ in 0..3 {
            let taken = reader
                .try_recv()
                .expect("the writer would be stalled for ever");
            held -= (taken.to_bytes().unwrap().len() + MESSAGE_OVERHEAD) as u64;
        }
    }
}

fn sealbus_acl_encoded(number: usize) -> Vec<u8> {
    let message = AclMessage::new(Performative::Inform).with_content("x".repeat(number % 700));
    let mut encoded = Vec::new();
    sealbus_fipa::bitefficient::encode(&message, &mut encoded).unwrap();
    encoded
}

#[test]
fn a_closed_window_leaves_its_messages_and_its_place_to_the_next() {
    let (sender, mut reader, window, _limit) = with_window(MailboxLimits::default());
    window.push(message(1)).unwrap();
    drop(window);
    let limit = Arc::new(Limit::default());
    let next = sender.open_window(&"node-2".into(), limit.clone(), 7);
    next.push(message(2)).unwrap();
    assert_eq!(number(&reader.try_recv().unwrap()), 1);
    assert_eq!(number(&reader.try_recv().unwrap()), 2);
    assert_eq!(
        limit.0.load(Ordering::Relaxed),
        0,
        "too little was taken to be worth telling"
    );
}

#[test]
fn the_unread_messages_of_a_closed_window_count_against_the_next_one_of_their_writer() {
    let (sender, mut reader, first, _limit) = with_window(MailboxLimits::default());
    let size = first.first_limit();
    first.push(message(1)).unwrap();
    first.push(message(2)).unwrap();
    let cost = sender.counts().bytes as u64 / 2;
    drop(first);
    let limit = Arc::new(Limit::default());
    let mut next = sender.open_window(&"node-2".into(), limit.clone(), 7);
    assert_eq!(next.first_limit(), size - 2 * cost);
    for _ in 0..10 {
        drop(next);
        next = sender.open_window(&"node-2".into(), limit.clone(), 7);
        assert_eq!(next.first_limit(), size - 2 * cost);
    }
    // Another writer has room of its own.
    drop(next);
    let other = sender.open_window(&"node-3".into(), limit.clone(), 7);
    assert_eq!(other.first_limit(), size);
    drop(other);
    assert_eq!(number(&reader.try_recv().unwrap()), 1);
    let next = sender.open_window(&"node-2".into(), limit.clone(), 7);
    assert_eq!(next.first_limit(), size - cost);
    drop(next);
    assert_eq!(number(&reader.try_recv().unwrap()), 2);
    let next = sender.open_window(&"node-2".into(), limit.clone(), 7);
    assert_eq!(next.first_limit(), size);
}

#[test]
fn a_window_that_begins_with_no_room_is_widened_as_former_messages_are_taken() {
    let limits = MailboxLimits {
        messages: 1_000,
        bytes: 1 << 20,
    };
    let (sender, mut reader, first, _limit) = with_window(limits);
    let mut written = 0;
    while written < first.first_limit() {
        let encoded = sealbus_acl_encoded(699);
        written += (encoded.len() + MESSAGE_OVERHEAD) as u64;
        let received = ReceivedMessage::from_bytes(encoded.into(), Provenance::Claimed).unwrap();
        first.push(received).unwrap();
    }
    drop(first);
    let limit = Arc::new(Limit::default());
    let next = sender.open_window(&"node-2".into(), limit.clone(), 7);
    assert_eq!(next.first_limit(), 0);
    while reader.try_recv().is_some() {}
    assert!(limit.0.load(Ordering::Relaxed) > 0);
}

#[derive(Default)]
struct Closings(AtomicU64);

impl WindowListener for Closings {
    fn widened(&self, _: u64, _: u64) {}

    fn closed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_writers_with_windows_hear_that_the_mailbox_is_closed() {
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    let (present, past) = (Arc::<Closings>::default(), Arc::<Closings>::default());
    let window = sender.open_window(&"node-2".into(), present.clone(), 0);
    drop(sender.open_window(&"node-2".into(), past.clone(), 1));
    window.push(message(1)).unwrap();
    sender.close(Closed::Moving);
    assert_eq!(present.0.load(Ordering::Relaxed), 1);
    assert_eq!(
        past.0.load(Ordering::Relaxed),
        0,
        "its window was closed before"
    );
    assert_eq!(number(&reader.try_recv().unwrap()), 1);
}
