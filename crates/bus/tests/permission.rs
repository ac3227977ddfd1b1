//! Permissions between agents, on every way a message goes inside one process.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Delegation, Delivery, Letter, Location, Mailbox, NotKept,
    ON_BEHALF_OF, Outbox, Permit, Post, Provenance, RefusalReason, ResolveError, Resolver,
    SendError, TrySendError,
};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::PlatformName;
use sealbus_seal::permission::{Messages, Policy, Rule};
use tokio::runtime::Handle;

fn bus() -> Bus {
    Bus::new(
        BusConfig::new(PlatformName::new("factory").unwrap()),
        Handle::current(),
    )
}

fn to(receiver: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(Aid::new(receiver).unwrap())
        .with_content("hello")
}

fn deny(bus: &Bus, from: &str, to: &str) {
    let messages = Messages {
        from: vec![from.to_owned()],
        to: vec![to.to_owned()],
        on_behalf_of: None,
    };
    let policy = Policy {
        rules: vec![Rule::Deny(messages)],
        ..Policy::default()
    };
    let permissions = policy.compile(&bus.config().platform).unwrap();
    bus.set_permissions(Arc::new(permissions));
}

fn attach(bus: &Bus, name: &str) -> (Outbox, Mailbox) {
    bus.attach(name, None, None).unwrap()
}

fn refused(bus: &Bus) -> u64 {
    let counts = bus.refusals().counts();
    let mut counts = counts.into_iter();
    counts
        .find(|(reason, _)| *reason == RefusalReason::NotPermitted)
        .unwrap()
        .1
}

fn is_forbidden(result: &Result<(), SendError>) -> bool {
    matches!(result, Err(SendError::NotPermitted { receiver, .. }) if receiver == "bob@factory")
}

#[derive(Default)]
struct Keeper(Mutex<Vec<String>>);

impl Post for Keeper {
    fn keep(&self, letter: Letter) -> BoxFuture<'_, Result<(), NotKept>> {
        self.0.lock().unwrap().push(letter.receiver);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn what_the_policy_forbids_is_an_error_on_every_way() {
    let bus = bus();
    let keeper = Arc::new(Keeper::default());
    bus.set_post(keeper.clone());
    let (alice, _alices) = attach(&bus, "alice@factory");
    let (_bob, mut bobs) = attach(&bus, "bob@factory");
    let (_carol, mut carols) = attach(&bus, "carol@factory");
    // The route and its permission are already known when the rules come.
    alice.send(to("bob@factory")).await.unwrap();
    assert!(bobs.try_recv().is_some());
    deny(&bus, "alice", "bob");
    let sent = alice.send(to("bob@factory")).await;
    assert!(is_forbidden(&sent), "{sent:?}");
    let Err(TrySendError::Failed(error)) = alice.try_send(to("bob@factory")) else {
        panic!()
    };
    assert!(error.to_string().contains("[permission]"), "{error}");
    let kept = alice
        .send_with(to("bob@factory"), Delivery::persistent())
        .await;
    assert!(is_forbidden(&kept), "{kept:?}");
    assert!(keeper.0.lock().unwrap().is_empty());
    assert!(bobs.try_recv().is_none());
    // Each attempt is counted, under the name of the agent that tried.
    assert_eq!(refused(&bus), 3);
    let last = bus.refusals().last().pop().unwrap();
    assert_eq!(last.tried_by, "alice@factory");
    assert_eq!(last.receiver.as_deref(), Some("bob@factory"));
    assert_eq!(last.proved.as_deref(), Some("spiffe://factory/agent/alice"));
    // The rules say nothing of the other agents.
    alice.send(to("carol@factory")).await.unwrap();
    assert!(carols.try_recv().is_some());
    alice
        .send_with(to("carol@factory"), Delivery::persistent())
        .await
        .unwrap();
    deny(&bus, "carol", "bob");
    alice.send(to("bob@factory")).await.unwrap();
    assert!(bobs.try_recv().is_some());
}

/// A resolver that says that every agent is on the way, until told otherwise.
struct OnTheWay;

impl Resolver for OnTheWay {
    fn resolve<'a>(&'a self, _agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async { Ok(Location::InTransit) })
    }
}

