//! Messages of one sender that come together lie in a mailbox as one entry, and no reader can tell.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;
use sealbus_bus::{
    Closed, Conversation, Kept, KeptListener, KeptOutcome, Late, MESSAGE_OVERHEAD, Mailbox,
    MailboxLimits, MailboxSender, MailboxWindow, Moment, Provenance, ReceivedMessage,
    WindowListener, mailbox,
};
use sealbus_fipa::{AclMessage, Aid, Performative};

/// A message from a sender, with a number.
fn message_of(sender: u8, number: u64) -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(format!("agent-{sender}@factory")).unwrap())
        .with_conversation_id(format!("talk-{sender}").as_str())
        .with_content(number.to_string());
    ReceivedMessage::shared(Arc::new(message), Provenance::Claimed)
}

fn name(message: &ReceivedMessage) -> String {
    let view = message.message();
    let sender = view.sender().unwrap().name().to_owned();
    format!("{sender} {}", view.content_text().unwrap())
}

fn is_of(message: &ReceivedMessage, sender: u8) -> bool {
    *message.message().sender().unwrap().name() == format!("agent-{sender}@factory")
}

/// Records what a writer in another process is told.
#[derive(Default)]
struct Heard {
    limit: AtomicU64,
    unread: Mutex<Vec<String>>,
}

impl WindowListener for Heard {
    fn widened(&self, _tag: u64, limit: u64) {
        let before = self.limit.swap(limit, Ordering::Relaxed);
        assert!(limit > before, "a limit only rises");
    }

    fn unread(&self, messages: Vec<ReceivedMessage>) {
        self.unread.lock().extend(messages.iter().map(name));
    }
}

struct Nobody;

impl KeptListener for Nobody {
    fn settled(&self, _number: u64, _outcome: KeptOutcome) {}
}

/// A mailbox with a window for each of two processes.
struct Side {
    sender: MailboxSender,
    reader: Option<Mailbox>,
    windows: [MailboxWindow; 2],
    heard: [Arc<Heard>; 2],
    talk: Option<Conversation>,
    way: Way,
}

/// How messages of one sender that come together are put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All at once.
    Together,
    /// One by one. In a crowded mailbox, they become rows as well.
    OneByOne,
    /// One by one, each with a receipt, so that it is an entry of its own.
    Single,
}

impl Side {
    fn new(way: Way) -> Self {
        let limits = MailboxLimits {
            messages: 100_000,
            bytes: 100_000,
        };
        let (sender, reader) = mailbox(limits);
        let heard = [0, 1].map(|_| Arc::new(Heard::default()));
        let windows = [0, 1].map(|process| {
            let writer = format!("node-{process}").as_str().into();
            let listener: Arc<Heard> = heard[process].clone();
            sender.open_window(&writer, listener, 0)
        });
        Self {
            sender,
            reader: Some(reader),
            windows,
            heard,
            talk: None,
            way,
        }
    }

    /// Puts in messages of `sender`, the last `others` of which are from the other sender in its process. Senders 0 and
    /// 1 are in the first process, senders 2 and 3 in the second.
    fn push(&self, sender: u8, mut messages: Vec<ReceivedMessage>, others: usize) {
        let own = messages.len() - others;
        let window = &self.windows[usize::from(sender / 2)];
        match self.way {
            Way::Together => {
                let senders: Vec<u32> = (0..messages.len())
                    .map(|place| u32::from(place >= own))
                    .collect();
                window.push_all(&mut messages, &senders).unwrap();
                assert!(messages.is_empty());
            }
            Way::OneByOne => messages.into_iter().for_each(|it| window.push(it).unwrap()),
            Way::Single => messages
                .into_iter()
                .for_each(|it| window.push_with_receipt(it, 0).unwrap()),
        }
    }

