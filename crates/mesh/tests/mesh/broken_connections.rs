//! Connections break under traffic, and processes vanish and come back. No message is lost, doubled or out of order
//! unless its sender is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{Platform, inform, soon};
use sealbus_bus::{Location, Mailbox, Outbox, Provenance};
use sealbus_conformance::schedule::Random;
use sealbus_fipa::Performative;
use sealbus_seal::SecurityLevel;

const MESSAGES: usize = 4_000;

async fn send_all(outbox: &Outbox, receiver: &str) {
    for number in 0..MESSAGES {
        // Every now and then a message goes in pieces.
        let filler = if number % 500 == 250 {
            200_000
        } else {
            number % 300
        };
        outbox
            .send(inform(receiver, format!("{number} {}", "x".repeat(filler))))
            .await
            .unwrap();
    }
}

async fn receive_all(mailbox: &mut Mailbox, heard: &AtomicUsize) {
    for number in 0..MESSAGES {
        let received = soon(mailbox.recv()).await.unwrap();
        heard.fetch_add(1, Ordering::Relaxed);
        let message = received.message();
        let content = message.content_text().unwrap();
        assert_eq!(
            content.split(' ').next(),
            Some(number.to_string().as_str()),
            "{content}"
        );
    }
}

async fn talk_over_a_breaking_connection(level: SecurityLevel) {
    let platform = Platform::new(level);
    let here = platform
        .process_with("node-1", |config| {
            config.redial.0 = Duration::from_millis(1)
        })
        .await;
    let there = platform
        .process_with("node-2", |config| {
            config.redial.0 = Duration::from_millis(1)
        })
        .await;
    let proxy_here = Proxy::to(here.endpoint.local_address()).await;
    let proxy_there = Proxy::to(there.endpoint.local_address()).await;
    let (alice, alice_mailbox) = platform.agent_behind(&here, "alice@factory", proxy_here.address);
    let (bob, bob_mailbox) = platform.agent_behind(&there, "bob@factory", proxy_there.address);
    let (carol, carol_mailbox) =
        platform.agent_behind(&there, "carol@factory", proxy_there.address);
    let (dave, dave_mailbox) = platform.agent_behind(&here, "dave@factory", proxy_here.address);

    let heard = Arc::new(AtomicUsize::new(0));
    let progress = heard.clone();
    let breaking = tokio::spawn(async move {
        // Irregular pauses make connections break in every state. On a busy machine a connection may not live long
        // enough for anything to arrive, so every fourth one must carry something first.
        let mut random = Random(12_345);
        let mut before = 0;
        for cut in 0_u32.. {
            while cut % 4 == 3 && progress.load(Ordering::Relaxed) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            before = progress.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_micros(random.below(1 << 14))).await;
            proxy_here.cut();
            proxy_there.cut();
        }
    });
    let mut tasks = Vec::new();
    for (outbox, receiver) in [
        (alice, "bob@factory"),
        (bob, "alice@factory"),
        (carol, "dave@factory"),
        (dave, "carol@factory"),
    ] {
        tasks.push(tokio::spawn(async move {
            send_all(&outbox, receiver).await;
            None
        }));
    }
    for mut mailbox in [alice_mailbox, bob_mailbox, carol_mailbox, dave_mailbox] {
        let heard = heard.clone();
        tasks.push(tokio::spawn(async move {
            receive_all(&mut mailbox, &heard).await;
            // An agent without a mailbox may not send, so the mailbox is kept.
            Some(mailbox)
        }));
    }
    let mut mailboxes = Vec::new();
    for task in tasks {
        mailboxes.extend(soon(task).await.unwrap());
    }
    breaking.abort();
    for mailbox in &mut mailboxes {
        assert!(mailbox.try_recv().is_none(), "something came twice");
    }
    assert!(
        here.endpoint.links()[0].connections > 1,
        "the connection was never broken"
    );
    assert_eq!(
        here.bus.counters().undeliverable + there.bus.counters().undeliverable,
        0
    );
}

#[tokio::test]
async fn nothing_is_lost_without_security() {
    talk_over_a_breaking_connection(SecurityLevel::None).await;
}

#[tokio::test]
async fn nothing_is_lost_with_every_agent_proved() {
    talk_over_a_breaking_connection(SecurityLevel::Auth).await;
}

/// Senders, readers and links run on different threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_on_many_threads() {
    talk_over_a_breaking_connection(SecurityLevel::Auth).await;
}

