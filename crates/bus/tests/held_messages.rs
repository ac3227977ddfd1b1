//! Messages that wait for their receiver, and messages that an ended agent never read.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealbus_bus::{
    Acknowledgement, BoxFuture, Bus, BusConfig, Capabilities, Destination, Gate, LocalAgent,
    Location, Mailbox, Outbox, Outgoing, ProcessEndpoint, Provenance, ReceivedMessage, Rejected,
    ResolveError, Resolver, Returned, SessionNumber, Transport, TransportError,
    UndeliverableReason,
};
use sealbus_fipa::{AclMessage, Expression, Limits, Performative, bitefficient};
use sealbus_seal::{Credential, Identity, PlatformName, ProcessId, SecurityLevel};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A guard against waiting for ever.
const LONG: Duration = Duration::from_secs(60);

fn bus(change: impl FnOnce(&mut BusConfig)) -> Bus {
    let mut config = BusConfig::new(PlatformName::new("factory").unwrap());
    change(&mut config);
    Bus::new(config, Handle::current())
}

fn agent(bus: &Bus, name: &str) -> (Outbox, Mailbox) {
    bus.attach(&format!("{name}@factory"), None, None).unwrap()
}

fn say(receiver: &str, text: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(sealbus_bus::aid_of(&format!("{receiver}@factory")))
        .with_content(text)
}

/// A resolver that says that everybody is in one other process, or on the way.
struct Elsewhere {
    process: ProcessEndpoint,
    in_transit: AtomicBool,
}

impl Elsewhere {
    fn new(bus: &Bus) -> Arc<Self> {
        let identity = Identity::process(
            &bus.config().platform,
            "node-1",
            ProcessId::from_bytes([1; 16]),
        );
        Arc::new(Self {
            process: ProcessEndpoint {
                identity: identity.unwrap(),
                address: SocketAddr::from(([127, 0, 0, 1], 1)),
            },
            in_transit: AtomicBool::new(false),
        })
    }
}

impl Resolver for Elsewhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        let location = match self.in_transit.load(Ordering::SeqCst) {
            true => Location::InTransit,
            false => Location::Process(self.process.clone()),
        };
        Box::pin(async { Ok(location) })
    }
}

/// A transport with one way, which is full at first. Room is made after the refusal and before a sender waits for it,
/// unless the way stays full.
#[derive(Default)]
struct Narrow {
    has_room: AtomicBool,
    stays_full: AtomicBool,
    /// Whether the receiver has left, which the next message finds out.
    has_left: AtomicBool,
    accepted: AtomicUsize,
    gate: Gate,
}

struct OneWay(Arc<dyn Destination>);

struct NarrowWay(Arc<Narrow>);

impl Destination for NarrowWay {
    fn try_send(&self, _: &Arc<LocalAgent>, _: &Outgoing<'_>) -> Result<(), Rejected> {
        if self.0.has_left.swap(false, Ordering::SeqCst) {
            return Err(Rejected::Closed);
        }
        if !self.0.has_room.load(Ordering::SeqCst) {
            return Err(Rejected::Full);
        }
        self.0.accepted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn gate(&self) -> &Gate {
        if !self.0.stays_full.load(Ordering::SeqCst) {
            self.0.has_room.store(true, Ordering::SeqCst);
            self.0.gate.open();
        }
        &self.0.gate
    }

    fn recall(&self) {}
}

impl Transport for OneWay {
    fn name(&self) -> &'static str {
        "one way"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: SecurityLevel::None,
            levels: vec![SecurityLevel::None],
            largest_message: 1 << 20,
            acknowledgement: Some(Acknowledgement::ReceiverProcess),
            resumes: true,
            pushes_back: true,
        }
    }

    fn set_process_credential(&self, _: &Arc<Credential>) -> Result<(), TransportError> {
        Ok(())
    }

    fn trust_changed(&self) {}

    fn forget_process(&self, _: &Identity) {}

    fn shut_down(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn attach(&self, _: &Arc<LocalAgent>) -> Result<(), TransportError> {
        Ok(())
    }

    fn credential_changed(&self, _: &Arc<LocalAgent>) {}

    fn detach(&self, _: &Arc<LocalAgent>) {}

    fn destination(
        &self,
        _: &ProcessEndpoint,
        _: &str,
    ) -> Result<Arc<dyn Destination>, TransportError> {
        Ok(self.0.clone())
    }
}

