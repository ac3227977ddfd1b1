//! Sealed channels between processes: their readers, and attempts of hostile processes and nodes.

use std::collections::BTreeSet;

use sealbus_channels::{
    ChannelPath, ChannelPattern, Channels, DeclaredChannels, EventSealer, EventToSeal, Needs,
    PartKind, PublishError, Qos, Reach, Reader, RequestOptions, SealedPart, Subscription,
    SubscriptionOptions,
};

use super::*;

const SECRET: &str = "the price is seven";

pub(super) fn sealed() -> Qos {
    "level=sealed".parse().unwrap()
}

pub(super) fn offers() -> ChannelPath {
    ChannelPath::new("/offers").unwrap()
}

async fn open_at(world: &Arc<World>, agents: &[&str], level: &str) -> Process {
    let (mut host, tell) = TestHost::new(world, agents, HOUR, Vec::new());
    // The channel for commands lives as long as the test.
    std::mem::forget(tell);
    let own = Arc::get_mut(&mut host).unwrap();
    own.membership.platform.level = level.to_owned();
    Process::open(host, None).await.unwrap()
}

pub(super) async fn open(world: &Arc<World>, agents: &[&str]) -> Process {
    open_at(world, agents, "auth").await
}

/// Two processes that know each other, with one agent each.
pub(super) async fn alice_and_bob(
    world: &Arc<World>,
) -> (Process, AgentHandle, Process, AgentHandle) {
    let one = open(world, &["alice"]).await;
    let two = open(world, &["bob"]).await;
    know_each_other(&[&one, &two]);
    let alice = one.agent("alice").await.unwrap();
    let bob = two.agent("bob").await.unwrap();
    (one, alice, two, bob)
}

pub(super) fn know_each_other(processes: &[&Process]) {
    let contacts: Vec<_> = processes
        .iter()
        .map(|process| ProcessContact {
            node: "node-1".to_owned(),
            process: process.membership().process.clone(),
            address: process.address().unwrap(),
        })
        .collect();
    for process in processes {
        process.shared.processes_joined(&contacts);
    }
}

pub(super) fn subscribe(
    process: &Process,
    agent: &AgentHandle,
    options: SubscriptionOptions,
) -> Subscription {
    Channels::of(process.bus())
        .subscribe(agent.outbox(), options)
        .unwrap()
}

pub(super) fn options() -> SubscriptionOptions {
    SubscriptionOptions::new(ChannelPattern::from(&offers()))
}

pub(super) async fn publish_with(
    process: &Process,
    agent: &AgentHandle,
    qos: &Qos,
    content: &str,
) -> Result<Reach, PublishError> {
    let event = AclMessage::new(Performative::Inform).with_content(content);
    Channels::of(process.bus())
        .publish(agent.outbox(), &offers(), qos, event)
        .await
}

pub(super) async fn publish(process: &Process, agent: &AgentHandle, content: &str) -> Reach {
    publish_with(process, agent, &sealed(), content)
        .await
        .unwrap()
}

/// The content of the next event, which must be sealed, so that others cannot see it.
pub(super) async fn next(subscription: &mut Subscription) -> String {
    let event = tokio::time::timeout(Duration::from_secs(60), subscription.recv());
    let event = event.await.unwrap().unwrap();
    let content = event.message.message().content_text().unwrap().into_owned();
    assert!(event.message.is_sealed());
    assert_eq!(event.message.seen().performative().to_string(), "sealed");
    let seen = event.message.to_bytes().unwrap();
    assert!(!seen.windows(SECRET.len()).any(|at| at == SECRET.as_bytes()));
    content
}