#[tokio::test]
async fn what_was_held_obeys_the_rules_that_hold_when_its_receiver_is_there() {
    let bus = bus();
    bus.set_resolver(Arc::new(OnTheWay));
    let (alice, mut alices) = attach(&bus, "alice@factory");
    let (carol, _carols) = attach(&bus, "carol@factory");
    alice.send(to("bob@factory")).await.unwrap();
    carol.send(to("bob@factory")).await.unwrap();
    deny(&bus, "alice", "bob");
    let (_bob, mut bobs) = attach(&bus, "bob@factory");
    let soon = Duration::from_secs(60);
    let received = tokio::time::timeout(soon, bobs.recv()).await.unwrap();
    let received = received.unwrap();
    let sender = received.message().sender().unwrap().to_owned();
    assert_eq!(sender.name, "carol@factory");
    let notice = tokio::time::timeout(soon, alices.recv()).await.unwrap();
    let notice = notice.unwrap();
    assert!(matches!(notice.provenance(), Provenance::Platform));
    let notice = notice.into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert!(notice.content_text().unwrap().contains("not-permitted"));
    assert_eq!(refused(&bus), 1);
}

#[tokio::test]
async fn the_platforms_notices_ask_nobody() {
    let bus = bus();
    let (gateway, _gateways) = attach(&bus, "gateway@factory");
    let (bob, mut bobs) = attach(&bus, "bob@factory");
    deny(&bus, "*", "bob");
    let foreign = to("bob@factory").with_sender(Aid::new("x@elsewhere").unwrap());
    let relayed = gateway.relay(&Arc::new(foreign), "bob@factory").await;
    assert!(is_forbidden(&relayed), "{relayed:?}");
    let notice = AclMessage::new(Performative::Failure)
        .with_sender(Aid::new("ams@factory").unwrap())
        .with_receiver(bob.aid());
    gateway
        .relay(&Arc::new(notice), "bob@factory")
        .await
        .unwrap();
    assert!(bobs.try_recv().is_some());
}

#[tokio::test]
async fn a_decision_is_good_until_the_rules_change() {
    let bus = bus();
    let mut permit = Permit::default();
    bus.permits(&mut permit, "alice@factory", "bob@factory")
        .unwrap();
    let first = permit;
    bus.permits(&mut permit, "alice@factory", "bob@factory")
        .unwrap();
    assert_eq!(permit, first);
    deny(&bus, "alice", "bob");
    let refused = bus.permits(&mut permit, "alice@factory", "bob@factory");
    assert_eq!(refused.unwrap_err().reason, RefusalReason::NotPermitted);
    deny(&bus, "bob", "alice");
    bus.permits(&mut permit, "alice@factory", "bob@factory")
        .unwrap();
    assert_ne!(permit, first);
}

#[tokio::test]
async fn on_behalf_of_others_only_as_the_rules_say() {
    let bus = bus();
    let rule = Rule::Deny(Messages {
        from: vec!["*".to_owned()],
        to: vec!["bob".to_owned()],
        on_behalf_of: Some(vec!["mallory".to_owned()]),
    });
    let policy = Policy {
        rules: vec![rule],
        ..Policy::default()
    };
    bus.set_permissions(Arc::new(policy.compile(&bus.config().platform).unwrap()));
    let (alice, _alice) = attach(&bus, "alice@factory");
    let (_bob, mut mail) = attach(&bus, "bob@factory");
    let asked_by = |names: &[&str]| {
        let chain = Delegation::new(names.iter().copied()).unwrap();
        chain.put_into(Arc::new(to("bob@factory")))
    };
    alice.send(to("bob@factory")).await.unwrap();
    alice.send(asked_by(&["carol@factory"])).await.unwrap();
    let refused_chain = alice
        .send(asked_by(&["mallory@factory", "carol@factory"]))
        .await;
    assert!(
        matches!(&refused_chain, Err(SendError::NotPermittedFor { askers, .. }) if askers == "mallory@factory, carol@factory"),
        "{refused_chain:?}"
    );
    let many = [asked_by(&["carol@factory"]), asked_by(&["mallory@factory"])];
    assert!(matches!(
        alice.send_many(many).await,
        Err(SendError::NotPermittedFor { .. })
    ));
    let kept = Delivery::persistent();
    let kept = alice.send_with(asked_by(&["mallory@factory"]), kept).await;
    assert!(
        matches!(kept, Err(SendError::NotPermittedFor { .. })),
        "{kept:?}"
    );
    assert_eq!(refused(&bus), 3);
    let circle = alice.send(asked_by(&["alice@factory"])).await;
    assert!(
        matches!(circle, Err(SendError::Delegation { .. })),
        "{circle:?}"
    );
    let broken = to("bob@factory").with_user_defined(ON_BEHALF_OF, "carol@factory  dave@factory");
    assert!(matches!(
        alice.send(broken).await,
        Err(SendError::Delegation { .. })
    ));
    let mut chains = Vec::new();
    while let Some(message) = mail.try_recv() {
        chains.push(Delegation::of(&message.message()).unwrap().to_string());
    }
    assert_eq!(chains, ["", "carol@factory", "carol@factory"]);
}
