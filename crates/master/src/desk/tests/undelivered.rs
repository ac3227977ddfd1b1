//! A queue that cannot be closed keeps no sender from its notice.

use std::mem;

use sealbus_brokers::{
    Account, Administration, BrokerDescription, BrokerFailure, DeadLetter, Death, Login, Member,
    Queue, RunningBroker, WaitingCounts,
};
use sealbus_bus::{BoxFuture, Bus, BusConfig, aid_of};
use sealbus_fipa::{AclMessage, Performative, bitefficient};
use sealbus_seal::SecurityLevel;
use tokio::runtime::Handle;

use super::*;
use crate::broker::Broker;

/// A broker that hands over dead letters, and does nothing else.
struct Broken(Mutex<Vec<DeadLetter>>);

type Asked<'a, T> = BoxFuture<'a, Result<T, BrokerFailure>>;

fn fails<'a, T: Send + 'a>() -> Asked<'a, T> {
    Box::pin(std::future::ready(Err(BrokerFailure::new("it is broken"))))
}

impl Administration for Broken {
    fn prepare<'a>(&'a self, _: Option<&'a Login>) -> Asked<'a, ()> {
        fails()
    }

    fn open_queue<'a>(&'a self, _: &'a Queue) -> Asked<'a, ()> {
        fails()
    }

    fn admit<'a>(&'a self, _: &'a Account) -> Asked<'a, ()> {
        fails()
    }

    fn dismiss<'a>(&'a self, _: &'a Account) -> Asked<'a, ()> {
        fails()
    }

    fn accounts(&self) -> Asked<'_, Vec<Account>> {
        fails()
    }

    fn queues(&self) -> Asked<'_, Vec<Queue>> {
        fails()
    }

    fn is_read<'a>(&'a self, _: &'a Queue) -> Asked<'a, bool> {
        fails()
    }

    fn depth<'a>(&'a self, _: &'a Queue) -> Asked<'a, Option<u64>> {
        fails()
    }

    fn remove_queue<'a>(&'a self, _: &'a Queue) -> Asked<'a, ()> {
        fails()
    }

    fn bury<'a>(&'a self, _: &'a Queue) -> Asked<'a, usize> {
        fails()
    }

    fn take_dead(&self) -> Asked<'_, Vec<DeadLetter>> {
        let dead = mem::take(&mut *self.0.lock());
        Box::pin(std::future::ready(Ok(dead)))
    }

    fn members(&self) -> Asked<'_, Vec<Member>> {
        fails()
    }

    fn waiting(&self) -> Asked<'_, WaitingCounts> {
        fails()
    }
}

#[tokio::test]
async fn a_sender_hears_of_its_message_although_no_queue_can_be_closed() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let platform = PlatformName::new("factory").unwrap();
    let bus = Bus::new(BusConfig::new(platform.clone()), Handle::current());
    let (ams, _at_ams) = bus.attach("ams@factory", None, None).unwrap();
    let (_alice, mut at_alice) = bus.attach("alice@factory", None, None).unwrap();
    let lost = AclMessage::new(Performative::Inform)
        .with_sender(aid_of("alice@factory"))
        .with_receiver(aid_of("bob@factory"));
    let mut payload = Vec::new();
    bitefficient::encode(&lost, &mut payload).unwrap();
    let letter = DeadLetter {
        from: Some("alice@factory".to_owned()),
        receiver: Some("bob@factory".to_owned()),
        death: Death::Left,
        at: None,
        payload: payload.into(),
    };
    let found = RunningBroker {
        administration: Arc::new(Broken(Mutex::new(vec![letter]))),
        program: None,
        description: BrokerDescription {
            kind: "broken".to_owned(),
            addresses: Vec::new(),
            login: None,
            message_life: None,
            promise: Default::default(),
            own: Default::default(),
        },
    };
    let broker = Broker::new(found, SecurityLevel::Auth, platform, [127, 0, 0, 1].into());
    assert!(broker.look(&desk, &ams).await.is_err());
    let notice = at_alice.try_recv().unwrap();
    assert_eq!(notice.message().performative(), Performative::Failure);
    assert!(broker.dead_letters.so_far().1[0].told);
}
