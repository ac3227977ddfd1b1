//! What the broker delivers on one connection.

use std::pin::Pin;

use futures_util::{FutureExt, Stream, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{
    Channel, Connection, ConnectionState, Consumer, ErrorKind, Event, Result as LapinResult,
};

use super::connect::Opened;

/// Deliveries taken together, if so many come at once.
const TOGETHER: usize = 64;

/// A connection that receives from one queue.
pub(crate) struct Deliveries {
    pub(crate) channel: Channel,
    connection: Connection,
    consumer: Consumer,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// Why nothing follows what was handed out last.
    broken: Option<lapin::Error>,
}

impl Deliveries {
    /// Begins to receive from `queue`, which the Master has made, under the name `tag`; the broker hands out no more than
    /// `prefetch` before something is acknowledged.
    pub(crate) async fn open(
        opened: Opened,
        queue: &str,
        tag: &str,
        prefetch: u16,
    ) -> LapinResult<Self> {
        let Opened {
            connection, events, ..
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
            channel,
            connection,
            consumer,
            events,
            broken: None,
        })
    }

    /// The next delivery, and what is there with it. What came before the connection broke is handed out, then the error
    /// is. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> LapinResult<Vec<Delivery>> {
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

    /// Ends the connection; what was not acknowledged stays in the queue.
    pub(crate) async fn close(self, why: &str) {
        let _ = self.channel.close(200, why.into()).await;
        let _ = self.connection.close(200, why.into()).await;
    }
}

/// Without a delivery the queue was deleted, or the broker cancelled for another reason.
fn received(delivery: Option<LapinResult<Delivery>>) -> LapinResult<Delivery> {
    delivery
        .unwrap_or_else(|| Err(ErrorKind::InvalidConnectionState(ConnectionState::Closed).into()))
}
