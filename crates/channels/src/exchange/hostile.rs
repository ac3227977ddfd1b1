//! A process that sends any frames, well formed or not. Nothing panics, and nothing grows.

#![allow(clippy::unwrap_used)]

mod hoarding;

use bytes::Bytes;
use proptest::prelude::*;
use sealbus_fipa::{AclMessage, Performative, bitefficient};
use sealbus_seal::{PlatformName, ProcessId};

use super::*;
use crate::flow::{FlowPolicy, QueueLimits};
use crate::frame::{Announcement, Frame, Head, HeadMechanism, Stamp, begin_event};
use crate::qos::{Persistence, Priority, Reliability};
use sealbus_bus::Provenance;
use sealbus_bus::{ArrivedFrame, FrameCredit, FrameOrigin, FrameWriter};

/// A frame. Its numbers are small, so that they are sometimes valid.
#[derive(Clone, Debug)]
enum Word {
    Hello(u64, u64),
    Acknowledge(u64, u64, u64),
    Announce(u32, u8, u8, u64),
    Withdraw(u32, u64),
    Credit(u32, u64),
    Event {
        mechanism: u8,
        id: u64,
        channel: u8,
        named: Vec<u32>,
        body: u8,
        reliability: u8,
    },
    Reply(u64, u32),
    NoAnswer(u64, u32),
    Refusal(u64),
    Absent(u64),
    Taken(u64),
    Void,
    Known,
    FilterErrors(u32, u64),
    Missed(u32, u64),
    Noise(Vec<u8>),
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..20_u64, 1 => any::<u64>()]
}

fn word() -> impl Strategy<Value = Word> {
    let id = || prop_oneof![8 => 0..6_u32, 1 => any::<u32>()];
    prop_oneof![
        1 => (1..4_u64, small()).prop_map(|(from, to)| Word::Hello(from, to)),
        3 => (small(), small(), small()).prop_map(|(a, b, c)| Word::Acknowledge(a, b, c)),
        3 => (id(), any::<u8>(), 0..4_u8, small()).prop_map(|(a, b, c, d)| Word::Announce(a, b, c, d)),
        1 => (id(), small()).prop_map(|(a, b)| Word::Withdraw(a, b)),
        1 => (id(), small()).prop_map(|(a, b)| Word::Credit(a, b)),
        12 => (0..4_u8, small(), 0..4_u8, proptest::collection::vec(id(), 0..3), any::<u8>(), 0..3_u8)
            .prop_map(|(mechanism, id, channel, named, body, reliability)| Word::Event {
                mechanism, id, channel, named, body, reliability,
            }),
        1 => (small(), id()).prop_map(|(a, b)| Word::Reply(a, b)),
        1 => (small(), id()).prop_map(|(a, b)| Word::NoAnswer(a, b)),
        1 => small().prop_map(Word::Refusal),
        1 => small().prop_map(Word::Absent),
        1 => small().prop_map(Word::Taken),
        1 => Just(Word::Void),
        1 => Just(Word::Known),
        1 => (id(), small()).prop_map(|(a, b)| Word::FilterErrors(a, b)),
        1 => (id(), small()).prop_map(|(a, b)| Word::Missed(a, b)),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Word::Noise),
    ]
}

const CHANNELS: [&str; 4] = ["/a", "/a/b", "/c", "not a channel"];

fn head(mechanism: u8, id: u64, channel: &str, reliability: u8) -> Head<'_> {
    Head {
        may_be_again: false,
        mechanism: match mechanism {
            0 => HeadMechanism::Event,
            1 => HeadMechanism::Message {
                receiver: "alice@factory",
            },
            2 => HeadMechanism::Request { id },
            _ => HeadMechanism::Reply { id },
        },
        reliability: Reliability::from_code(reliability).unwrap(),
        ordered: id.is_multiple_of(2),
        persistence: Persistence::Transient,
        priority: Priority::default(),
        level: None,
        acknowledgement: id
            .is_multiple_of(3)
            .then_some(sealbus_bus::Acknowledgement::ReceiverAgent),
        channel,
        number: id,
        published: Moment::from_unix_ms(5),
        valid_from: id.is_multiple_of(5).then(|| Moment::from_unix_ms(id)),
        expiry: None,
    }
}

