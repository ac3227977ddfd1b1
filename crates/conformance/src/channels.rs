//! The AgentBus: events, directed messages and requests on channels, and their promises.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::permission::{ChannelRight, ChannelRule, ChannelUses, Policy};

use super::{Failure, LONG, Outcome, World, check, content, name, number, soon, until};
use sealbus_bus::Mailbox;
use sealbus_bus::Outbox;
use sealbus_channels::{
    ChannelPath, ChannelPermissions, Channels, FlowPolicy, Persistence, PublishError, Qos,
    QueueLimits, ReceivedEvent, Reliability, RequestOptions, Subscription, SubscriptionOptions,
    Time,
};

pub(super) const CHANNEL: &str = "/dates/business";

pub(super) fn say(text: impl ToString) -> AclMessage {
    AclMessage::new(Performative::Inform).with_content(text.to_string())
}

/// An agent with its mailbox, which ends with it, and the AgentBus of its process.
pub(super) struct Member {
    pub(super) outbox: Outbox,
    pub(super) channels: Channels,
    _mailbox: Mailbox,
}

impl Member {
    pub(super) async fn new(world: &dyn World, process: usize, local: &str) -> Self {
        // Every process takes frames and announces its subscriptions, even if it has none, as on a platform.
        for process in 0..super::PROCESSES {
            Channels::of(world.bus(process));
        }
        let channels = Channels::of(world.bus(process));
        let (outbox, mailbox) = world.attach(process, &name(world, local), None).await;
        Self {
            outbox,
            channels,
            _mailbox: mailbox,
        }
    }

    pub(super) fn subscribe(
        &self,
        change: impl FnOnce(SubscriptionOptions) -> SubscriptionOptions,
    ) -> Result<Subscription, Failure> {
        let options = change(SubscriptionOptions::new("/dates/*".parse()?));
        Ok(self.channels.subscribe(&self.outbox, options)?)
    }

    /// Waits until this process knows this many subscriptions, of itself and of the others.
    pub(super) async fn knows(&self, count: usize) -> Outcome {
        self.channels.ready(LONG).await;
        until("word of all subscriptions", || {
            (self.channels.subscriptions().len() == count).then_some(())
        })
        .await
    }

    pub(super) async fn publish(&self, qos: &Qos, text: impl ToString) -> Outcome {
        let channel: ChannelPath = CHANNEL.parse()?;
        let publishing = self
            .channels
            .publish(&self.outbox, &channel, qos, say(text));
        soon("room for an event", publishing).await??;
        Ok(())
    }
}

pub(super) async fn next(subscription: &mut Subscription) -> Result<ReceivedEvent, Failure> {
    soon("an event", subscription.recv())
        .await?
        .ok_or_else(|| Failure::new("the subscription ended"))
}

pub(super) async fn take_all(subscription: &mut Subscription, count: u64) -> Outcome {
    for expected in 0..count {
        let found = number(&next(subscription).await?.message)?;
        check(found == expected, || {
            format!("event {found} came where {expected} was due")
        })?;
    }
    check(subscription.try_recv().is_none(), || {
        "an event came twice".to_owned()
    })
}

/// Events of every reliability, to consumers in all processes.
pub(super) async fn events(world: &dyn World, is_breaking: bool) -> Outcome {
    const EVENTS: u64 = 600;
    let publisher = Member::new(world, 0, "publisher").await;
    let members = [
        Member::new(world, 0, "consumer-0").await,
        Member::new(world, 1, "consumer-1").await,
        Member::new(world, 2, "consumer-2").await,
    ];
    let push_back = |options: SubscriptionOptions| options.with_policy(FlowPolicy::PushBack);
    let mut subscriptions = Vec::new();
    for member in &members {
        subscriptions.push(member.subscribe(push_back)?);
    }
    publisher.knows(3).await?;
    let qos = Qos {
        reliability: Reliability::ExactlyOnce,
        ..Qos::default()
    };
    let publishing = async {
        for number in 0..EVENTS {
            publisher.publish(&qos, content(number)).await?;
        }
        Ok(())
    };
    let taking = async {
        let taken = subscriptions
            .iter_mut()
            .map(|subscription| take_all(subscription, EVENTS));
        futures_util::future::join_all(taken)
            .await
            .into_iter()
            .collect::<Outcome>()
    };
    let both = async {
        let (one, two) = tokio::join!(publishing, taking);
        one.and(two)
    };
    if is_breaking {
        super::while_breaking(world, both).await
    } else {
        both.await
    }
}

