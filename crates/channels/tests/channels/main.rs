//! The AgentBus between agents of one process.

#![allow(clippy::unwrap_used)]

mod pushing_back;
mod registering;

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Bus, BusConfig, Mailbox, Outbox, Provenance};
use sealbus_channels::{
    ChannelPath, ChannelPattern, ChannelPermissions, Channels, Mechanism, Priority, PublishError,
    Qos, Reach, RequestOptions, SubscribeError, Subscription, SubscriptionOptions, Time,
};
use sealbus_fipa::{AclMessage, Expression, Performative};
use sealbus_seal::PlatformName;
use sealbus_seal::permission::Policy;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A guard against waiting for ever.
const LONG: Duration = Duration::from_secs(120);

fn bus() -> Bus {
    let platform = PlatformName::new("factory").unwrap();
    Bus::new(BusConfig::new(platform), Handle::current())
}

fn agent(bus: &Bus, name: &str) -> (Outbox, Mailbox) {
    bus.attach(&format!("{name}@factory"), None, None).unwrap()
}

fn path(text: &str) -> ChannelPath {
    ChannelPath::new(text).unwrap()
}

fn on(pattern: &str) -> SubscriptionOptions {
    SubscriptionOptions::new(ChannelPattern::new(pattern).unwrap())
}

fn say(text: &str) -> AclMessage {
    AclMessage::new(Performative::Inform).with_content(text)
}

fn text(event: &sealbus_channels::ReceivedEvent) -> String {
    let message = event.message.clone().into_message();
    message.content_text().unwrap().to_owned()
}

async fn next(subscription: &mut Subscription) -> String {
    let event = timeout(LONG, subscription.recv()).await.unwrap().unwrap();
    text(&event)
}

#[tokio::test]
async fn an_event_is_seen_by_every_consumer_and_shared() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let (carol, _c) = agent(&bus, "carol");
    let mut exact = channels.subscribe(&bob, on("/dates/business")).unwrap();
    let mut wide = channels.subscribe(&carol, on("/dates/**")).unwrap();
    let other = channels.subscribe(&carol, on("/news")).unwrap();
    let reach = channels
        .publish(
            &alice,
            &path("/dates/business"),
            &Qos::default(),
            say("9 o'clock"),
        )
        .await
        .unwrap();
    assert_eq!(
        reach,
        Reach {
            here: 2,
            processes: 0,
            groups: 0,
            kept: None
        }
    );
    let first = timeout(LONG, exact.recv()).await.unwrap().unwrap();
    let second = timeout(LONG, wide.recv()).await.unwrap().unwrap();
    assert!(other.try_recv().is_none());
    assert!(matches!(first.provenance(), Provenance::SameProcess));
    assert!(first.is_same(&second));
    let (first, second) = (
        first.message.clone().into_message(),
        second.message.clone().into_message(),
    );
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(first.sender.as_ref().unwrap().name, "alice@factory");
    let reports = channels.channels();
    let business = reports
        .iter()
        .find(|it| it.channel.as_str() == "/dates/business")
        .unwrap();
    assert_eq!((business.published, business.subscriptions_here), (1, 2));
    drop(exact);
    assert_eq!(channels.subscriptions().len(), 2);
}

fn offer(text: &str, price: Option<i64>) -> AclMessage {
    let mut message = say(text);
    let price = price.map(|price| ("X-price".to_owned(), Expression::from(price)));
    message.user_defined = price.into_iter().collect();
    message
}

#[tokio::test]
async fn filters_that_cannot_be_evaluated_are_counted() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let cheap = on("/offers").filtered("properties.price < 10").answering();
    let mut cheap = channels.subscribe(&bob, cheap).unwrap();
    let qos = Qos::default();
    for (text, price) in [("a", None), ("b", Some(12)), ("c", Some(7)), ("d", None)] {
        let offers = path("/offers");
        let published = channels.publish(&alice, &offers, &qos, offer(text, price));
        published.await.unwrap();
    }
    assert_eq!(next(&mut cheap).await, "c");
    let options = RequestOptions::within(LONG);
    let offers = path("/offers");
    let asked = channels.request(&alice, &offers, &qos, say("who?"), options);
    assert!(asked.await.unwrap().all().await.unanswered.is_empty());
    assert_eq!(cheap.counts().2.filter_errors, 3);
    assert_eq!(channels.subscriptions()[0].filter_errors, 3);
    let reports = channels.channels();
    let offers = reports.iter().find(|it| it.channel.as_str() == "/offers");
    assert_eq!(offers.unwrap().filter_errors, 3);
}

