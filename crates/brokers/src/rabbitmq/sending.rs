//! A connection that publishes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{FutureExt, Stream, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{
    Channel, Confirmation, Connection, ErrorKind, Event, ExchangeKind, Result as LapinResult,
};
use sealbus_bus::BoxFuture;

use super::connect::Opened;
use super::socket::CutOnDrop;
use super::{names, properties};
use crate::client::{Answer, BrokerFailure, Condition, Sending};
use crate::config::BrokerPromise;
use crate::envelope::{BrokerEnvelope, Receiver};
use crate::stamp::OrderStamp;

/// The broker's answer to a message, once it comes. The message stands in the library's line from the first poll on, in
/// order. The sender does not wait until it is written, which would cost two switches of threads for each message.
type Confirming = Pin<Box<dyn Future<Output = LapinResult<Confirmation>> + Send>>;

/// A message that was published and not answered.
struct Published {
    order: u64,
    number: u64,
    key: Arc<str>,
    confirming: Confirming,
}

/// A connection that publishes.
pub(super) struct Publications {
    _cut: CutOnDrop,
    connection: Arc<Connection>,
    channel: Arc<Channel>,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    user: String,
    promise: BrokerPromise,
    may_have_lost: bool,
    /// The publications in order. A broker usually confirms in this order.
    published: VecDeque<Published>,
    /// Answers that came together with another answer.
    answers: VecDeque<(u64, Answer)>,
}

impl Publications {
    pub(super) async fn open(
        opened: Opened,
        owner: &Receiver,
        promise: BrokerPromise,
    ) -> LapinResult<Self> {
        let Opened {
            connection,
            events,
            cut,
            user,
        } = opened;
        let channel = connection.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        let may_have_lost = match promise {
            BrokerPromise::Durable => false,
            BrokerPromise::Transient => !is_marked(&connection, &channel, owner).await?,
        };
        Ok(Self {
            _cut: cut,
            connection: Arc::new(connection),
            channel: Arc::new(channel),
            events,
            user,
            promise,
            may_have_lost,
            published: VecDeque::new(),
            answers: VecDeque::new(),
        })
    }

    /// Notes the broker's answer to `order`, which had `key` and `number`.
    fn confirmed(&mut self, (order, key, number): (u64, &str, u64), confirmation: Confirmation) {
        let (returned, answer) = match confirmation {
            Confirmation::Ack(returned) => (returned, Answer::Taken),
            Confirmation::Nack(returned) => (returned, Answer::NotTaken),
            Confirmation::NotRequested => return,
        };
        // The library attaches a returned message to the next confirmation that comes. The message itself says which
        // one it is.
        let back = returned.and_then(|returned| {
            let id = returned.properties.message_id().as_ref()?;
            let number_back = OrderStamp::parse(id.as_str())?.number;
            let key_back = returned.routing_key.as_str();
            let others = self.published.iter();
            let others = others.map(|it| (it.order, &*it.key, it.number));
            order_of(
                (key_back, number_back),
                others.chain([(order, key, number)]),
            )
        });
        if let Some(back) = back {
            self.answers.push_back((back, Answer::NoQueue));
        }
        if back != Some(order) {
            self.answers.push_back((order, answer));
        }
    }
}

/// Finds the message with this key and number among those published with an order, a key and a number.
fn order_of<'a>(
    (key, number): (&str, u64),
    mut published: impl Iterator<Item = (u64, &'a str, u64)>,
) -> Option<u64> {
    let found = published.find(|(_, its_key, its_number)| (*its_key, *its_number) == (key, number));
    found.map(|(order, ..)| order)
}

/// Whether the owner has marked the broker's present life before. If not, the owner marks it now, by a command on
/// `channel`.
async fn is_marked(
    connection: &Connection,
    channel: &Channel,
    owner: &Receiver,
) -> LapinResult<bool> {
    let declare = async |channel: &Channel, options| {
        let (mark, kind) = (names::mark(owner).into(), ExchangeKind::Direct);
        let declared = channel.exchange_declare(mark, kind, options, FieldTable::default());
        declared.await
    };
    // A mark that is not there breaks the AMQP channel on which it was asked for.
    let asking = connection.create_channel().await?;
    let passive = ExchangeDeclareOptions {
        passive: true,
        ..ExchangeDeclareOptions::default()
    };
    if declare(&asking, passive).await.is_ok() {
        asking.close(200, "the mark is there".into()).await?;
        return Ok(true);
    }
    // Nothing is awaited after this command: if the mark is made, the caller knows that it was not there.
    let unanswered = ExchangeDeclareOptions {
        nowait: true,
        ..ExchangeDeclareOptions::default()
    };
    declare(channel, unanswered)
        .now_or_never()
        .unwrap_or(Ok(()))?;
    Ok(false)
}

impl Sending for Publications {
    fn may_have_lost(&self) -> bool {
        self.may_have_lost
    }

    fn publish(&mut self, order: u64, envelope: BrokerEnvelope) {
        let properties = properties::write(&envelope, &self.user, self.promise);
        let (exchange, key) = properties::address(&envelope.to);
        let key: Arc<str> = key.into();
        let (channel, to, payload) = (self.channel.clone(), key.clone(), envelope.payload);
        let options = BasicPublishOptions {
            // Without a queue for the receiver it comes back.
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let mut confirming: Confirming = Box::pin(async move {
            let (exchange, key) = (exchange.into(), (&*to).into());
            let confirm = channel.basic_publish(exchange, key, options, &payload, properties);
            confirm.await?.await
        });
        if let Some(confirmation) = confirming.as_mut().now_or_never() {
            confirming = Box::pin(std::future::ready(confirmation));
        }
        self.published.push_back(Published {
            order,
            number: envelope.stamp.number,
            key,
            confirming,
        });
    }

    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(u64, Answer), BrokerFailure>> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Poll::Ready(Ok(answer));
            }
            let Some(first) = self.published.front_mut() else {
                return Poll::Pending;
            };
            let confirmation = ready!(first.confirming.as_mut().poll(context));
            let Some(Published {
                order, key, number, ..
            }) = self.published.pop_front()
            else {
                return Poll::Pending;
            };
            match confirmation {
                Ok(confirmation) => self.confirmed((order, &key, number), confirmation),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_condition(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Condition, BrokerFailure>> {
        loop {
            return Poll::Ready(match ready!(self.events.poll_next_unpin(context)) {
                Some(Event::ConnectionBlocked(reason)) => Ok(Condition::Blocked(reason)),
                Some(Event::ConnectionUnblocked) => Ok(Condition::Unblocked),
                Some(Event::Error(error)) => Err(error.into()),
                Some(_) => continue,
                None => Err(lapin::Error::from(ErrorKind::MissingHeartbeatError).into()),
            });
        }
    }

    fn close(&mut self, why: &'static str) -> BoxFuture<'static, ()> {
        let connection = self.connection.clone();
        Box::pin(async move {
            let _ = connection.close(200, why.into()).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::order_of;

    #[test]
    fn what_came_back_is_known_by_receiver_and_number() {
        let published = [(0, "b@f", 1), (1, "c@f", 1), (2, "b@f", 2)];
        for (key, number, order) in [("b@f", 2, Some(2)), ("c@f", 1, Some(1)), ("c@f", 2, None)] {
            assert_eq!(order_of((key, number), published.into_iter()), order);
        }
    }
}
