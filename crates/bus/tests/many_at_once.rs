//! Many messages at a time: [`Outbox::send_many`](sealbus_bus::Outbox::send_many) keeps its promises for each of them.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Bus, BusConfig, Mailbox, MailboxLimits, Outbox, SendError, TrySendError};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::PlatformName;
use tokio::runtime::Handle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(300);

fn bus() -> Bus {
    Bus::new(
        BusConfig::new(PlatformName::new("factory").unwrap()),
        Handle::current(),
    )
}

fn to(receiver: &str, number: usize) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(Aid::new(receiver).unwrap())
        .with_content(number.to_string())
}

fn of(count: usize) -> impl Iterator<Item = AclMessage> {
    (0..count).map(|number| to("bob@factory", number))
}

fn take(mailbox: &mut Mailbox) -> Vec<String> {
    let mut received = Vec::new();
    mailbox.try_recv_many(&mut received, usize::MAX);
    let texts = received.iter().map(|received| {
        let message = received.message();
        assert_eq!(message.sender().unwrap().name(), "alice@factory");
        message.content_text().unwrap().into_owned()
    });
    texts.collect()
}

fn pair(bus: &Bus, limits: MailboxLimits) -> (Outbox, Mailbox, Mailbox) {
    let (alice, alices) = bus.attach("alice@factory", None, None).unwrap();
    let (_, bobs) = bus.attach("bob@factory", None, Some(limits)).unwrap();
    (alice, alices, bobs)
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn all_arrive_in_their_order_and_wait_for_room() {
    let bus = bus();
    let limits = MailboxLimits {
        messages: 50,
        ..MailboxLimits::default()
    };
    let (alice, _alices, mut bobs) = pair(&bus, limits);
    let sending = tokio::spawn(async move { alice.send_many(of(1_000)).await });
    let mut all = Vec::new();
    while all.len() < 1_000 {
        let mut received = Vec::new();
        let count = timeout(SOON, bobs.recv_many(&mut received, 64)).await;
        assert!((1..=50).contains(&count.unwrap()));
        all.extend(
            received
                .iter()
                .map(|received| received.message().content_text().unwrap().into_owned()),
        );
    }
    assert_eq!(all, numbers(0..1_000));
    sending.await.unwrap().unwrap();
    assert_eq!(bus.counters().accepted, 1_000);
}

#[tokio::test]
async fn each_receiver_gets_its_own_in_order() {
    let bus = bus();
    let (alice, _alices, mut bobs) = pair(&bus, MailboxLimits::default());
    let (_, mut carols) = bus.attach("carol@factory", None, None).unwrap();
    let mixed = (0..900).map(|number| match number % 9 {
        0..4 => to("bob@factory", number),
        4..8 => to("carol@factory", number),
        _ => to("bob@factory", number).with_receiver(Aid::new("carol@factory").unwrap()),
    });
    alice.send_many(mixed).await.unwrap();
    let expected = |is_to: fn(usize) -> bool| -> Vec<String> {
        let numbers = (0..900).filter(|number| is_to(number % 9));
        numbers.map(|number| number.to_string()).collect()
    };
    assert_eq!(take(&mut bobs), expected(|part| part < 4 || part == 8));
    assert_eq!(take(&mut carols), expected(|part| part >= 4));
    assert_eq!(bus.counters().accepted, 1_000);
}

#[tokio::test]
async fn the_messages_before_a_fault_are_sent_and_those_after_it_are_not() {
    let bus = bus();
    let (alice, _alices, mut bobs) = pair(&bus, MailboxLimits::default());
    let forged = to("bob@factory", 10).with_sender(Aid::new("carol@factory").unwrap());
    let messages = of(10).chain([forged]).chain(of(3));
    assert!(matches!(
        alice.send_many(messages).await,
        Err(SendError::ForgedSender { .. })
    ));
    assert_eq!(take(&mut bobs), numbers(0..10));
}

#[tokio::test]
async fn those_without_room_stay_with_the_sender() {
    let bus = bus();
    let limits = MailboxLimits {
        messages: 3,
        ..MailboxLimits::default()
    };
    let (alice, _alices, mut bobs) = pair(&bus, limits);
    let mut row: VecDeque<_> = of(6).map(Arc::new).collect();
    let Err(TrySendError::Full(mut unsent)) = alice.try_send_many(&mut row) else {
        panic!("a full mailbox takes more");
    };
    assert_eq!(row.len(), 2);
    assert_eq!(take(&mut bobs), numbers(0..3));
    alice.finish(&mut unsent).await.unwrap();
    alice.try_send_many(&mut row).unwrap();
    assert_eq!(take(&mut bobs), numbers(3..6));
}

/// A sender that always finds room still lets others have their turn.
#[tokio::test]
async fn others_have_their_turn_meanwhile() {
    let bus = bus();
    let (alice, _alices, bobs) = pair(&bus, MailboxLimits::default());
    let looking = tokio::spawn(async move { bobs.len() });
    alice.send_many(of(5_000)).await.unwrap();
    assert!(looking.await.unwrap() < 5_000);
}