#[tokio::test]
async fn both_sides_may_dial_at_the_same_time() {
    for _ in 0..20 {
        let platform = Platform::new(SecurityLevel::Auth);
        let here = platform.process("node-1").await;
        let there = platform.process("node-2").await;
        let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
        let (bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
        tokio::join!(
            async {
                alice
                    .send(inform("bob@factory", "from alice"))
                    .await
                    .unwrap()
            },
            async { bob.send(inform("alice@factory", "from bob")).await.unwrap() },
        );
        assert!(soon(alice_mailbox.recv()).await.is_some());
        assert!(soon(bob_mailbox.recv()).await.is_some());
        assert!(alice_mailbox.try_recv().is_none() && bob_mailbox.try_recv().is_none());
        assert_eq!(here.endpoint.links().len(), 1);
    }
}

#[tokio::test]
async fn a_process_that_stays_away_is_given_up_and_the_senders_told() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| {
            // Long enough to agree on a session on a busy machine.
            config.give_up = Duration::from_secs(5)
        })
        .await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent_behind(&there, "bob@factory", proxy.address);
    alice.send(inform("bob@factory", "hello")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    // Until then nobody can know whether it arrived.
    while here.endpoint.links()[0].unacknowledged > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    proxy.close();
    let lost = inform("bob@factory", "anybody there?")
        .with_conversation_id("talk-1")
        .with_reply_with("q-1");
    alice.send(lost).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap();
    assert!(matches!(notice.provenance(), Provenance::Platform));
    let notice = notice.into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert_eq!(notice.sender.as_ref().unwrap().name, "ams@factory");
    assert_eq!(notice.conversation_id, Some("talk-1".into()));
    assert_eq!(notice.in_reply_to, Some("q-1".into()));
    assert!(
        notice
            .content_text()
            .unwrap()
            .contains("(agent-identifier :name bob@factory)")
    );

    // The process comes back, and the conversation continues.
    proxy.open();
    alice.send(inform("bob@factory", "again")).await.unwrap();
    let received = soon(bob_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), "again");
}

#[tokio::test]
async fn a_process_that_stops_reading_is_noticed() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| {
            // Long enough to agree on a session on a busy machine.
            config.keep_alive = Duration::from_millis(200);
            config.silence = Duration::from_secs(2);
            config.give_up = Duration::from_secs(5);
        })
        .await;
    // A process with its own runtime that can be stopped as by SIGSTOP: its thread blocks.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (tell, told) = tokio::sync::oneshot::channel();
    let (hear, heard) = tokio::sync::oneshot::channel();
    let platform = std::sync::Arc::new(platform);
    let other = platform.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let there = other.process("node-2").await;
            let (_bob, mut mailbox) = other.agent(&there, "bob@factory");
            tell.send(()).unwrap();
            soon(mailbox.recv()).await.unwrap();
            hear.send(()).unwrap();
            stopped.recv().unwrap();
        });
    });
    told.await.unwrap();
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    alice.send(inform("bob@factory", "hello")).await.unwrap();
    soon(heard).await.unwrap();
    alice
        .send(inform("bob@factory", "are you there?"))
        .await
        .unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap();
    assert_eq!(notice.message().performative(), Performative::Failure);
    stop.send(()).unwrap();
    thread.join().unwrap();
}

#[tokio::test]
async fn a_process_that_starts_anew_is_another_one() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let mut sent = 0;
    let mut received = Vec::new();
    for _life in 0..3 {
        let there = platform.process("node-2").await;
        let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
        here.bus.location_changed("bob@factory");
        for _ in 0..50 {
            alice.send(inform("bob@factory", sent)).await.unwrap();
            sent += 1;
        }
        for _ in 0..20 {
            let message = soon(bob_mailbox.recv()).await.unwrap();
            received.push(
                message
                    .message()
                    .content_text()
                    .unwrap()
                    .parse::<usize>()
                    .unwrap(),
            );
        }
        platform.directory.put("bob@factory", Location::InTransit);
        // The process ends as if killed: it says no goodbye, and the messages in its mailboxes are lost.
        there.endpoint.shut_down(Duration::ZERO).await;
        while let Some(message) = bob_mailbox.try_recv() {
            received.push(message.message().content_text().unwrap().parse().unwrap());
        }
    }
    // Each message either arrived, in order and once, or its sender was told.
    assert!(received.is_sorted_by(|a, b| a < b), "{received:?}");
    platform.directory.put("bob@factory", Location::Unknown);
    here.bus.location_changed("bob@factory");
    let mut told = 0;
    while received.len() + told < sent {
        let notice = soon(alice_mailbox.recv()).await.unwrap();
        assert_eq!(notice.message().performative(), Performative::Failure);
        told += 1;
    }
}
