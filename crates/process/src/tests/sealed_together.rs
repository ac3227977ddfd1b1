//! Sealed events for several agents of one process, which opens each event once.

use std::collections::BTreeSet;

use sealbus_channels::SealedPart;

use super::sealed_channels::{open, parts, sealer};
use super::*;

const ALICE: &str = "alice@factory";
const READERS: [&str; 3] = ["bob@factory", "carol@factory", "dora@factory"];

/// The text that these agents read, and how many of them cannot.
fn read(process: &Process, agents: &[&str], content: &[u8]) -> (Option<String>, usize) {
    let agents: BTreeSet<Arc<str>> = agents.iter().map(|it| (*it).into()).collect();
    let part = SealedPart::parse(content, ALICE, "/offers").unwrap();
    let opening = sealer(process).open(&part, &agents);
    let event = opening
        .event
        .map(|it| it.message.message().content_text().unwrap().into_owned());
    (event, opening.failed.len())
}

#[tokio::test]
async fn agents_of_one_process_read_an_event_once_and_none_of_them_again() {
    let world = World::new();
    let one = open(&world, &["alice"]).await;
    let two = open(&world, &["bob", "carol", "dora"]).await;
    let _alice = one.agent("alice").await.unwrap();
    let mut agents = Vec::new();
    for name in ["bob", "carol", "dora"] {
        agents.push(two.agent(name).await.unwrap());
    }
    let [bob, carol, dora] = READERS;
    let first = parts(&one, ALICE, &READERS, "first").await;
    let [welcome, event] = &first[..] else {
        panic!("{} parts", first.len())
    };
    // Dora does not get the Welcome.
    assert_eq!(read(&two, &[bob, carol], welcome), (None, 0));
    let some = (Some("first".to_owned()), 1);
    assert_eq!(read(&two, &READERS, event), some);
    assert_eq!(read(&two, &READERS, event), (None, 3));
    // Carol alone, whose own state has not opened anything yet.
    assert_eq!(read(&two, &[carol], event), (None, 1));
    let second = parts(&one, ALICE, &READERS, "second").await;
    assert_eq!(
        read(&two, &[carol], &second[0]),
        (Some("second".to_owned()), 0)
    );
    assert_eq!(read(&two, &[bob, carol], &second[0]), (None, 2));
    // An event for many agents comes in several frames.
    let event = &parts(&one, ALICE, &READERS, "parted").await[0];
    let parted = || Some("parted".to_owned());
    assert_eq!(read(&two, &[bob], event), (parted(), 0));
    assert_eq!(read(&two, &[carol, dora], event), (parted(), 1));
    assert_eq!(read(&two, &[bob, carol], event), (None, 2));
    // The publisher removes bob, whose state opened the events. Bob is not told.
    let third = parts(&one, ALICE, &[carol, dora], "third").await;
    let [commit, event] = &third[..] else {
        panic!("{} parts", third.len())
    };
    assert_eq!(read(&two, &[carol], commit), (None, 0));
    assert_eq!(read(&two, &READERS, event), (Some("third".to_owned()), 2));
    assert_eq!(read(&two, &[carol], event), (None, 1));
    // An event from before the change.
    assert_eq!(read(&two, &[carol], &second[0]), (None, 1));
    // Bob's former state opens nothing, and takes nothing from carol.
    assert_eq!(read(&two, &[bob], event), (None, 1));
    let fourth = parts(&one, ALICE, &[carol, dora], "fourth").await;
    assert_eq!(
        read(&two, &[bob, carol], &fourth[0]),
        (Some("fourth".to_owned()), 1)
    );
}

#[tokio::test]
async fn the_agent_whose_state_opens_the_events_goes_and_the_others_read_on() {
    let world = World::new();
    let one = open(&world, &["alice"]).await;
    let two = open(&world, &["bob", "carol"]).await;
    let _alice = one.agent("alice").await.unwrap();
    let _bob = two.agent("bob").await.unwrap();
    let _carol = two.agent("carol").await.unwrap();
    let [bob, carol, _] = READERS;
    let readers = [bob, carol];
    let first = parts(&one, ALICE, &readers, "first").await;
    assert_eq!(read(&two, &readers, &first[0]), (None, 0));
    assert_eq!(
        read(&two, &readers, &first[1]),
        (Some("first".to_owned()), 0)
    );
    let second = parts(&one, ALICE, &readers, "second").await;
    let sealing = two.shared.sealing.as_ref().unwrap();
    sealing.leave_group(ALICE, "/offers", bob);
    assert_eq!(
        read(&two, &readers, &second[0]),
        (Some("second".to_owned()), 1)
    );
    // Carol's own state has not opened them.
    assert_eq!(read(&two, &[carol], &first[1]), (None, 1));
    assert_eq!(read(&two, &[carol], &second[0]), (None, 1));
}