/// A bus whose only way to others is narrow.
fn narrow(change: impl FnOnce(&mut BusConfig)) -> (Bus, Arc<Narrow>) {
    let bus = bus(change);
    let narrow = Arc::new(Narrow::default());
    let way = Arc::new(NarrowWay(narrow.clone()));
    assert!(bus.set_transport(Arc::new(OneWay(way))));
    assert!(bus.set_resolver(Elsewhere::new(&bus)));
    (bus, narrow)
}

impl Narrow {
    async fn accepts(&self, count: usize) {
        let arrive = async {
            while self.accepted.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, arrive).await.unwrap();
    }
}

#[tokio::test]
async fn room_that_is_made_before_anybody_waits_for_it_is_used() {
    let (bus, narrow) = narrow(|_| ());
    let (alice, _mailbox) = agent(&bus, "alice");
    alice.send(say("bob", "1")).await.unwrap();
    narrow.accepts(1).await;
}

#[tokio::test]
async fn a_receiver_that_moves_after_it_was_full_for_long_is_looked_for() {
    let hold_time = Duration::from_secs(2);
    let (bus, narrow) = narrow(|config| config.hold_time = hold_time);
    narrow.stays_full.store(true, Ordering::SeqCst);
    let (alice, _mailbox) = agent(&bus, "alice");
    alice.send(say("bob", "1")).await.unwrap();
    let waits = async {
        while !narrow.gate.is_crowded() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, waits).await.unwrap();
    tokio::time::sleep(hold_time).await;
    narrow.has_room.store(true, Ordering::SeqCst);
    narrow.has_left.store(true, Ordering::SeqCst);
    narrow.gate.open();
    narrow.accepts(1).await;
    assert_eq!(bus.counters().undeliverable, 0);
}

#[tokio::test]
async fn the_answers_of_an_agent_that_has_ended_wait_for_room() {
    // No other message would be held.
    let (bus, narrow) = narrow(|config| config.hold_bytes = 0);
    let unread = (0..3).map(|number| {
        let sender = sealbus_bus::aid_of("carol@factory");
        let message = say("bob", &number.to_string()).with_sender(sender);
        ReceivedMessage::shared(Arc::new(message), Provenance::Claimed)
    });
    let attached = bus.attach_moved("bob@factory", None, None, unread.collect());
    let (_bob, mut mailbox) = attached.unwrap();
    assert!(mailbox.try_recv().is_some());
    drop(mailbox);
    bus.detach("bob@factory");
    narrow.accepts(2).await;
    assert_eq!(narrow.accepted.load(Ordering::SeqCst), 2);
}

