//! Slow receivers hold back their own senders and no others. Agents move, and certificates are renewed, under open
//! connections and without losing a message.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Platform, inform, soon};
use sealbus_bus::{Location, MailboxLimits, Outbox, ProcessEndpoint, Provenance, TrySendError};
use sealbus_seal::{Identity, SecurityLevel};
use tokio::runtime::Handle;

/// Sends until there is no more room. Returns the number of messages taken.
async fn fill(outbox: &Outbox, receiver: &str) -> usize {
    let mut sent = 0;
    let mut refused_in_a_row = 0;
    while refused_in_a_row < 50 {
        match outbox.try_send(inform(receiver, format!("{sent} {}", "x".repeat(200)))) {
            Ok(()) => {
                sent += 1;
                refused_in_a_row = 0;
            }
            Err(TrySendError::Full(_)) => {
                refused_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

#[tokio::test]
async fn a_receiver_that_does_not_read_holds_back_only_its_own_senders() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let name = "lazy@factory";
    let limits = MailboxLimits {
        messages: 1000,
        bytes: 200_000,
    };
    let (_lazy, mut lazy_mailbox) = there
        .bus
        .attach(name, Some(platform.authority.agent(name)), Some(limits))
        .unwrap();
    let endpoint = there.endpoint.process();
    platform.directory.put(name, Location::Process(endpoint));
    let (_busy, mut busy_mailbox) = platform.agent(&there, "busy@factory");

    // Until the receiver is found, its messages are kept on this side.
    alice.send(inform(name, "0")).await.unwrap();
    soon(async {
        while lazy_mailbox.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let taken = fill(&alice, name).await;
    // This covers the credit of the mailbox, and the messages accepted before the receiver answered.
    assert!(
        taken < 4_000,
        "{taken} messages were accepted for an agent that does not read"
    );
    assert!(lazy_mailbox.len() < 2 * limits.messages);

    for number in 0..10_000 {
        alice.send(inform("busy@factory", number)).await.unwrap();
        if number % 100 == 99 {
            for _ in 0..100 {
                soon(busy_mailbox.recv()).await.unwrap();
            }
        }
    }
    // Once the receiver reads, it gets all messages, and the waiting sender continues.
    let waiting = alice.send(inform(name, "last"));
    let reading = async {
        soon(lazy_mailbox.recv()).await.unwrap();
        for number in 0..taken {
            let received = soon(lazy_mailbox.recv()).await.unwrap();
            let message = received.message();
            let content = message.content_text().unwrap();
            assert_eq!(content.split(' ').next(), Some(number.to_string().as_str()));
        }
        let last = soon(lazy_mailbox.recv()).await.unwrap();
        assert_eq!(last.message().content_text().unwrap(), "last");
    };
    let (sent, ()) = soon(async { tokio::join!(waiting, reading) }).await;
    sent.unwrap();
}

#[tokio::test]
async fn many_senders_of_one_receiver_all_get_their_turn() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-0").await;
    let (_hub, mut hub_mailbox) = platform.agent(&there, "hub@factory");
    let mut senders = Vec::new();
    for process in 0..4 {
        let process = platform.process(&format!("node-{}", process + 1)).await;
        for agent in 0..4 {
            let name = format!("s-{agent}-{}@factory", senders.len());
            let (outbox, mailbox) = platform.agent(&process, &name);
            senders.push(tokio::spawn(async move {
                let _mailbox = mailbox;
                for number in 0..500 {
                    outbox
                        .send(inform(
                            "hub@factory",
                            format!("{number} {}", "y".repeat(2_000)),
                        ))
                        .await
                        .unwrap();
                }
                outbox
            }));
        }
        // The tasks of the process go on without its value.
        std::mem::forget(process);
    }
    let mut next = std::collections::HashMap::<String, u32>::new();
    for _ in 0..16 * 500 {
        let received = soon(hub_mailbox.recv()).await.unwrap();
        let message = received.message();
        let next = next
            .entry(message.sender().unwrap().name().to_owned())
            .or_default();
        let content = message.content_text().unwrap();
        assert_eq!(content.split(' ').next(), Some(next.to_string().as_str()));
        *next += 1;
    }
    for sender in senders {
        soon(sender).await.unwrap();
    }
}

#[tokio::test]
async fn a_long_message_does_not_stop_the_others() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bulk, mut bulk_mailbox) = platform.agent(&there, "bulk@factory");
    let (_quick, mut quick_mailbox) = platform.agent(&there, "quick@factory");
    // Both receivers are known before the race.
    for name in ["bulk@factory", "quick@factory"] {
        alice.send(inform(name, "hello")).await.unwrap();
    }
    soon(bulk_mailbox.recv()).await.unwrap();
    soon(quick_mailbox.recv()).await.unwrap();
    alice
        .send(inform("bulk@factory", "z".repeat(15 << 20)))
        .await
        .unwrap();
    alice.send(inform("quick@factory", "first")).await.unwrap();
    soon(quick_mailbox.recv()).await.unwrap();
    assert!(
        bulk_mailbox.is_empty(),
        "the short message waited for the long one"
    );
    let long = soon(bulk_mailbox.recv()).await.unwrap();
    assert_eq!(long.message().content_text().unwrap().len(), 15 << 20);
}

#[tokio::test]
async fn an_agent_moves_and_its_messages_follow_once_and_in_order() {
    move_under_traffic().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_moves_on_many_threads() {
    move_under_traffic().await;
}

async fn move_under_traffic() {
    let platform = Arc::new(Platform::new(SecurityLevel::Auth));
    let here = platform.process("node-0").await;
    let homes = [
        platform.process("node-1").await,
        platform.process("node-2").await,
    ];
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (local, mut local_mailbox) = platform.agent(&homes[0], "local@factory");
    // The agent is known, but not there yet.
    platform.directory.put("nomad@factory", Location::InTransit);
    const MESSAGES: usize = 5_000;
    let send_all = |outbox: Outbox| async move {
        for number in 0..MESSAGES {
            let filler = if number % 1000 == 500 { 150_000 } else { 20 };
            outbox
                .send(inform(
                    "nomad@factory",
                    format!("{number} {}", "x".repeat(filler)),
                ))
                .await
                .unwrap();
            if number % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        outbox
    };
    let senders = [tokio::spawn(send_all(alice)), tokio::spawn(send_all(local))];

    let name = "nomad@factory";
    let mut taken: std::collections::HashMap<String, usize> = Default::default();
    let mut carried = Vec::new();
    let mut moves = 0;
    'life: loop {
        let home = &homes[moves % 2];
        let credential = platform.authority.agent(name);
        // The messages that it brought along come first.
        let unread = std::mem::take(&mut carried);
        let (_nomad, mut mailbox) = home
            .bus
            .attach_moved(name, Some(credential), None, unread)
            .unwrap();
        platform
            .directory
            .put(name, Location::Process(home.endpoint.process()));
        for process in homes.iter().chain([&here]) {
            process.bus.location_changed(name);
        }
        for _ in 0..900 {
            let received = soon(mailbox.recv()).await.unwrap();
            let message = received.message();
            let next = taken
                .entry(message.sender().unwrap().name().to_owned())
                .or_default();
            let content = message.content_text().unwrap();
            let number = content.split(' ').next().unwrap().to_owned();
            assert_eq!(
                number,
                next.to_string(),
                "from {} after {moves} moves",
                message.sender().unwrap().name()
            );
            *next += 1;
            if taken.values().sum::<usize>() == 2 * MESSAGES {
                break 'life;
            }
        }
        platform.directory.put(name, Location::InTransit);
        carried = mailbox.drain();
        home.bus.detach(name);
        moves += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(moves > 5, "it moved {moves} times only");
    for sender in senders {
        soon(sender).await.unwrap();
    }
    assert!(alice_mailbox.try_recv().is_none() && local_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn certificates_are_renewed_under_open_connections() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let (bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    const MESSAGES: usize = 3_000;
    let sending = async {
        for number in 0..MESSAGES {
            alice.send(inform("bob@factory", number)).await.unwrap();
            if number % 10 == 0 {
                tokio::task::yield_now().await;
            }
            if number % 500 == 250 {
                let connections = || {
                    let links = here.endpoint.links();
                    links.first().map_or(0, |link| link.connections)
                };
                let before = connections();
                // The certificates of the agents and, on both sides, of the processes.
                here.bus
                    .set_credential("alice@factory", platform.authority.agent("alice@factory"))
                    .unwrap();
                there
                    .bus
                    .set_credential("bob@factory", platform.authority.agent("bob@factory"))
                    .unwrap();
                for process in [&here, &there] {
                    let credential = platform.authority.certify(process.identity.clone());
                    process
                        .endpoint
                        .set_process_credential(&credential)
                        .unwrap();
                }
                // The connection is opened again for the new certificate, while messages flow.
                soon(async {
                    while connections() == before {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
                .await;
            }
        }
    };
    let mut serials = std::collections::HashSet::new();
    let receiving = async {
        for number in 0..MESSAGES {
            let received = soon(bob_mailbox.recv()).await.unwrap();
            assert_eq!(
                received.message().content_text().unwrap(),
                number.to_string()
            );
            let Provenance::Proved(identity) = received.provenance() else {
                panic!("not proved")
            };
            serials.insert(identity.serial());
        }
    };
    tokio::join!(sending, receiving);
    // The number of certificates seen depends on how fast connections are opened again.
    assert!(serials.len() > 1);
    assert!(
        here.endpoint.links()[0].connections > 1,
        "the connection was not made anew"
    );
    assert!(bob_mailbox.try_recv().is_none());
    drop(bob);
}

#[tokio::test]
async fn a_renewed_process_certificate_outlives_the_old_one() {
    let platform = Platform::new(SecurityLevel::Auth);
    let identity = Identity::process(
        &platform.authority.platform,
        "node-1",
        sealbus_seal::ProcessId::random().unwrap(),
    )
    .unwrap();
    let here = platform.process_as(identity, |_| {}).await;
    let there = platform.process("node-2").await;
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "one")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let credential = platform.authority.certify(here.identity.clone());
    here.endpoint.set_process_credential(&credential).unwrap();
    soon(async {
        while here.endpoint.links()[0].connections < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    alice.send(inform("bob@factory", "two")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    assert_eq!(there.bus.refusals().total(), 0);
}

#[tokio::test]
async fn messages_go_out_from_other_threads() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, _alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "first")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let runtime = Handle::current();
    let thread = std::thread::spawn(move || {
        for number in 0..10_000 {
            let mut message = inform("bob@factory", number);
            message.sender = Some(alice.aid());
            match alice.try_send(message) {
                Err(TrySendError::Full(mut unsent)) => {
                    runtime.block_on(alice.finish(&mut unsent)).unwrap();
                }
                sent => sent.unwrap(),
            }
        }
        alice
    });
    for number in 0..10_000 {
        let received = soon(bob_mailbox.recv()).await.unwrap();
        assert_eq!(
            received.message().content_text().unwrap(),
            number.to_string()
        );
    }
    thread.join().unwrap();
}

#[tokio::test]
async fn an_agent_that_ends_is_reported() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "hello")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    platform.directory.put("bob@factory", Location::Unknown);
    there.bus.detach("bob@factory");
    alice
        .send(inform("bob@factory", "still there?"))
        .await
        .unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap();
    assert!(
        notice
            .message()
            .content_text()
            .unwrap()
            .contains("bob@factory")
    );

    // The directory wrongly says that the agent is there.
    let (_carol, carol_mailbox) = platform.agent(&there, "carol@factory");
    alice.send(inform("carol@factory", "hello")).await.unwrap();
    drop(carol_mailbox);
    there.bus.detach("carol@factory");
    alice.send(inform("carol@factory", "hello?")).await.unwrap();
    let endpoint: ProcessEndpoint = there.endpoint.process();
    assert_eq!(endpoint.identity, there.identity);
    let notice = soon(alice_mailbox.recv()).await.unwrap();
    assert!(
        notice
            .message()
            .content_text()
            .unwrap()
            .contains("carol@factory")
    );
}

/// The messages of an agent that has left were accepted, so they arrive. This includes messages that had to wait, for
/// the receiver's answer or because they go in pieces.
#[tokio::test]
async fn an_agent_that_leaves_at_once_is_still_heard() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    for round in 0..20 {
        let name = format!("brief-{round}@factory");
        let (brief, _mailbox) = platform.agent(&here, &name);
        for number in 0..3 {
            let length = if number == 1 { 300_000 } else { 10 };
            let text = format!("{number} {}", "x".repeat(length));
            soon(brief.send(inform("bob@factory", text))).await.unwrap();
            if round == 0 {
                // The first message opens the way. Until then the bus itself keeps the messages.
                soon(bob_mailbox.recv()).await.unwrap();
            }
        }
        here.bus.detach(&name);
        for number in 0..3 {
            if round == 0 {
                break;
            }
            let received = soon(bob_mailbox.recv()).await.unwrap();
            let message = received.message();
            assert_eq!(*message.sender().unwrap().name(), *name);
            let content = message.content_text().unwrap();
            assert!(content.starts_with(&format!("{number} ")));
        }
    }
    assert_eq!(there.bus.refusals().total(), 0);
}
