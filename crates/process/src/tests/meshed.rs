//! Processes joined by the mesh: renewal under open connections, and revocation.

use sealbus_channels::{
    ChannelPath, ChannelPattern, Channels, PublishError, Qos, SubscriptionOptions,
};
use sealbus_seal::denylist::SignedDenyList;

use super::*;

pub(super) async fn open(
    world: &Arc<World>,
    agents: &[&str],
    lifetime: Duration,
) -> (Process, Arc<TestHost>, mpsc::Sender<Command>) {
    let (host, tell) = TestHost::new(world, agents, lifetime, Vec::new());
    (Process::open(host.clone(), None).await.unwrap(), host, tell)
}

pub(super) fn numbered(process: &Process, receiver: &str, number: usize) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(process.peer(receiver).unwrap())
        .with_content(number.to_string())
}

/// Reads the next message, which must come from `sender` with proof.
pub(super) async fn read_proved(agent: &mut AgentHandle, sender: &str) -> String {
    let received = agent.receive().await.unwrap();
    match received.provenance() {
        Provenance::Proved(verified) => assert!(verified.identity().is_agent_named(sender)),
        other => panic!("{other:?}: {:?}", received.message().to_owned()),
    }
    let message = received.message();
    message.content_text().unwrap().into_owned()
}

#[tokio::test]
async fn agents_of_two_processes_talk_and_are_proved() {
    let world = World::new();
    let (one, _, _tell) = open(&world, &["alice"], HOUR).await;
    let (two, _, _tell) = open(&world, &["bob"], HOUR).await;
    let mut alice = one.agent("alice").await.unwrap();
    let mut bob = two.agent("bob").await.unwrap();
    for number in 0..100 {
        alice.send(numbered(&one, "bob", number)).await.unwrap();
        assert_eq!(
            read_proved(&mut bob, "alice@factory").await,
            number.to_string()
        );
        bob.send(numbered(&two, "alice", number)).await.unwrap();
        assert_eq!(
            read_proved(&mut alice, "bob@factory").await,
            number.to_string()
        );
    }
}

