//! The contract of a broker's client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use sealbus_bus::{Acknowledgement, BoxFuture};
use sealbus_seal::{Credential, Identity};
use thiserror::Error;

use crate::envelope::{BrokerDelivery, BrokerEnvelope, Receiver};

/// The reason why a broker did not carry out a request.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct BrokerFailure(Box<dyn std::error::Error + Send + Sync>);

impl BrokerFailure {
    /// The failure that `why` describes.
    pub fn new(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(why.into())
    }
}

/// The agent or the process in whose name a connection is made.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The owner's name in logs.
    pub name: Arc<str>,
    /// The owner's queue.
    pub queue: Receiver,
    /// The certificate that it proves its name with.
    pub credential: Option<Arc<Credential>>,
}

/// One process's access to a broker.
pub trait Client: Send + Sync + 'static {
    /// The broker's name in logs and manifests, such as `rabbitmq`.
    fn name(&self) -> &'static str;

    /// The strength of the answer [`Answer::Taken`]. `None`: the message may be in the broker's memory alone.
    fn acknowledgement(&self) -> Option<Acknowledgement>;

    /// The agent or the process of this platform that a user stands for; `None`: the user is neither.
    fn identity_of(&self, user: &str) -> Option<Identity>;

    /// Connects to the broker at `address` to publish in the name of `owner`.
    fn open_sending<'a>(
        &'a self,
        address: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Box<dyn Sending>, BrokerFailure>>;

    /// Connects to the broker at `address` and begins to receive from the queue of `owner`. The broker makes at most
    /// `prefetch` deliveries without an acknowledgement.
    fn open_receiving<'a>(
        &'a self,
        address: &'a str,
        owner: &'a Owner,
        prefetch: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Receiving>, BrokerFailure>>;
}

/// The broker's answer to a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The broker has the message.
    Taken,
    /// The broker does not have the message, and may take it another time.
    NotTaken,
    /// The receiver has no queue.
    NoQueue,
}

/// Whether the broker takes messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The broker is short of a resource. It leaves publications unanswered until it has enough again.
    Blocked(String),
    /// The broker takes messages again.
    Unblocked,
}

/// A connection that publishes. It is dropped once any call has failed.
pub trait Sending: Send {
    /// Whether the broker may have lost messages that it confirmed on earlier connections of the same owner.
    fn may_have_lost(&self) -> bool;

    /// Puts an envelope behind those published before, without waiting. `order` identifies the envelope in the answer.
    fn publish(&mut self, order: u64, envelope: BrokerEnvelope);

    /// The next answer, in any order. A second answer to the same order is ignored.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(u64, Answer), BrokerFailure>>;

    /// The next change of the broker's condition.
    fn poll_condition(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Condition, BrokerFailure>>;

    /// Ends the connection with the reason `why`.
    fn close(&mut self, why: &'static str) -> BoxFuture<'static, ()>;
}

/// A connection that receives from one queue. It is dropped once any call has failed. Its unacknowledged deliveries are
/// delivered again on another connection.
pub trait Receiving: Send {
    /// The next deliveries: all that have arrived. Deliveries that came before the connection broke are handed out
    /// first. Nothing is lost if the future is dropped.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<BrokerDelivery>, BrokerFailure>>;

    /// Acknowledges all deliveries up to a tag, and single ones, without waiting.
    ///
    /// # Errors
    /// If the connection is known to be broken.
    fn acknowledge(
        &mut self,
        up_to: Option<u64>,
        singles: &BTreeSet<u64>,
    ) -> Result<(), BrokerFailure>;

    /// Tells the broker to keep a delivery among the dead letters, without waiting.
    ///
    /// # Errors
    /// If the connection is known to be broken.
    fn reject(&mut self, tag: u64) -> Result<(), BrokerFailure>;

    /// Ends the connection after all pending commands, with the reason `why`. Unacknowledged messages stay in the
    /// queue.
    fn close(self: Box<Self>, why: &'static str) -> BoxFuture<'static, ()>;
}
