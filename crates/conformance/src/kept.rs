//! Persistent channels: the events that nodes keep, over any transport for the rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sealbus_fipa::{AclMessage, Performative};

use super::{Failure, Outcome, TestedPromise, Verdict, check, number, soon};
use sealbus_bus::Acknowledgement;
use sealbus_bus::BoxFuture;
use sealbus_bus::Outbox;
use sealbus_channels::{
    ChannelPath, Channels, EventKey, Moment, Persistence, Qos, Reach, ReceivedEvent, Replay,
    Subscription, SubscriptionOptions,
};

/// A way to run a platform whose nodes keep events. The crate above this one provides logs, so its tests implement this
/// trait.
pub trait KeepingSetting: Send + Sync {
    /// The column of the table: that of the transport.
    fn name(&self) -> String;

    /// Starts a platform. Its nodes keep 10 events of the channel `/kept/few`.
    fn open(&self) -> BoxFuture<'_, Box<dyn KeepingWorld>>;
}

/// A platform whose nodes keep events. Dropping it ends the platform.
pub trait KeepingWorld: Send + Sync {
    /// An agent in the process `process`, 0 or 1. The agent is created if it is not there. If there are several nodes,
    /// each of the two processes has its own.
    fn agent<'a>(&'a self, process: usize, name: &'a str) -> BoxFuture<'a, Arc<Outbox>>;

    /// Ends every node that keeps events, and starts it again. The test asks again for agents that end with it.
    fn restart(&self) -> BoxFuture<'_, ()>;
}

/// Runs one case of [`TestedPromise::OF_LOGS`].
///
/// # Errors
/// [`Failure`]: the promise is broken.
pub async fn run_kept(
    setting: &dyn KeepingSetting,
    promise: TestedPromise,
) -> Result<Verdict, Failure> {
    let case = async {
        let world = setting.open().await;
        match promise {
            TestedPromise::Replay => replay(&*world).await,
            TestedPromise::LastPerKey => last_per_key(&*world).await,
            TestedPromise::Durable => durable(&*world).await,
            TestedPromise::Acknowledged => acknowledged(&*world).await,
            TestedPromise::Retention => retention(&*world).await,
            other => Err(Failure::new(format!("`{other}` is not about logs"))),
        }?;
        Ok(Verdict::Kept)
    };
    let outcome = tokio::time::timeout(5 * super::LONG, case).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::new("nothing happened for minutes")));
    outcome.map_err(|failure| {
        let name = setting.name();
        Failure::new(format!(
            "{name} does not keep the promise `{promise}`: {failure}"
        ))
    })
}

const ALL: &str = "/kept/all";
const FEW: &str = "/kept/few";

fn kept() -> Qos {
    Qos {
        persistence: Persistence::Persistent,
        acknowledgement: Some(Acknowledgement::OnDisk),
        ..Qos::default()
    }
}

/// Publishes, and returns when the event is on disk.
async fn publish(outbox: &Outbox, channel: &str, text: u64) -> Result<Reach, Failure> {
    let message = AclMessage::new(Performative::Inform).with_content(text.to_string());
    publish_message(outbox, channel, message).await
}

async fn publish_message(
    outbox: &Outbox,
    channel: &str,
    message: AclMessage,
) -> Result<Reach, Failure> {
    let channel: ChannelPath = channel.parse()?;
    let qos = kept();
    let channels = Channels::of(outbox.bus());
    let publishing = channels.publish(outbox, &channel, &qos, message);
    let reach = soon("the acknowledgement of an event", publishing).await??;
    check(reach.kept.is_some(), || {
        "an event of a persistent channel was accepted and not kept".to_owned()
    })?;
    Ok(reach)
}

fn subscribe(
    outbox: &Outbox,
    replay: Replay,
    durable: Option<&str>,
) -> Result<Subscription, Failure> {
    let options = SubscriptionOptions {
        replay,
        durable: durable.map(str::to_owned),
        ..SubscriptionOptions::new("/kept/*".parse()?)
    };
    Ok(Channels::of(outbox.bus()).subscribe(outbox, options)?)
}

async fn next(subscription: &mut Subscription) -> Result<ReceivedEvent, Failure> {
    soon("an event", subscription.recv())
        .await?
        .ok_or_else(|| Failure::new("the subscription ended"))
}

