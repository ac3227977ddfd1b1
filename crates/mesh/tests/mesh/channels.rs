//! The AgentBus between processes, over the mesh.

use std::sync::Arc;
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::{Platform, Process, soon};
use sealbus_bus::{Acknowledgement, Outbox, ProcessEndpoint, Provenance, RefusalReason};
use sealbus_channels::{
    ChannelPath, ChannelPattern, ChannelPermissions, Channels, FlowPolicy, PublishError, Qos,
    QueueLimits, Reach, ReceivedEvent, RequestOptions, SubscriptionOptions,
};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::Policy;

pub(crate) fn path(text: &str) -> ChannelPath {
    ChannelPath::new(text).unwrap()
}

pub(crate) fn on(pattern: &str) -> SubscriptionOptions {
    SubscriptionOptions::new(ChannelPattern::new(pattern).unwrap())
}

pub(crate) fn say(text: impl ToString) -> AclMessage {
    AclMessage::new(Performative::Inform).with_content(text.to_string())
}

pub(crate) fn text(event: &ReceivedEvent) -> String {
    let message = event.message.clone().into_message();
    message.content_text().unwrap().to_owned()
}

/// Tells each process of the others.
pub(crate) fn introduce(processes: &[&Process]) {
    for process in processes {
        Channels::of(&process.bus);
    }
    for one in processes {
        for other in processes {
            if one.identity != other.identity {
                one.bus.process_joined(other.endpoint.process());
            }
        }
    }
}

/// A platform with a process on each of two nodes.
pub(crate) async fn two_processes(level: SecurityLevel) -> (Platform, Process, Process) {
    let platform = Platform::new(level);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    introduce(&[&here, &there]);
    (platform, here, there)
}

