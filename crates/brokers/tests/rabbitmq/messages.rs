//! The transport on a real RabbitMQ. Run by `make test-rabbitmq`, which installs it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::support::platform::{Platform, management};
use crate::support::{Agent, LOOPBACK, PATIENCE, message, wait_for};
use sealbus_brokers::rabbitmq::{ManagedBroker, RabbitClient, bare};
use sealbus_brokers::{
    Administration, BrokerPromise, Client, DeadLetter, Death, Owner, Placed, Queue, Receiver,
};
use sealbus_bus::{Provenance, Transport, TrySendError};
use sealbus_fipa::{Limits, bitefficient};
use sealbus_seal::SecurityLevel;

async fn converse(platform: &Platform) {
    let a = platform.agent("a").await;
    let mut b = platform.agent("b").await;
    for number in 0..500 {
        a.send("b@factory", &number.to_string()).await;
    }
    for number in 0..500 {
        let received = b.receive().await;
        match received.provenance() {
            Provenance::Vouched(identity) if platform.level.authenticates() => {
                assert!(identity.is_agent_named("a@factory"));
            }
            Provenance::Claimed if !platform.level.authenticates() => {}
            other => panic!("{other:?}"),
        }
        let message = received.into_message();
        assert_eq!(message.content_text(), Some(number.to_string().as_str()));
    }
    a.endpoint.shut_down(PATIENCE).await;
    b.endpoint.shut_down(PATIENCE).await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn plain() {
    let platform = Platform::start(SecurityLevel::None).await;
    converse(&platform).await;
    platform.stop().await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn encrypted() {
    let platform = Platform::start(SecurityLevel::Tls).await;
    converse(&platform).await;
    platform.stop().await;
}

/// One broker for the tests that need level `auth`: an Erlang node takes seconds of processor time to start.
#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn authenticated() {
    let mut platform = Platform::start(SecurityLevel::Auth).await;
    converse(&platform).await;
    a_receiver_that_is_not_there(&platform).await;
    unread_messages_come_again(&platform).await;
    large_messages_wait_at_the_broker(&platform).await;
    large_messages_left_unread_come_back(&platform).await;
    logins_are_limited(&platform).await;
    an_opening_that_is_given_up_leaves_no_connection(&platform).await;
    an_alarm_of_the_broker_holds_senders_back(&platform).await;
    the_broker_starts_again(&mut platform).await;
    another_promise_has_other_queues(&mut platform).await;
    converse(&platform).await;
    the_broker_starts_again(&mut platform).await;
    platform.stop().await;
}

/// The platform has promised durable queues, and promises transient ones from now on.
async fn another_promise_has_other_queues(platform: &mut Platform) {
    let l = platform.agent("l").await;
    let m = platform.agent("m").await;
    m.bus.detach("m@factory");
    m.endpoint.shut_down(PATIENCE).await;
    l.send("m@factory", "for the durable queue").await;
    l.endpoint.shut_down(PATIENCE).await;
    platform.promising(BrokerPromise::Transient);
    let mut m = platform.agent("m").await;
    let l = platform.agent("l").await;
    l.send("m@factory", "for the transient queue").await;
    assert_eq!(m.receive_text().await, "for the transient queue");
    // Nothing else is bound, so the Master finds only what was there before.
    let mut placed = Placed::default();
    for agent in ["l@factory", "m@factory"] {
        placed.admit(agent.to_owned(), LOOPBACK);
    }
    let mut left = Vec::new();
    wait_for("the durable queues to go", async || {
        let placed = || std::future::ready(Some(placed.clone()));
        platform.accounts.close_others(placed).await.unwrap();
        left.extend(platform.management.take_dead().await.unwrap());
        let queues = platform.management.queues().await.unwrap();
        let is_durable = |queue: &Queue| queue.promise == BrokerPromise::Durable;
        !queues.iter().any(is_durable)
    })
    .await;
    let is_left = |letter: &DeadLetter| {
        letter.death == Death::Left
            && letter.from.as_deref() == Some("l@factory")
            && letter.receiver.as_deref() == Some("m@factory")
    };
    assert_eq!(left.iter().filter(|letter| is_left(letter)).count(), 1);
    assert!(m.mailbox.try_recv().is_none());
    l.endpoint.shut_down(PATIENCE).await;
    m.endpoint.shut_down(PATIENCE).await;
}

async fn a_receiver_that_is_not_there(platform: &Platform) {
    let mut c = platform.agent("c").await;
    c.send("nobody@factory", "hello").await;
    let notice = c.receive().await;
    assert!(matches!(notice.provenance(), Provenance::Platform));
    let text = notice.into_message();
    assert!(text.content_text().unwrap().contains("nobody"), "{text:?}");
    c.endpoint.shut_down(PATIENCE).await;
}

async fn logins_are_limited(platform: &Platform) {
    let mut j = platform.agent("j").await;
    let config = platform.config();
    let client = RabbitClient::new(&config);
    let mut open = Vec::new();
    loop {
        assert!(open.len() < 64, "one agent has 64 connections");
        let credential = Some(j.credential.clone());
        match bare::connect(&client, &config.addresses[0], "j@factory", credential).await {
            Ok(connection) => open.push(connection),
            Err(_) => break,
        }
    }
    // Other agents continue, and so does this agent once it is within its limit.
    let k = platform.agent("k").await;
    k.send("j@factory", "from another").await;
    assert_eq!(j.receive_text().await, "from another");
    for bare in open {
        let _ = bare.connection.close(200, "enough".into()).await;
    }
    j.send("j@factory", "from itself").await;
    assert_eq!(j.receive_text().await, "from itself");
    j.endpoint.shut_down(PATIENCE).await;
    k.endpoint.shut_down(PATIENCE).await;
}

async fn an_opening_that_is_given_up_leaves_no_connection(platform: &Platform) {
    let p = platform.agent("p").await;
    p.bus.detach("p@factory");
    p.endpoint.shut_down(PATIENCE).await;
    let config = platform.config();
    let client = RabbitClient::new(&config);
    let name: Arc<str> = "p@factory".into();
    let owner = Owner {
        name: name.clone(),
        queue: Receiver::Agent(name),
        credential: Some(p.credential.clone()),
    };
    // It is given up after each of its steps.
    for steps in 1.. {
        let mut opening = client.open_receiving(&config.addresses[0], &owner, 10);
        let mut step = 0;
        let opened = poll_fn(|context| {
            step += 1;
            match opening.as_mut().poll(context) {
                Poll::Ready(opened) => Poll::Ready(Some(opened)),
                Poll::Pending if step == steps => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        if let Some(opened) = opened {
            opened.unwrap().close("the test has what it wants").await;
            break;
        }
    }
    wait_for("the connections to end", async || {
        let users = platform.control(&["list_connections", "user"]);
        !users.contains("UID=p,")
    })
    .await;
}

async fn unread_messages_come_again(platform: &Platform) {
    let d = platform.agent("d").await;
    let mut e = platform.agent("e").await;
    for number in 0..10 {
        d.send("e@factory", &number.to_string()).await;
    }
    for number in 0..4 {
        assert_eq!(e.receive_text().await, number.to_string());
    }
    // The agent leaves, and the other messages stay unread. The next agent of its name finds them.
    e.bus.detach("e@factory");
    e.endpoint.shut_down(PATIENCE).await;
    let mut again = platform.agent("e").await;
    for number in 4..10 {
        assert_eq!(again.receive_text().await, number.to_string());
    }
    d.endpoint.shut_down(PATIENCE).await;
    again.endpoint.shut_down(PATIENCE).await;
}

async fn large_messages_wait_at_the_broker(platform: &Platform) {
    const MANY: usize = 30;
    const LARGE: usize = 15 << 20;
    let n = platform.agent("n").await;
    let unread = platform.agent("o").await;
    unread.bus.detach("o@factory");
    unread.endpoint.shut_down(PATIENCE).await;
    for number in 0..MANY {
        let content = format!("{number:02}{}", "x".repeat(LARGE));
        n.send("o@factory", &content).await;
    }
    let mut again = platform.agent("o").await;
    let held = |agent: &Agent| {
        let agent = agent.bus.agent("o@factory").unwrap();
        agent.mailbox().counts().bytes
    };
    wait_for("a full mailbox", async || held(&again) > 64 << 20).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for number in 0..MANY {
        assert!(held(&again) < (64 << 20) + 2 * LARGE);
        assert_eq!(again.receive_text().await[..2].parse(), Ok(number));
    }
    n.endpoint.shut_down(PATIENCE).await;
    assert!(again.mailbox.try_recv().is_none());
    again.endpoint.shut_down(PATIENCE).await;
}

/// All of them are longer together than any answer of the broker, and a Master ends before it has dealt with the first.
async fn large_messages_left_unread_come_back(platform: &Platform) {
    const MANY: usize = 5;
    const LARGE: usize = 13 << 20;
    let q = platform.agent("q").await;
    let unread = platform.agent("r").await;
    unread.bus.detach("r@factory");
    unread.endpoint.shut_down(PATIENCE).await;
    for number in 0..MANY {
        let content = format!("{number}{}", "x".repeat(LARGE));
        q.send("r@factory", &content).await;
    }
    q.endpoint.shut_down(PATIENCE).await;
    let left = Queue {
        owner: Receiver::Agent("r@factory".into()),
        promise: platform.promise,
    };
    // All others stay.
    let mut placed = Placed::default();
    for queue in platform.management.queues().await.unwrap() {
        if queue != left
            && let Receiver::Agent(name) = queue.owner
        {
            placed.awaited.insert(name.to_string());
        }
    }
    let close = async || {
        let placed = || std::future::ready(Some(placed.clone()));
        platform.accounts.close_others(placed).await.unwrap();
    };
    let is_meant = |letter: &DeadLetter| letter.receiver.as_deref() == Some("r@factory");
    let vhost = platform.authority.name.as_str();
    let ended = management(
        &platform.authority,
        platform.ports,
        &platform.operator,
        vhost,
    );
    wait_for("a dead letter", async || {
        close().await;
        ended.take_dead().await.unwrap().iter().any(is_meant)
    })
    .await;
    drop(ended);
    let mut letters = Vec::new();
    wait_for("all of them", async || {
        letters.extend(platform.management.take_dead().await.unwrap());
        letters.iter().filter(|letter| is_meant(letter)).count() >= MANY
    })
    .await;
    wait_for("the queue to go", async || {
        close().await;
        letters.extend(platform.management.take_dead().await.unwrap());
        let depth = platform.management.depth(&left).await.unwrap();
        depth.is_none()
    })
    .await;
    letters.retain(is_meant);
    let mut numbers: Vec<usize> = Vec::new();
    for letter in &letters {
        assert_eq!(letter.death, Death::Left);
        assert_eq!(letter.from.as_deref(), Some("q@factory"));
        let message = bitefficient::decode(&letter.payload, &Limits::DEFAULT).unwrap();
        let content = message.content_text().unwrap();
        assert_eq!(content.len(), LARGE + 1);
        numbers.push(content[..1].parse().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..MANY).collect::<Vec<_>>());
}

async fn the_broker_starts_again(platform: &mut Platform) {
    // No message may be given up while the broker starts, which takes more than a minute on a busy machine.
    let mut config = platform.config();
    config.give_up = std::time::Duration::from_secs(900);
    let f = platform.agent_with("f", config).await;
    let mut g = platform.agent("g").await;
    for number in 0..50 {
        f.send("g@factory", &number.to_string()).await;
    }
    for number in 0..20 {
        assert_eq!(g.receive_text().await, number.to_string());
    }
    platform.broker.take().unwrap().stop().await;
    for number in 50..100 {
        f.send("g@factory", &number.to_string()).await;
    }
    let folder = platform.folder.path();
    let broker = ManagedBroker::start(folder, LOOPBACK, |_| Ok(())).await;
    platform.broker = Some(broker.unwrap());
    for number in 20..100 {
        assert_eq!(g.receive_text().await, number.to_string());
    }
    f.endpoint.shut_down(PATIENCE).await;
    assert!(g.mailbox.try_recv().is_none());
    g.endpoint.shut_down(PATIENCE).await;
}

async fn an_alarm_of_the_broker_holds_senders_back(platform: &Platform) {
    let mut config = platform.config();
    config.unconfirmed_messages = 32;
    // No message may be given up while `rabbitmqctl` works, which takes more than a minute on a busy machine.
    config.give_up = std::time::Duration::from_secs(900);
    let h = platform.agent_with("h", config).await;
    let mut i = platform.agent("i").await;
    platform.control(&["set_vm_memory_high_watermark", "0.00001"]);
    let is_blocked = || {
        let links = h.endpoint.links();
        links.iter().any(|link| link.blocked.is_some())
    };
    let mut sent = 0;
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        assert!(std::time::Instant::now() < deadline, "nobody was held back");
        match h.outbox.try_send(message("i@factory", &sent.to_string())) {
            Ok(()) => sent += 1,
            Err(TrySendError::Full(_)) if is_blocked() => break,
            Err(TrySendError::Full(_)) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    platform.control(&["set_vm_memory_high_watermark", "0.6"]);
    for number in 0..sent {
        assert_eq!(i.receive_text().await, number.to_string());
    }
    h.send("i@factory", "again").await;
    assert_eq!(i.receive_text().await, "again");
    assert!(!is_blocked());
    h.endpoint.shut_down(PATIENCE).await;
    i.endpoint.shut_down(PATIENCE).await;
}