pub(super) async fn directed(world: &dyn World) -> Outcome {
    let sender = Member::new(world, 0, "sender").await;
    let (bob, carol) = (
        Member::new(world, 1, "bob").await,
        Member::new(world, 1, "carol").await,
    );
    let mut at_bob = bob.subscribe(|options| options)?;
    let at_carol = carol.subscribe(|options| options)?;
    sender.knows(2).await?;
    let channel: ChannelPath = CHANNEL.parse()?;
    let qos = Qos::default();
    for number in 0..100 {
        let to_bob = name(world, "bob");
        let sending = sender
            .channels
            .send(&sender.outbox, &channel, &to_bob, &qos, say(number));
        soon("room for a message", sending).await??;
    }
    take_all(&mut at_bob, 100).await?;
    check(at_carol.try_recv().is_none(), || {
        "another agent got a directed message".to_owned()
    })?;
    let nobody = name(world, "nobody");
    let sending = sender
        .channels
        .send(&sender.outbox, &channel, &nobody, &qos, say(1));
    let refused = soon("an answer", sending).await?;
    check(
        matches!(refused, Err(PublishError::NotOnChannel { .. })),
        || format!("a message to nobody came to {refused:?}"),
    )
}

pub(super) async fn request(world: &dyn World) -> Outcome {
    let asker = Member::new(world, 0, "asker").await;
    let answerers = [
        Member::new(world, 1, "answerer-1").await,
        Member::new(world, 2, "answerer-2").await,
        Member::new(world, 2, "silent").await,
    ];
    let mut subscriptions = Vec::new();
    for member in &answerers {
        subscriptions.push(member.subscribe(SubscriptionOptions::answering)?);
    }
    asker.knows(3).await?;
    let channel: ChannelPath = CHANNEL.parse()?;
    let question = AclMessage::new(Performative::QueryRef).with_content("who is there?");
    let asking = async {
        let options = RequestOptions::within(LONG);
        let qos = Qos::default();
        let asked = asker
            .channels
            .request(&asker.outbox, &channel, &qos, question, options);
        let answers = soon("room for a question", asked).await??.all();
        soon("all answers", answers).await
    };
    let answering = async {
        for (index, subscription) in subscriptions.iter_mut().enumerate() {
            let request = next(subscription).await?;
            if index == 2 {
                subscription.decline(&request);
            } else {
                let answer = subscription.reply(&request, say(index));
                soon("room for an answer", answer).await??;
            }
        }
        Ok::<(), Failure>(())
    };
    let (answers, answered) = tokio::join!(asking, answering);
    answered?;
    let answers = answers?;
    let numbers: BTreeSet<u64> = answers
        .replies
        .iter()
        .map(|reply| number(&reply.message))
        .collect::<Result<_, _>>()?;
    check(numbers == BTreeSet::from([0, 1]), || {
        format!("the answers {numbers:?} came")
    })?;
    let silent = name(world, "silent");
    let unanswered: Vec<&str> = answers.unanswered.iter().map(|it| &**it).collect();
    check(unanswered == [silent.as_str()], || {
        format!("{unanswered:?} are said not to have answered")
    })
}

fn calendar() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

