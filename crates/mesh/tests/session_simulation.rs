//! Two sessions over a network that cuts, loses, doubles and reorders, in random schedules. In every schedule a message
//! is taken once and in order, or its sender is told. Nothing is kept for ever.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

use bytes::Bytes;
use proptest::prelude::*;
use sealbus_mesh::frame::{Frame, Hello, PROTOCOL_VERSION, RandomId, parse};
use sealbus_mesh::session::{Agreement, Judgement, Session, Shared, Taken, judge};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A side sends some messages.
    Send { side: usize, count: u8 },
    /// A side hands bytes to the network.
    Write { side: usize, bytes: u16 },
    /// The network hands frames to the other side.
    Deliver { from: usize, frames: u8 },
    /// A side acknowledges the frames that it has taken.
    Acknowledge { side: usize },
    /// The network loses a frame on the way.
    Lose { from: usize },
    /// The network delivers a frame twice.
    Double { from: usize },
    /// The network swaps two frames.
    Swap { from: usize },
    /// The connection breaks.
    Cut,
    /// A side dials, and the connection breaks at some point of the greeting: 0 before the dialler's hello arrives, 1
    /// before the answer arrives, 2 and above not at all.
    Dial { side: usize, broken_at: u8 },
    /// A side gives the session up.
    GiveUp { side: usize },
    /// A side forgets its link, which has no connection and nothing to send.
    Forget { side: usize },
    /// A side's process is started again.
    Restart { side: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2usize;
    prop_oneof![
        6 => (side.clone(), 1..20u8).prop_map(|(side, count)| Step::Send { side, count }),
        8 => (side.clone(), 1..3000u16).prop_map(|(side, bytes)| Step::Write { side, bytes }),
        10 => (side.clone(), 1..40u8).prop_map(|(from, frames)| Step::Deliver { from, frames }),
        5 => side.clone().prop_map(|side| Step::Acknowledge { side }),
        1 => side.clone().prop_map(|from| Step::Lose { from }),
        1 => side.clone().prop_map(|from| Step::Double { from }),
        1 => side.clone().prop_map(|from| Step::Swap { from }),
        2 => Just(Step::Cut),
        5 => (side.clone(), 0..8u8).prop_map(|(side, broken_at)| Step::Dial { side, broken_at }),
        1 => side.clone().prop_map(|side| Step::GiveUp { side }),
        1 => side.clone().prop_map(|side| Step::Forget { side }),
        1 => side.prop_map(|side| Step::Restart { side }),
    ]
}

/// The outcome for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// The message may have arrived.
    Unsure,
    /// The message cannot have arrived.
    Unsent,
}

struct Side {
    session: Session,
    incarnation: RandomId,
    /// The messages of the process's present life.
    accepted: Vec<u64>,
    reports: HashMap<u64, Report>,
    /// The bytes of the connection that are not a whole frame yet.
    inbox: Vec<u8>,
    /// The frames that this process took from the other in its present life.
    taken: Vec<u64>,
}

struct World {
    sides: [Side; 2],
    /// Frames under way, by the side that sent them, while there is a connection.
    network: Option<[VecDeque<Vec<u8>>; 2]>,
    /// The bytes handed to the network that are not a whole frame yet.
    torn: [Vec<u8>; 2],
    next_message: u64,
    next_token: u8,
    /// The side that took each message, over all lives.
    deliveries: HashMap<u64, usize>,
    /// The messages whose sender still lives.
    owed: HashMap<u64, usize>,
}

fn token(world_token: &mut u8) -> RandomId {
    *world_token = world_token
        .checked_add(1)
        .expect("more tokens than a schedule has steps");
    [*world_token; 16]
}

/// The numbers of the messages in a frame.
fn numbers(frame: &Frame<'_>) -> Vec<u64> {
    let payloads: Vec<Bytes> = match frame {
        Frame::Message { payload, .. } => vec![Bytes::copy_from_slice(payload)],
        Frame::Row { messages, .. } => messages.to_bytes().collect(),
        _ => unreachable!("nothing else is sent here"),
    };
    let number = |payload: &Bytes| {
        let payload = payload.strip_suffix(b"end").unwrap_or(payload);
        u64::from_le_bytes(*payload.last_chunk().expect("8 bytes"))
    };
    payloads.iter().map(number).collect()
}