    fn step(&mut self, step: &Step, first: u64) -> Vec<String> {
        let mut got = Vec::new();
        let reader = self.reader.as_mut().unwrap();
        match *step {
            Step::Row(sender, count, others) => {
                let row = (first..).take(count).map(|it| message_of(sender, it));
                let rest = (first..).take(others).map(|it| message_of(sender ^ 1, it));
                self.push(sender, row.chain(rest).collect(), others);
            }
            Step::Kept(sender, count) => {
                // Every second message has expired.
                let long_ago = Moment::from(std::time::SystemTime::UNIX_EPOCH);
                let kept = |it: u64| {
                    message_of(sender, it).with_kept(Kept {
                        number: it,
                        again: false,
                        expiry: it.is_multiple_of(2).then_some(long_ago),
                        listener: Arc::new(Nobody),
                    })
                };
                self.push(sender, (first..).take(count).map(kept).collect(), 0);
            }
            Step::Receive(count) => {
                got.extend((0..count).map_while(|_| Some(name(&reader.try_recv()?))));
            }
            Step::ReceiveMany(most) => {
                let mut out = Vec::new();
                assert_eq!(reader.try_recv_many(&mut out, most), out.len());
                got.extend(out.iter().map(name));
            }
            Step::ReceiveOf(sender) => {
                let found = reader.try_receive_matching(|it| is_of(it, sender));
                got.extend(found.as_ref().map(name));
            }
            Step::Talk(sender) => {
                self.talk = self.talk.is_none().then(|| {
                    let peer = format!("agent-{sender}@factory");
                    let conversations = reader.conversations();
                    let talk = conversations.open_with(&format!("talk-{sender}"), &peer);
                    let talk = talk.unwrap();
                    talk.set_late(Late::Received);
                    talk
                });
            }
            Step::Hear => {
                let talk = self.talk.as_ref();
                got.extend(talk.and_then(Conversation::try_recv).as_ref().map(name));
            }
        }
        got
    }
}

#[derive(Clone, Debug)]
enum Step {
    Row(u8, usize, usize),
    Kept(u8, usize),
    Receive(usize),
    ReceiveMany(usize),
    ReceiveOf(u8),
    Talk(u8),
    Hear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u8, 1..60usize, 0..20usize)
            .prop_map(|(sender, count, others)| Step::Row(sender, count, others)),
        1 => (0..4u8, 1..12usize).prop_map(|(sender, count)| Step::Kept(sender, count)),
        3 => (0..40usize).prop_map(Step::Receive),
        3 => (0..200usize).prop_map(Step::ReceiveMany),
        1 => (0..4u8).prop_map(Step::ReceiveOf),
        1 => (0..4u8).prop_map(Step::Talk),
        1 => Just(Step::Hear),
    ]
}

#[derive(Clone, Copy, Debug)]
enum End {
    Read,
    Drop,
    Drain,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After any steps, a mailbox with rows gives the same messages, counts and answers as a mailbox with single messages.
    #[test]
    fn rows_are_read_as_single_messages(
        way in prop_oneof![Just(Way::Together), Just(Way::OneByOne)],
        steps in prop::collection::vec(step(), 1..24),
        end in prop_oneof![Just(End::Read), Just(End::Drop), Just(End::Drain)],
    ) {
        let (mut rows, mut single) = (Side::new(way), Side::new(Way::Single));
        let mut number = 0;
        for step in &steps {
            prop_assert_eq!(rows.step(step, number), single.step(step, number));
            number += 100;
            prop_assert_eq!(rows.sender.counts(), single.sender.counts());
            let length = |side: &Side| side.reader.as_ref().map(Mailbox::len);
            prop_assert_eq!(length(&rows), length(&single));
        }
        for side in [&mut rows, &mut single] {
            side.talk = None;
        }
        let ends = [&mut rows, &mut single].map(|side| {
            let mut reader = side.reader.take().unwrap();
            let mut left: Vec<String> = Vec::new();
            match end {
                End::Read => left.extend(std::iter::from_fn(|| reader.try_recv()).map(|it| name(&it))),
                End::Drop => drop(reader),
                End::Drain => left.extend(reader.drain().iter().map(name)),
            }
            let unread = [0, 1].map(|process: usize| side.heard[process].unread.lock().clone());
            (left, unread, side.sender.counts())
        });
        let [rows_end, single_end] = ends;
        prop_assert_eq!(rows_end, single_end);
    }
}

