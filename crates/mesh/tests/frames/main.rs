//! Frames between the buses of two processes. They arrive in order and once over breaking connections, from the writers
//! that they name, and with a credit of their own. Frames that cannot be taken come back.

#![allow(clippy::unwrap_used)]

#[path = "../intruder/mod.rs"]
mod intruder;
#[path = "../support/mod.rs"]
mod support;
mod trespassing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{
    ArrivedFrame, ExplainedRefusal, FrameInlet, FrameOrigin, FrameSender, LostFrame, OutgoingFrame,
    ProcessDestination, ProcessEndpoint, Provenance, RefusalReason, RefusedFrame, Rejected,
    UndeliverableReason,
};
use sealbus_conformance::schedule::Random;
use sealbus_seal::denylist::DenyList;
use sealbus_seal::{Identity, SecurityLevel};
use support::proxy::Proxy;
use support::{Platform, Process, inform, now, soon};
use tokio::sync::Notify;

/// The frames that arrived in a process, and those that came back to it.
#[derive(Default)]
struct Inlet {
    arrived: Mutex<Vec<ArrivedFrame>>,
    lost: Mutex<Vec<(Vec<LostFrame>, UndeliverableReason)>>,
    /// Frames that begin with this byte are refused.
    refuses: Option<u8>,
    news: Notify,
}

impl FrameInlet for Inlet {
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        let mut refused = Vec::new();
        for (place, frame) in frames.drain(..).enumerate() {
            if self.refuses.is_some() && frame.payload.first().copied() == self.refuses {
                refused.push(RefusedFrame {
                    place,
                    frame,
                    refused: ExplainedRefusal {
                        reason: RefusalReason::NotPermitted,
                        explanation: "it may not publish there".to_owned(),
                    },
                });
            } else {
                self.arrived.lock().push(frame);
            }
        }
        self.news.notify_one();
        refused
    }

    fn process_joined(&self, _: &ProcessEndpoint) {}

    fn process_left(&self, _: &Identity) {}

    fn lost(&self, _: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason) {
        self.lost.lock().push((frames, reason.clone()));
        self.news.notify_one();
    }
}

impl Inlet {
    fn of(process: &Process, refuses: Option<u8>) -> Arc<Self> {
        let inlet = Arc::new(Self {
            refuses,
            ..Self::default()
        });
        assert!(process.bus.set_frame_inlet(inlet.clone()));
        inlet
    }

    async fn until<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        soon(async {
            loop {
                let news = self.news.notified();
                if let Some(found) = look(self) {
                    return found;
                }
                news.await;
            }
        })
        .await
    }

    /// The next frame. Its room is free again.
    async fn next(&self) -> ArrivedFrame {
        self.until(|inlet| {
            let mut arrived = inlet.arrived.lock();
            (!arrived.is_empty()).then(|| arrived.remove(0))
        })
        .await
    }
}

fn way(from: &Process, to: &Process) -> Arc<dyn ProcessDestination> {
    from.bus
        .transport()
        .unwrap()
        .process_destination(&to.endpoint.process())
        .unwrap()
}

fn outgoing<'a>(sender: FrameSender<'a>, head: &'a [u8], body: &'a Bytes) -> OutgoingFrame<'a> {
    OutgoingFrame {
        sender,
        head,
        body,
        tail: &[],
        statement: None,
    }
}

async fn send(way: &dyn ProcessDestination, frame: OutgoingFrame<'_>) {
    match way.try_send(&frame) {
        Ok(()) => {}
        Err(Rejected::Full) => {
            soon(way.gate().pass(|| match way.try_send(&frame) {
                Ok(()) => Some(()),
                Err(Rejected::Full) => None,
                Err(rejected) => panic!("{rejected:?}"),
            }))
            .await
        }
        Err(rejected) => panic!("{rejected:?}"),
    }
}

/// The length of the frame with this number. Most frames are short; some go in pieces.
fn length(number: u32) -> usize {
    match number % 100 {
        33 => 200_000,
        66 => 64 << 10,
        67 => (64 << 10) - 4,
        99 => 1_100_000,
        other => other as usize * 7,
    }
}

