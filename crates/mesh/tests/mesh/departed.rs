//! Agents that have left: their unread messages go back to the senders, their own messages still arrive, and the link
//! keeps nothing of them.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Platform, Process, inform, soon};
use sealbus_bus::{Location, Mailbox};
use sealbus_fipa::Performative;
use sealbus_mesh::MeshConfig;
use sealbus_seal::SecurityLevel;

async fn until(mut is_so: impl FnMut() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The receivers that this many failure notices name.
async fn failures(mailbox: &mut Mailbox, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..count {
        let notice = soon(mailbox.recv()).await.unwrap();
        assert!(notice.provenance().is_of_platform());
        let notice = notice.into_message();
        assert_eq!(notice.performative, Performative::Failure);
        told.push(notice.content_text().unwrap_or_default().to_owned());
    }
    told
}

async fn pair(level: SecurityLevel) -> (Platform, Process, Process) {
    let platform = Platform::new(level);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    (platform, here, there)
}

#[tokio::test]
async fn senders_in_another_process_hear_of_what_an_ended_agent_never_read() {
    for level in [SecurityLevel::None, SecurityLevel::Auth] {
        let (platform, here, there) = pair(level).await;
        let (alice, mut alices) = platform.agent(&here, "alice@factory");
        let (carol, mut carols) = platform.agent(&here, "carol@factory");
        let (_bob, mut bobs) = platform.agent(&there, "bob@factory");
        for number in 0..10 {
            soon(alice.send(inform("bob@factory", number)))
                .await
                .unwrap();
        }
        soon(carol.send(inform("bob@factory", "x".repeat(200_000))))
            .await
            .unwrap();
        until(|| bobs.len() == 11).await;
        let first = bobs.try_recv().unwrap().into_message();
        let is_of_carol = first.sender.as_ref().unwrap().name == "carol@factory";
        platform.directory.put("bob@factory", Location::Unknown);
        drop(bobs);
        there.bus.detach("bob@factory");
        let (of_alice, of_carol) = if is_of_carol { (10, 0) } else { (9, 1) };
        for told in failures(&mut alices, of_alice).await {
            assert!(told.contains("bob@factory"), "{told}");
        }
        failures(&mut carols, of_carol).await;
        // Nothing more comes after the messages sent now.
        soon(alice.send(inform("alice@factory", "done")))
            .await
            .unwrap();
        let last = soon(alices.recv()).await.unwrap().into_message();
        assert_eq!(last.content_text(), Some("done"));
    }
}

#[tokio::test]
async fn a_sender_that_left_while_its_message_was_held_leaves_nothing_on_the_link() {
    let (platform, here, there) = pair(SecurityLevel::Auth).await;
    let (_bob, mut bobs) = platform.agent(&there, "bob@factory");
    let known = sealbus_bus::Resolver::resolve(&*platform.directory, "bob@factory");
    let known = known.await.unwrap();
    for round in 0..3 {
        platform.directory.put("bob@factory", Location::InTransit);
        here.bus.location_changed("bob@factory");
        let name = format!("alice-{round}@factory");
        let (alice, alices) = platform.agent(&here, &name);
        soon(alice.send(inform("bob@factory", round)))
            .await
            .unwrap();
        let weak = Arc::downgrade(alice.agent());
        drop((alice, alices));
        here.bus.detach(&name);
        platform.directory.put("bob@factory", known.clone());
        here.bus.location_changed("bob@factory");
        let message = soon(bobs.recv()).await.unwrap().into_message();
        assert_eq!(message.content_text(), Some(&*round.to_string()));
        until(|| weak.upgrade().is_none()).await;
    }
}

#[tokio::test]
async fn what_a_sender_said_before_it_left_follows_a_receiver_that_moves() {
    for level in [
        SecurityLevel::None,
        SecurityLevel::Auth,
        SecurityLevel::Signed,
    ] {
        let (platform, here, there) = pair(level).await;
        let far = platform.process("node-3").await;
        let (alice, alices) = platform.agent(&here, "alice@factory");
        let (_bob, mut bobs) = platform.agent(&there, "bob@factory");
        soon(alice.send(inform("bob@factory", 0))).await.unwrap();
        soon(bobs.recv()).await.unwrap();
        // Bob has left before these arrive, and alice before she could be told.
        assert!(bobs.drain().is_empty());
        there.bus.detach("bob@factory");
        for number in 1..=20 {
            alice.try_send(inform("bob@factory", number)).unwrap();
        }
        let weak = Arc::downgrade(alice.agent());
        drop((alice, alices));
        here.bus.detach("alice@factory");
        let (_bob, mut bobs) = platform.agent(&far, "bob@factory");
        for number in 1..=20 {
            let message = soon(bobs.recv()).await.unwrap().into_message();
            assert_eq!(message.content_text(), Some(&*number.to_string()));
        }
        let counters = here.bus.counters();
        assert_eq!((counters.returned, counters.undeliverable), (20, 0));
        until(|| weak.upgrade().is_none()).await;
    }
}

#[tokio::test]
async fn a_sender_that_has_left_is_bound_once_for_all_that_was_held() {
    let platform = Platform::new(SecurityLevel::Auth);
    let few = |config: &mut MeshConfig| config.agents_per_link = 4;
    let here = platform.process_with("node-1", few).await;
    let there = platform.process("node-2").await;
    let (_bob, mut bobs) = platform.agent(&there, "bob@factory");
    let known = Location::Process(there.endpoint.process());
    platform.directory.put("bob@factory", Location::InTransit);
    let (alice, alices) = platform.agent(&here, "alice@factory");
    for number in 0..50 {
        alice.try_send(inform("bob@factory", number)).unwrap();
    }
    drop((alice, alices));
    here.bus.detach("alice@factory");
    platform.directory.put("bob@factory", known);
    here.bus.location_changed("bob@factory");
    for number in 0..50 {
        let message = soon(bobs.recv()).await.unwrap().into_message();
        assert_eq!(message.content_text(), Some(&*number.to_string()));
    }
    assert_eq!(here.bus.counters().undeliverable, 0);
}
