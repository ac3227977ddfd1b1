//! Sends what one agent, or one process, has to send to the broker. Whoever has a message publishes it; a task connects, takes
//! the broker's answers, and publishes what could not be published then.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Event, Result as LapinResult};
use sealbus_bus::UndeliverableReason;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::connect::{Opened, Purpose};
use super::consumer::sleep_until;
use super::link::Sends;
use super::names::key_of_process;
use super::outgoing::Publication;
use super::stamp::Stamp;

/// The pause before a message is published again that the broker did not take.
const AGAIN: Duration = Duration::from_millis(50);
/// How often is looked whether messages have waited for too long.
const LOOK: Duration = Duration::from_secs(1);
/// Messages handed to the library before confirmations are looked at.
const AT_ONCE: usize = 64;
/// How long after others confirmations may lie that nobody waits for. To be woken for each costs as much as to send it.
const COLLECT: Duration = Duration::from_millis(5);
/// How long the broker may leave a message without an answer before another connection is tried. A channel whose first
/// message for a queue goes to a leader that has just died is not told of the next one, and waits until the dead broker is
/// back (RabbitMQ 3.10).
const UNANSWERED: Duration = Duration::from_secs(5);
/// How long it may take to end a connection on which it does not.
const CLOSING: Duration = Duration::from_secs(1);
/// Kept on disk by the broker.
const PERSISTENT: u8 = 2;

