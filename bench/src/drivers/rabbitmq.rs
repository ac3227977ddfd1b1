//! RabbitMQ through its client library alone, with the same queues, connections, confirms and acknowledgements as
//! Sealbus uses, and nothing else. The overhead of Sealbus is measured against it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Consumer, Result as LapinResult};
use sealbus_bench_driver::{Kind, Prepare, Role, Shape, monotonic_ns};
use sealbus_brokers::rabbitmq::bare::{self, BareConnection};
use sealbus_brokers::rabbitmq::{RabbitClient, names};
use sealbus_brokers::{BrokerConfig, BrokerPromise, Queue, Receiver};
use sealbus_seal::{Credential, SecurityLevel};
use serde::Deserialize;
use serde_json::Value;

use crate::drivers::broker::{Access, Doorway};
use crate::drivers::stage::{DriverError, Prepared, Received, Sender, System, failed};

/// Messages acknowledged together, if that many come at once.
const TOGETHER: usize = 64;

#[derive(Deserialize)]
struct Settings {
    level: SecurityLevel,
    #[serde(default)]
    promise: BrokerPromise,
    #[serde(flatten)]
    access: Access,
}

/// The routing key of a broadcast.
fn channel_key(run: &str) -> String {
    format!("channel-{run}")
}

/// Connects to the first broker of `config`.
async fn connect(
    config: &BrokerConfig,
    name: &str,
    credential: Option<Arc<Credential>>,
) -> Result<BareConnection, DriverError> {
    let address = config.addresses.first();
    let address = address.ok_or_else(|| failed("no broker is named"))?;
    let client = RabbitClient::new(config);
    bare::connect(&client, address, name, credential)
        .await
        .map_err(failed)
}

/// A client: a connection to send, and one to receive.
struct Client {
    config: BrokerConfig,
    name: String,
    user: String,
    credential: Option<Arc<Credential>>,
    out: Channel,
    /// The connections close when this is dropped.
    connections: Vec<BareConnection>,
}

