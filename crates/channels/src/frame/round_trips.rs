//! Frames of every kind are read as they were written. Any other bytes are a frame or an error.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use sealbus_seal::SecurityLevel;

use super::codec::EVENT;
use super::*;
use crate::flow::FlowPolicy;
use crate::qos::{Persistence, Priority, Reliability};
use sealbus_bus::Acknowledgement;
use sealbus_bus::Moment;
use sealbus_bus::text::LONGEST_EXPLANATION;

/// Reliability, order, lifetime, priority, level and acknowledgement.
type Ranks = (u8, bool, Option<Option<u32>>, u8, Option<u8>, Option<usize>);

#[derive(Clone, Debug)]
struct OwnedHead {
    mechanism: u8,
    receiver: String,
    id: u64,
    ranks: Ranks,
    may_be_again: bool,
    channel: String,
    number: u64,
    moments: (u64, Option<u64>, Option<u64>),
}

impl OwnedHead {
    fn head(&self) -> Head<'_> {
        let (reliability, ordered, persistence, priority, level, acknowledgement) = self.ranks;
        let (published, valid_from, expiry) = self.moments;
        Head {
            mechanism: match self.mechanism {
                0 => HeadMechanism::Event,
                1 => HeadMechanism::Message {
                    receiver: &self.receiver,
                },
                2 => HeadMechanism::Request { id: self.id },
                _ => HeadMechanism::Reply { id: self.id },
            },
            reliability: Reliability::from_code(reliability).unwrap(),
            ordered,
            persistence: match persistence {
                None => Persistence::Transient,
                Some(None) => Persistence::Persistent,
                Some(Some(ms)) => Persistence::PersistentFor(Duration::from_millis(ms.into())),
            },
            priority: Priority::new(priority).unwrap(),
            level: level.map(|code| SecurityLevel::from_code(code).unwrap()),
            acknowledgement: acknowledgement.map(|code| Acknowledgement::ALL[code]),
            channel: &self.channel,
            number: self.number,
            published: Moment::from_unix_ms(published),
            valid_from: valid_from.map(Moment::from_unix_ms),
            expiry: expiry.map(Moment::from_unix_ms),
            may_be_again: self.may_be_again,
        }
    }
}

fn head() -> impl Strategy<Value = OwnedHead> {
    (
        0..4_u8,
        "\\PC{0,40}",
        any::<u64>(),
        (
            0..3_u8,
            any::<bool>(),
            any::<Option<Option<u32>>>(),
            0..10_u8,
            proptest::option::of(0..3_u8),
            proptest::option::of(0..4_usize),
        ),
        "(/[a-zü]{1,9}){1,4}",
        any::<u64>(),
        (any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>()),
        any::<bool>(),
    )
        .prop_map(
            |(mechanism, receiver, id, ranks, channel, number, moments, may_be_again)| OwnedHead {
                mechanism,
                receiver,
                id,
                ranks,
                may_be_again,
                channel,
                number,
                moments,
            },
        )
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), any::<u64>()).prop_map(|(session, number)| Stamp { session, number })
}

fn check(frame: &Frame<'_>) {
    let bytes = frame.to_bytes();
    assert_eq!(&Frame::decode(&bytes).unwrap(), frame);
    // A cut frame is an error, unless the cut is in the ACL message.
    let has_body = matches!(
        frame,
        Frame::Event { .. } | Frame::Reply { .. } | Frame::Keep { .. }
    );
    for length in 0..bytes.len() {
        assert!(has_body || Frame::decode(&bytes[..length]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_read_back(
        stamp in stamp(), head in head(), targets in proptest::collection::vec(any::<u32>(), 0..5),
        body in proptest::collection::vec(any::<u8>(), 0..50),
        evidence in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let mut bytes = Vec::new();
        begin_event(&mut bytes, stamp, &head.head(), &targets);
        bytes.extend_from_slice(&body);
        let frame = Frame::decode(&bytes).unwrap();
        let Frame::Event { stamp: read, head: read_head, targets: read_targets, body: read_body } = frame else {
            panic!("{frame:?}");
        };
        prop_assert_eq!(read, stamp);
        prop_assert_eq!(read_head, head.head());
        prop_assert_eq!(read_targets.is_all(), targets.is_empty());
        prop_assert_eq!(read_targets.iter().collect::<Vec<_>>(), targets);
        prop_assert_eq!(read_body, &body[..]);
        check(&frame);
        check(&Frame::Reply { stamp, head: head.head(), subscription: 7, body: &body });
        check(&Frame::Keep { stamp, head: head.head(), evidence: &[], body: &body });
        check(&Frame::Keep { stamp, head: head.head(), evidence: &evidence, body: &body });
    }

    #[test]
    fn the_others_read_back(
        stamp in stamp(), a in any::<u64>(), b in any::<u64>(), subscription in any::<u32>(),
        text in "\\PC{0,60}", other in "\\PC{0,60}", code in 0..4_u8, flags in any::<(bool, bool, bool)>(),
        reason in 0..11_u8,
    ) {
        check(&Frame::Hello { from: a.max(1), to: b });
        check(&Frame::Acknowledge { stamp, upto: a, read: b, after: subscription.into() });
        check(&Frame::Void { stamp });
        check(&Frame::Withdraw { stamp, subscription, moved_before: a });
        check(&Frame::Credit { stamp, subscription, limit: a });
        check(&Frame::Known { stamp });
        check(&Frame::FilterErrors { stamp, subscription: 7, count: a, text: &text });
        check(&Frame::Missed { stamp, subscription, count: a });
        check(&Frame::Absent { stamp, message: a });
        check(&Frame::Taken { stamp, taken: a });
        check(&Frame::NoAnswer { stamp, request: a, subscription });
        check(&Frame::Refusal {
            stamp, refused: a, reason: RefusalReason::from_code(reason).unwrap(), text: &text,
        });
        check(&Frame::Announce { stamp, announcement: Announcement {
            subscription, pattern: &text, filter: &other, policy: FlowPolicy::from_code(code).unwrap(),
            answers: flags.0, takes_events: flags.1, credit: a, reads_logs: flags.2,
            group: &text, prefetch: if text.is_empty() { 0 } else { 1 + subscription % MOST_PREFETCHED },
        }});
    }

    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(frame) = Frame::decode(&bytes) {
            prop_assert_eq!(&frame.to_bytes()[..], &bytes[..]);
        }
    }
}

#[test]
fn limits_hold() {
    let long = "x".repeat(LONGEST_EXPLANATION + 5);
    let stamp = Stamp::default();
    let refusal = Frame::Refusal {
        stamp,
        refused: 1,
        reason: RefusalReason::TooLarge,
        text: &long,
    };
    let bytes = refusal.to_bytes();
    let Ok(Frame::Refusal { text, .. }) = Frame::decode(&bytes) else {
        panic!("not read back");
    };
    assert_eq!(text.len(), LONGEST_EXPLANATION);
    let mut bytes = Vec::new();
    stamp.write(EVENT, &mut bytes);
    bytes.extend_from_slice(&[0, 0x0f, 0]);
    assert_eq!(
        Frame::decode(&bytes),
        Err(FrameError::Limit("the priority"))
    );
    assert_ne!(session(1, 2), session(2, 1));
}