#[tokio::test]
async fn a_message_goes_to_the_one_named() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let (carol, _c) = agent(&bus, "carol");
    let mut bobs = channels.subscribe(&bob, on("/dates/*")).unwrap();
    let carols = channels.subscribe(&carol, on("/dates/*")).unwrap();
    let channel = path("/dates/business");
    let qos = Qos::default();
    channels
        .send(&alice, &channel, "bob@factory", &qos, say("for you"))
        .await
        .unwrap();
    let event = timeout(LONG, bobs.recv()).await.unwrap().unwrap();
    assert!(
        matches!(&event.header.mechanism, Mechanism::Message { receiver } if **receiver == *"bob@factory")
    );
    assert!(carols.try_recv().is_none());
    let error = channels
        .send(&alice, &channel, "dave@factory", &qos, say("?"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, PublishError::NotOnChannel { .. }),
        "{error}"
    );
    let forged = say("x").with_sender(bob.aid());
    let error = channels
        .publish(&alice, &channel, &qos, forged)
        .await
        .unwrap_err();
    assert!(
        matches!(error, PublishError::ForgedSender { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn everyone_is_asked_and_who_is_silent_is_known() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let names = ["bob", "carol", "dave", "erin"];
    let agents: Vec<_> = names.iter().map(|name| agent(&bus, name)).collect();
    let mut subscriptions: Vec<_> = agents
        .iter()
        .map(|(outbox, _)| {
            channels
                .subscribe(outbox, on("/offers").answering())
                .unwrap()
        })
        .collect();
    // This agent listens but does not answer, so it is not asked.
    let (frank, _f) = agent(&bus, "frank");
    let listener = channels.subscribe(&frank, on("/offers")).unwrap();
    let ask = AclMessage::new(Performative::Cfp)
        .with_content("a box?")
        .with_reply_with("q-1");
    // The agent that says nothing is waited for. The others answer by then, even on a busy machine.
    let options = RequestOptions::within(Duration::from_secs(10));
    let replies = channels
        .request(&alice, &path("/offers"), &Qos::default(), ask, options)
        .await
        .unwrap();
    for (index, subscription) in subscriptions.iter_mut().enumerate() {
        let request = timeout(LONG, subscription.recv()).await.unwrap().unwrap();
        let asked = request.message.clone().into_message();
        match index {
            0 | 1 => {
                let reply = asked.create_reply(Performative::Propose).with_content("10");
                subscription.reply(&request, reply.clone()).await.unwrap();
                let again = subscription.reply(&request, reply).await.unwrap_err();
                assert_eq!(again, PublishError::NotAsked);
            }
            2 => subscription.decline(&request),
            // The agent takes the request and says nothing.
            _ => {}
        }
    }
    let answers = timeout(LONG, replies.all()).await.unwrap();
    assert_eq!(answers.replies.len(), 2);
    let unanswered: Vec<&str> = answers.unanswered.iter().map(|name| &**name).collect();
    assert_eq!(unanswered, ["dave@factory", "erin@factory"]);
    assert!(listener.try_recv().is_none());
    // The first answer is enough.
    let ask = AclMessage::new(Performative::Cfp).with_content("another?");
    let options = RequestOptions::within(LONG).first(1);
    let mut replies = channels
        .request(&alice, &path("/offers"), &Qos::default(), ask, options)
        .await
        .unwrap();
    let request = timeout(LONG, subscriptions[0].recv())
        .await
        .unwrap()
        .unwrap();
    let reply = request
        .message
        .clone()
        .into_message()
        .create_reply(Performative::Propose);
    subscriptions[0].reply(&request, reply).await.unwrap();
    assert!(timeout(LONG, replies.next()).await.unwrap().is_some());
    assert!(timeout(LONG, replies.next()).await.unwrap().is_none());
    assert_eq!(replies.unanswered().len(), 3);
    // No agent is there, so the request is over at once.
    let ask = AclMessage::new(Performative::Cfp);
    let replies = channels
        .request(
            &alice,
            &path("/empty"),
            &Qos::default(),
            ask,
            RequestOptions::within(LONG),
        )
        .await
        .unwrap();
    let answers = timeout(LONG, replies.all()).await.unwrap();
    assert!(answers.replies.is_empty() && answers.unanswered.is_empty());
}

#[tokio::test]
async fn a_request_without_end_stops_no_clock() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let answering = on("/offers").answering();
    let mut subscription = channels.subscribe(&bob, answering).unwrap();
    let (channel, qos) = (path("/offers"), Qos::default());
    let ask = |within| {
        let options = RequestOptions::within(within);
        channels.request(&alice, &channel, &qos, say("a box?"), options)
    };
    // Clocks cannot name the ends of these times.
    let for_ever = Duration::from_secs(10_000_000_000_000_000_000);
    for within in [Duration::MAX, for_ever] {
        let replies = ask(within).await.unwrap();
        // The task that keeps time sets its alarm.
        tokio::task::yield_now().await;
        let request = timeout(LONG, subscription.recv()).await.unwrap().unwrap();
        let asked = request.message.clone().into_message();
        let reply = asked.create_reply(Performative::Propose);
        subscription.reply(&request, reply).await.unwrap();
        let answers = timeout(LONG, replies.all()).await.unwrap();
        assert_eq!(answers.replies.len(), 1);
    }
    let replies = ask(Duration::from_millis(10)).await.unwrap();
    let answers = timeout(LONG, replies.all()).await.unwrap();
    assert_eq!(answers.unanswered.len(), 1);
}

#[tokio::test]
async fn filters_and_their_errors() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let cheap = on("/offers").filtered("properties.price < 10");
    let mut subscription = channels.subscribe(&bob, cheap).unwrap();
    let error = channels
        .subscribe(&bob, on("/offers").filtered("properties.price <"))
        .unwrap_err();
    assert!(matches!(error, SubscribeError::Filter(_)), "{error}");
    let qos = Qos::default();
    for price in [12, 7, 30, 9_i64] {
        let offer = say(&price.to_string()).with_user_defined("X-price", price);
        channels
            .publish(&alice, &path("/offers"), &qos, offer)
            .await
            .unwrap();
    }
    assert_eq!(next(&mut subscription).await, "7");
    assert_eq!(next(&mut subscription).await, "9");
    assert!(subscription.try_recv().is_none());
}

