//! The bus itself allocates nothing for a message between agents of one process.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use allocation_counter::measure;
use sealbus_bus::{Bus, BusConfig, Mailbox, Outbox, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::PlatformName;

/// As many as lie in the mailbox at a time.
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
    // The route is found, and the queues have their room.
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
