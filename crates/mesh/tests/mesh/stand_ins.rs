//! Messages to agents of other platforms, which the gateway's process takes in.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::{
    GATEWAY, Location, Mailbox, MailboxLimits, Outbox, RefusalReason, StandInLimits,
};
use sealbus_fipa::Performative;
use sealbus_seal::SecurityLevel;

use crate::support::{Platform, Process, inform, soon};

/// The mailboxes of the agents of other platforms, which nobody reads.
type Mailboxes = Arc<Mutex<Vec<(Arc<str>, Mailbox)>>>;

/// Opens a gateway in a process. Agents of the platform `far` are then written to over it.
fn open_gateway(
    platform: &Platform,
    process: &Process,
    room: usize,
) -> ((Outbox, Mailbox), Mailboxes) {
    let name = format!("{GATEWAY}@factory");
    let gateway = platform.agent(process, &name);
    for number in 0..8 {
        let place = Location::Process(process.endpoint.process());
        platform.directory.put(&format!("x{number}@far"), place);
    }
    let limits = StandInLimits {
        most: 100,
        mailbox: MailboxLimits {
            bytes: 256 << 10,
            ..MailboxLimits::default()
        },
        room,
    };
    let mailboxes = Mailboxes::default();
    let given = mailboxes.clone();
    let reader = move |name: Arc<str>, mailbox| given.lock().push((name, mailbox));
    let is_open = process.bus.open_gateway(&name, limits, Box::new(reader));
    assert!(is_open);
    (gateway, mailboxes)
}

/// Waits until the message to an agent of another platform is in its mailbox. Returns the length of its content.
async fn length_of_first(mailboxes: &Mailboxes, name: &str) -> usize {
    soon(async {
        loop {
            for (of, mailbox) in &mut *mailboxes.lock() {
                if **of == *name
                    && let Some(received) = mailbox.try_recv()
                {
                    return received.message().content_text().unwrap().len();
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_process_that_writes_to_many_other_agents_does_not_fill_the_gateway() {
    let platform = Platform::new(SecurityLevel::Auth);
    let greedy = platform.process("node-1").await;
    let honest = platform.process("node-2").await;
    let there = platform.process("node-3").await;
    let (_gateway, mailboxes) = open_gateway(&platform, &there, 64_000);
    let (mallory, mut notices) = platform.agent(&greedy, "mallory@factory");
    let (bob, _bobs) = platform.agent(&honest, "bob@factory");
    let long = "x".repeat(20_000);
    // Two of them fit into her share. Each has a mailbox of its own, with room for many.
    for number in 0..4 {
        let message = inform(&format!("x{number}@far"), &long);
        mallory.send(message).await.unwrap();
    }
    for _ in 0..2 {
        let notice = soon(notices.recv()).await.unwrap().into_message();
        assert_eq!(notice.performative, Performative::Failure);
        let text = notice.content_text().unwrap();
        assert!(text.contains("over-limit"), "{text}");
    }
    let refused = there.bus.refusals().last();
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|refusal| {
        refusal.reason == RefusalReason::OverLimit
            && refusal.tried_by == "mallory@factory"
            && refusal.proved.as_deref() == Some(&*greedy.identity.to_string())
    }));
    // Others still write outside.
    bob.send(inform("x4@far", &long)).await.unwrap();
    assert_eq!(length_of_first(&mailboxes, "x4@far").await, long.len());
}

#[tokio::test]
async fn a_long_message_passes_through_a_small_mailbox() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_gateway, mailboxes) = open_gateway(&platform, &there, 64 << 20);
    let (alice, _alices) = platform.agent(&here, "alice@factory");
    let long = "x".repeat(15 << 20);
    for _ in 0..2 {
        alice.send(inform("x0@far", &long)).await.unwrap();
        assert_eq!(length_of_first(&mailboxes, "x0@far").await, long.len());
    }
}