/// Takes these events, in this order, each for the first time and none missed.
async fn take(subscription: &mut Subscription, expected: impl IntoIterator<Item = u64>) -> Outcome {
    for expected in expected {
        let event = next(subscription).await?;
        let found = number(&event.message)?;
        check(found == expected, || {
            format!("event {found} came where {expected} was due")
        })?;
        let logged = event.header.logged.as_ref();
        check(
            !event.header.may_be_again && logged.is_some_and(|logged| logged.missed == 0),
            || format!("event {found} is said to be {logged:?}"),
        )?;
    }
    Ok(())
}

/// Late joiners begin at a number, a count or a time, and continue with the events published from then on.
async fn replay(world: &dyn KeepingWorld) -> Outcome {
    let publisher = world.agent(0, "publisher").await;
    for text in 1..=10 {
        publish(&publisher, ALL, text).await?;
    }
    let between = later_for_logs().await;
    for text in 11..=20 {
        publish(&publisher, ALL, text).await?;
    }
    for process in [0, 1] {
        let reader = world.agent(process, &format!("reader-{process}")).await;
        let mut all = subscribe(&reader, Replay::From(1), None)?;
        let mut number = subscribe(&reader, Replay::From(8), None)?;
        let mut count = subscribe(&reader, Replay::Last(5), None)?;
        let mut time = subscribe(&reader, Replay::Since(between), None)?;
        let first_process_said = 20 + process as u64;
        take(&mut all, 1..=first_process_said).await?;
        take(&mut number, 8..=first_process_said).await?;
        take(&mut count, first_process_said - 4..=first_process_said).await?;
        take(&mut time, 11..=first_process_said).await?;
        let news = first_process_said + 1;
        publish(&publisher, ALL, news).await?;
        for each in [&mut all, &mut number, &mut count, &mut time] {
            take(each, [news]).await?;
        }
    }
    Ok(())
}

/// Logs count milliseconds: every event so far is older than the moment that this gives, and no later event is.
async fn later_for_logs() -> Moment {
    let before = Moment::now();
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = Moment::now();
        if now > before {
            return now;
        }
    }
}

/// A late subscriber gets the last event of each key, from any node, and then every new event. One question brings the
/// same events. A channel that keeps nothing is refused by name.
async fn last_per_key(world: &dyn KeepingWorld) -> Outcome {
    let sensors = ["red", "green", "blue"];
    let publishers = [
        world.agent(0, "publisher-0").await,
        world.agent(1, "publisher-1").await,
    ];
    let reading = |sensor: &str, value: u64| {
        AclMessage::new(Performative::Inform)
            .with_content(value.to_string())
            .with_user_defined("X-sensor", sensor)
    };
    let key: EventKey = "properties.sensor".parse()?;
    let mut expected = HashMap::new();
    for value in 1..=12 {
        // Each sensor is heard on both nodes by turns.
        let sensor = sensors[value % 3];
        let publisher = &publishers[value / 3 % 2];
        let value = value as u64;
        publish_message(publisher, ALL, reading(sensor, value)).await?;
        expected.insert(sensor.to_owned(), value);
        later_for_logs().await;
    }
    // It has no key, and so no last value.
    publish(&publishers[0], ALL, 99).await?;
    let channels = Channels::of(publishers[0].bus());
    let (never, usual) = ("/never/kept".parse()?, Qos::default());
    let transient = channels.last(&publishers[0], &never, &usual, &key, "", super::LONG);
    match soon("a refusal", transient).await? {
        Err(error) if error.to_string().contains("last-per-key") => {}
        other => {
            return Err(Failure::new(format!(
                "the last events of a transient channel: {other:?}"
            )));
        }
    }
    for (process, publisher) in publishers.iter().enumerate() {
        let reader = world.agent(process, &format!("reader-{process}")).await;
        let channels = Channels::of(reader.bus());
        let (path, qos): (ChannelPath, _) = (ALL.parse()?, kept());
        let asking = channels.last(&reader, &path, &qos, &key, "", super::LONG);
        let last = soon("the last events", asking).await??;
        check(last.unanswered.is_empty(), || {
            format!("no word from {:?}", last.unanswered)
        })?;
        check(last.filter_errors.0 == 1, || {
            format!("an event without the key: {:?}", last.filter_errors)
        })?;
        let mut asked = Vec::new();
        for event in &last.events {
            asked.push(number(&event.message)?);
        }
        let mut all: Vec<u64> = expected.values().copied().collect();
        all.sort_unstable();
        check(asked == all, || {
            format!("{asked:?} are the last events, and not {all:?}")
        })?;
        let mut late = subscribe(&reader, Replay::LastPerKey(key.clone()), None)?;
        let mut begun = Vec::new();
        for _ in &all {
            begun.push(number(&next(&mut late).await?.message)?);
        }
        begun.sort_unstable();
        check(begun == all, || {
            format!("a late subscription begins with {begun:?} and not {all:?}")
        })?;
        for value in 0..3 {
            let value = 100 * (process as u64 + 1) + value;
            publish_message(publisher, ALL, reading("red", value)).await?;
            take(&mut late, [value]).await?;
            expected.insert("red".to_owned(), value);
        }
    }
    Ok(())
}

