//! Conversations: each message goes to exactly one queue, in order, while conversations are opened, ended and read.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::option::of;
use proptest::prelude::*;
use sealbus_bus::{Conversation, Late, MailboxLimits, Provenance, ReceivedMessage, mailbox};
use sealbus_fipa::{AclMessage, Aid, Performative};

const LIMITS: MailboxLimits = MailboxLimits {
    messages: 25,
    bytes: 1 << 20,
};

fn agent(number: u8) -> String {
    format!("agent-{number}@factory")
}

/// The parts of a message that decide where it belongs.
#[derive(Clone, Debug)]
struct Parts {
    id: Option<u8>,
    tag: Option<u8>,
    sender: u8,
    is_cancel: bool,
}

fn message(number: u64, parts: &Parts) -> ReceivedMessage {
    let act = match parts.is_cancel {
        true => Performative::Cancel,
        false => Performative::Inform,
    };
    let mut message = AclMessage::new(act)
        .with_sender(Aid::new(agent(parts.sender)).unwrap())
        .with_content(number.to_string());
    message.conversation_id = parts.id.map(|id| format!("talk-{id}").as_str().into());
    message.in_reply_to = parts.tag.map(|tag| format!("tag-{tag}").as_str().into());
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
    Push(Parts),
    Open(u8),
    OpenWith(u8, u8),
    OpenReply(Option<u8>, u8),
    Tag(usize, u8),
    Rule(usize, Late),
    Receive(usize),
    ReceiveEven(usize),
    End(usize),
    ReceiveAny,
    ReceiveAnyEven,
    ReceiveMany(usize),
    /// A move that fails: the agent gets another mailbox with its messages.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let (id, tag, sender, which) = (0..4_u8, 0..4_u8, 0..3_u8, any::<usize>());
    let late = prop_oneof![Just(Late::Ignored), Just(Late::Received)];
    let parts = (
        of(id.clone()),
        of(tag.clone()),
        sender.clone(),
        prop::bool::weighted(0.2),
    );
    prop_oneof![
        12 => parts.prop_map(|(id, tag, sender, is_cancel)| {
            Step::Push(Parts { id, tag, sender, is_cancel })
        }),
        2 => id.clone().prop_map(Step::Open),
        2 => (id.clone(), sender).prop_map(|(id, peer)| Step::OpenWith(id, peer)),
        2 => (of(id), tag.clone()).prop_map(|(id, tag)| Step::OpenReply(id, tag)),
        2 => (which, tag).prop_map(|(which, tag)| Step::Tag(which, tag)),
        1 => (which, late).prop_map(|(which, late)| Step::Rule(which, late)),
        4 => which.prop_map(Step::Receive),
        1 => which.prop_map(Step::ReceiveEven),
        2 => which.prop_map(Step::End),
        2 => Just(Step::ReceiveAny),
        1 => Just(Step::ReceiveAnyEven),
        1 => (0..5_usize).prop_map(Step::ReceiveMany),
        1 => Just(Step::Move),
    ]
}

/// A conversation, modelled as simply as possible.
struct Talk {
    open: Conversation,
    number: usize,
    id: Option<u8>,
    owns_id: bool,
    is_guest: bool,
    peer: Option<u8>,
    late: Late,
    queue: VecDeque<u64>,
}

#[derive(Default)]
struct Model {
    general: Vec<(u64, Parts)>,
    talks: Vec<Talk>,
    /// The tags in the order in which they were named: each tag, and the number of its conversation.
    tags: Vec<(u8, usize)>,
    ended_ids: Vec<(u8, Option<u8>)>,
    ended_tags: Vec<(u8, Option<u8>)>,
    ignored: u64,
    opened: usize,
    parts: Vec<Parts>,
}

fn speaks(peer: Option<u8>, parts: &Parts) -> bool {
    peer.is_none_or(|peer| peer == parts.sender)
}

impl Model {
    fn owner(&self, id: u8, parts: &Parts) -> Option<usize> {
        let mut talks = self.talks.iter();
        talks.position(|it| it.owns_id && it.id == Some(id) && speaks(it.peer, parts))
    }