/// Certificates of agents and processes live two seconds and are renewed several times, under a connection that stays
/// open. No message is lost, doubled or out of order.
#[tokio::test]
async fn renewals_lose_nothing_under_traffic() {
    let world = World::new();
    let (one, first, _tell) = open(&world, &["alice"], Duration::from_secs(2)).await;
    let (two, second, _tell) = open(&world, &["bob"], Duration::from_secs(2)).await;
    let alice = one.agent("alice").await.unwrap();
    let mut bob = two.agent("bob").await.unwrap();
    let renewed = || {
        let certified = |host: &TestHost| host.certified.load(Ordering::SeqCst);
        // The process and its agent each have a first certificate, and then four more.
        certified(&first) >= 10 && certified(&second) >= 10
    };
    let mut number = 0;
    while !renewed() {
        for _ in 0..20 {
            alice.send(numbered(&one, "bob", number)).await.unwrap();
            assert_eq!(
                read_proved(&mut bob, "alice@factory").await,
                number.to_string()
            );
            number += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        alice.outbox().bus().refusals().total() == 0,
        "{:?}",
        one.bus().refusals().last()
    );
    assert!(
        two.bus().refusals().total() == 0,
        "{:?}",
        two.bus().refusals().last()
    );
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_everywhere() {
    let world = World::new();
    let (one, _, _tell) = open(&world, &["alice", "mallory"], HOUR).await;
    let (two, _, _tell) = open(&world, &["bob"], HOUR).await;
    let alice = one.agent("alice").await.unwrap();
    let mallory = one.agent("mallory").await.unwrap();
    let mut bob = two.agent("bob").await.unwrap();
    mallory.send(numbered(&one, "bob", 1)).await.unwrap();
    assert_eq!(read_proved(&mut bob, "mallory@factory").await, "1");
    world.deny("mallory").await;
    mallory.wishes().stop_wished().await;
    assert!(mallory.send(numbered(&one, "bob", 2)).await.is_err());
    alice.send(numbered(&one, "bob", 3)).await.unwrap();
    assert_eq!(read_proved(&mut bob, "alice@factory").await, "3");
}

/// A process that listens and answers nobody.
async fn deaf_process() -> (tokio::net::TcpListener, AgentLocation) {
    let deaf = tokio::net::TcpListener::bind((ADDRESS, 0)).await.unwrap();
    let contact = ProcessContact {
        node: "node-2".to_owned(),
        process: ProcessId::random().unwrap().to_string(),
        address: deaf.local_addr().unwrap(),
    };
    (deaf, AgentLocation::Process(contact))
}

#[tokio::test]
async fn senders_of_a_process_that_was_given_up_hear_what_was_not_confirmed() {
    let world = World::new();
    let (process, _, _tell) = open(&world, &["alice"], HOUR).await;
    let mut alice = process.agent("alice").await.unwrap();
    // Nobody answers for bob, and nobody knows where carol is.
    let (_deaf, bob) = deaf_process().await;
    world.place("bob", bob).await;
    world.place("carol", AgentLocation::InTransit).await;
    for number in 0..3 {
        alice.send(numbered(&process, "bob", number)).await.unwrap();
        alice
            .send(numbered(&process, "carol", number))
            .await
            .unwrap();
    }
    assert!(alice.try_receive_failure().is_none());
    world.deny_process(&process.membership().process).await;
    alice.wishes().stop_wished().await;
    let mut lost = Vec::new();
    while let Some(failure) = alice.try_receive_failure() {
        let failure = failure.message();
        let text = failure.content_text().unwrap().into_owned();
        assert!(
            text.contains("whether it received the message is not known"),
            "{text}"
        );
        assert!(text.contains("it was revoked"), "{text}");
        lost.push(text);
    }
    for receiver in ["bob@factory", "carol@factory"] {
        let of = lost.iter().filter(|text| text.contains(receiver));
        assert_eq!(of.count(), 3, "{lost:?}");
    }
    let refused = alice.send(numbered(&process, "bob", 4)).await.unwrap_err();
    assert!(matches!(refused, SendError::GivenUp { .. }), "{refused}");
}

/// A process does not wait until its platform tells it, if a peer shows that the platform has revoked it.
#[tokio::test]
async fn a_peer_that_knows_of_a_revocation_is_believed_at_once() {
    let world = World::new();
    let (one, _, tell) = open(&world, &["alice"], HOUR).await;
    let (two, _, _tell) = open(&world, &["bob"], HOUR).await;
    let mut alice = one.agent("alice").await.unwrap();
    let _bob = two.agent("bob").await.unwrap();
    // The node of the first process cannot tell it.
    world
        .processes
        .lock()
        .retain(|other| !other.same_channel(&tell));
    let version = || {
        two.shared
            .trust
            .deny_lists()
            .iter()
            .map(|list| list.version())
            .max()
    };
    let before = version();
    world.deny_process(&one.membership().process).await;
    while version() == before {
        tokio::task::yield_now().await;
    }
    alice.send(numbered(&one, "bob", 1)).await.unwrap();
    let failure = alice.receive().await.unwrap();
    let text = failure.message().content_text().unwrap().into_owned();
    assert!(
        text.contains("the platform has revoked this process"),
        "{text}"
    );
}

/// A process that missed changes of the deny list does not go on without them.
#[tokio::test]
async fn changes_of_the_deny_list_that_do_not_fit_make_a_process_ask_for_the_whole_list() {
    let world = World::new();
    let (process, _, tell) = open(&world, &["alice"], HOUR).await;
    let deny = |agent: &str| {
        let identity = Identity::agent(world.platform(), agent).unwrap();
        let denial = Denial {
            at: now(),
            reason: Reason::ByOperator,
        };
        let mut list = world.deny_list.lock();
        list.deny_identity(identity, now().plus(HOUR), denial)
            .unwrap();
        list.sign(&world.authority).unwrap()
    };
    let missed = deny("bob");
    let newer = deny("carol");
    let changes = newer.since(missed.version());
    // Answers may get lost.
    let lost = || Err(Fault::new(FaultCode::Unavailable, "the answer is lost"));
    *world.lists.lock() = vec![lost(), lost()];
    tell.send(Command::DenyList(Blob(changes))).await.unwrap();
    let held = || process.shared.trust.latest_deny_list().unwrap();
    let holds = async |list: &SignedDenyList| {
        let holding = async {
            while held().version() != list.version() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let held = tokio::time::timeout(Duration::from_secs(600), holding);
        held.await.expect("the process holds the list");
    };
    holds(&newer).await;
    assert_eq!(held().digest(), newer.digest());

    // Changes that come while the process waits may be newer than the list for which it waits.
    let (missed, late) = (deny("dave"), deny("erin"));
    *world.lists.lock() = vec![Ok(late.whole())];
    world.keeps_lists.store(true, Ordering::SeqCst);
    let changes = Command::DenyList(Blob(late.since(missed.version())));
    tell.send(changes).await.unwrap();
    while !world.lists.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let latest = deny("frank");
    let changes = Command::DenyList(Blob(latest.since(late.version())));
    tell.send(changes).await.unwrap();
    while process.shared.unfit_denials.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    world.keeps_lists.store(false, Ordering::SeqCst);
    holds(&latest).await;
}

#[tokio::test]
async fn publishers_of_a_process_that_was_given_up_hear_which_events_were_not_confirmed() {
    let world = World::new();
    let (one, _, tell) = open(&world, &["alice"], HOUR).await;
    let (two, _, _tell) = open(&world, &["bob"], HOUR).await;
    let mut alice = one.agent("alice").await.unwrap();
    let bob = two.agent("bob").await.unwrap();
    let know_each_other = |processes: [&Process; 2]| {
        let contacts = processes.map(|process| ProcessContact {
            node: "node-1".to_owned(),
            process: process.membership().process.clone(),
            address: process.address().unwrap(),
        });
        processes.map(|process| process.shared.processes_joined(&contacts))
    };
    know_each_other([&one, &two]);
    let news = ChannelPath::new("/news").unwrap();
    let options = SubscriptionOptions::new(ChannelPattern::from(&news));
    let _subscription = Channels::of(two.bus())
        .subscribe(bob.outbox(), options)
        .unwrap();
    let event = || AclMessage::new(Performative::Inform).with_content("news");
    let (channels, qos) = (Channels::of(one.bus()), Qos::default());
    let publish = || channels.publish(alice.outbox(), &news, &qos, event());
    assert_eq!(publish().await.unwrap().processes, 1);
    // The other process learns first that this one is revoked, and takes nothing more.
    world
        .processes
        .lock()
        .retain(|other| !other.same_channel(&tell));
    let version = || {
        two.shared
            .trust
            .deny_lists()
            .iter()
            .map(|list| list.version())
            .max()
    };
    let before = version();
    world.deny_process(&one.membership().process).await;
    while version() == before {
        tokio::task::yield_now().await;
    }
    assert_eq!(publish().await.unwrap().processes, 1);
    let list = world
        .deny_list
        .lock()
        .sign(&world.authority)
        .unwrap()
        .whole();
    tell.send(Command::DenyList(Blob(list))).await.unwrap();
    alice.wishes().stop_wished().await;
    let failure = alice.try_receive_failure().unwrap();
    let text = failure.message().content_text().unwrap().into_owned();
    assert!(text.contains("it was revoked"), "{text}");
    let refused = publish_error(&channels, &alice, &news).await;
    assert!(matches!(refused, PublishError::GivenUp { .. }), "{refused}");
}

async fn publish_error(
    channels: &Channels,
    agent: &AgentHandle,
    channel: &ChannelPath,
) -> PublishError {
    let event = AclMessage::new(Performative::Inform);
    let qos = Qos::default();
    let published = channels.publish(agent.outbox(), channel, &qos, event).await;
    published.unwrap_err()
}

/// A message waits in the bus until the receiver is found, and then in the transport until the other process has it.
#[tokio::test]
async fn what_a_process_still_holds_at_its_end_is_counted() {
    let world = World::new();
    let (process, _, _tell) = open(&world, &["alice"], HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    // Nobody knows where carol is, and nobody answers for bob.
    world.place("carol", AgentLocation::InTransit).await;
    let (_deaf, bob) = deaf_process().await;
    world.place("bob", bob).await;
    for (receiver, count) in [("carol", 3), ("bob", 4)] {
        for number in 0..count {
            let message = numbered(&process, receiver, number);
            alice.send(message).await.unwrap();
        }
    }
    drop(alice);
    process.close().await;
    assert_eq!(process.bus().counters().undeliverable, 7);
}
