//! The task that sends what one agent, or one process, has to send to the broker.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
/// How long confirmations may lie that nobody waits for. To be woken for each costs as much as to send it.
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
        let why = match serve(&*link, opened).await {
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
type Answer<'a> = Pin<Box<dyn Future<Output = LapinResult<Confirmation>> + Send + 'a>>;

struct Publisher<'a, L> {
    link: &'a L,
    channel: &'a Channel,
    user: String,
    /// In the order of publication; a broker mostly confirms in it.
    answers: VecDeque<(u64, Answer<'a>)>,
    /// Until then answers are taken by the way only.
    collect_at: Option<Instant>,
    again_at: Option<Instant>,
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
    let mut publisher = Publisher {
        link,
        channel: &channel,
        user,
        answers: VecDeque::new(),
        collect_at: None,
        again_at: None,
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
        let may_publish = link.wire().blocked.lock().is_none() && publisher.again_at.is_none();
        if may_publish {
            publisher.publish_some()?;
        }
        publisher.take_ready()?;
        if may_publish && publisher.again_at.is_none() && link.wire().outgoing.lock().is_waiting() {
            tokio::task::yield_now().await;
            continue;
        }
        // Who waits for room, or for the end, waits for the answers.
        let is_urgent = link.wire().has_left() || link.wire().outgoing.lock().is_half_full();
        let collect_at = publisher.collect_at.filter(|_| !is_urgent);
        let again_at = publisher.again_at;
        tokio::select! {
            answer = publisher.next_answer(), if collect_at.is_none() => publisher.answered(answer)?,
            () = sleep_until(collect_at) => publisher.collect_at = None,
            () = link.wire().news.notified() => {}
            event = events.next() => note(link, event)?,
            () = sleep_until(again_at) => publisher.again_at = None,
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

impl<'a, L: Sends> Publisher<'a, L> {
    fn publish_some(&mut self) -> LapinResult<()> {
        for _ in 0..AT_ONCE {
            let publication = self.link.wire().outgoing.lock().publish();
            let Some(publication) = publication else {
                break;
            };
            let order = publication.order;
            let mut answer = self.publish(publication);
            match answer.as_mut().now_or_never() {
                Some(answer) => self.answered((order, answer))?,
                None => self.answers.push_back((order, answer)),
            }
            self.collect_at = Some(Instant::now() + COLLECT);
        }
        Ok(())
    }

    fn publish(&self, publication: Publication<L::Note>) -> Answer<'a> {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_user_id(self.user.as_str().into())
            .with_message_id(publication.stamp.to_string().into());
        let (exchange, key, properties) = self.link.address(&publication, properties);
        let options = BasicPublishOptions {
            // Without a queue for the receiver it comes back.
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let channel = self.channel;
        let payload = publication.payload;
        Box::pin(async move {
            let (exchange, key) = (exchange.into(), key.as_str().into());
            let confirm = channel.basic_publish(exchange, key, options, &payload, properties);
            confirm.await?.await
        })
    }

    /// The next answer; waits for ever if none is expected.
    async fn next_answer(&mut self) -> (u64, LapinResult<Confirmation>) {
        let answer = match self.answers.front_mut() {
            Some((order, answer)) => (*order, answer.await),
            None => std::future::pending().await,
        };
        self.answers.pop_front();
        answer
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

    /// The answers that are there.
    fn take_ready(&mut self) -> LapinResult<()> {
        while let Some((order, answer)) = self.answers.front_mut()
            && let Some(confirmation) = answer.as_mut().now_or_never()
        {
            let order = *order;
            self.answers.pop_front();
            self.answered((order, confirmation))?;
        }
        if self.answers.is_empty() {
            self.collect_at = None;
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
                self.again_at = Some(Instant::now() + AGAIN);
            }
        }
        drop(outgoing);
        if !outcomes.is_empty() {
            self.link.tell(outcomes);
        }
        self.is_freed = true;
        Ok(())
    }
}