    fn place(&self, parts: &Parts) -> Result<usize, bool> {
        let of_id = parts.id.and_then(|id| self.owner(id, parts));
        for (_, number) in self.tags.iter().filter(|(tag, _)| Some(*tag) == parts.tag) {
            let index = self
                .talks
                .iter()
                .position(|it| it.number == *number)
                .unwrap();
            let it = &self.talks[index];
            let fits = parts.id.is_none() || it.id == parts.id || of_id.is_none();
            if speaks(it.peer, parts) && fits {
                return Ok(index);
            }
        }
        if let Some(index) = of_id {
            return Ok(index);
        }
        let ended = |all: &[(u8, Option<u8>)], name: Option<u8>| {
            let found = |it: &&(u8, Option<u8>)| Some(it.0) == name && speaks(it.1, parts);
            all.iter().filter(found).map(|it| it.1).collect::<Vec<_>>()
        };
        let by_id = ended(&self.ended_ids, parts.id);
        let again = parts.tag.is_none() && !parts.is_cancel && !by_id.contains(&None);
        let is_late =
            (!by_id.is_empty() && !again) || !ended(&self.ended_tags, parts.tag).is_empty();
        Err(is_late)
    }

    fn put(&mut self, number: u64, parts: &Parts) {
        match self.place(parts) {
            Ok(index) => self.talks[index].queue.push_back(number),
            Err(true) => self.ignored += 1,
            Err(false) => self.general.push((number, parts.clone())),
        }
    }

    fn open(&mut self, open: Conversation, id: Option<u8>, peer: Option<u8>, is_guest: bool) {
        let mut talks = self.talks.iter();
        let owns_id = id.is_some() && !talks.any(|it| it.owns_id && it.id == id && it.peer == peer);
        if owns_id {
            self.ended_ids.retain(|it| Some(it.0) != id || it.1 != peer);
        }
        self.opened += 1;
        self.talks.push(Talk {
            open,
            number: self.opened,
            id,
            owns_id,
            is_guest,
            peer,
            late: Late::Ignored,
            queue: VecDeque::new(),
        });
    }

    fn tag(&mut self, index: usize, tag: u8) {
        let named = (tag, self.talks[index].number);
        if !self.tags.contains(&named) {
            self.tags.push(named);
        }
    }

    fn end(&mut self, index: usize) {
        let talk = self.talks.remove(index);
        let of_talk = |it: &&(u8, usize)| it.1 == talk.number;
        let tags: Vec<u8> = self.tags.iter().filter(of_talk).map(|it| it.0).collect();
        self.tags.retain(|it| it.1 != talk.number);
        let is_received = talk.late == Late::Received;
        for number in talk.queue {
            let parts = self.parts[number as usize].clone();
            if is_received || talk.is_guest && !parts.tag.is_some_and(|tag| tags.contains(&tag)) {
                self.general.push((number, parts));
            } else {
                self.ignored += 1;
            }
        }
        self.general.sort_by_key(|(number, _)| *number);
        if !is_received {
            let id = talk.id.filter(|_| talk.owns_id && !talk.is_guest);
            self.ended_ids.extend(id.map(|id| (id, talk.peer)));
            self.ended_tags
                .extend(tags.into_iter().map(|tag| (tag, talk.peer)));
        }
    }

    /// Assigns the fitting messages to their conversations again.
    fn sort(&mut self, fits: impl Fn(&Parts) -> bool) {
        for (number, parts) in std::mem::take(&mut self.general) {
            match fits(&parts) {
                true => self.put(number, &parts),
                false => self.general.push((number, parts)),
            }
        }
    }

    fn len(&self) -> usize {
        self.general.len() + self.talks.iter().map(|it| it.queue.len()).sum::<usize>()
    }

    fn next(&mut self, even: bool) -> Option<u64> {
        let fits = |it: &(u64, Parts)| !even || it.0.is_multiple_of(2);
        let index = self.general.iter().position(fits)?;
        Some(self.general.remove(index).0)
    }
}

fn taken<T>(from: &mut VecDeque<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    let index = from.iter().position(fits)?;
    from.remove(index)
}

