//! Queue groups: subscriptions that share the events of a channel.

use std::collections::BTreeMap;
use std::time::Duration;

use sealbus_channels::{FlowPolicy, Qos, ReceivedEvent, Subscription, SubscriptionOptions};

use super::channels::{Member, next, take_all};
use super::{LONG, Outcome, World, check, number, until};

const EVENTS: u64 = 120;

fn worker(options: SubscriptionOptions) -> SubscriptionOptions {
    options.grouped("workers")
}

/// The times that each event came, and how often it said that it may be a repetition.
#[derive(Default)]
struct Handled(BTreeMap<u64, (u64, u64)>);

impl Handled {
    fn note(&mut self, event: &ReceivedEvent) -> Outcome {
        let (times, marks) = self.0.entry(number(&event.message)?).or_default();
        *times += 1;
        *marks += u64::from(event.header.may_be_again);
        Ok(())
    }

    /// Whether all events came.
    fn is_complete(&self) -> bool {
        self.0.len() as u64 == EVENTS
    }

    /// Each event came once, unless it said that it may be a repetition.
    fn check(&self) -> Outcome {
        for (number, (times, marks)) in &self.0 {
            check(times - marks <= 1, || {
                format!("event {number} came {times} times, {marks} of them marked")
            })?;
        }
        Ok(())
    }
}

/// Takes the events that come to any of these, until all have come.
async fn share_out(workers: &mut [Subscription], handled: &mut Handled) -> Outcome {
    let mut idle = Duration::ZERO;
    while !handled.is_complete() {
        let mut has_come = false;
        for worker in &*workers {
            if let Some(event) = worker.try_recv() {
                handled.note(&event)?;
                has_come = true;
            }
        }
        if has_come {
            idle = Duration::ZERO;
            continue;
        }
        let pause = Duration::from_millis(1);
        tokio::time::sleep(pause).await;
        idle += pause;
        check(idle < LONG, || {
            format!("only {} of {EVENTS} events came", handled.0.len())
        })?;
    }
    Ok(())
}

pub(super) async fn group(world: &dyn World) -> Outcome {
    let publisher = Member::new(world, 0, "publisher").await;
    let members = [
        Member::new(world, 0, "worker-0").await,
        Member::new(world, 1, "worker-1").await,
        Member::new(world, 2, "worker-2").await,
    ];
    let onlooker = Member::new(world, 1, "onlooker").await;
    let dropping = onlooker.subscribe(|it| worker(it).with_policy(FlowPolicy::DropOldest));
    let refused = dropping.err().map_or_else(String::new, |it| it.to_string());
    check(refused.contains("workers"), || {
        format!("a member that drops events was not refused by name: {refused:?}")
    })?;
    let mut all = onlooker.subscribe(|options| options)?;
    let mut workers = Vec::new();
    for member in &members {
        workers.push(member.subscribe(worker)?);
    }
    publisher.knows(4).await?;
    for number in 0..EVENTS {
        publisher.publish(&Qos::default(), number).await?;
    }
    take_all(&mut all, EVENTS).await?;
    // Each has one event, which nobody else gets meanwhile. The last one goes without having handled it.
    let mut handled = Handled::default();
    for worker in &mut workers {
        handled.note(&next(worker).await?)?;
    }
    check(handled.0.len() == workers.len(), || {
        "an event came to two members".to_owned()
    })?;
    let last = workers.pop();
    drop(last);
    until("word of the member that left", || {
        (publisher.channels.subscriptions().len() == 3).then_some(())
    })
    .await?;
    share_out(&mut workers, &mut handled).await?;
    // One more event came to a second member, marked.
    until("the event of the member that left", || {
        let events = workers.iter().filter_map(Subscription::try_recv);
        for event in events {
            handled.note(&event).ok()?;
        }
        let marks: u64 = handled.0.values().map(|(_, marks)| marks).sum();
        (marks == 1).then_some(())
    })
    .await?;
    handled.check()
}

pub(super) async fn crash(world: &dyn World) -> Outcome {
    let publisher = Member::new(world, 0, "publisher").await;
    let living = Member::new(world, 1, "worker-1").await;
    let dying = Member::new(world, 2, "worker-2").await;
    let mut workers = vec![living.subscribe(worker)?];
    let mut doomed = dying.subscribe(worker)?;
    publisher.knows(2).await?;
    for number in 0..EVENTS {
        publisher.publish(&Qos::default(), number).await?;
    }
    let mut handled = Handled::default();
    for _ in 0..3 {
        handled.note(&next(&mut doomed).await?)?;
    }
    let in_hand = number(&next(&mut doomed).await?.message)?;
    world.kill(2).await;
    share_out(&mut workers, &mut handled).await?;
    let again = handled.0.get(&in_hand).copied();
    check(again == Some((1, 1)), || {
        format!("the event in the hands of the killed process came {again:?} times")
    })?;
    drop(doomed);
    handled.check()
}