/// The next failure.
pub(super) async fn failure(agent: &mut AgentHandle) -> AclMessage {
    let waiting = async {
        loop {
            let received = agent.receive().await.unwrap();
            let message = received.message();
            if message.performative() == Performative::Failure {
                break message.to_owned();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap()
}

#[tokio::test]
async fn subscribers_read_and_filters_and_groups_go_on_working() {
    let world = World::new();
    let one = open(&world, &["alice", "anna"]).await;
    let two = open(&world, &["bob", "bill"]).await;
    let three = open(&world, &["carol"]).await;
    know_each_other(&[&one, &two, &three]);
    let alice = one.agent("alice").await.unwrap();
    let anna = one.agent("anna").await.unwrap();
    let bob = two.agent("bob").await.unwrap();
    let bill = two.agent("bill").await.unwrap();
    let carol = three.agent("carol").await.unwrap();
    let mut annas = subscribe(&one, &anna, options());
    let mut bobs = subscribe(&two, &bob, options());
    let picky = SubscriptionOptions {
        filter: "content == '3'".to_owned(),
        ..options()
    };
    let mut bills = subscribe(&two, &bill, picky.clone());
    let mut carols = subscribe(&three, &carol, picky);
    let in_group = || SubscriptionOptions {
        group: Some("workers".to_owned()),
        ..options()
    };
    let mut shared = [
        subscribe(&two, &bob, in_group()),
        subscribe(&three, &carol, in_group()),
    ];
    for number in 1..=4 {
        publish(&one, &alice, &number.to_string()).await;
    }
    for number in 1..=4 {
        assert_eq!(next(&mut annas).await, number.to_string());
        assert_eq!(next(&mut bobs).await, number.to_string());
    }
    assert_eq!(next(&mut bills).await, "3");
    assert_eq!(next(&mut carols).await, "3");
    let [first, second] = &mut shared;
    let mut handled = BTreeSet::new();
    while handled.len() < 4 {
        let content = tokio::select! {
            content = next(first) => content,
            content = next(second) => content,
        };
        assert!(handled.insert(content));
    }
    for process in [&one, &two, &three] {
        assert_eq!(process.bus().refusals().total(), 0);
    }
    // The other direction, with best effort: such an event may be lost, for example when it overtakes the change of its
    // group.
    let mut alices = subscribe(&one, &alice, options());
    let qos = "best-effort,level=sealed".parse().unwrap();
    let heard = loop {
        publish_with(&two, &bob, &qos, SECRET).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(50), next(&mut alices));
        if let Ok(heard) = heard.await {
            break heard;
        }
    };
    assert_eq!(heard, SECRET);
}

#[tokio::test]
async fn who_comes_later_reads_what_is_later_and_who_leaves_or_was_revoked_reads_nothing_more() {
    let world = World::new();
    let one = open(&world, &["alice"]).await;
    let two = open(&world, &["bob"]).await;
    let three = open(&world, &["carol"]).await;
    know_each_other(&[&one, &two, &three]);
    let alice = one.agent("alice").await.unwrap();
    let bob = two.agent("bob").await.unwrap();
    let carol = three.agent("carol").await.unwrap();
    let mut bobs = subscribe(&two, &bob, options());
    publish(&one, &alice, "1").await;
    let mut carols = subscribe(&three, &carol, options());
    while publish(&one, &alice, "2").await.processes < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(next(&mut carols).await, "2");
    assert_eq!(next(&mut bobs).await, "1");
    assert_eq!(next(&mut bobs).await, "2");

    // The secrets of carol's process open nothing after she was revoked.
    world.deny("carol").await;
    let list = world.deny_list.lock().sign(&world.authority).unwrap();
    while one.shared.trust.latest_deny_list().unwrap().version() != list.version() {
        tokio::task::yield_now().await;
    }
    let readers = [reader("carol@factory")];
    sealer(&one).look_up(&readers).await;
    let message = AclMessage::new(Performative::Inform)
        .with_sender(alice.aid().clone())
        .with_content(SECRET);
    let event = EventToSeal {
        publisher: "alice@factory",
        channel: &offers(),
        message: &message,
        readers: &readers,
        needs: Needs::All,
    };
    let to_nobody = sealer(&one).seal(&event).unwrap();
    assert!(to_nobody.left_out[0].reason.0.contains("revoked"));
    let outer = to_nobody.message.view();
    let content = outer.content_bytes().unwrap();
    let part = SealedPart::parse(&content, "alice@factory", "/offers").unwrap();
    let opening = sealer(&three).open(&part, &only("carol@factory"));
    assert!(opening.event.is_none());
    // Bob, whom that change also removed, joins again.
    let mut last = String::new();
    while last != "4" {
        publish(&one, &alice, "4").await;
        last = next(&mut bobs).await;
    }
    drop(carols);
}

#[tokio::test]
async fn a_subscriber_that_lost_its_state_joins_again() {
    let world = World::new();
    let (one, mut alice, two, bob) = alice_and_bob(&world).await;
    let mut bobs = subscribe(&two, &bob, options());
    publish(&one, &alice, SECRET).await;
    assert_eq!(next(&mut bobs).await, SECRET);
    two.shared.sealing.as_ref().unwrap().lose_groups();
    publish(&one, &alice, "2").await;
    // The publisher is told.
    let why = failure(&mut alice).await;
    let why = why.content_text().unwrap();
    assert!(why.contains("bob@factory cannot open it"), "{why}");
    assert!(
        two.bus()
            .refusals()
            .counts()
            .contains(&(RefusalReason::NotOpened, 1))
    );
    publish(&one, &alice, "3").await;
    assert_eq!(next(&mut bobs).await, "3");
}

pub(super) fn sealer(process: &Process) -> Arc<dyn EventSealer> {
    process.shared.sealing.clone().unwrap()
}

pub(super) fn reader(agent: &str) -> Reader {
    Reader {
        agent: agent.into(),
        session: 1,
        since: None,
    }
}

/// The parts that a publisher's process sends so that these readers get an event: the contents of the outer messages.
pub(super) async fn parts(
    process: &Process,
    publisher: &str,
    readers: &[&str],
    text: &str,
) -> Vec<Vec<u8>> {
    parts_on(process, (publisher, &offers()), readers, text).await
}

/// As [`parts`], on another channel.
pub(super) async fn parts_on(
    process: &Process,
    (publisher, channel): (&str, &ChannelPath),
    readers: &[&str],
    text: &str,
) -> Vec<Vec<u8>> {
    let sealing = sealer(process);
    let readers: Vec<_> = readers.iter().map(|it| reader(it)).collect();
    sealing.look_up(&readers).await;
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of(publisher))
        .with_content(text);
    let event = EventToSeal {
        publisher,
        channel,
        message: &message,
        readers: &readers,
        needs: Needs::All,
    };
    let event = sealing.seal(&event).unwrap();
    assert!(event.left_out.is_empty(), "{:?}", event.left_out);
    let content = |outer: &AclMessage| outer.content_bytes().unwrap().to_vec();
    let changes = event.changes.iter().map(|it| content(&it.message));
    changes.chain([content(&event.message)]).collect()
}

/// The text that an agent reads in a content that is said to come from this publisher on this channel.
pub(super) fn read_part(
    process: &Process,
    agent: &str,
    (publisher, channel): (&str, &str),
    content: &[u8],
) -> Result<Option<String>, String> {
    let part = SealedPart::parse(content, publisher, channel)?;
    let opening = sealer(process).open(&part, &only(agent));
    if let Some(why) = opening.failed.into_values().next() {
        return Err(why);
    }
    let opened = opening.event;
    Ok(opened.map(|it| it.message.message().content_text().unwrap().into_owned()))
}

fn only(agent: &str) -> BTreeSet<Arc<str>> {
    BTreeSet::from([agent.into()])
}

pub(super) const FROM_ALICE: (&str, &str) = ("alice@factory", "/offers");
pub(super) const BOB: &str = "bob@factory";

#[tokio::test]
async fn what_a_hostile_node_or_agent_makes_of_a_sealed_event_does_not_open() {
    let world = World::new();
    let one = open(&world, &["alice"]).await;
    let two = open(&world, &["bob"]).await;
    let three = open(&world, &["mallory"]).await;
    let _alice = one.agent("alice").await.unwrap();
    let _bob = two.agent("bob").await.unwrap();
    let _mallory = three.agent("mallory").await.unwrap();
    let first = parts(&one, "alice@factory", &[BOB], SECRET).await;
    let [welcome, event] = &first[..] else {
        panic!("{} parts", first.len())
    };
    for bytes in &first {
        assert!(
            !bytes
                .windows(SECRET.len())
                .any(|at| at == SECRET.as_bytes())
        );
    }
    let read = |content: &[u8]| read_part(&two, BOB, FROM_ALICE, content);
    // Before the Welcome.
    assert!(read(event).is_err());
    // Another agent uses the Welcome, or it comes in another's name.
    assert!(read_part(&three, "mallory@factory", FROM_ALICE, welcome).is_err());
    let mallorys = parts(&three, "mallory@factory", &[BOB], "false").await;
    let refused = read(&mallorys[0]).unwrap_err();
    assert!(
        refused.contains("agent/alice to its own group"),
        "{refused}"
    );
    assert_eq!(read(welcome), Ok(None));
    for place in 0..event.len() {
        let mut changed = parts(&one, "alice@factory", &[BOB], SECRET)
            .await
            .pop()
            .unwrap();
        changed[place] ^= 1;
        assert!(read(&changed).is_err(), "byte {place}");
    }
    let event = &parts(&one, "alice@factory", &[BOB], SECRET)
        .await
        .pop()
        .unwrap();
    // On another channel, and as another's own event.
    let elsewhere = ("alice@factory", "/wages");
    assert!(read_part(&two, BOB, elsewhere, event).is_err());
    assert!(read_part(&two, BOB, ("mallory@factory", "/offers"), event).is_err());
    assert_eq!(read(event), Ok(Some(SECRET.to_owned())));
    // The same event again.
    assert!(read(event).is_err());
    let second = parts(&one, "alice@factory", &[BOB], "second").await;
    let third = parts(&one, "alice@factory", &[BOB], "third").await;
    assert_eq!((second.len(), third.len()), (1, 1));
    assert_eq!(read(&third[0]), Ok(Some("third".to_owned())));
    // A best-effort event may overtake another one.
    assert_eq!(read(&second[0]), Ok(Some("second".to_owned())));
    assert!(read(&second[0]).is_err());
    // A forged event of mallory's group, which bob joins only in mallory's name.
    let from_mallory = ("mallory@factory", "/offers");
    assert_eq!(read_part(&two, BOB, from_mallory, &mallorys[0]), Ok(None));
    assert!(read(&mallorys[1]).is_err());
    let read_mallorys = read_part(&two, BOB, from_mallory, &mallorys[1]);
    assert_eq!(read_mallorys, Ok(Some("false".to_owned())));
    // The publisher removes bob.
    let last = parts(&one, "alice@factory", &["mallory@factory"], SECRET).await;
    for content in &last {
        assert!(read(content).is_err());
    }
    let kinds = last.iter().map(|it| {
        SealedPart::parse(it, FROM_ALICE.0, FROM_ALICE.1)
            .unwrap()
            .kind
    });
    let is_event = kinds.map(|kind| matches!(kind, PartKind::Event(_)));
    assert_eq!(is_event.collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn where_all_is_sealed_nobody_reads_events_in_the_clear() {
    let world = World::new();
    // This process keeps no rules.
    let hostile = open_at(&world, &["mallory"], "signed").await;
    let one = open_at(&world, &["alice"], "sealed").await;
    let two = open_at(&world, &["bob"], "sealed").await;
    know_each_other(&[&hostile, &one, &two]);
    let mut mallory = hostile.agent("mallory").await.unwrap();
    let alice = one.agent("alice").await.unwrap();
    let bob = two.agent("bob").await.unwrap();
    let mut bobs = subscribe(&two, &bob, options());
    let reach = publish_with(&hostile, &mallory, &Qos::default(), "clear").await;
    assert_eq!(reach.unwrap().processes, 1);
    let why = failure(&mut mallory).await;
    let why = why.content_text().unwrap();
    assert!(why.contains("not sealed"), "{why}");
    // The platform's level is enough.
    publish_with(&one, &alice, &Qos::default(), SECRET)
        .await
        .unwrap();
    assert_eq!(next(&mut bobs).await, SECRET);
}

#[tokio::test]
async fn what_cannot_be_sealed_is_refused_by_name() {
    let world = World::new();
    let (one, alice, two, bob) = alice_and_bob(&world).await;
    let answering = SubscriptionOptions {
        answers: true,
        ..options()
    };
    let _bobs = subscribe(&two, &bob, answering);
    let channels = Channels::of(one.bus());
    let message = || AclMessage::new(Performative::QueryRef).with_content(SECRET);
    let (channel, qos) = (offers(), sealed());
    let asked = channels.request(
        alice.outbox(),
        &channel,
        &qos,
        message(),
        RequestOptions::within(HOUR),
    );
    let asked = asked.await.err().unwrap();
    let sent = channels.send(alice.outbox(), &channel, BOB, &qos, message());
    let sent = sent.await.unwrap_err();
    for (error, remedy) in [
        (asked, "ask each agent directly"),
        (sent, "send it to the agent"),
    ] {
        assert!(matches!(error, PublishError::NotSealed { .. }), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    // The level of a declared channel counts as well.
    let declared = DeclaredChannels::new([(
        ChannelPattern::from(&offers()),
        "level=sealed".parse().unwrap(),
    )]);
    channels.declare(declared);
    let qos = Qos::default();
    let error = channels.request(
        alice.outbox(),
        &channel,
        &qos,
        message(),
        RequestOptions::within(HOUR),
    );
    let error = error.await.err().unwrap();
    assert!(matches!(error, PublishError::NotSealed { .. }), "{error}");
}