/// Takes one failure notice out of a mailbox and returns its reason.
async fn failure(mailbox: &mut Mailbox) -> String {
    let notice = timeout(LONG, mailbox.recv()).await.unwrap().unwrap();
    assert!(notice.provenance().is_of_platform());
    let notice = notice.into_message();
    assert_eq!(notice.performative, Performative::Failure);
    notice.content_text().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn senders_hear_once_of_each_message_that_an_ended_agent_never_read() {
    let bus = bus(|_| ());
    let (alice, mut alices) = agent(&bus, "alice");
    let (_bob, mut bobs) = agent(&bus, "bob");
    for number in 0..10 {
        alice.send(say("bob", &number.to_string())).await.unwrap();
    }
    assert!(bobs.try_recv().is_some());
    drop(bobs);
    bus.detach("bob@factory");
    for _ in 0..9 {
        let told = failure(&mut alices).await;
        assert!(told.contains("bob@factory"), "{told}");
    }
    assert!(alices.try_recv().is_none(), "something is told twice");
    assert_eq!(bus.counters().undeliverable, 9);
}

#[tokio::test]
async fn an_agent_that_moves_takes_its_messages_along_and_nobody_is_told() {
    let bus = bus(|_| ());
    let (alice, mut alices) = agent(&bus, "alice");
    let (_bob, bobs) = agent(&bus, "bob");
    alice.send(say("bob", "1")).await.unwrap();
    let unread = bobs.drain();
    bus.detach("bob@factory");
    assert_eq!(unread.len(), 1);
    assert!(alices.try_recv().is_none());
}

#[tokio::test]
async fn nothing_keeps_an_agent_that_has_left() {
    let bus = bus(|_| ());
    let (alice, _mailbox) = agent(&bus, "alice");
    let (bob, bobs) = agent(&bus, "bob");
    alice.send(say("bob", "1")).await.unwrap();
    let weak = Arc::downgrade(bob.agent());
    drop((bob, bobs));
    bus.detach("bob@factory");
    assert!(weak.upgrade().is_none(), "the way to it keeps it");
    // A writer to bob now learns that no such agent is there.
    alice.send(say("bob", "2")).await.unwrap();
}

/// A message that came back, in its encoding.
fn returned(sender: &Arc<LocalAgent>, message: AclMessage) -> Returned {
    let mut payload = Vec::new();
    let message = message.with_sender(sender.aid());
    bitefficient::encode(&message, &mut payload).unwrap();
    Returned {
        sender: sender.clone(),
        payload: payload.into(),
    }
}

/// An agent that has left.
fn gone(bus: &Bus, name: &str) -> Arc<LocalAgent> {
    let (outbox, _mailbox) = agent(bus, name);
    bus.detach(outbox.name());
    outbox.agent().clone()
}

#[tokio::test]
async fn what_comes_back_after_its_sender_has_left_is_sent_on_in_order() {
    let bus = bus(|_| ());
    let (alice, _mailbox) = agent(&bus, "alice");
    let gone = gone(&bus, "gone");
    let messages = [(&gone, "1"), (alice.agent(), "2"), (&gone, "3")];
    let messages = messages.map(|(sender, text)| returned(sender, say("bob", text)));
    let (_bob, mut bobs) = agent(&bus, "bob");
    bus.returned("bob@factory", messages.into(), false, || ());
    for wanted in ["1", "2", "3"] {
        let read = timeout(LONG, bobs.recv()).await.unwrap().unwrap();
        assert_eq!(read.into_message().content_text(), Some(wanted));
    }
    assert_eq!(bus.counters().undeliverable, 0);
    let weak = Arc::downgrade(&gone);
    drop(gone);
    assert!(weak.upgrade().is_none(), "something keeps the sender");
}

#[tokio::test]
async fn what_comes_back_from_an_ended_receiver_to_a_sender_that_has_left_is_counted() {
    let bus = bus(|_| ());
    let gone = gone(&bus, "gone");
    let messages = ["1", "2"].map(|text| returned(&gone, say("bob", text)));
    bus.returned("bob@factory", messages.into(), false, || ());
    let given_up = async {
        while bus.counters().undeliverable < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, given_up).await.unwrap();
    assert_eq!(bus.counters().undeliverable, 2);
}

/// Everything that the encoder writes can be read again, whatever the limits of receivers are.
#[tokio::test]
async fn what_this_process_encoded_is_never_lost_for_its_form() {
    let bus = bus(|_| ());
    let (alice, mut alices) = agent(&bus, "alice");
    let (_bob, mut bobs) = agent(&bus, "bob");
    let word = Expression::from("x");
    let deep = (0..256).fold(word, |inner, _| Expression::List(vec![inner]));
    let long = Expression::List(vec!["x".into(); 70_000]);
    let large = "x".repeat(17 << 20);
    for message in [
        say("bob", "1").with_user_defined("X-deep", deep),
        say("bob", "2").with_user_defined("X-long", long),
        say("bob", &large),
    ] {
        let lost = returned(alice.agent(), message.clone());
        let why = UndeliverableReason::ReceiverGone;
        bus.undeliverable("alice@factory", "bob@factory", &lost.payload, &why);
        failure(&mut alices).await;
        bus.returned("bob@factory", vec![lost], false, || ());
        let read = timeout(LONG, bobs.recv()).await.unwrap().unwrap();
        let payload = read.to_bytes().unwrap();
        let read = read.into_message();
        assert_eq!(read.user_defined, message.user_defined);
        assert_eq!(read.content, message.content);
        let is_long = payload.len() > large.len();
        let again = ReceivedMessage::from_bytes(payload, Provenance::Claimed);
        assert_eq!(again.is_ok(), is_long);
    }
}

/// A way that takes every message.
struct Wide {
    taken: Mutex<Vec<String>>,
    gate: Gate,
    session: SessionNumber,
}

impl Destination for Wide {
    fn try_send(&self, _: &Arc<LocalAgent>, outgoing: &Outgoing<'_>) -> Result<(), Rejected> {
        let mut payload = Vec::new();
        outgoing.encode_into(&mut payload).unwrap();
        let message = bitefficient::decode(&payload, &Limits::DEFAULT).unwrap();
        let text = message.content_text().unwrap().to_owned();
        self.taken.lock().unwrap().push(text);
        Ok(())
    }

    fn session(&self) -> Option<SessionNumber> {
        Some(self.session)
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn recall(&self) {}
}

#[tokio::test]
async fn a_sender_that_knows_the_way_overtakes_nothing_that_is_held() {
    let bus = bus(|_| ());
    let wide = Arc::new(Wide {
        taken: Mutex::default(),
        gate: Gate::default(),
        session: SessionNumber::next(),
    });
    let taken = || wide.taken.lock().unwrap().clone();
    let elsewhere = Elsewhere::new(&bus);
    assert!(bus.set_transport(Arc::new(OneWay(wide.clone()))));
    assert!(bus.set_resolver(elsewhere.clone()));
    let (alice, _mailbox) = agent(&bus, "alice");
    let arrive = |count: usize| {
        timeout(LONG, async move {
            while taken().len() < count {
                tokio::task::yield_now().await;
            }
        })
    };
    alice.try_send(say("bob", "1")).unwrap();
    arrive(1).await.unwrap();
    for number in ["2", "3"] {
        alice.try_send(say("bob", number)).unwrap();
    }
    assert_eq!(taken(), ["1", "2", "3"]);

    elsewhere.in_transit.store(true, Ordering::SeqCst);
    let back = returned(alice.agent(), say("bob", "back"));
    bus.returned("bob@factory", vec![back], false, || ());
    alice.try_send(say("bob", "4")).unwrap();
    assert_eq!(taken().len(), 3);
    elsewhere.in_transit.store(false, Ordering::SeqCst);
    bus.location_changed("bob@factory");
    arrive(5).await.unwrap();
    alice.try_send(say("bob", "5")).unwrap();
    assert_eq!(taken(), ["1", "2", "3", "back", "4", "5"]);
}

/// A resolver that never knows where anybody is.
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async { Ok(Location::InTransit) })
    }
}

