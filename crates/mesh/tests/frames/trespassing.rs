//! Frames of processes that break the rules.

use sealbus_bus::RefusalReason;
use sealbus_mesh::frame::{Frame, PROCESS_SENDER, PROCESS_TARGET, Why};
use sealbus_seal::{Identity, SecurityLevel};

use super::Inlet;
use super::intruder::{Intruder, Seen};
use super::support::{Platform, Process, inform};

/// A process of the platform whose program keeps no rules.
async fn trespass(platform: &Platform, there: &Process, name: &str) -> Intruder {
    let id = sealbus_seal::ProcessId::random().unwrap();
    let identity = Identity::process(&platform.authority.platform, name, id).unwrap();
    let credential = platform.authority.certify(identity);
    let address = there.endpoint.local_address();
    Intruder::dial(address, &credential, platform.authority.trust())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_frame_of_an_agent_that_was_never_bound_is_refused() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-2").await;
    let inlet = Inlet::of(&there, None);
    let mut intruder = trespass(&platform, &there, "node-9").await;
    intruder.target(0, PROCESS_TARGET).await;
    intruder
        .send(&Frame::Message {
            is_signed: false,
            sender: 3,
            target: 0,
            payload: b"as somebody",
        })
        .await
        .unwrap();
    let seen = intruder
        .until(|seen| matches!(seen, Seen::Returned { .. }))
        .await;
    assert!(
        matches!(
            seen,
            Seen::Returned {
                why: Why::Refused(RefusalReason::NotProved)
            }
        ),
        "{seen:?}"
    );
    // An agent may not use the process's own name either.
    let (_bob, _bob_mailbox) = platform.agent(&there, "bob@factory");
    intruder.target(1, "bob@factory").await;
    let message = inform("bob@factory", "from nobody");
    intruder.message(PROCESS_SENDER, 1, &message).await.unwrap();
    let seen = intruder
        .until(|seen| matches!(seen, Seen::Returned { .. }))
        .await;
    assert!(
        matches!(
            seen,
            Seen::Returned {
                why: Why::Refused(RefusalReason::NotProved)
            }
        ),
        "{seen:?}"
    );
    assert!(inlet.arrived.lock().is_empty());
}

#[tokio::test]
async fn more_than_the_inlet_allows_ends_the_connection() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-2").await;
    let inlet = Inlet::of(&there, None);
    let mut intruder = trespass(&platform, &there, "node-9").await;
    intruder.target(0, PROCESS_TARGET).await;
    let payload = vec![0; 64 << 10];
    // The process goes on when the room is used up. The frames lie in the inlet.
    for _ in 0..100 {
        let frame = Frame::Message {
            is_signed: false,
            sender: PROCESS_SENDER,
            target: 0,
            payload: &payload,
        };
        if intruder.send(&frame).await.is_err() {
            break;
        }
    }
    intruder.until_end().await;
    let arrived = inlet.arrived.lock().len();
    assert!(arrived < 70, "{arrived} frames were taken");
    let refusal = there.bus.refusals().last().pop().unwrap();
    assert_eq!(refusal.reason, RefusalReason::Malformed);
}
