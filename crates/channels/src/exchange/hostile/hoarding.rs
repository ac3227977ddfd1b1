//! A process that makes this one hold ever more: events of sessions without end, and answers. The memory is bounded.

use super::*;
use crate::qos::Qos;

/// The bytes in a MiB.
const MIB: usize = 1 << 20;

fn now() -> Now {
    Now {
        since_start: Duration::from_millis(1),
        moment: Moment::from_unix_ms(10),
    }
}

/// An exchange, and a process in which mallory writes the frames.
struct Attack {
    exchange: Exchange,
    mallory: Arc<Identity>,
    index: u32,
}

impl Attack {
    fn new() -> Self {
        let platform = PlatformName::new("factory").unwrap();
        let id = ProcessId::from_bytes([9; 16]);
        let mallory = Identity::process(&platform, "node-1", id).unwrap();
        let mut exchange = Exchange::new(ExchangeConfig::new(7));
        exchange.process_joined(&mallory, now());
        let index = exchange.index_of(&mallory).unwrap();
        Self {
            exchange,
            mallory: Arc::new(mallory),
            index,
        }
    }

    /// Sends the frame that has the next stamp.
    fn send(&mut self, frame: impl FnOnce(Stamp) -> Bytes) {
        let peer = self.exchange.peers.get(self.index).unwrap();
        let stamp = Stamp {
            session: peer.session_in(),
            number: peer.incoming.taken() + 1,
        };
        let arrived = ArrivedFrame {
            writer: Arc::new(FrameWriter {
                process: self.mallory.clone(),
                origin: FrameOrigin::Agent("mallory@factory".into()),
                provenance: Provenance::Claimed,
            }),
            payload: frame(stamp),
            credit: FrameCredit::free(),
        };
        self.exchange.take(arrived, now()).unwrap();
    }

    fn greet(&mut self, from: u64) {
        self.send(|_| Frame::Hello { from, to: 0 }.to_bytes());
    }

    /// The number of frames that were refused since the last call because they find no room.
    fn refused(&mut self) -> usize {
        let is_over = |it: &Outcome| {
            let reason = RefusalReason::OverLimit;
            matches!(it, Outcome::Refused { reason: why, .. } if *why == reason)
        };
        let outcomes = self.exchange.take_outcomes();
        outcomes.into_iter().filter(is_over).count()
    }
}

#[test]
fn unread_events_of_sessions_without_end_do_not_pile_up() {
    let mut attack = Attack::new();
    let limits = QueueLimits {
        events: 1000,
        bytes: 100_000,
    };
    let options = SubscriptionOptions::new(ChannelPattern::new("/a").unwrap()).with_limits(limits);
    let alice: Arc<str> = "alice@factory".into();
    let consumer = attack.exchange.subscribe(&alice, options, now()).unwrap();
    for round in 0..200 {
        attack.greet(3 + round);
        let mut is_refused = false;
        for _ in 0..2000 {
            attack.send(|stamp| {
                let mut out = Vec::new();
                begin_event(&mut out, stamp, &head(0, 1, "/a", 2), &[]);
                message(0, &mut out);
                out.into()
            });
            is_refused = attack.refused() > 0;
            if is_refused {
                break;
            }
        }
        assert!(is_refused, "round {round}");
    }
    let (_, bytes, _) = consumer.counts();
    assert!(bytes <= 3 * limits.bytes, "{bytes} bytes wait");
}

/// Asks all agents that answer on a channel.
fn ask(exchange: &mut Exchange) -> SentRequest {
    let alice: Arc<str> = "alice@factory".into();
    let question = AclMessage::new(Performative::QueryRef).with_sender(sealbus_bus::aid_of(&alice));
    let publication = Publication {
        publisher: &alice,
        channel: &ChannelPath::new("/a").unwrap(),
        qos: &Qos::default(),
        message: &Arc::new(question),
        kept: None,
        receipt: None,
        turn: Turn::default(),
    };
    match exchange.request(&publication, Duration::from_secs(60), None, now()) {
        Ok(Attempt::Done(asked)) => asked,
        _ => panic!("the question is not asked"),
    }
}