async fn over_a_breaking_connection(level: SecurityLevel) {
    const FRAMES: u32 = 1_000;
    let platform = Platform::new(level);
    let here = platform
        .process_with("node-1", |config| {
            config.redial.0 = Duration::from_millis(1)
        })
        .await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let inlet = Inlet::of(&there, None);
    platform.agent(&here, "alice@factory");
    let alice = here.bus.agent("alice@factory").unwrap();
    let mut endpoint = there.endpoint.process();
    endpoint.address = proxy.address;
    let transport = here.bus.transport().unwrap();
    let way = transport.process_destination(&endpoint).unwrap();
    let breaking = tokio::spawn(async move {
        let mut random = Random(12_345);
        // So many that most of them meet frames under way; on a busy machine a connection hardly outlives its handshake.
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_micros(random.below(1 << 14))).await;
            proxy.cut();
        }
    });
    let sending = async {
        for number in 0..FRAMES {
            let sender = match number % 3 {
                0 => FrameSender::Process,
                _ => FrameSender::Agent(&alice),
            };
            let body = Bytes::from(vec![b'x'; length(number)]);
            send(&*way, outgoing(sender, &number.to_le_bytes(), &body)).await;
        }
    };
    let taking = async {
        for number in 0..FRAMES {
            let frame = inlet.next().await;
            let (head, body) = frame.payload.split_at(4);
            assert_eq!(head, number.to_le_bytes());
            assert_eq!(body.len(), length(number));
            assert!(body.iter().all(|byte| *byte == b'x'));
            assert_eq!(*frame.process, here.identity);
            let expected = match number % 3 {
                0 => (FrameOrigin::Process, here.identity.to_string()),
                _ => (
                    FrameOrigin::Agent("alice@factory".into()),
                    "spiffe://factory/agent/alice".to_owned(),
                ),
            };
            assert_eq!(frame.origin, expected.0);
            match (&frame.provenance, level) {
                (Provenance::Proved(verified), SecurityLevel::Auth) => {
                    assert_eq!(verified.identity().to_string(), expected.1);
                }
                (Provenance::Claimed, SecurityLevel::None | SecurityLevel::Tls) => {}
                (other, _) => panic!("{other:?} at level {level}"),
            }
        }
    };
    tokio::join!(sending, taking);
    breaking.abort();
    assert!(inlet.arrived.lock().is_empty());
}

#[tokio::test]
async fn in_order_and_once_over_a_breaking_connection() {
    over_a_breaking_connection(SecurityLevel::Auth).await;
}

#[tokio::test]
async fn the_same_at_level_tls() {
    over_a_breaking_connection(SecurityLevel::Tls).await;
}

#[tokio::test]
async fn the_same_without_security() {
    over_a_breaking_connection(SecurityLevel::None).await;
}

#[tokio::test]
async fn an_inlet_that_gives_no_room_holds_up_no_mailbox() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let inlet = Inlet::of(&there, None);
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    let way = way(&here, &there);
    let body = Bytes::from(vec![7; 300_000]);
    // A frame that arrived keeps its room.
    let mut sent = 0_usize;
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 50 {
        match way.try_send(&outgoing(FrameSender::Process, &[], &body)) {
            Ok(()) => {
                sent += 1;
                refused_in_a_row = 0;
            }
            Err(Rejected::Full) => {
                refused_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(rejected) => panic!("{rejected:?}"),
        }
        assert!(sent < 200, "{sent} frames without room for them");
    }
    for number in 0..2_000 {
        alice.send(inform("bob@factory", number)).await.unwrap();
    }
    for number in 0..2_000 {
        let received = soon(bob_mailbox.recv()).await.unwrap();
        let message = received.message();
        assert_eq!(message.content_text().unwrap(), number.to_string());
    }
    // There is room again: the accepted frames come, and more.
    let more = send(&*way, outgoing(FrameSender::Process, b"last", &body));
    let taking = async {
        for _ in 0..sent {
            assert_eq!(inlet.next().await.payload.len(), body.len());
        }
        assert_eq!(inlet.next().await.payload[..4], *b"last");
    };
    tokio::join!(more, taking);
}

#[tokio::test]
async fn a_frame_that_is_refused_comes_back_and_the_next_arrives() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let sender = Inlet::of(&here, None);
    let inlet = Inlet::of(&there, Some(b'!'));
    let _attached = platform.agent(&here, "eve@factory");
    let eve = here.bus.agent("eve@factory").unwrap();
    let way = way(&here, &there);
    // In one frame of the mesh, and in pieces.
    for length in [10, 500_000] {
        let body = Bytes::from(vec![b'e'; length]);
        send(&*way, outgoing(FrameSender::Agent(&eve), b"!", &body)).await;
        send(&*way, outgoing(FrameSender::Agent(&eve), b".", &body)).await;
        assert_eq!(inlet.next().await.payload[0], b'.');
        let (frames, reason) = sender.until(|inlet| inlet.lost.lock().pop()).await;
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].sender.as_deref(), Some("eve@factory"));
        assert_eq!(frames[0].payload.len(), 1 + length);
        assert!(!frames[0].may_have_arrived);
        let UndeliverableReason::Refused { reason, .. } = reason else {
            panic!("{reason}");
        };
        assert_eq!(reason, RefusalReason::NotPermitted);
    }
    let refusals = there.bus.refusals().last();
    assert_eq!(refusals.len(), 2);
    assert_eq!(refusals[0].tried_by, "eve@factory");
    assert_eq!(
        refusals[0].proved.as_deref(),
        Some("spiffe://factory/agent/eve")
    );
}