/// Waits until this many subscriptions elsewhere are known, because announcements take time.
pub(crate) async fn until_known(process: &Process, count: usize) {
    soon(async {
        loop {
            let subscriptions = Channels::of(&process.bus).subscriptions();
            if subscriptions
                .iter()
                .filter(|it| it.process.is_some())
                .count()
                == count
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_event_goes_once_to_each_process_and_its_sender_is_proved() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let (carol, _c) = platform.agent(&there, "carol@factory");
    let channels = Channels::of(&there.bus);
    let mut bobs = channels.subscribe(&bob, on("/dates/*")).unwrap();
    let mut carols = channels.subscribe(&carol, on("/**")).unwrap();
    // The publisher decides which events are wanted.
    let none = channels
        .subscribe(&carol, on("/dates/*").filtered("content == 'never said'"))
        .unwrap();
    until_known(&here, 3).await;
    let channel = path("/dates/business");
    let qos = Qos {
        acknowledgement: Some(Acknowledgement::ReceiverProcess),
        ..Qos::default()
    };
    for number in 0..100 {
        let reach =
            soon(Channels::of(&here.bus).publish(&alice, &channel, &qos, say(number))).await;
        assert_eq!(
            reach.unwrap(),
            Reach {
                here: 0,
                processes: 1,
                groups: 0,
                kept: None
            }
        );
    }
    for number in 0..100 {
        for subscription in [&mut bobs, &mut carols] {
            let event = soon(subscription.recv()).await.unwrap();
            assert_eq!(text(&event), number.to_string());
            let Provenance::Proved(verified) = event.provenance() else {
                panic!("{:?}", event.provenance());
            };
            assert!(verified.identity().is_agent_named("alice@factory"));
        }
    }
    assert!(none.try_recv().is_none());
    let reports = channels.channels();
    let report = reports.iter().find(|it| it.channel == channel).unwrap();
    assert_eq!(report.received, 100);
}

#[tokio::test]
async fn the_first_event_of_a_process_finds_who_subscribed_before() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let mut subscription = Channels::of(&there.bus)
        .subscribe(&bob, on("/dates"))
        .unwrap();
    introduce(&[&here, &there]);
    assert!(soon(Channels::of(&here.bus).ready(Duration::from_secs(120))).await);
    let reach =
        soon(Channels::of(&here.bus).publish(&alice, &path("/dates"), &Qos::default(), say("x")))
            .await;
    assert_eq!(reach.unwrap().processes, 1);
    assert_eq!(text(&soon(subscription.recv()).await.unwrap()), "x");
}

#[tokio::test]
async fn one_is_written_to_and_all_are_asked() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let elsewhere = platform.process("node-3").await;
    introduce(&[&here, &there, &elsewhere]);
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let (carol, _c) = platform.agent(&elsewhere, "carol@factory");
    let (dave, _d) = platform.agent(&elsewhere, "dave@factory");
    let mut bobs = Channels::of(&there.bus)
        .subscribe(&bob, on("/offers").answering())
        .unwrap();
    let mut carols = Channels::of(&elsewhere.bus)
        .subscribe(&carol, on("/offers").answering())
        .unwrap();
    let daves = Channels::of(&elsewhere.bus)
        .subscribe(&dave, on("/offers").answering())
        .unwrap();
    until_known(&here, 3).await;
    let (channels, channel, qos) = (Channels::of(&here.bus), path("/offers"), Qos::default());
    soon(channels.send(&alice, &channel, "carol@factory", &qos, say("for carol")))
        .await
        .unwrap();
    assert_eq!(text(&soon(carols.recv()).await.unwrap()), "for carol");

    let ask = AclMessage::new(Performative::Cfp).with_content("a box?");
    let options = RequestOptions::within(Duration::from_secs(120));
    let replies = soon(channels.request(&alice, &channel, &qos, ask, options))
        .await
        .unwrap();
    for subscription in [&mut bobs, &mut carols] {
        let request = soon(subscription.recv()).await.unwrap();
        let asked = request.message.clone().into_message();
        let reply = asked.create_reply(Performative::Propose).with_content("10");
        subscription.reply(&request, reply).await.unwrap();
    }
    // An agent that leaves does not keep the requester waiting.
    drop(daves);
    let answers = soon(replies.all()).await;
    let mut senders: Vec<String> = answers
        .replies
        .iter()
        .map(|reply| {
            assert!(matches!(reply.provenance(), Provenance::Proved(_)));
            let message = reply.message.clone().into_message();
            message.sender.as_ref().unwrap().name.clone()
        })
        .collect();
    senders.sort();
    assert_eq!(senders, ["bob@factory", "carol@factory"]);
    assert_eq!(answers.unanswered.len(), 1);
    assert_eq!(&*answers.unanswered[0], "dave@factory");
}

async fn publish_all(channels: &sealbus_channels::Channels, outbox: &Outbox, count: usize) {
    for number in 0..count {
        soon(channels.publish(outbox, &path("/ticks"), &Qos::default(), say(number)))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn in_order_and_once_over_a_breaking_connection() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    introduce(&[&there]);
    Channels::of(&here.bus);
    here.bus.process_joined(ProcessEndpoint {
        identity: there.identity.clone(),
        address: proxy.address,
    });
    // Only this side dials, so that all traffic goes through the proxy.
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let mut subscription = Channels::of(&there.bus)
        .subscribe(&bob, on("/ticks"))
        .unwrap();
    assert!(
        !Channels::of(&here.bus)
            .ready(Duration::from_millis(1))
            .await
    );
    soon(async {
        while here.endpoint.links().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    there.bus.process_joined(here.endpoint.process());
    until_known(&here, 1).await;
    let channels = Channels::of(&here.bus);
    let publisher = tokio::spawn(async move {
        publish_all(&channels, &alice, 3000).await;
        alice
    });
    for number in 0..3000 {
        let event = soon(subscription.recv()).await.unwrap();
        assert_eq!(text(&event), number.to_string());
        if number % 500 == 250 {
            proxy.cut();
        }
    }
    publisher.await.unwrap();
    assert!(subscription.try_recv().is_none());
}

#[tokio::test]
async fn a_slow_subscription_holds_up_its_publishers_in_other_processes_and_nobody_else() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let limits = QueueLimits {
        events: 100_000,
        bytes: 256 << 10,
    };
    let channels = Channels::of(&there.bus);
    let mut slow = channels
        .subscribe(&bob, on("/slow").with_limits(limits))
        .unwrap();
    let mut fast = channels.subscribe(&bob, on("/fast")).unwrap();
    let few = on("/slow")
        .with_policy(FlowPolicy::DropNewest)
        .with_limits(QueueLimits {
            events: 1,
            ..limits
        });
    let mut drops = channels.subscribe(&bob, few).unwrap();
    until_known(&here, 3).await;
    let channels = Channels::of(&here.bus);
    let qos = Qos::default();
    let mut sent = 0;
    // The window is 64 KiB.
    while channels
        .try_publish(&alice, &path("/slow"), &qos, say("x".repeat(1000)))
        .unwrap()
        .is_some()
    {
        sent += 1;
        assert!(sent < 1000, "it goes on for ever");
    }
    assert!(sent > 10);
    soon(channels.publish(&alice, &path("/fast"), &qos, say("y")))
        .await
        .unwrap();
    assert_eq!(text(&soon(fast.recv()).await.unwrap()), "y");
    let slow_channel = path("/slow");
    let last = channels.publish(&alice, &slow_channel, &qos, say("last"));
    let reading = async {
        let mut count = 0;
        while text(&soon(slow.recv()).await.unwrap()) != "last" {
            count += 1;
        }
        count
    };
    let (published, count) = tokio::join!(soon(last), reading);
    published.unwrap();
    assert_eq!(count, sent);
    assert!(soon(drops.recv()).await.is_some());
}

#[tokio::test]
async fn what_the_policy_forbids_is_refused_where_it_arrives() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let policy: Policy = toml::from_str(
        r#"
        [[channel]]
        deny = { agents = ["mallory"], do = ["publish", "subscribe"], on = ["/secret"] }
        "#,
    )
    .unwrap();
    // The other process does not know the policy, or ignores it.
    let permissions = ChannelPermissions::compile(&policy, &platform.authority.platform).unwrap();
    Channels::of(&there.bus).set_permissions(Arc::new(permissions));
    let (mallory, mut mailbox) = platform.agent(&here, "mallory@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let subscription = Channels::of(&there.bus)
        .subscribe(&bob, on("/secret"))
        .unwrap();
    until_known(&here, 1).await;
    let sent = soon(Channels::of(&here.bus).publish(
        &mallory,
        &path("/secret"),
        &Qos::default(),
        say("x"),
    ))
    .await;
    sent.unwrap();
    let failure = soon(mailbox.recv()).await.unwrap().into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert!(failure.content_text().unwrap().contains("/secret"));
    let refusals = there.bus.refusals().last();
    assert_eq!(refusals[0].tried_by, "mallory@factory");
    assert_eq!(refusals[0].reason, RefusalReason::NotPermitted);
    assert!(subscription.try_recv().is_none());
    // The process may announce any subscription, but nothing is sent to it.
    let spying = Channels::of(&here.bus)
        .subscribe(&mallory, on("/secret"))
        .unwrap();
    soon(async {
        while there.bus.refusals().total() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let reach =
        soon(Channels::of(&there.bus).publish(&bob, &path("/secret"), &Qos::default(), say("s")))
            .await;
    assert_eq!(
        reach.unwrap(),
        Reach {
            here: 1,
            processes: 0,
            groups: 0,
            kept: None
        }
    );
    assert!(spying.try_recv().is_none());
}

#[tokio::test]
async fn a_channel_gets_no_less_security_than_it_asks_for() {
    for level in [SecurityLevel::None, SecurityLevel::Tls, SecurityLevel::Auth] {
        let (platform, here, there) = two_processes(level).await;
        let (alice, _a) = platform.agent(&here, "alice@factory");
        let (bob, _b) = platform.agent(&there, "bob@factory");
        let channels = Channels::of(&there.bus);
        let mut events = channels.subscribe(&bob, on("/dates")).unwrap();
        until_known(&here, 1).await;
        let channels = Channels::of(&here.bus);
        for wanted in SecurityLevel::ALL {
            let qos = Qos {
                level: Some(wanted),
                ..Qos::default()
            };
            // The level is checked when a channel is made, and for each message.
            let made = qos.check_against(&channels.capabilities(), "mesh");
            let text = say(wanted.as_str());
            let sent = soon(channels.publish(&alice, &path("/dates"), &qos, text)).await;
            // Agents that prove themselves can sign a single message.
            let signs = (level, wanted) == (SecurityLevel::Auth, SecurityLevel::Signed);
            if wanted <= level || signs {
                made.unwrap();
                sent.unwrap();
                let event = soon(events.recv()).await.unwrap();
                assert_eq!(self::text(&event), wanted.as_str());
                assert_eq!(event.message.provenance().evidence().is_some(), signs);
            } else {
                let promise = format!("level={wanted}");
                for error in [made.unwrap_err().to_string(), sent.unwrap_err().to_string()] {
                    assert!(error.contains(&promise), "at {level}: {error}");
                }
            }
        }
        assert!(events.try_recv().is_none());
    }
}

#[tokio::test]
async fn a_process_that_ends_takes_its_subscriptions_with_it() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, mut mailbox) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let _subscription = Channels::of(&there.bus)
        .subscribe(&bob, on("/dates").answering())
        .unwrap();
    until_known(&here, 1).await;
    let (channels, channel) = (Channels::of(&here.bus), path("/dates"));
    there.endpoint.shut_down(Duration::ZERO).await;
    let options = RequestOptions::within(Duration::from_secs(120));
    let replies =
        soon(channels.request(&alice, &channel, &Qos::default(), say("?"), options)).await;
    let replies = replies.unwrap();
    soon(channels.publish(&alice, &channel, &Qos::default(), say("x")))
        .await
        .unwrap();
    here.bus.process_left(&there.identity);
    let answers = soon(replies.all()).await;
    assert_eq!(answers.unanswered.len(), 1);
    let failure = soon(mailbox.recv()).await.unwrap().into_message();
    assert_eq!(failure.performative, Performative::Failure);
    assert!(failure.content_text().unwrap().contains("/dates"));
    let reach = soon(channels.publish(&alice, &channel, &Qos::default(), say("y")))
        .await
        .unwrap();
    assert_eq!(reach, Reach::default());
    let gone =
        soon(channels.send(&alice, &channel, "bob@factory", &Qos::default(), say("z"))).await;
    assert!(
        matches!(gone, Err(PublishError::NotOnChannel { .. })),
        "{gone:?}"
    );
}

#[tokio::test]
async fn a_subscriber_learns_that_its_filter_fails_where_something_is_published() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let cheap = on("/offers").filtered("properties.price < 10");
    let cheap = Channels::of(&there.bus).subscribe(&bob, cheap).unwrap();
    until_known(&here, 1).await;
    let publish = async |text: &str| {
        let channels = Channels::of(&here.bus);
        let (offers, qos) = (path("/offers"), Qos::default());
        let published = channels.publish(&alice, &offers, &qos, say(text));
        assert_eq!(soon(published).await.unwrap(), Reach::default());
    };
    let counted = async |count: u64| {
        soon(async {
            while cheap.counts().2.filter_errors < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(cheap.counts().2.filter_errors, count);
    };
    publish("without a price").await;
    counted(1).await;
    for _ in 0..5 {
        publish("without a price").await;
    }
    counted(6).await;
    let reports = Channels::of(&here.bus).subscriptions();
    assert_eq!(reports[0].filter_errors, 6);
}
