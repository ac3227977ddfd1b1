//! The task that sends what one agent, or one process, has to send to the broker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{
    BasicProperties, Channel, Confirmation, Event, PublisherConfirm, Result as LapinResult,
};
use sealbus_bus::UndeliverableReason;
use tokio::time::sleep;

use super::connect::{Opened, Purpose};
use super::link::Sends;
use super::names::key_of_process;
use super::outgoing::Publication;
use super::stamp::Stamp;

/// The pause before a message is published again that the broker did not take.
const AGAIN: Duration = Duration::from_millis(50);
/// How often is looked whether messages have waited for too long.
const LOOK: Duration = Duration::from_secs(1);
/// Messages written before confirmations are looked at.
const AT_ONCE: usize = 64;
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

struct Publisher<'a, L> {
    link: &'a L,
    channel: Channel,
    user: String,
    /// In the order of publication; a broker mostly confirms in it.
    confirms: VecDeque<(u64, PublisherConfirm)>,
    again_at: Option<Instant>,
    /// The broker keeps refusing on this connection.
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
        channel,
        user,
        confirms: VecDeque::new(),
        again_at: None,
        is_stuck: false,
    };
    let mut ending = link.wire().ending.subscribe();
    let mut leaving = link.wire().leaving.subscribe();
    loop {
        if *ending.borrow() || (link.wire().has_left() && link.wire().is_settled()) {
            let _ = connection.close(200, "the agent has left".into()).await;
            return Ok(());
        }
        if publisher.is_stuck {
            tracing::info!(who = %link.client().name, "the broker keeps refusing messages; trying a new connection");
            let _ = connection.close(200, "to try another one".into()).await;
            return Err(
                lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into(),
            );
        }
        let may_publish = link.wire().blocked.lock().is_none() && publisher.again_at.is_none();
        if may_publish {
            // While the broker is blocked publishing does not come to an end: what it says is heard nevertheless.
            {
                let mut publishing = pin!(publisher.publish_some());
                loop {
                    tokio::select! {
                        done = &mut publishing => {
                            done?;
                            break;
                        }
                        event = events.next() => note(link, event)?,
                        () = sleep(LOOK) => give_up_late(link),
                        _ = ending.changed() => if *ending.borrow() {
                            return Ok(());
                        },
                    }
                }
            }
            if link.wire().outgoing.lock().is_waiting() {
                publisher.take_ready().await?;
                tokio::task::yield_now().await;
                continue;
            }
        }
        let again_at = publisher.again_at;
        tokio::select! {
            confirmation = publisher.next_confirmation() => publisher.confirmed(confirmation)?,
            () = link.wire().news.notified() => {}
            event = events.next() => note(link, event)?,
            () = sleep_until(again_at) => publisher.again_at = None,
            () = sleep(LOOK), if !link.wire().is_settled() => give_up_late(link),
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

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl<L: Sends> Publisher<'_, L> {
    async fn publish_some(&mut self) -> LapinResult<()> {
        for _ in 0..AT_ONCE {
            let publication = self.link.wire().outgoing.lock().publish();
            let Some(publication) = publication else {
                break;
            };
            let order = publication.order;
            let confirm = self.publish(publication).await?;
            self.confirms.push_back((order, confirm));
        }
        Ok(())
    }

    async fn publish(&self, publication: Publication<L::Note>) -> LapinResult<PublisherConfirm> {
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
        self.channel
            .basic_publish(
                exchange.into(),
                key.as_str().into(),
                options,
                &publication.payload,
                properties,
            )
            .await
    }

    /// The next answer; waits for ever if none is expected.
    async fn next_confirmation(&mut self) -> (u64, LapinResult<Confirmation>) {
        let answer = match self.confirms.front_mut() {
            Some((order, confirm)) => (*order, confirm.await),
            None => std::future::pending().await,
        };
        self.confirms.pop_front();
        answer
    }

    /// The answers that are there.
    async fn take_ready(&mut self) -> LapinResult<()> {
        loop {
            let ready = poll_fn(|context| {
                Poll::Ready(match self.confirms.front_mut() {
                    Some((order, confirm)) => match Pin::new(confirm).poll(context) {
                        Poll::Ready(answer) => Some((*order, answer)),
                        Poll::Pending => None,
                    },
                    None => None,
                })
            })
            .await;
            let Some(answer) = ready else {
                return Ok(());
            };
            self.confirms.pop_front();
            self.confirmed(answer)?;
        }
    }

    fn confirmed(
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
        self.link.tell(outcomes);
        self.link.open_gate();
        Ok(())
    }
}