proptest! {
    #[test]
    fn each_message_goes_to_one_queue_in_order(steps in prop::collection::vec(step(), 1..150)) {
        let (mut sender, mut reader) = mailbox(LIMITS);
        let mut model = Model::default();
        for step in steps {
            let chosen = |which: usize| (!model.talks.is_empty()).then(|| which % model.talks.len());
            let open = reader.conversations();
            match step {
                Step::Push(parts) => {
                    let number = model.parts.len() as u64;
                    model.parts.push(parts.clone());
                    let pushed = sender.try_push(message(number, &parts));
                    prop_assert_eq!(pushed.is_ok(), model.len() < LIMITS.messages);
                    if pushed.is_ok() {
                        model.put(number, &parts);
                    }
                }
                Step::Open(id) => {
                    let is_open = model.talks.iter().any(|it| {
                        it.owns_id && it.id == Some(id) && it.peer.is_none()
                    });
                    let opened = open.open(&format!("talk-{id}"));
                    prop_assert_eq!(opened.is_err(), is_open);
                    if let Ok(opened) = opened {
                        model.open(opened, Some(id), None, false);
                    }
                }
                Step::OpenWith(id, peer) => {
                    let is_open = model.talks.iter().any(|it| {
                        it.owns_id && it.id == Some(id) && it.peer == Some(peer)
                    });
                    let opened = open.open_with(&format!("talk-{id}"), &agent(peer));
                    prop_assert_eq!(opened.is_err(), is_open);
                    if let Ok(opened) = opened {
                        model.open(opened, Some(id), Some(peer), false);
                        model.sort(|parts| parts.id == Some(id));
                    }
                }
                Step::OpenReply(id, tag) => {
                    let name = id.map(|id| format!("talk-{id}"));
                    let opened = open.open_reply(name.as_deref(), &format!("tag-{tag}"));
                    model.open(opened, id, None, true);
                    model.tag(model.talks.len() - 1, tag);
                }
                Step::Tag(which, tag) => if let Some(index) = chosen(which) {
                    model.talks[index].open.expect_reply_to(&format!("tag-{tag}"));
                    model.tag(index, tag);
                }
                Step::Rule(which, late) => if let Some(index) = chosen(which) {
                    model.talks[index].open.set_late(late);
                    model.talks[index].late = late;
                }
                Step::Receive(which) => if let Some(index) = chosen(which) {
                    let talk = &mut model.talks[index];
                    let got = talk.open.try_recv();
                    prop_assert_eq!(got.as_ref().map(number), talk.queue.pop_front());
                }
                Step::ReceiveEven(which) => if let Some(index) = chosen(which) {
                    let talk = &mut model.talks[index];
                    let got = talk.open.try_receive_matching(is_even);
                    let expected = taken(&mut talk.queue, |number| number.is_multiple_of(2));
                    prop_assert_eq!(got.as_ref().map(number), expected);
                }
                Step::End(which) => if let Some(index) = chosen(which) {
                    model.end(index);
                }
                Step::ReceiveAny => {
                    prop_assert_eq!(reader.try_recv().as_ref().map(number), model.next(false));
                }
                Step::ReceiveAnyEven => {
                    let got = reader.try_receive_matching(is_even);
                    prop_assert_eq!(got.as_ref().map(number), model.next(true));
                }
                Step::ReceiveMany(most) => {
                    let mut got = Vec::new();
                    reader.try_recv_many(&mut got, most);
                    let expected: Vec<_> = (0..most).map_while(|_| model.next(false)).collect();
                    prop_assert_eq!(got.iter().map(number).collect::<Vec<_>>(), expected);
                }
                Step::Move => {
                    let (new_sender, new_reader) = mailbox(LIMITS);
                    let resting = reader.rest();
                    let mut all: Vec<u64> = model.general.iter().map(|it| it.0).collect();
                    all.extend(model.talks.iter_mut().flat_map(|it| it.queue.drain(..)));
                    all.sort_unstable();
                    prop_assert_eq!(resting.messages().map(number).collect::<Vec<_>>(), all.clone());
                    new_sender.resume(resting);
                    (sender, reader) = (new_sender, new_reader);
                    model.general.clear();
                    for number in all {
                        let parts = model.parts[number as usize].clone();
                        model.put(number, &parts);
                    }
                }
            }
            prop_assert_eq!(reader.len(), model.general.len());
            prop_assert_eq!(reader.conversations().ignored(), model.ignored);
            for talk in &model.talks {
                prop_assert_eq!(talk.open.len(), talk.queue.len());
            }
        }
    }
}