fn answer_of(agent: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of(agent))
        .with_content("x".repeat(MIB))
}

/// Takes all answers that wait. Returns their number.
fn take_all(asked: &SentRequest) -> usize {
    let (mut answers, mut bytes) = (0, 0);
    while let Ok(Some(answer)) = asked.collector.take() {
        answers += 1;
        bytes += answer.size();
    }
    assert!(bytes <= 64 * MIB, "{bytes} bytes wait");
    answers
}

#[test]
fn answers_that_the_asker_has_not_taken_do_not_pile_up() {
    let mut attack = Attack::new();
    attack.greet(3);
    for subscription in 1..=100 {
        attack.send(|stamp| {
            let announcement = Announcement {
                subscription,
                pattern: "/a",
                filter: "",
                policy: FlowPolicy::DropNewest,
                answers: true,
                takes_events: false,
                credit: 0,
                reads_logs: false,
                group: "",
                prefetch: 0,
            };
            Frame::Announce {
                stamp,
                announcement,
            }
            .to_bytes()
        });
    }
    attack.send(|stamp| Frame::Known { stamp }.to_bytes());
    let mut body = Vec::new();
    bitefficient::encode(&answer_of("mallory@factory"), &mut body).unwrap();
    let answer = |attack: &mut Attack, request: u64, subscription: u32| {
        attack.send(|stamp| {
            Frame::Reply {
                stamp,
                head: head(3, request, "/a", 2),
                subscription,
                body: &body,
            }
            .to_bytes()
        });
    };
    let asked = ask(&mut attack.exchange);
    for subscription in 1..=100 {
        answer(&mut attack, asked.id, subscription);
    }
    let answers = take_all(&asked);
    assert!(answers >= 60, "{answers} answers");
    assert_eq!(attack.refused(), 100 - answers);
    // The agents without room count as those that do not answer, and nobody waits for them.
    assert!(asked.collector.take().is_err());
    assert_eq!(asked.collector.unanswered().len(), 100 - answers);
    // An asker that takes the answers as they come gets all of them.
    let asked = ask(&mut attack.exchange);
    for subscription in 1..=100 {
        answer(&mut attack, asked.id, subscription);
        assert_eq!(take_all(&asked), 1);
    }
    assert!(asked.collector.unanswered().is_empty());
}

#[test]
fn an_answer_of_this_process_without_room_comes_back() {
    let mut exchange = Exchange::new(ExchangeConfig::new(7));
    let bob: Arc<str> = "bob@factory".into();
    let mut consumers = Vec::new();
    for _ in 0..70 {
        let options = SubscriptionOptions::new(ChannelPattern::new("/a").unwrap()).answering();
        consumers.push(exchange.subscribe(&bob, options, now()).unwrap());
    }
    let asked = ask(&mut exchange);
    // All answers share the message, so they are many bytes in name only.
    let answer = Arc::new(answer_of(&bob));
    for consumer in &consumers {
        let mut question = None;
        let mut aftermath = Aftermath::default();
        let out = |event| question = Some(event);
        consumer.take(now().moment, None, 1, out, &mut aftermath);
        exchange.settle(consumer.id, aftermath, now());
        let turn = Turn::default();
        let answered = exchange.reply(consumer, &question.unwrap(), &answer, turn, now());
        assert!(matches!(answered, Ok(Attempt::Done(()))));
    }
    let outcomes = exchange.take_outcomes();
    let is_his =
        |it: &&Outcome| matches!(it, Outcome::Failed { publisher, .. } if *publisher == bob);
    let returned = outcomes.iter().filter(is_his).count();
    let answers = take_all(&asked);
    assert!(answers >= 60, "{answers} answers");
    assert_eq!((answers + returned, outcomes.len()), (70, returned));
    assert_eq!(asked.collector.unanswered().len(), returned);
}
