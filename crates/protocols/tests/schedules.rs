//! Both roles against each other over networks that lose, double, reorder and invent messages.
//!
//! `SEALBUS_SCHEDULES=100000` plays that many schedules of each protocol, as `make soak` does.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use sealbus_fipa::{AclMessage, Aid, DateTime, Performative};
use sealbus_protocols::{
    Initiator, Outcome, Participant, Protocol, REQUEST, Received, Refused, Stage, To,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const STAGES: [Stage; 6] = [
    Stage::Called,
    Stage::Proposed,
    Stage::Settling,
    Stage::Active,
    Stage::Leading,
    Stage::Defending,
];
/// The acts by which conversations get on: those of initiators, and those of participants.
const ASKING: [Performative; 8] = [
    Performative::AcceptProposal,
    Performative::Cfp,
    Performative::Inform,
    Performative::RejectProposal,
    Performative::AcceptProposal,
    Performative::Cfp,
    Performative::Request,
    Performative::AcceptProposal,
];
const ANSWERING: [Performative; 9] = [
    Performative::Refuse,
    Performative::Propose,
    Performative::Inform,
    Performative::Propose,
    Performative::Failure,
    Performative::Propose,
    Performative::RejectProposal,
    Performative::AcceptProposal,
    Performative::Agree,
];
const END: i64 = 10_000;

fn schedules() -> u32 {
    let wanted = std::env::var("SEALBUS_SCHEDULES").ok();
    wanted.map_or(100, |text| text.parse().unwrap())
}

fn aid(name: &str) -> Aid {
    Aid::new(name).unwrap()
}

struct World {
    protocol: &'static Protocol,
    initiator: Initiator,
    participants: BTreeMap<&'static str, Participant>,
    /// The receiver and the message.
    network: Vec<(String, AclMessage)>,
    now: i64,
    /// Acts that the initiator accepted from a participant, and those that it sent to one.
    accepted: Vec<(String, Performative)>,
    sent: Vec<(String, Performative)>,
    /// Ends that the initiator reported before.
    ends: BTreeMap<String, Outcome>,
}

impl World {
    fn new(protocol: &'static Protocol, opening: u8) -> Self {
        let acts = protocol.opening();
        let opening = AclMessage::new(acts[usize::from(opening) % acts.len()].clone());
        let agents = NAMES.map(aid);
        let (mut initiator, messages) =
            Initiator::open(protocol, "c1", agents, &opening, 0).unwrap();
        initiator.end_by(END);
        let mut world = Self {
            protocol,
            initiator,
            participants: BTreeMap::new(),
            network: Vec::new(),
            now: 0,
            accepted: Vec::new(),
            sent: Vec::new(),
            ends: BTreeMap::new(),
        };
        world.initiator_sent(messages);
        world
    }

    fn initiator_sent(&mut self, messages: impl IntoIterator<Item = AclMessage>) {
        for message in messages {
            let message = message.with_sender(aid("i"));
            for receiver in &message.receivers {
                let act = message.performative.clone();
                self.sent.push((receiver.name.clone(), act));
                self.network.push((receiver.name.clone(), message.clone()));
            }
        }
    }

    fn participant_sent(&mut self, name: &str, message: AclMessage) {
        self.network
            .push(("i".into(), message.with_sender(aid(name))));
    }

    fn deliver(&mut self, receiver: &str, message: &AclMessage) {
        let refused = |done: Result<Received, Refused>| done.err().and_then(|it| it.answer);
        if receiver == "i" {
            let done = self.initiator.receive(message, self.now);
            if done == Ok(Received::Step) {
                let sender = message.sender.as_ref().unwrap().name.clone();
                self.accepted.push((sender, message.performative.clone()));
            }
            self.initiator_sent(refused(done).map(|answer| *answer));
            return;
        }
        let Some(name) = NAMES.into_iter().find(|name| *name == receiver) else {
            return;
        };
        let answer = match self.participants.get_mut(name) {
            Some(participant) => refused(participant.receive(message, self.now)),
            None => match Participant::open(self.protocol, message, self.now) {
                Ok(mut participant) => {
                    participant.end_by(END);
                    self.participants.insert(name, participant);
                    None
                }
                Err(refused) => refused.answer,
            },
        };
        if let Some(answer) = answer {
            self.participant_sent(name, *answer);
        }
    }

    fn draft(&self, act: &Performative, reply_by: u8) -> AclMessage {
        let draft = AclMessage::new(act.clone());
        match reply_by % 16 {
            0 => {
                draft.with_reply_by(DateTime::from_unix_ms(self.now + i64::from(reply_by)).unwrap())
            }
            _ => draft,
        }
    }

    /// The messages that a side tries, until its protocol allows one: any act, or one of the acts that advance a
    /// conversation.
    fn drafts(&self, usual: &[Performative], act: u8, reply_by: u8) -> Vec<AclMessage> {
        let act = usize::from(act);
        let all = &Performative::STANDARD;
        let acts: Vec<_> = match act {
            0..32 => vec![&all[act % all.len()]],
            _ => (0..usual.len())
                .map(|it| &usual[(act + it) % usual.len()])
                .collect(),
        };
        acts.into_iter()
            .map(|act| self.draft(act, reply_by))
            .collect()
    }

    fn initiator_sends(&mut self, drafts: &[AclMessage], to: u8) {
        let one = [aid(NAMES[usize::from(to) % NAMES.len()])];
        let to = match to {
            0..60 => To::All,
            60..130 => To::Stage(STAGES[usize::from(to) % STAGES.len()]),
            _ => To::Agents(&one),
        };
        let mut drafts = drafts.iter();
        let sent = drafts.find_map(|it| self.initiator.send(to, it, self.now).ok());
        self.initiator_sent(sent.into_iter().flatten());
    }

    fn participant_sends(&mut self, drafts: &[AclMessage], who: u8) {
        let name = NAMES[usize::from(who) % NAMES.len()];
        let Some(participant) = self.participants.get_mut(name) else {
            return;
        };
        let now = self.now;
        let mut drafts = drafts.iter();
        let message = if participant.is_cancelling() && who >= 128 {
            drafts.find_map(|it| participant.answer_cancel(it, now).ok())
        } else {
            drafts.find_map(|it| participant.send(it, now).ok())
        };
        if let Some(message) = message {
            self.participant_sent(name, message);
        }
    }

    /// A message that no conversation made.
    fn invent(&mut self, act: u8, choice: u8) {
        let names = ["i", "a", "b", "c", "stranger"];
        let sender = names[usize::from(choice) % names.len()];
        let all = &Performative::STANDARD;
        let act = usize::from(act);
        let mut message = self
            .draft(&all[act % all.len()], choice)
            .with_sender(aid(sender));
        if choice & 32 == 0 {
            message = message.with_conversation_id("c1");
        }
        if choice & 64 == 0 {
            message = message.with_protocol(self.protocol.name());
        }
        if choice & 128 == 0 {
            message = message.with_in_reply_to("c1-i1");
        }
        self.network.push((names[act % 4].into(), message));
    }

    fn pass(&mut self, time: i64) {
        self.now += time;
        let messages = self.initiator.advance(self.now);
        self.initiator_sent(messages);
        for participant in self.participants.values_mut() {
            participant.advance(self.now);
            assert!(participant.deadline().is_none_or(|it| it > self.now));
        }
        assert!(self.initiator.deadline().is_none_or(|it| it > self.now));
    }

    fn drain(&mut self) {
        let mut rounds = 0;
        while !self.network.is_empty() {
            let (receiver, message) = self.network.remove(0);
            self.deliver(&receiver, &message);
            rounds += 1;
            assert!(rounds < 10_000, "answers answer each other without end");
        }
    }

    /// An end stays as it was reported.
    fn check_ends(&mut self) {
        for branch in self.initiator.branches() {
            if let Some(outcome) = branch.outcome() {
                let name = branch.agent().name.clone();
                assert_eq!(*self.ends.entry(name).or_insert(outcome), outcome);
            }
        }
    }

    /// The initiator's account of each participant agrees with the messages that the participant sent and got.
    fn check_account(&self) {
        for branch in self.initiator.branches() {
            let name = &branch.agent().name;
            let mut of = self
                .accepted
                .iter()
                .rev()
                .filter(|(agent, _)| agent == name);
            let last = of.next().map(|(_, act)| act);
            let told = |act| self.sent.contains(&(name.clone(), act));
            let stage = branch.stage();
            let is_true = match branch.outcome().unwrap() {
                Outcome::Done => {
                    last == Some(&Performative::Inform)
                        || (self.protocol.name() == "fipa-recruiting" && stage == Stage::Agreed)
                        || (self.protocol.name() == "fipa-brokering" && stage == Stage::Active)
                }
                Outcome::Accepted => last == Some(&Performative::AcceptProposal),
                Outcome::Refused => last == Some(&Performative::Refuse),
                Outcome::Failed => last == Some(&Performative::Failure),
                Outcome::Rejected => {
                    last == Some(&Performative::RejectProposal)
                        || told(Performative::RejectProposal)
                }
                Outcome::Closed => told(Performative::Inform),
                Outcome::NotUnderstood => {
                    last == Some(&Performative::NotUnderstood) || told(Performative::NotUnderstood)
                }
                Outcome::Cancelled => {
                    last == Some(&Performative::Inform) && told(Performative::Cancel)
                }
                Outcome::Unconfirmed => told(Performative::Cancel),
                Outcome::TimedOut => {
                    let silent =
                        stage == Stage::Asked && self.protocol.name() != "fipa-auction-english";
                    !(silent && last.is_some())
                }
                Outcome::Undeliverable => false,
            };
            assert!(is_true, "{branch:?} after {:?}", self.accepted);
        }
    }
}

/// A step of a schedule: the act, and two choices.
type Step = (u8, u8, u8);

/// A network that loses, doubles, reorders and invents messages.
fn play_on_any_network(
    protocol: &'static Protocol,
    opening: u8,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut world = World::new(protocol, opening);
    for &(step, one, two) in steps {
        let waiting = world.network.len();
        match step % 16 {
            0..7 if waiting > 0 => {
                // Mostly in order, sometimes not.
                let index = if one < 160 {
                    0
                } else {
                    usize::from(two) % waiting
                };
                let (receiver, message) = world.network.remove(index);
                world.deliver(&receiver, &message);
                if one % 8 == 0 {
                    world.network.push((receiver, message));
                }
            }
            7 if waiting > 0 && one < 128 => {
                world.network.remove(usize::from(one) % waiting);
            }
            8..11 => {
                let drafts = world.drafts(&ANSWERING, one, two);
                world.participant_sends(&drafts, two);
            }
            11..13 => {
                let drafts = world.drafts(&ASKING, one, two);
                world.initiator_sends(&drafts, two);
            }
            13 if two < 128 => world.invent(one, two),
            13 => {}
            14 if one < 10 => world.initiator.conclude(),
            14 if one < 40 => {
                world.initiator_sends(&[AclMessage::new(Performative::Cancel)], two);
            }
            _ => world.pass(i64::from(one)),
        }
        world.check_ends();
    }
    let rest = END - world.now;
    world.pass(rest);
    prop_assert!(world.initiator.has_ended());
    prop_assert_eq!(world.initiator.deadline(), None);
    world.check_account();
    world.drain();
    world.check_ends();
    for participant in world.participants.values_mut() {
        // Participants that the opening reached only now have no time left.
        participant.advance(END);
        prop_assert!(participant.outcome().is_some());
        prop_assert_eq!(participant.deadline(), None);
    }
    let refused = world.initiator.refused();
    world.invent(0, 0);
    world.network[0].0 = "i".into();
    world.drain();
    prop_assert_eq!(world.initiator.refused(), refused + 1);
    Ok(())
}

fn play_on_an_orderly_network(
    protocol: &'static Protocol,
    opening: u8,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut world = World::new(protocol, opening);
    for &(step, one, two) in steps {
        let usual = if step % 8 < 5 {
            &ASKING[..]
        } else {
            &ANSWERING[..]
        };
        let mut drafts = world.drafts(usual, one, two);
        drafts.retain(|it| it.performative != Performative::NotUnderstood);
        for draft in &mut drafts {
            draft.reply_by = None;
        }
        let waiting = world.network.len();
        match step % 8 {
            0..3 if waiting > 0 => {
                let (receiver, message) = world.network.remove(0);
                world.deliver(&receiver, &message);
            }
            3..5 => world.initiator_sends(&drafts, two),
            _ => world.participant_sends(&drafts, two),
        }
    }
    world.drain();
    world.pass(END);
    for branch in world.initiator.branches() {
        let participant = &world.participants[branch.agent().name.as_str()];
        // A participant that had ended does not answer a cancel.
        if branch.outcome() != Some(Outcome::Unconfirmed) {
            prop_assert_eq!(branch.outcome(), participant.outcome(), "{:?}", branch);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(schedules()) })]

    #[test]
    fn both_sides_end_and_the_account_is_true(opening: u8, steps in vec(any::<Step>(), 0..240)) {
        for protocol in Protocol::ALL {
            play_on_any_network(protocol, opening, &steps)?;
        }
    }

    #[test]
    fn on_an_orderly_network_both_sides_report_the_same_end(
        opening: u8,
        steps in vec(any::<Step>(), 0..240),
    ) {
        for protocol in Protocol::ALL {
            play_on_an_orderly_network(protocol, opening, &steps)?;
        }
    }

    #[test]
    fn hostile_openings_are_refused_or_entered(
        act: u8,
        choice: u8,
        identifier in ".{0,20}",
        protocol in ".{0,20}",
    ) {
        let world = World::new(&REQUEST, 0);
        let all = &Performative::STANDARD;
        let message = world
            .draft(&all[usize::from(act) % all.len()], choice)
            .with_sender(aid("m"))
            .with_conversation_id(identifier)
            .with_protocol(protocol);
        let fits = Protocol::opened_by(&message).unwrap_or(&REQUEST);
        if let Ok(mut participant) = Participant::open(fits, &message, 0) {
            participant.end_by(1);
            participant.advance(1);
            prop_assert!(participant.outcome().is_some());
        }
    }
}
