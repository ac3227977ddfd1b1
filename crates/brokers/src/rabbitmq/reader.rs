//! The task that receives from one queue: an agent's, or that of a process.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Event, Result as LapinResult};
use sealbus_bus::{Bus, RefusalReason};
use tokio::time::{sleep, sleep_until};

use super::acks::{Acks, Tag};
use super::connect::{Opened, Purpose};
use super::incoming::{Arrival, Incoming};
use super::link::Sends;
use super::stamp::Stamp;

/// Deliveries looked at before something else is, if so many are there.
const TOGETHER: usize = 64;

/// Why something was not taken from the queue, and who tried.
pub(crate) struct Refusal {
    pub(crate) tried_by: String,
    pub(crate) proved: Option<String>,
    pub(crate) reason: RefusalReason,
    pub(crate) explanation: String,
}

/// What is received, and where it goes.
pub(crate) trait Receives: Send + 'static {
    /// Whose connections it comes by.
    type Link: Sends;
    /// What was checked.
    type Item: Send;

    fn link(&self) -> &Arc<Self::Link>;

    /// Who receives, for those who look for what was refused.
    fn name(&self) -> String;

    /// The queue, which the Master has made.
    fn queue(&self) -> String;

    /// All checks, at one place: who wrote it, and where it belongs.
    fn check(
        &mut self,
        bus: &Bus,
        delivery: Delivery,
    ) -> Result<(Arc<str>, Stamp, Self::Item), Refusal>;

    /// Its turn has come.
    fn hand_over(&mut self, item: Self::Item, tag: Tag, acks: &mut Acks);

    /// It was here before.
    fn came_again(&mut self, item: Self::Item, tag: Tag, acks: &mut Acks);

    /// Notes what can be acknowledged since it was asked last.
    fn note_taken(&mut self, _acks: &mut Acks) {}

    /// Comes when something can be acknowledged, or it is to be seen whether the owner is closed.
    fn news(link: &Self::Link) -> impl Future<Output = ()> + Send {
        let _ = link;
        pending()
    }

    /// Whether nothing more is taken here.
    fn is_closed(&self) -> bool {
        false
    }

    /// What was handed over is just being taken, unless it is left unread.
    fn last_taken(&mut self, _acks: &mut Acks) -> impl Future<Output = ()> + Send {
        async {}
    }
}

struct Reader<R: Receives> {
    inbox: R,
    incoming: Incoming<(Tag, R::Item)>,
    acks: Acks,
}

/// Receives until the owner leaves.
pub(crate) async fn run<R: Receives>(inbox: R) {
    let link = inbox.link().clone();
    let mut reader = Reader {
        incoming: Incoming::new(link.wire().config().reorder_time),
        acks: Acks::default(),
        inbox,
    };
    while !link.wire().has_left() {
        let mut leaving = link.wire().leaving.subscribe();
        let opened = tokio::select! {
            opened = link.wire().connect(|| link.client(), Purpose::Receiving, |_| {}) => opened,
            _ = leaving.wait_for(|leaving| *leaving) => return,
        };
        let Some(opened) = opened else {
            return;
        };
        let result = reader.serve(&*link, opened).await;
        link.wire().is_receiving.send_replace(false);
        reader.acks.disconnected();
        // What was taken meanwhile is acknowledged when it is delivered again.
        reader.inbox.note_taken(&mut reader.acks);
        match result {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(who = %link.client().name, %error, "the connection to the broker for receiving broke");
                sleep(link.wire().config().redial.0).await;
            }
        }
    }
}

