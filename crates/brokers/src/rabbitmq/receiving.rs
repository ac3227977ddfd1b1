//! A connection that receives from one queue.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures_util::{FutureExt, Stream, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{
    Channel, Connection, ConnectionState, Consumer, ErrorKind, Event, Result as LapinResult,
};
use sealbus_bus::BoxFuture;

use super::connect::Opened;
use super::properties;
use super::socket::CutOnDrop;
use crate::client::{BrokerFailure, Receiving};
use crate::envelope::BrokerDelivery;

/// The most deliveries that are taken together.
const TOGETHER: usize = 64;

/// A connection that receives from one queue.
pub(super) struct ReceivingConnection {
    /// The first field, which is dropped first.
    _cut: CutOnDrop,
    channel: Channel,
    connection: Connection,
    consumer: Consumer,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// Why nothing follows the last delivery.
    broken: Option<lapin::Error>,
}

impl ReceivingConnection {
    /// Begins to receive from `queue`, which the Master has made, under the name `tag`. The broker sends at most
    /// `prefetch` deliveries ahead of their acknowledgements.
    pub(super) async fn open(
        opened: Opened,
        queue: &str,
        tag: &str,
        prefetch: u16,
    ) -> LapinResult<Self> {
        let Opened {
            connection,
            events,
            cut,
            ..
        } = opened;
        let channel = connection.create_channel().await?;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        channel
            .queue_declare(queue.into(), passive, FieldTable::default())
            .await?;
        channel
            .basic_qos(prefetch, BasicQosOptions::default())
            .await?;
        let consumer = channel
            .basic_consume(
                queue.into(),
                tag.into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        Ok(Self {
            _cut: cut,
            channel,
            connection,
            consumer,
            events,
            broken: None,
        })
    }

    async fn take(&mut self) -> LapinResult<Vec<BrokerDelivery>> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let first = loop {
            tokio::select! {
                delivery = self.consumer.next() => break delivery,
                event = self.events.next() => match event {
                    Some(Event::Error(error)) => return Err(error),
                    Some(_) => {}
                    None => return Err(ErrorKind::MissingHeartbeatError.into()),
                },
            }
        };
        let mut together = vec![received(first)?];
        while together.len() < TOGETHER
            && let Some(next) = self.consumer.next().now_or_never()
        {
            match received(next) {
                Ok(delivery) => together.push(delivery),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            }
        }
        Ok(together)
    }
}

impl Receiving for ReceivingConnection {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<BrokerDelivery>, BrokerFailure>> {
        Box::pin(async { Ok(self.take().await?) })
    }

    fn acknowledge(
        &mut self,
        up_to: Option<u64>,
        singles: &BTreeSet<u64>,
    ) -> Result<(), BrokerFailure> {
        let all = up_to.map(|tag| (tag, true)).into_iter();
        for (tag, multiple) in all.chain(singles.iter().map(|tag| (*tag, false))) {
            // After one poll, the command waits in the library's line.
            let sent = self.channel.basic_ack(tag, BasicAckOptions { multiple });
            sent.now_or_never().unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn reject(&mut self, tag: u64) -> Result<(), BrokerFailure> {
        let rejected = self
            .channel
            .basic_reject(tag, BasicRejectOptions { requeue: false });
        Ok(rejected.now_or_never().unwrap_or(Ok(()))?)
    }

    fn close(self: Box<Self>, why: &'static str) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.channel.close(200, why.into()).await;
            let _ = self.connection.close(200, why.into()).await;
        })
    }
}

/// Takes a delivery. Without one the queue was deleted, or the broker cancelled for another reason.
fn received(
    delivery: Option<LapinResult<lapin::message::Delivery>>,
) -> LapinResult<BrokerDelivery> {
    delivery
        .unwrap_or_else(|| Err(ErrorKind::InvalidConnectionState(ConnectionState::Closed).into()))
        .map(properties::read)
}
