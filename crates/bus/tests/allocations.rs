//! The bus allocates nothing for a message between agents of one process, and little for a sealed one.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use allocation_counter::measure;
use sealbus_bus::{
    Bus, BusConfig, Mailbox, OpenedRows, Outbox, ReceivedMessage, SealedRow, SessionNumber,
};
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_fipa::{AclMessage, Aid, Limits, Performative};
use sealbus_seal::PlatformName;
use sealbus_seal::encryption::EncryptionKey;

/// The number of messages in the mailbox at a time.
const ROW: usize = 100;

fn allocations(mut send: impl FnMut(&Outbox, &Arc<AclMessage>)) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let config = BusConfig::new(PlatformName::new("factory").unwrap());
    let bus = Bus::new(config, runtime.handle().clone());
    let (alice, _alices) = bus.attach("alice@factory", None, None).unwrap();
    let (_, mut bobs) = bus.attach("bob@factory", None, None).unwrap();
    let message = AclMessage::new(Performative::Inform)
        .with_sender(alice.aid())
        .with_receiver(Aid::new("bob@factory").unwrap())
        .with_content("x".repeat(64));
    let message = Arc::new(message);
    let mut received = Vec::new();
    let mut exchange = |bobs: &mut Mailbox, received: &mut Vec<ReceivedMessage>| {
        send(&alice, &message);
        bobs.try_recv_many(received, usize::MAX);
        assert_eq!(received.len(), ROW);
        received.clear();
    };
    // Now the route is found, and the queues have their room.
    for _ in 0..3 {
        exchange(&mut bobs, &mut received);
    }
    measure(|| {
        for _ in 0..100 {
            exchange(&mut bobs, &mut received);
        }
    })
    .count_total
}

#[test]
fn one_by_one() {
    let count = allocations(|alice, message| {
        for _ in 0..ROW {
            alice.try_send(message.clone()).unwrap();
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn many_at_once() {
    let mut row = VecDeque::new();
    let count = allocations(move |alice, message| {
        row.extend((0..ROW).map(|_| message.clone()));
        alice.try_send_many(&mut row).unwrap();
    });
    assert_eq!(count, 0);
}

#[test]
fn sealed_messages_of_a_row() {
    let (ann, ben) = ("ann@factory", "ben@factory");
    let key = Arc::new(EncryptionKey::generate().unwrap());
    let mut row = SealedRow::begin(key.public(), ann, ben, Instant::now()).unwrap();
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(ann).unwrap())
        .with_receiver(Aid::new(ben).unwrap())
        .with_content("x".repeat(64));
    let mut rows = OpenedRows::default();
    let mut open = |sealed: &[u8]| {
        let outer = EncodedMessage::new(sealed, &Limits::default()).unwrap();
        let key = |_| Ok(key.clone());
        let opened = rows.open(&outer.message(), ben, Instant::now(), key);
        assert_eq!(
            opened.unwrap().message.message().sender().unwrap().name(),
            ann
        );
    };
    let first = row.seal(&message).unwrap();
    first.went_over(SessionNumber::next());
    open(first.bytes());
    let mut sealed = None;
    let sealing = measure(|| sealed = Some(row.seal(&message).unwrap()));
    let opening = measure(|| open(sealed.as_ref().unwrap().bytes()));
    let counts = (sealing.count_total, opening.count_total);
    assert!(counts.0 <= SEALING && counts.1 <= OPENING, "{counts:?}");
}

/// Two for the parts of the message, and one for its shared bytes.
const SEALING: u64 = 3;
/// One each for the bytes that the message is bound to, the inner message, and its shared bytes.
const OPENING: u64 = 3;