impl World {
    fn new() -> Self {
        let mut next_token = 0;
        let mut side = || Side {
            session: Session::default(),
            incarnation: token(&mut next_token),
            accepted: Vec::new(),
            reports: HashMap::new(),
            inbox: Vec::new(),
            taken: Vec::new(),
        };
        let sides = [side(), side()];
        Self {
            sides,
            network: None,
            torn: Default::default(),
            next_message: 0,
            next_token,
            deliveries: HashMap::new(),
            owed: HashMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { side, count } => {
                for _ in 0..count {
                    self.next_message += 1;
                    let number = self.next_message;
                    let payload = number.to_le_bytes().repeat(1 + number as usize % 40);
                    let message = |payload| Frame::Message {
                        is_signed: false,
                        sender: 0,
                        target: 0,
                        payload,
                    };
                    let session = &mut self.sides[side].session;
                    if number.is_multiple_of(3) {
                        let shared = Shared {
                            body: payload[8..].to_vec().into(),
                            tail: if number.is_multiple_of(2) {
                                b"end"
                            } else {
                                b""
                            },
                        };
                        session.append_shared(shared, |out, sequence| {
                            message(&payload[..8]).encode(sequence, out);
                        });
                    } else if number.is_multiple_of(5) {
                        session.append(&message(&payload));
                    } else {
                        // Most messages begin like the one before.
                        let beginning = 8 * (number as usize % 7 / 2);
                        let Ok(()) = session.append_message(0, 0, false, |out| {
                            out.resize(out.len() + beginning, 0xaa);
                            out.extend_from_slice(&payload);
                            Ok::<_, Infallible>(beginning)
                        });
                    }
                    self.sides[side].accepted.push(number);
                    self.owed.insert(number, side);
                }
            }
            Step::Write { side, bytes } => self.write(side, usize::from(bytes)),
            Step::Deliver { from, frames } => {
                for _ in 0..frames {
                    let Some(frame) = self
                        .network
                        .as_mut()
                        .and_then(|network| network[from].pop_front())
                    else {
                        return;
                    };
                    self.arrive(from, frame);
                }
            }
            Step::Acknowledge { side } => {
                if let Some(network) = &mut self.network {
                    let mut frame = Vec::new();
                    self.sides[side].session.tell().encode(0, &mut frame);
                    network[side].push_back(frame);
                }
            }
            Step::Lose { from } => {
                if let Some(network) = &mut self.network {
                    network[from].pop_front();
                }
            }
            Step::Double { from } => {
                if let Some(network) = &mut self.network
                    && let Some(frame) = network[from].front().cloned()
                {
                    network[from].push_front(frame);
                }
            }
            Step::Swap { from } => {
                if let Some(network) = &mut self.network
                    && network[from].len() > 1
                {
                    network[from].swap(0, 1);
                }
            }
            Step::Cut => self.cut(),
            Step::Dial { side, broken_at } => self.dial(side, broken_at),
            Step::GiveUp { side } => {
                self.cut();
                self.lose(side);
            }
            Step::Forget { side } => {
                let session = &mut self.sides[side].session;
                if self.network.is_none() && session.is_settled() {
                    *session = Session::after(session.given_up());
                }
            }
            Step::Restart { side } => {
                self.cut();
                self.owed.retain(|_, sender| *sender != side);
                self.sides[side] = Side {
                    session: Session::default(),
                    incarnation: token(&mut self.next_token),
                    accepted: Vec::new(),
                    reports: HashMap::new(),
                    inbox: Vec::new(),
                    taken: Vec::new(),
                };
            }
        }
    }

    fn write(&mut self, side: usize, mut bytes: usize) {
        let Some(network) = &mut self.network else {
            return;
        };
        let session = &mut self.sides[side].session;
        while bytes > 0 {
            let mut slices = Vec::new();
            session.gather(bytes, &mut slices);
            let part: Vec<u8> = slices.iter().flat_map(|it| it.iter().copied()).collect();
            if part.is_empty() {
                break;
            }
            let length = bytes.min(part.len());
            self.torn[side].extend_from_slice(&part[..length]);
            session.written(length);
            bytes -= length;
        }
        while let Ok(Some(parsed)) = parse(&self.torn[side], usize::MAX) {
            let length = parsed.length;
            network[side].push_back(self.torn[side].drain(..length).collect());
        }
    }

    fn arrive(&mut self, from: usize, frame: Vec<u8>) {
        let to = 1 - from;
        let parsed = parse(&frame, usize::MAX)
            .expect("our own frame")
            .expect("a whole frame");
        let side = &mut self.sides[to];
        match parsed.frame {
            // An acknowledgement that overtakes none of the frames that it reports is always valid.
            Frame::Acknowledge { received } => {
                side.session
                    .acknowledge(received)
                    .expect("an honest acknowledgement");
            }
            frame => match judge(parsed.sequence, side.session.due()) {
                Ok(Judgement::Due) => {
                    let taken = Taken {
                        frames: 1,
                        bytes: parsed.length,
                        signatures: 0,
                    };
                    side.session.took(taken, true);
                    for number in numbers(&frame) {
                        assert!(
                            side.taken.last().is_none_or(|last| *last < number),
                            "message {number} came after {:?}",
                            side.taken.last()
                        );
                        side.taken.push(number);
                        let before = self.deliveries.insert(number, to);
                        assert_eq!(before, None, "message {number} was taken twice");
                    }
                }
                Ok(Judgement::Again) => {}
                // The connection has lost a frame.
                Err(_) => self.cut(),
            },
        }
    }