fn encode(word: &Word, stamp: Stamp) -> Bytes {
    let frame = match *word {
        Word::Hello(from, to) => Frame::Hello { from, to },
        Word::Acknowledge(upto, read, after) => Frame::Acknowledge {
            stamp,
            upto,
            read,
            after,
        },
        Word::Announce(subscription, which, policy, credit) => Frame::Announce {
            stamp,
            announcement: Announcement {
                subscription,
                pattern: ["/a", "/**", "/a/*", "*"][usize::from(which % 4)],
                filter: ["", "1 +", "properties.x > 3"][usize::from(which % 3)],
                policy: FlowPolicy::from_code(policy).unwrap(),
                answers: which & 8 != 0,
                takes_events: which & 16 != 0,
                credit,
                reads_logs: which & 32 != 0,
                group: ["", "workers"][usize::from(which % 5 == 0)],
                prefetch: u32::from(which % 5 == 0),
            },
        },
        Word::Withdraw(subscription, moved_before) => Frame::Withdraw {
            stamp,
            subscription,
            moved_before,
        },
        Word::Credit(subscription, limit) => Frame::Credit {
            stamp,
            subscription,
            limit,
        },
        Word::Event {
            mechanism,
            id,
            channel,
            ref named,
            body,
            reliability,
        } => {
            let head = head(mechanism, id, CHANNELS[usize::from(channel)], reliability);
            let mut out = Vec::new();
            begin_event(&mut out, stamp, &head, named);
            message(body, &mut out);
            return out.into();
        }
        Word::Reply(id, subscription) => {
            let mut body = Vec::new();
            message(0, &mut body);
            return Frame::Reply {
                stamp,
                head: head(3, id, "/a", 2),
                subscription,
                body: &body,
            }
            .to_bytes();
        }
        Word::NoAnswer(request, subscription) => Frame::NoAnswer {
            stamp,
            request,
            subscription,
        },
        Word::Refusal(refused) => Frame::Refusal {
            stamp,
            refused,
            reason: RefusalReason::NotPermitted,
            text: "no",
        },
        Word::Absent(message) => Frame::Absent { stamp, message },
        Word::Taken(taken) => Frame::Taken { stamp, taken },
        Word::Void => Frame::Void { stamp },
        Word::Known => Frame::Known { stamp },
        Word::FilterErrors(subscription, count) => Frame::FilterErrors {
            stamp,
            subscription,
            count,
            text: "no",
        },
        Word::Missed(subscription, count) => Frame::Missed {
            stamp,
            subscription,
            count,
        },
        Word::Noise(ref bytes) => return bytes.clone().into(),
    };
    frame.to_bytes()
}