#[tokio::test]
async fn times_and_priorities_are_kept() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let mut subscription = channels.subscribe(&bob, on("/dates")).unwrap();
    let channel = path("/dates");
    let qos = Qos::default();
    let later = Qos {
        // The other events are read by then, even on a busy machine.
        valid_from: Some(Time::After(Duration::from_secs(10))),
        ..qos
    };
    let urgent = Qos {
        priority: Priority::MAX,
        ..qos
    };
    let brief = Qos {
        expiry: Some(Time::After(Duration::from_secs(1))),
        ..qos
    };
    for (qos, text) in [
        (&later, "later"),
        (&qos, "usual"),
        (&urgent, "urgent"),
        (&brief, "brief"),
    ] {
        channels
            .publish(&alice, &channel, qos, say(text))
            .await
            .unwrap();
    }
    // The event expires unread.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(next(&mut subscription).await, "urgent");
    assert_eq!(next(&mut subscription).await, "usual");
    let event = timeout(LONG, subscription.recv()).await.unwrap().unwrap();
    assert_eq!(text(&event), "later");
    let now = sealbus_bus::Moment::now();
    assert!(event.header.valid_from.unwrap() <= now);
    let expired = Qos {
        expiry: Some(Time::After(Duration::ZERO)),
        ..qos
    };
    let error = channels
        .publish(&alice, &channel, &expired, say("x"))
        .await
        .unwrap_err();
    assert_eq!(error, PublishError::Expired);
}

#[tokio::test]
async fn rights_hold() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let policy: Policy = toml::from_str(
        r#"
        [[channel]]
        allow = { agents = ["mallory"], do = ["subscribe"], on = ["/public"] }
        [[channel]]
        deny = { agents = ["mallory"], do = ["publish", "subscribe", "answer"], on = ["/**"] }
        "#,
    )
    .unwrap();
    let permissions = ChannelPermissions::compile(&policy, &bus.config().platform).unwrap();
    channels.set_permissions(Arc::new(permissions));
    let (alice, _a) = agent(&bus, "alice");
    let (mallory, _m) = agent(&bus, "mallory");
    let error = channels.subscribe(&mallory, on("/secret")).unwrap_err();
    assert!(
        matches!(error, SubscribeError::NotPermitted { .. }),
        "{error}"
    );
    // A pattern is checked channel by channel.
    let mut everything = channels.subscribe(&mallory, on("/**").answering()).unwrap();
    let qos = Qos::default();
    channels
        .publish(&alice, &path("/secret"), &qos, say("s"))
        .await
        .unwrap();
    channels
        .publish(&alice, &path("/public"), &qos, say("p"))
        .await
        .unwrap();
    assert_eq!(next(&mut everything).await, "p");
    assert!(everything.try_recv().is_none());
    let error = channels
        .publish(&mallory, &path("/public"), &qos, say("x"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, PublishError::NotPermitted { .. }),
        "{error}"
    );
    let replies = channels
        .request(
            &alice,
            &path("/public"),
            &qos,
            say("who?"),
            RequestOptions::within(LONG),
        )
        .await
        .unwrap();
    assert!(
        timeout(LONG, replies.all())
            .await
            .unwrap()
            .unanswered
            .is_empty()
    );
}

#[tokio::test]
async fn subscriptions_end_with_their_agent() {
    let bus = bus();
    let channels = Channels::of(&bus);
    let (alice, _a) = agent(&bus, "alice");
    let (bob, _b) = agent(&bus, "bob");
    let mut subscription = channels.subscribe(&bob, on("/dates")).unwrap();
    bus.detach("bob@factory");
    assert!(timeout(LONG, subscription.recv()).await.unwrap().is_none());
    let reach = channels
        .publish(&alice, &path("/dates"), &Qos::default(), say("x"))
        .await
        .unwrap();
    assert_eq!(reach, Reach::default());
    let error = channels.subscribe(&bob, on("/dates")).unwrap_err();
    assert!(matches!(error, SubscribeError::Detached(_)), "{error}");
    let error = channels
        .publish(&bob, &path("/dates"), &Qos::default(), say("x"))
        .await
        .unwrap_err();
    assert!(matches!(error, PublishError::Barred(_)), "{error}");
}