pub(super) async fn valid_from(world: &dyn World) -> Outcome {
    const WAIT: Duration = Duration::from_millis(700);
    let publisher = Member::new(world, 0, "publisher").await;
    let consumer = Member::new(world, 1, "consumer").await;
    let mut subscription = consumer.subscribe(|options| options)?;
    publisher.knows(1).await?;
    let not_before = calendar() + WAIT;
    let later = Qos {
        valid_from: Some(Time::After(WAIT)),
        ..Qos::default()
    };
    publisher.publish(&later, 1).await?;
    let received = next(&mut subscription).await?;
    // Moments have milliseconds.
    check(calendar() + Duration::from_millis(1) >= not_before, || {
        "it was handed out before it was valid".to_owned()
    })?;
    let found = number(&received.message)?;
    check(found == 1, || format!("event {found} came"))
}

pub(super) async fn expiry(world: &dyn World) -> Outcome {
    // Longer than it takes to publish on a busy machine.
    const LIFE: Duration = Duration::from_secs(2);
    let publisher = Member::new(world, 0, "publisher").await;
    let consumer = Member::new(world, 1, "consumer").await;
    let mut subscription = consumer.subscribe(|options| options)?;
    publisher.knows(1).await?;
    let brief = Qos {
        expiry: Some(Time::After(LIFE)),
        ..Qos::default()
    };
    publisher.publish(&brief, 1).await?;
    let over = calendar() + LIFE + Duration::from_millis(2);
    publisher.publish(&Qos::default(), 2).await?;
    // Nobody reads the event until its time is over, wherever the event waits.
    while calendar() < over {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let found = number(&next(&mut subscription).await?.message)?;
    check(found == 2, || {
        "an event was handed out after its expiry".to_owned()
    })
}

pub(super) async fn filter(world: &dyn World) -> Outcome {
    let publisher = Member::new(world, 0, "publisher").await;
    let consumer = Member::new(world, 1, "consumer").await;
    let refused = consumer.subscribe(|options| options.filtered("content =="));
    check(refused.is_err(), || {
        "a wrong expression was taken".to_owned()
    })?;
    let mut subscription =
        consumer.subscribe(|options| options.filtered("content.endsWith('7')"))?;
    publisher.knows(1).await?;
    for number in 0..100 {
        publisher.publish(&Qos::default(), number).await?;
    }
    for expected in 0..10 {
        let found = number(&next(&mut subscription).await?.message)?;
        check(found == expected * 10 + 7, || format!("event {found} came"))?;
    }
    check(subscription.try_recv().is_none(), || {
        "an event came that was not wanted".to_owned()
    })
}

pub(super) async fn slow_subscription(world: &dyn World) -> Outcome {
    const EVENTS: u64 = 500;
    let publisher = Member::new(world, 0, "publisher").await;
    let (slow, quick) = (
        Member::new(world, 1, "slow").await,
        Member::new(world, 1, "quick").await,
    );
    let few = QueueLimits {
        events: 10,
        bytes: 100_000,
    };
    let mut drops_oldest =
        slow.subscribe(|options| options.with_policy(FlowPolicy::DropOldest).with_limits(few))?;
    let mut drops_newest =
        slow.subscribe(|options| options.with_policy(FlowPolicy::DropNewest).with_limits(few))?;
    let mut all = quick.subscribe(|options| options)?;
    publisher.knows(3).await?;
    for number in 0..EVENTS {
        publisher.publish(&Qos::default(), number).await?;
    }
    // The slow ones held up nobody.
    take_all(&mut all, EVENTS).await?;
    let oldest = number(&next(&mut drops_oldest).await?.message)?;
    check(oldest == EVENTS - 10, || {
        format!("event {oldest} is the oldest kept")
    })?;
    take_all(&mut drops_newest, 10).await?;
    let (_, _, counters) = drops_newest.counts();
    check(counters.dropped == EVENTS - 10, || {
        format!("{} events are counted as dropped", counters.dropped)
    })
}

pub(super) async fn push_back(world: &dyn World) -> Outcome {
    let publisher = Member::new(world, 0, "publisher").await;
    let consumer = Member::new(world, 1, "consumer").await;
    let limits = QueueLimits {
        events: 50,
        bytes: 50_000,
    };
    let mut subscription = consumer.subscribe(|options| {
        options
            .with_policy(FlowPolicy::PushBack)
            .with_limits(limits)
    })?;
    publisher.knows(1).await?;
    let channel: ChannelPath = CHANNEL.parse()?;
    let (mut sent, mut full_in_a_row) = (0, 0);
    while full_in_a_row < 50 {
        let text = format!("{sent} {}", "x".repeat(300));
        let published = publisher.channels.try_publish(
            &publisher.outbox,
            &channel,
            &Qos::default(),
            say(text),
        )?;
        if published.is_some() {
            sent += 1;
            full_in_a_row = 0;
        } else {
            full_in_a_row += 1;
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        check(sent < 10_000, || {
            "10000 events were accepted for a subscription that is not read".to_owned()
        })?;
    }
    let qos = Qos::default();
    let last = publisher.publish(&qos, sent);
    let (one, two) = tokio::join!(last, take_all(&mut subscription, sent + 1));
    one.and(two)
}

pub(super) async fn rights(world: &dyn World) -> Outcome {
    let (eve, alice) = (
        Member::new(world, 0, "eve").await,
        Member::new(world, 0, "alice").await,
    );
    let consumer = Member::new(world, 1, "consumer").await;
    let policy = Policy {
        channel_rules: vec![ChannelRule::Deny(ChannelUses {
            agents: vec!["eve".to_owned()],
            rights: vec![ChannelRight::Publish, ChannelRight::Subscribe],
            on: vec!["/dates/**".to_owned()],
        })],
        ..Policy::default()
    };
    let platform = &world.bus(0).config().platform;
    let permissions = Arc::new(ChannelPermissions::compile(&policy, platform)?);
    // Her own process keeps to the policy, or does not know it. The other process refuses in both cases.
    for knows in [false, true] {
        consumer.channels.set_permissions(permissions.clone());
        if knows {
            eve.channels.set_permissions(permissions.clone());
        }
        let mut subscription = consumer.subscribe(|options| options)?;
        alice.knows(1).await?;
        let published = eve.publish(&Qos::default(), 1).await;
        alice.publish(&Qos::default(), 2).await?;
        let found = number(&next(&mut subscription).await?.message)?;
        check(found == 2, || {
            "an event of an agent without the right arrived".to_owned()
        })?;
        check(!knows || published.is_err(), || {
            "she was not told that she may not".to_owned()
        })?;
        drop(subscription);
        alice.knows(0).await?;
    }
    Ok(())
}

/// A quality that cannot be given is refused by name.
pub(super) async fn refused_by_name(world: &dyn World) -> Outcome {
    let publisher = Member::new(world, 0, "publisher").await;
    let capabilities = publisher.channels.capabilities();
    let channel: ChannelPath = CHANNEL.parse()?;
    let mut asked = Vec::new();
    if !capabilities.persistent {
        let qos = Qos {
            persistence: Persistence::Persistent,
            ..Qos::default()
        };
        asked.push((qos, "persist"));
    }
    let levels = sealbus_seal::SecurityLevel::ALL;
    for level in levels
        .into_iter()
        .filter(|level| !capabilities.levels.contains(level))
    {
        let qos = Qos {
            level: Some(level),
            ..Qos::default()
        };
        asked.push((qos, level.as_str()));
    }
    for reliability in Reliability::ALL {
        let qos = Qos {
            reliability,
            ..Qos::default()
        };
        if reliability > capabilities.reliability {
            asked.push((qos, reliability.as_str()));
        } else {
            publisher.publish(&qos, 1).await?;
        }
    }
    for (qos, named) in asked {
        let publishing = publisher
            .channels
            .publish(&publisher.outbox, &channel, &qos, say(1));
        let said = match soon("an answer", publishing).await? {
            Ok(_) => return Err(Failure::new(format!("{qos} was accepted"))),
            Err(error) => error.to_string(),
        };
        check(said.contains(named), || {
            format!("{qos} was refused without its name: {said}")
        })?;
    }
    Ok(())
}