#[test]
fn a_writer_of_rows_has_its_room_again_and_never_more() {
    let side = Side::new(Way::Together);
    let mut reader = side.reader.unwrap();
    let (window, heard) = (&side.windows[0], &side.heard[0]);
    heard.limit.store(window.first_limit(), Ordering::Relaxed);
    let cost = (message_of(0, 1000).size() + MESSAGE_OVERHEAD) as u64;
    let (mut sent, mut taken) = (0, 0);
    let mut out = Vec::new();
    for most in (1..200).cycle().take(20_000) {
        let mut row = Vec::new();
        while sent < heard.limit.load(Ordering::Relaxed) && row.len() < 100 {
            row.push(message_of(0, 1000));
            sent += cost;
        }
        let senders = vec![0; row.len()];
        window.push_all(&mut row, &senders).unwrap();
        taken += reader.try_recv_many(&mut out, most) as u64 * cost;
        out.clear();
        let held = sent - taken;
        assert!(held <= window.first_limit() + cost, "{held} bytes held");
        assert!(side.sender.counts().bytes as u64 == held);
    }
    assert!(taken > 100 * window.first_limit(), "the writer was stalled");
}

#[test]
fn senders_of_rows_take_turns() {
    let side = Side::new(Way::Together);
    for number in 0..20 {
        side.push(
            0,
            (0..100)
                .map(|it| message_of(0, number * 100 + it))
                .collect(),
            0,
        );
    }
    side.push(2, (0..10).map(|it| message_of(2, it)).collect(), 0);
    let mut reader = side.reader.unwrap();
    let mut out = Vec::new();
    reader.try_recv_many(&mut out, 60);
    assert_eq!(out.iter().filter(|it| is_of(it, 2)).count(), 10);
}

/// The reader takes the messages in one go, and the other senders do not wait long.
#[test]
fn a_sender_of_rows_has_eight_messages_in_its_turn() {
    for way in [Way::Together, Way::OneByOne, Way::Single] {
        let side = Side::new(way);
        for number in 0..10 {
            for sender in [0, 1, 2] {
                let row = (0..48).map(|it| message_of(sender, number * 48 + it));
                side.push(sender, row.collect(), 0);
            }
        }
        let mut reader = side.reader.unwrap();
        let mut out = Vec::new();
        // The first messages came before the mailbox was crowded.
        assert_eq!(reader.try_recv_many(&mut out, 150), 150);
        out.clear();
        assert_eq!(reader.try_recv_many(&mut out, 480), 480);
        let of = |it: &ReceivedMessage| (0..3).find(|sender| is_of(it, *sender)).unwrap();
        let turns: Vec<_> = out.chunk_by(|one, next| of(one) == of(next)).collect();
        let whole = &turns[1..turns.len() - 1];
        assert!(whole.len() > 50, "{} turns", whole.len());
        assert!(whole.iter().all(|turn| turn.len() == 8));
        // A new sender waits only for the rest of this round.
        side.windows[1].push(message_of(3, 0)).unwrap();
        out.clear();
        reader.try_recv_many(&mut out, 3 * 8 + 1);
        assert!(out.iter().any(|it| is_of(it, 3)));
    }
}

#[test]
fn a_closed_mailbox_takes_no_row() {
    let side = Side::new(Way::Together);
    side.sender.close(Closed::Moving);
    let mut row: Vec<_> = (0..50).map(|it| message_of(0, it)).collect();
    let closed = side.windows[0].push_all(&mut row, &[0; 50]);
    assert_eq!((closed, row.len()), (Err(Closed::Moving), 50));
}