/// A message of mallory, a message of somebody else, or no message.
fn message(kind: u8, out: &mut Vec<u8>) {
    let sender = match kind {
        0..200 => "mallory@factory",
        200..230 => "alice@factory",
        _ => return out.extend_from_slice(b"noise"),
    };
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of(sender))
        .with_content("x".repeat(500));
    bitefficient::encode(&message, out).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_said_does_harm(
        words in proptest::collection::vec((word(), 0..6_u64, any::<bool>()), 1..400),
    ) {
        let platform = PlatformName::new("factory").unwrap();
        let identity = |byte| Identity::process(&platform, "node-1", ProcessId::from_bytes([byte; 16])).unwrap();
        let mut exchange = Exchange::new(ExchangeConfig {
            subscriptions_per_process: 4,
            ..ExchangeConfig::new(7)
        });
        let at = |step: u64| Now {
            since_start: Duration::from_millis(step),
            moment: Moment::from_unix_ms(10 + step),
        };
        let alice: Arc<str> = "alice@factory".into();
        let limits = QueueLimits { events: 10, bytes: 10_000 };
        let mut consumers = Vec::new();
        for policy in FlowPolicy::ALL {
            let pattern = ChannelPattern::new("/**").unwrap();
            let options = SubscriptionOptions::new(pattern).answering().with_policy(policy).with_limits(limits);
            consumers.push(exchange.subscribe(&alice, options, at(0)).unwrap());
        }
        let other = identity(9);
        exchange.process_joined(&other, at(0));
        let index = exchange.index_of(&other).unwrap();
        for (step, (word, ahead, is_agent)) in (1_u64..).zip(words) {
            let now = at(step);
            let peer = exchange.peers.get(index).expect("a known process");
            let stamp = Stamp {
                session: peer.session_in(),
                // Most frames have the next number, so that something happens.
                number: if ahead < 4 { peer.incoming.taken() + 1 } else { peer.incoming.taken() + ahead },
            };
            let stamp = match word {
                Word::Acknowledge(..) => Stamp { number: 0, ..stamp },
                _ => stamp,
            };
            let origin = if is_agent {
                FrameOrigin::Agent("mallory@factory".into())
            } else {
                FrameOrigin::Process
            };
            let _ = exchange.take(
                ArrivedFrame {
                    writer: Arc::new(FrameWriter {
                        process: Arc::new(other.clone()),
                        origin,
                        provenance: Provenance::Claimed,
                    }),
                    payload: encode(&word, stamp),
                    credit: FrameCredit::free(),
                },
                now,
            );
            while let Some(ready) = exchange.next_ready() {
                while exchange.next_parcel(ready).is_some() {
                    exchange.sent(ready);
                }
            }
            if step % 16 == 0 {
                let message = AclMessage::new(Performative::Inform).with_sender(sealbus_bus::aid_of(&alice));
                let path = ChannelPath::new("/a").unwrap();
                let qos = super::super::qos::Qos::default();
                let publication = Publication {
                    publisher: &alice, channel: &path, qos: &qos, message: &Arc::new(message), receipt: None, turn: Turn::default(),
                    kept: None,
                };
                let _ = exchange.publish(&publication, now);
                let _ = exchange.request(&publication, Duration::from_millis(50), None, now);
                exchange.tick(now);
            }
        }
        let peer = exchange.peers.get(index).expect("a known process");
        prop_assert!(peer.subscriptions.len() <= 4);
        prop_assert!(exchange.there.len() <= 4);
        for consumer in &consumers {
            let (_, bytes, _) = consumer.counts();
            prop_assert!(bytes <= 10_000 + 6 * (4 << 10), "{bytes} bytes wait");
        }
        exchange.process_left(&other, at(1000));
        exchange.tick(at(2000));
        prop_assert!(exchange.there.is_empty() && exchange.peers.values().next().is_none() && exchange.asking.is_empty());
    }
}

/// A process sends requests to subscriptions that do not exist, a thousand at a time, and acknowledges nothing.
#[test]
fn answers_that_nobody_acknowledges_do_not_pile_up() {
    let platform = PlatformName::new("factory").unwrap();
    let other = Identity::process(&platform, "node-1", ProcessId::from_bytes([9; 16])).unwrap();
    let config = ExchangeConfig {
        kept_frames: 1000,
        ..ExchangeConfig::new(7)
    };
    let mut exchange = Exchange::new(config);
    let now = Now {
        since_start: Duration::from_millis(1),
        moment: Moment::from_unix_ms(10),
    };
    exchange.process_joined(&other, now);
    let index = exchange.index_of(&other).unwrap();
    let named: Vec<u32> = (1..=1024).collect();
    let mut refused = 0;
    let arrived = |payload| ArrivedFrame {
        writer: Arc::new(FrameWriter {
            process: Arc::new(other.clone()),
            origin: FrameOrigin::Agent("mallory@factory".into()),
            provenance: Provenance::Claimed,
        }),
        payload,
        credit: FrameCredit::free(),
    };
    for round in 0..400 {
        if round % 100 == 0 {
            let hello = Frame::Hello {
                from: 3 + round,
                to: 0,
            };
            exchange.take(arrived(hello.to_bytes()), now).unwrap();
        }
        let peer = exchange.peers.get(index).unwrap();
        let stamp = Stamp {
            session: peer.session_in(),
            number: peer.incoming.taken() + 1,
        };
        let mut out = Vec::new();
        begin_event(&mut out, stamp, &head(2, round, "/a", 2), &named);
        message(0, &mut out);
        if let Err(error) = exchange.take(arrived(out.into()), now) {
            assert_eq!(error.1.reason, RefusalReason::OverLimit);
            refused += 1;
        }
        let (frames, _) = exchange.peers.get(index).unwrap().outgoing.size();
        assert!(frames <= 6000, "{frames} answers are kept");
        while let Some(ready) = exchange.next_ready() {
            while exchange.next_parcel(ready).is_some() {
                exchange.sent(ready);
            }
        }
    }
    assert!(refused > 10, "{refused} times");
}