/// Sends until the agent has left and all is confirmed.
pub(crate) async fn run<L: Sends>(link: Arc<L>) {
    let wire = link.wire();
    let mut ending = link.wire().ending.subscribe();
    loop {
        // Nothing to say: no connection is needed.
        loop {
            if *ending.borrow() || (link.wire().has_left() && link.wire().is_settled()) {
                return;
            }
            if link.wire().outgoing.lock().is_waiting() {
                break;
            }
            tokio::select! {
                () = link.wire().news.notified() => {}
                _ = ending.changed() => {}
            }
        }
        let connecting = wire.connect(
            || link.client(),
            Purpose::Sending,
            |error| {
                give_up(&*link, &format!("{error}"));
            },
        );
        let Some(opened) = connecting.await else {
            return;
        };
        let result = serve(&*link, opened).await;
        *link.wire().open.lock() = None;
        let why = match result {
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        tracing::debug!(who = %link.client().name, why, "the connection to the broker for sending broke");
        *link.wire().blocked.lock() = None;
        link.wire().outgoing.lock().disconnected();
        give_up(&*link, &why);
        // There may be room since the last answers.
        link.open_gate();
        sleep(link.wire().config().redial.0).await;
    }
}

fn give_up<L: Sends>(link: &L, why: &str) {
    let reason = UndeliverableReason::ProcessUnreachable(format!("by the broker: {why}"));
    let patience = link.wire().config().give_up;
    let outcomes = link
        .wire()
        .outgoing
        .lock()
        .give_up(patience, Instant::now(), &reason);
    if !outcomes.is_empty() {
        link.tell(outcomes);
        link.open_gate();
    }
}

/// What the broker will say to a message. The message stands in the library's line from the first time this is asked on, in
/// order; nobody waits until it is written, which would cost two switches of threads for each.
type Answer = Pin<Box<dyn Future<Output = LapinResult<Confirmation>> + Send>>;

/// A connection that messages can be published on.
pub(crate) struct Open {
    channel: Arc<Channel>,
    user: String,
    /// In the order of publication; a broker mostly confirms in it.
    answers: VecDeque<(u64, Answer)>,
    /// When the broker, which did not take a message, is to be asked again.
    again_at: Option<Instant>,
    /// The task will look for answers.
    is_watched: bool,
}

/// Publishes what waits, as far as that can be done without the task; else the task is told.
pub(crate) fn publish<L: Sends>(link: &L) {
    let wire = link.wire();
    let mut open = wire.open.lock();
    let is_free = |open: &&mut Open| open.again_at.is_none() && wire.blocked.lock().is_none();
    let Some(open) = open.as_mut().filter(is_free) else {
        return wire.news.notify_one();
    };
    open.publish_some(link);
    let outgoing = wire.outgoing.lock();
    // Who may soon have to wait for room waits for the answers.
    if !open.is_watched || outgoing.is_half_full() || outgoing.is_waiting() {
        open.is_watched = true;
        wire.news.notify_one();
    }
}

impl Open {
    /// Publishes some of what waits.
    fn publish_some<L: Sends>(&mut self, link: &L) {
        for _ in 0..AT_ONCE {
            let publication = link.wire().outgoing.lock().publish();
            let Some(publication) = publication else {
                return;
            };
            let order = publication.order;
            let mut answer = self.publish(link, publication);
            // Asked once, the message is on its way.
            if let Some(answer) = answer.as_mut().now_or_never() {
                let answer = Box::pin(std::future::ready(answer));
                self.answers.push_back((order, answer));
            } else {
                self.answers.push_back((order, answer));
            }
        }
    }

    fn publish<L: Sends>(&self, link: &L, publication: Publication<L::Note>) -> Answer {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_user_id(self.user.as_str().into())
            .with_message_id(publication.stamp.to_string().into());
        let (exchange, key, properties) = link.address(&publication, properties);
        let options = BasicPublishOptions {
            // Without a queue for the receiver it comes back.
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let channel = self.channel.clone();
        let payload = publication.payload;
        Box::pin(async move {
            let (exchange, key) = (exchange.into(), key.as_str().into());
            let confirm = channel.basic_publish(exchange, key, options, &payload, properties);
            confirm.await?.await
        })
    }
}

struct Publisher<'a, L> {
    link: &'a L,
    /// Until then answers are taken by the way only; without it the next one is waited for.
    collect_at: Option<Instant>,
    /// Answers have come, and who waits for room does not know yet.
    is_freed: bool,
    /// The message that has waited for an answer for longest, and since when it was seen to be that one.
    unanswered: Option<(u64, Instant)>,
    /// The broker keeps refusing on this connection, or leaves a message without an answer.
    is_stuck: bool,
}

/// Sends on one connection until it breaks. `Ok`: the link has ended.
async fn serve<L: Sends>(link: &L, opened: Opened) -> LapinResult<()> {
    let Opened {
        connection,
        mut events,
        user,
    } = opened;
    let channel = connection.create_channel().await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    *link.wire().open.lock() = Some(Open {
        channel: Arc::new(channel),
        user,
        answers: VecDeque::new(),
        again_at: None,
        is_watched: true,
    });
    let mut publisher = Publisher {
        link,
        collect_at: None,
        is_freed: false,
        unanswered: None,
        is_stuck: false,
    };
    let mut ending = link.wire().ending.subscribe();
    let mut leaving = link.wire().leaving.subscribe();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if *ending.borrow() || (link.wire().has_left() && link.wire().is_settled()) {
            let _ = connection.close(200, "the agent has left".into()).await;
            return Ok(());
        }
        if publisher.is_stuck {
            tracing::info!(who = %link.client().name, "the broker refuses messages or does not answer; trying a new connection");
            // Who does not answer may not answer this either.
            let closing = connection.close(200, "to try another one".into());
            let _ = timeout(CLOSING, closing).await;
            return Err(
                lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into(),
            );
        }
        while let Some(event) = events.next().now_or_never() {
            note(link, event)?;
        }
        let may_publish = link.wire().blocked.lock().is_none();
        let again_at = publisher.publish_some(may_publish);
        publisher.take_ready()?;
        if may_publish && again_at.is_none() && link.wire().outgoing.lock().is_waiting() {
            tokio::task::yield_now().await;
            continue;
        }
        // Who waits for room, or for the end, waits for the answers.
        let is_urgent = link.wire().has_left() || link.wire().outgoing.lock().is_half_full();
        let collect_at = publisher.collect_at.filter(|_| !is_urgent);
        tokio::select! {
            answer = publisher.next_answer(), if collect_at.is_none() => publisher.answered(answer)?,
            () = sleep_until(collect_at) => publisher.collect_at = None,
            () = link.wire().news.notified() => {}
            event = events.next() => note(link, event)?,
            () = sleep_until(again_at) => publisher.try_again(),
            _ = look.tick() => if !link.wire().is_settled() {
                give_up_late(link);
                publisher.look_for_answers();
            },
            _ = ending.changed() => {}
            _ = leaving.changed() => {}
        }
    }
}

/// Takes note of what happened to the connection.
fn note<L: Sends>(link: &L, event: Option<Event>) -> LapinResult<()> {
    match event {
        Some(Event::ConnectionBlocked(reason)) => {
            tracing::warn!(who = %link.client().name, reason,
                "the broker takes no messages now; senders wait. Free memory or disk on the broker");
            *link.wire().blocked.lock() = Some(reason);
        }
        Some(Event::ConnectionUnblocked) => {
            tracing::info!(who = %link.client().name, "the broker takes messages again");
            *link.wire().blocked.lock() = None;
        }
        Some(Event::Error(error)) => return Err(error),
        Some(_) => {}
        None => return Err(lapin::ErrorKind::MissingHeartbeatError.into()),
    }
    Ok(())
}