/// A durable subscription continues after an absence, from the first event that was not handled.
async fn durable(world: &dyn KeepingWorld) -> Outcome {
    let publisher = world.agent(0, "publisher").await;
    let reader = world.agent(1, "reader").await;
    publish(&publisher, ALL, 1).await?;
    let mut mine = subscribe(&reader, Replay::From(1), Some("mine"))?;
    take(&mut mine, [1]).await?;
    for text in 2..=10 {
        publish(&publisher, ALL, text).await?;
    }
    take(&mut mine, 2..=5).await?;
    // The agent has not handled the last of them.
    drop(mine);
    for text in 11..=15 {
        publish(&publisher, ALL, text).await?;
    }
    // Another subscription of the agent reads for itself.
    let mut other = subscribe(&reader, Replay::From(1), Some("other"))?;
    let mut mine = subscribe(&reader, Replay::Resume, Some("mine"))?;
    // The subscription may have read these events before without handing them out.
    for expected in 5..=15 {
        let event = next(&mut mine).await?;
        let found = number(&event.message)?;
        check(found == expected, || {
            format!("event {found} came where {expected} was due")
        })?;
        check(found != 5 || event.header.may_be_again, || {
            "an event that was not handled came again, unmarked".to_owned()
        })?;
    }
    take(&mut other, 1..=15).await
}

/// An acknowledged event is there after every node that keeps it has ended and restarted, and comes once in effect.
async fn acknowledged(world: &dyn KeepingWorld) -> Outcome {
    const EVENTS: u64 = 30;
    let mut seen = HashSet::new();
    let mut last = 0;
    for round in 0..3 {
        let publisher = world.agent(0, "publisher").await;
        let reader = world.agent(1, "reader").await;
        let mut subscription = match round {
            0 => subscribe(&reader, Replay::From(1), Some("mine"))?,
            _ => subscribe(&reader, Replay::Resume, Some("mine"))?,
        };
        for text in 1..=EVENTS {
            publish(&publisher, ALL, round * EVENTS + text).await?;
        }
        // Half of the events of this round are left to the next round, except in the last.
        let until = match round {
            2 => 3 * EVENTS,
            round => round * EVENTS + EVENTS / 2,
        };
        while last < until {
            let event = next(&mut subscription).await?;
            let found = number(&event.message)?;
            let again = event.header.may_be_again;
            if seen.insert(found) {
                check(found == last + 1, || {
                    format!("event {found} came after {last}")
                })?;
                last = found;
            } else {
                check(again, || format!("event {found} came twice, unmarked"))?;
            }
        }
        drop(subscription);
        drop((publisher, reader));
        if round < 2 {
            world.restart().await;
        }
    }
    Ok(())
}

/// No more events are kept than configured. Events removed before they were read are counted.
async fn retention(world: &dyn KeepingWorld) -> Outcome {
    let publisher = world.agent(0, "publisher").await;
    let reader = world.agent(1, "reader").await;
    publish(&publisher, FEW, 1).await?;
    let mut mine = subscribe(&reader, Replay::From(1), Some("mine"))?;
    take(&mut mine, [1]).await?;
    mine.settle();
    drop(mine);
    for text in 2..=40 {
        publish(&publisher, FEW, text).await?;
    }
    let mut late = subscribe(&reader, Replay::From(1), None)?;
    take(&mut late, 31..=40).await?;
    let mut mine = subscribe(&reader, Replay::Resume, Some("mine"))?;
    for expected in 31..=40 {
        let event = next(&mut mine).await?;
        let found = number(&event.message)?;
        check(found == expected, || {
            format!("event {found} came where {expected} was due")
        })?;
        let missed = event.header.logged.as_ref().map(|logged| logged.missed);
        let due = if expected == 31 { 29 } else { 0 };
        check(missed == Some(due), || {
            format!("{missed:?} events are said to be missed before {found}")
        })?;
    }
    Ok(())
}