    fn cut(&mut self) {
        if self.network.take().is_some() {
            self.torn = Default::default();
            for side in &mut self.sides {
                side.session.disconnected();
                side.inbox.clear();
            }
        }
    }

    fn lose(&mut self, side: usize) {
        let Side {
            session, reports, ..
        } = &mut self.sides[side];
        session.for_each_kept(|frame, _, may_have_arrived| {
            for number in numbers(frame) {
                let report = if may_have_arrived {
                    Report::Unsure
                } else {
                    Report::Unsent
                };
                let before = reports.insert(number, report);
                assert_eq!(before, None, "message {number} was reported twice");
            }
        });
        session.start_over();
    }

    fn dial(&mut self, dialler: usize, broken_at: u8) {
        self.cut();
        let acceptor = 1 - dialler;
        let mut hello = hello(self.sides[dialler].incarnation);
        self.sides[dialler].session.dial(&mut hello);
        if broken_at == 0 {
            return;
        }
        let agreement = self.sides[acceptor]
            .session
            .accept(&hello)
            .expect("an honest dialler");
        if agreement == Agreement::Lost {
            self.lose(acceptor);
        }
        let agreement = if agreement == Agreement::Lost {
            Agreement::Started
        } else {
            agreement
        };
        let fresh = token(&mut self.next_token);
        let peer = hello.incarnation;
        let mut answer = self::hello(self.sides[acceptor].incarnation);
        self.sides[acceptor]
            .session
            .accepted(agreement, peer, fresh, &mut answer);
        // The acceptor may already have written when the answer is lost.
        self.network = Some(Default::default());
        self.write(acceptor, 100);
        if broken_at == 1 {
            self.cut();
            return;
        }
        match self.sides[dialler]
            .session
            .answered(&answer)
            .expect("an honest acceptor")
        {
            Agreement::Lost => {
                self.lose(dialler);
                let again = self.sides[dialler].session.answered(&answer);
                assert_eq!(again, Ok(Agreement::Started));
            }
            Agreement::Resumed | Agreement::Started => {}
        }
    }

    /// Heals the network. Both sides continue until nothing is left to do.
    fn settle(&mut self) {
        self.dial(0, 9);
        for _ in 0..10 {
            for side in 0..2 {
                self.write(side, usize::MAX);
                self.step(Step::Acknowledge { side });
            }
            for from in 0..2 {
                self.step(Step::Deliver {
                    from,
                    frames: u8::MAX,
                });
                while self
                    .network
                    .as_ref()
                    .is_some_and(|network| !network[from].is_empty())
                {
                    self.step(Step::Deliver {
                        from,
                        frames: u8::MAX,
                    });
                }
            }
        }
    }

    fn check(&self) {
        for side in &self.sides {
            assert!(side.session.is_settled());
            assert_eq!(
                side.session.kept(),
                0,
                "something is kept though all is acknowledged"
            );
        }
        for (number, sender) in &self.owed {
            let report = self.sides[*sender].reports.get(number);
            match (self.deliveries.get(number), report) {
                (Some(_), None | Some(Report::Unsure)) => {}
                (None, Some(_)) => {}
                (Some(_), Some(Report::Unsent)) => {
                    panic!("message {number} was delivered and said not to be")
                }
                (None, None) => panic!("message {number} is lost and nobody was told"),
            }
        }
    }
}

fn hello(incarnation: RandomId) -> Hello<'static> {
    Hello {
        version: PROTOCOL_VERSION,
        level: 0,
        resumed: false,
        incarnation,
        session: [0; 16],
        given_up: [0; 16],
        received: 0,
        connection: 0,
        largest_message: 0,
        process: "",
        address: "",
    }
}

/// The other side does not know yet that the forgotten link took its frames.
#[test]
fn nothing_is_taken_again_after_a_link_was_forgotten() {
    let mut world = World::new();
    world.dial(0, 9);
    world.step(Step::Send { side: 1, count: 3 });
    world.write(1, usize::MAX);
    world.step(Step::Deliver { from: 1, frames: 9 });
    world.cut();
    world.step(Step::Forget { side: 0 });
    world.settle();
    world.check();
    assert_eq!(world.deliveries.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn once_in_order_or_told(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.settle();
        world.check();
    }

    /// Without restarts, and without giving up or forgetting, everything arrives.
    #[test]
    fn nothing_is_lost_between_living_processes(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::GiveUp { .. } | Step::Forget { .. } | Step::Restart { .. } => {}
                step => world.step(step),
            }
        }
        world.settle();
        world.check();
        prop_assert_eq!(world.deliveries.len() as u64, world.next_message);
    }
}