/// Gives up what has waited for the broker for too long.
fn give_up_late<L: Sends>(link: &L) {
    let reason = link.wire().blocked.lock().clone();
    give_up(
        link,
        reason.as_deref().unwrap_or("it did not take the message"),
    );
}

impl<L: Sends> Publisher<'_, L> {
    /// Publishes some of what waits; when that is to be tried again, if the broker did not take something.
    fn publish_some(&mut self, may_publish: bool) -> Option<Instant> {
        let mut open = self.link.wire().open.lock();
        let open = open.as_mut()?;
        if may_publish && open.again_at.is_none() {
            open.publish_some(self.link);
        }
        open.again_at
    }

    fn try_again(&mut self) {
        if let Some(open) = self.link.wire().open.lock().as_mut() {
            open.again_at = None;
        }
    }

    /// The next answer; waits for ever if none is expected.
    async fn next_answer(&self) -> (u64, LapinResult<Confirmation>) {
        std::future::poll_fn(|context| {
            let mut open = self.link.wire().open.lock();
            let Some(open) = open.as_mut() else {
                return Poll::Pending;
            };
            let Some((order, answer)) = open.answers.front_mut() else {
                return Poll::Pending;
            };
            let order = *order;
            answer.as_mut().poll(context).map(|answer| {
                open.answers.pop_front();
                (order, answer)
            })
        })
        .await
    }

    /// Sees whether a message waits too long for its answer. While the broker is short of something it answers none.
    fn look_for_answers(&mut self) {
        let now = Instant::now();
        let is_blocked = self.link.wire().blocked.lock().is_some();
        let first = self.link.wire().outgoing.lock().first_published();
        self.unanswered = match (first, self.unanswered) {
            (Some(first), Some((known, since))) if first == known && !is_blocked => {
                self.is_stuck |= now.duration_since(since) >= UNANSWERED;
                Some((known, since))
            }
            (first, _) => first.map(|first| (first, now)),
        };
    }

    /// The answer to the first message, if it is there.
    fn ready(&self) -> Option<(u64, LapinResult<Confirmation>)> {
        self.next_answer().now_or_never()
    }

    /// The answers that are there. More may soon come: they are looked for together.
    fn take_ready(&mut self) -> LapinResult<()> {
        while let Some(answer) = self.ready() {
            self.answered(answer)?;
        }
        if let Some(open) = self.link.wire().open.lock().as_mut() {
            open.is_watched = !open.answers.is_empty();
            if !open.is_watched {
                self.collect_at = None;
            } else if self.is_freed {
                self.collect_at = Some(Instant::now() + COLLECT);
            }
        }
        if mem::take(&mut self.is_freed) {
            self.link.open_gate();
        }
        Ok(())
    }

    fn answered(
        &mut self,
        (order, confirmation): (u64, LapinResult<Confirmation>),
    ) -> LapinResult<()> {
        let confirmation = confirmation?;
        let mut outgoing = self.link.wire().outgoing.lock();
        let mut outcomes = Vec::new();
        let mut is_refused = false;
        let (Confirmation::Ack(returned) | Confirmation::Nack(returned)) = &confirmation else {
            return Ok(());
        };
        // The library hands a message that came back to whichever confirmation comes next: it says itself which it is.
        let back = returned.as_ref().and_then(|returned| {
            let stamp = Stamp::parse(returned.properties.message_id().as_ref()?.as_str())?;
            let key = returned.routing_key.as_str();
            let is_key_of = |receiver: &str| key == receiver || key == key_of_process(receiver);
            outgoing.published_as(stamp.number, is_key_of)
        });
        if let Some(back) = back {
            outcomes.extend(outgoing.unroutable(back));
        }
        // What came back is settled, whichever confirmation is its own.
        if outgoing.is_published(order) {
            if matches!(confirmation, Confirmation::Ack(_)) {
                self.link.wire().sent.fetch_add(1, Ordering::Relaxed);
                self.link.confirmed(order);
                outcomes.extend(outgoing.confirmed(order));
            } else {
                self.is_stuck |= outgoing.refused(order);
                is_refused = true;
            }
        }
        drop(outgoing);
        if is_refused && let Some(open) = self.link.wire().open.lock().as_mut() {
            open.again_at = Some(Instant::now() + AGAIN);
        }
        if !outcomes.is_empty() {
            self.link.tell(outcomes);
        }
        self.is_freed = true;
        Ok(())
    }
}