impl<R: Receives> Reader<R> {
    /// Receives on one connection until it breaks. `Ok`: the link has ended.
    async fn serve(&mut self, link: &R::Link, opened: Opened) -> LapinResult<()> {
        let Opened {
            connection,
            mut events,
            ..
        } = opened;
        let channel = connection.create_channel().await?;
        let queue = self.inbox.queue();
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        channel
            .queue_declare(queue.as_str().into(), passive, FieldTable::default())
            .await?;
        channel
            .basic_qos(link.wire().config().prefetch, BasicQosOptions::default())
            .await?;
        let mut consumer = channel
            .basic_consume(
                queue.as_str().into(),
                link.client().name.as_ref().into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        link.wire().is_receiving.send_replace(true);
        self.incoming.connected(Instant::now());
        let mut ending = link.wire().ending.subscribe();
        let mut leaving = link.wire().leaving.subscribe();
        // One timer, set when there is something to wait for.
        let mut alarm = pin!(sleep_until(Instant::now().into()));
        let mut alarm_at = None;
        loop {
            // An agent that moves has closed its mailbox: what comes now is for the process it moves to.
            let is_closed = self.inbox.is_closed();
            if is_closed {
                self.inbox.last_taken(&mut self.acks).await;
            }
            self.acknowledge(&channel).await?;
            if *ending.borrow() || *leaving.borrow() || is_closed {
                let _ = channel.close(200, "the reader has left".into()).await;
                let _ = connection.close(200, "the reader has left".into()).await;
                return Ok(());
            }
            let deadline = self.incoming.deadline();
            if deadline != alarm_at {
                alarm_at = deadline;
                if let Some(at) = deadline {
                    alarm.as_mut().reset(at.into());
                }
            }
            tokio::select! {
                delivery = consumer.next() => {
                    let mut next = Some(delivery);
                    for _ in 0..TOGETHER {
                        match next {
                            Some(Some(delivery)) => self.delivered(delivery?, &channel).await?,
                            // The queue was deleted, or the broker cancelled for another reason.
                            Some(None) => return Err(closed()),
                            None => break,
                        }
                        next = consumer.next().now_or_never();
                    }
                    if let Some(delivery) = next {
                        self.delivered(delivery.ok_or_else(closed)??, &channel).await?;
                    }
                }
                () = R::news(link) => {}
                event = events.next() => match event {
                    Some(Event::Error(error)) => return Err(error),
                    Some(_) => {}
                    None => return Err(lapin::ErrorKind::MissingHeartbeatError.into()),
                },
                () = &mut alarm, if alarm_at.is_some() => {
                    alarm_at = None;
                    for (tag, item) in self.incoming.overdue(Instant::now()) {
                        self.inbox.hand_over(item, tag, &mut self.acks);
                    }
                }
                _ = ending.changed() => {}
                _ = leaving.changed() => {}
            }
        }
    }

    async fn acknowledge(&mut self, channel: &Channel) -> LapinResult<()> {
        self.inbox.note_taken(&mut self.acks);
        let (up_to, singles) = self.acks.next();
        if let Some(tag) = up_to {
            channel
                .basic_ack(tag, BasicAckOptions { multiple: true })
                .await?;
        }
        for tag in singles {
            channel.basic_ack(tag, BasicAckOptions::default()).await?;
        }
        Ok(())
    }

    async fn delivered(&mut self, delivery: Delivery, channel: &Channel) -> LapinResult<()> {
        let tag = delivery.delivery_tag;
        let Some(bus) = self.inbox.link().wire().bus().upgrade() else {
            return Ok(());
        };
        let (sender, stamp, item) = match self.inbox.check(&bus, delivery) {
            Ok(checked) => checked,
            Err(refusal) => {
                bus.refused(
                    &refusal.tried_by,
                    refusal.proved,
                    Some(&self.inbox.name()),
                    refusal.reason,
                    refusal.explanation,
                );
                // It is kept where operators find it.
                let requeue = BasicRejectOptions { requeue: false };
                return channel.basic_reject(tag, requeue).await;
            }
        };
        let tag = self.acks.delivered(tag);
        let arrival = self
            .incoming
            .arrived(&sender, stamp, (tag, item), Instant::now());
        match arrival {
            Arrival::Deliver(items) => {
                for (tag, item) in items {
                    self.inbox.hand_over(item, tag, &mut self.acks);
                }
            }
            Arrival::Kept if self.is_stuck() => {
                tracing::debug!(who = %self.inbox.link().client().name,
                    "all that was delivered waits for something earlier; trying a new connection");
                return Err(closed());
            }
            Arrival::Kept => {}
            Arrival::Duplicate((tag, item)) => self.inbox.came_again(item, tag, &mut self.acks),
        }
        Ok(())
    }

    /// Whether the broker delivers no more until something is acknowledged, and all there is waits for something before it:
    /// what a connection that has died still holds at the broker comes first on the next one.
    fn is_stuck(&self) -> bool {
        let prefetch = usize::from(self.inbox.link().wire().config().prefetch);
        let is_here = |(tag, _): &&(Tag, R::Item)| self.acks.is_present(*tag);
        self.acks.open() >= prefetch && self.incoming.kept().filter(is_here).count() >= prefetch
    }
}

fn closed() -> lapin::Error {
    lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into()
}