#[tokio::test]
async fn a_revoked_agent_writes_no_frames() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let sender = Inlet::of(&here, None);
    let inlet = Inlet::of(&there, None);
    platform.agent(&here, "mallory@factory");
    let mallory = here.bus.agent("mallory@factory").unwrap();
    let way = way(&here, &there);
    let body = Bytes::from_static(b"before");
    send(&*way, outgoing(FrameSender::Agent(&mallory), &[], &body)).await;
    inlet.next().await;

    let mut list = DenyList::new(platform.authority.issuing.identity().clone());
    let identity = Identity::from_agent_name("mallory@factory").unwrap();
    list.deny_identity(identity, now().plus(support::DAY), support::denial(now()))
        .unwrap();
    let signed = list.sign(&platform.authority.issuing).unwrap().whole();
    there.trust.apply_deny_list(&signed, now()).unwrap();
    there.endpoint.trust_changed();

    send(&*way, outgoing(FrameSender::Agent(&mallory), &[], &body)).await;
    let (frames, reason) = sender.until(|inlet| inlet.lost.lock().pop()).await;
    assert_eq!(frames.len(), 1);
    let UndeliverableReason::Refused { reason, .. } = reason else {
        panic!("{reason}");
    };
    assert_eq!(reason, RefusalReason::Revoked);
    // The process itself goes on.
    send(&*way, outgoing(FrameSender::Process, &[], &body)).await;
    assert_eq!(inlet.next().await.origin, FrameOrigin::Process);
    assert!(inlet.arrived.lock().is_empty());
}

#[tokio::test]
async fn a_process_without_inlet_takes_nothing_and_says_so() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let sender = Inlet::of(&here, None);
    let old = way(&here, &there);
    for number in 0..10_u8 {
        let body = Bytes::from(vec![number; if number == 5 { 300_000 } else { 10 }]);
        send(&*old, outgoing(FrameSender::Process, &[], &body)).await;
    }
    let mut lost = Vec::new();
    while lost.len() < 10 {
        let (frames, reason) = sender.until(|inlet| inlet.lost.lock().pop()).await;
        assert_eq!(reason, UndeliverableReason::ReceiverGone);
        lost.extend(frames);
    }
    let numbers: Vec<_> = lost.iter().map(|frame| frame.payload[0]).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    let body = Bytes::from_static(b"again");
    soon(async {
        loop {
            match old.try_send(&outgoing(FrameSender::Process, &[], &body)) {
                Err(Rejected::Closed) => break,
                Err(Rejected::Moving) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    // The process opens its inlet later. A new way leads there.
    let inlet = Inlet::of(&there, None);
    let new = way(&here, &there);
    send(&*new, outgoing(FrameSender::Process, &[], &body)).await;
    assert_eq!(inlet.next().await.payload, body);
}

#[tokio::test]
async fn what_a_dead_process_did_not_take_comes_back_in_order() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| {
            // Long enough for the first handshake on a busy machine.
            config.give_up = Duration::from_secs(10);
        })
        .await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let sender = Inlet::of(&here, None);
    let inlet = Inlet::of(&there, None);
    platform.agent(&here, "alice@factory");
    let alice = here.bus.agent("alice@factory").unwrap();
    let mut endpoint = there.endpoint.process();
    endpoint.address = proxy.address;
    let transport = here.bus.transport().unwrap();
    let way = transport.process_destination(&endpoint).unwrap();
    let first = Bytes::from_static(b"first");
    send(&*way, outgoing(FrameSender::Process, &[], &first)).await;
    inlet.next().await;
    proxy.close();
    for number in 0..50_u8 {
        let body = Bytes::from(vec![number; if number % 10 == 5 { 100_000 } else { 10 }]);
        let agent = FrameSender::Agent(&alice);
        send(&*way, outgoing(agent, &[number, 0], &body)).await;
    }
    let mut lost = Vec::new();
    while lost.len() < 50 {
        let (frames, reason) = sender.until(|inlet| inlet.lost.lock().pop()).await;
        assert!(
            matches!(reason, UndeliverableReason::ProcessUnreachable(_)),
            "{reason}"
        );
        lost.extend(frames);
        // The acknowledgement may have been under way.
        if lost[0].payload == first {
            assert!(lost.remove(0).may_have_arrived);
        }
    }
    for (number, frame) in (0..).zip(&lost) {
        assert_eq!(frame.payload[..2], [number, 0]);
        assert_eq!(frame.sender.as_deref(), Some("alice@factory"));
    }
}

#[tokio::test]
async fn a_frame_beyond_the_limit_is_not_accepted() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| config.largest_message = 100_000)
        .await;
    let there = platform.process("node-2").await;
    let inlet = Inlet::of(&there, None);
    let way = way(&here, &there);
    let body = Bytes::from(vec![0; 100_000]);
    let rejected = way.try_send(&outgoing(FrameSender::Process, b"1", &body));
    assert!(
        matches!(
            rejected,
            Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size: 100_001,
                limit: 100_000
            }))
        ),
        "{rejected:?}"
    );
    send(&*way, outgoing(FrameSender::Process, &[], &body)).await;
    inlet.next().await;
}