impl Client {
    async fn connect(
        config: &BrokerConfig,
        name: String,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, DriverError> {
        let bare = connect(config, &name, credential.clone()).await?;
        let out = bare.connection.create_channel().await.map_err(failed)?;
        let options = ConfirmSelectOptions::default();
        out.confirm_select(options).await.map_err(failed)?;
        Ok(Self {
            config: config.clone(),
            name,
            user: bare.user.clone(),
            credential,
            out,
            connections: vec![bare],
        })
    }

    async fn consume(&mut self) -> Result<(Channel, Consumer), DriverError> {
        let bare = connect(&self.config, &self.name, self.credential.clone()).await?;
        let channel = bare.connection.create_channel().await.map_err(failed)?;
        self.connections.push(bare);
        let qos = BasicQosOptions::default();
        channel
            .basic_qos(self.config.prefetch, qos)
            .await
            .map_err(failed)?;
        let consumer = channel
            .basic_consume(
                names::queue(&Queue {
                    owner: Receiver::Agent(self.name.as_str().into()),
                    promise: self.config.promise,
                })
                .into(),
                self.name.as_str().into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(failed)?;
        Ok((channel, consumer))
    }

    /// Publishes a message. Returns a future of the broker's answer. When this returns, the message is in the library's
    /// queue. The library could also wait until the message is written, but that costs two switches of threads for
    /// each.
    fn publish(&self, to: &str, content: &[u8]) -> Result<Answer, DriverError> {
        let properties = BasicProperties::default()
            .with_delivery_mode(match self.config.promise {
                BrokerPromise::Durable => 2,
                BrokerPromise::Transient => 1,
            })
            .with_user_id(self.user.as_str().into())
            .with_reply_to(self.name.as_str().into());
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let (channel, to, content) = (self.out.clone(), to.into(), content.to_vec());
        let mut answer: Answer = Box::pin(async move {
            let exchange = names::MESSAGES.into();
            let confirm = channel.basic_publish(exchange, to, options, &content, properties);
            confirm.await?.await
        });
        if let Some(answer) = answer.as_mut().now_or_never() {
            return Ok(Box::pin(std::future::ready(Ok(answer.map_err(failed)?))));
        }
        Ok(answer)
    }
}

/// The broker's answer to a message.
type Answer = Pin<Box<dyn Future<Output = LapinResult<Confirmation>> + Send>>;

/// Acknowledges without waiting until the acknowledgement is written.
fn acknowledge(channel: &Channel, tag: u64, multiple: bool) -> Result<(), DriverError> {
    let sent = channel.basic_ack(tag, BasicAckOptions { multiple });
    sent.now_or_never().unwrap_or(Ok(())).map_err(failed)
}

/// A client that sends.
pub(crate) struct Speaker {
    client: Client,
    /// The routing key.
    receiver: String,
    unconfirmed: VecDeque<(usize, Answer)>,
    /// Length of the messages' content in bytes.
    bytes: usize,
    /// Round trips: the channel and consumer of the answers.
    answers: Option<(Channel, Consumer)>,
}

impl Sender for Speaker {
    async fn send(&mut self, content: &[u8]) -> Result<(), DriverError> {
        let answer = self.client.publish(&self.receiver, content)?;
        self.unconfirmed.push_back((content.len(), answer));
        self.bytes += content.len();
        // This takes the present confirmations, and waits for more if too many are missing.
        let config = &self.client.config;
        loop {
            let is_full = self.unconfirmed.len() >= config.unconfirmed_messages
                || self.bytes >= config.unconfirmed_bytes;
            let Some((size, first)) = self.unconfirmed.front_mut() else {
                break;
            };
            let size = *size;
            let confirmed = match is_full {
                true => Some(first.await),
                false => first.now_or_never(),
            };
            let Some(confirmed) = confirmed else {
                break;
            };
            self.unconfirmed.pop_front();
            self.bytes -= size;
            if !confirmed.map_err(failed)?.is_ack() {
                return Err(failed("the broker did not take a message"));
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    async fn ask(&mut self, content: &[u8]) -> Result<bool, DriverError> {
        self.send(content).await?;
        let (channel, consumer) = self
            .answers
            .as_mut()
            .ok_or_else(|| failed("this client does not receive"))?;
        let answer = consumer
            .next()
            .await
            .ok_or_else(|| failed("the queue was closed"))?
            .map_err(failed)?;
        acknowledge(channel, answer.delivery_tag, false)?;
        Ok(answer.data == content)
    }
}

/// The clients of a process.
pub(crate) struct Clients {
    door: Doorway,
    listening: Vec<tokio::task::JoinHandle<Result<(), DriverError>>>,
}

impl System for Clients {
    type Sender = Speaker;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let Settings {
            level,
            promise,
            access,
        } = serde_json::from_value(order.system.clone()).map_err(failed)?;
        let mut door = access.open(level, promise)?;
        let config = door.config()?;
        let scenario = &order.scenario;
        let name = |role: &str, number: u32| format!("{role}-{}-{number}@bench", order.run);
        // The senders are told the receivers.
        let run = order.there.as_str().unwrap_or(&order.run).to_owned();
        let mut listening = Vec::new();
        if order.role != Role::Send {
            for number in 0..scenario.receivers {
                let name = name("receiver", number);
                let credential = door.admit(&name).await?;
                if scenario.shape == Shape::Broadcast {
                    door.bind(&name, &channel_key(&run)).await?;
                }
                let mut client = Client::connect(&config, name, credential).await?;
                let (channel, consumer) = client.consume().await?;
                let received = received.clone();
                listening.push(match scenario.kind {
                    Kind::RoundTrip => tokio::spawn(answer(client, channel, consumer, received)),
                    Kind::Stream => {
                        let size = scenario.size;
                        tokio::spawn(take(number, size, client, channel, consumer, received))
                    }
                });
            }
        }
        let mut senders = Vec::new();
        if order.role != Role::Receive {
            for number in 0..scenario.senders {
                let name = name("sender", number);
                let credential = door.admit(&name).await?;
                let mut client = Client::connect(&config, name, credential).await?;
                let answers = match scenario.kind {
                    Kind::RoundTrip => Some(client.consume().await?),
                    Kind::Stream => None,
                };
                let key_of = |receiver: u32| format!("receiver-{run}-{receiver}@bench");
                senders.push(Speaker {
                    client,
                    receiver: match scenario.shape {
                        Shape::OneToOne => key_of(number),
                        Shape::ManyToOne => key_of(0),
                        Shape::Broadcast => channel_key(&run),
                    },
                    unconfirmed: VecDeque::new(),
                    bytes: 0,
                    answers,
                });
            }
        }
        Ok(Prepared {
            system: Self { door, listening },
            senders,
            here: Value::from(order.run.as_str()),
            client: "lapin 4".to_owned(),
        })
    }

    fn meet(&mut self, _: &Value) -> Result<(), DriverError> {
        Ok(())
    }

    async fn leave(self) {
        for client in &self.listening {
            client.abort();
        }
        self.door.dismiss().await;
    }
}

/// Counts the messages that come.
async fn take(
    number: u32,
    size: usize,
    _client: Client,
    channel: Channel,
    mut consumer: Consumer,
    received: Arc<Received>,
) -> Result<(), DriverError> {
    while let Some(delivery) = consumer.next().await {
        let mut next = Some(delivery);
        let mut last = 0;
        let mut count = 0;
        while let Some(delivery) = next {
            let delivery = delivery.map_err(failed)?;
            let now_ns = monotonic_ns();
            last = delivery.delivery_tag;
            let mut tally = received.tally.lock();
            tally.count(number, &delivery.data, size, now_ns);
            drop(tally);
            count += 1;
            next = match count < TOGETHER {
                true => consumer.next().now_or_never().flatten(),
                false => None,
            };
        }
        acknowledge(&channel, last, true)?;
    }
    Ok(())
}

/// Sends each message's content back to its sender.
async fn answer(
    client: Client,
    channel: Channel,
    mut consumer: Consumer,
    received: Arc<Received>,
) -> Result<(), DriverError> {
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery.map_err(failed)?;
        let to = delivery.properties.reply_to().as_ref();
        let to = to.ok_or_else(|| failed("a question does not say who asks"))?;
        // The library tracks the confirmation, which nobody waits for.
        drop(client.publish(to.as_str(), &delivery.data)?);
        received.answered.fetch_add(1, Ordering::Relaxed);
        acknowledge(&channel, delivery.delivery_tag, false)?;
    }
    Ok(())
}