#[tokio::test]
async fn what_is_held_for_many_receivers_is_bounded_for_all_together() {
    let bus = bus(|config| config.hold_bytes_in_all = 100_000);
    assert!(bus.set_resolver(Arc::new(Nowhere)));
    let (alice, _mailbox) = agent(&bus, "alice");
    let content = "x".repeat(1000);
    let accepted = (0..1000)
        .filter(|number| {
            let message = say(&format!("away-{number}"), &content);
            alice.try_send(message).is_ok()
        })
        .count();
    assert!((90..=100).contains(&accepted), "{accepted} are held");
}

/// A resolver that says that everybody is moving.
struct Moving;

impl Resolver for Moving {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async { Ok(Location::InTransit) })
    }
}

#[tokio::test]
async fn a_process_that_ends_hands_over_what_it_holds() {
    let (bus, narrow) = narrow(|_| ());
    let (alice, _mailbox) = agent(&bus, "alice");
    alice.try_send(say("bob", "1")).unwrap();
    bus.detach("alice@factory");
    // Nobody has looked for bob yet.
    assert_eq!(narrow.accepted.load(Ordering::SeqCst), 0);
    timeout(LONG, bus.settle(2 * LONG)).await.unwrap();
    assert_eq!(narrow.accepted.load(Ordering::SeqCst), 1);
    assert_eq!(bus.counters().undeliverable, 0);
}

#[tokio::test]
async fn senders_are_told_of_what_their_process_holds_at_its_end() {
    let bus = bus(|_| ());
    assert!(bus.set_resolver(Arc::new(Moving)));
    let (alice, mut alices) = agent(&bus, "alice");
    let (gone, _mailbox) = agent(&bus, "gone");
    alice.try_send(say("bob", "1")).unwrap();
    gone.try_send(say("bob", "2")).unwrap();
    bus.detach("gone@factory");
    bus.settle(Duration::from_millis(20)).await;
    let told = failure(&mut alices).await;
    assert!(told.contains("bob@factory"), "{told}");
    assert!(told.contains("the sender's process ends"), "{told}");
    assert_eq!(bus.counters().undeliverable, 2);
}
