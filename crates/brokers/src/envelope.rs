//! Messages and frames in the form for a broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealbus_bus::RefusalReason;

use crate::config::BrokerPromise;
use crate::stamp::OrderStamp;

/// The owner of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Receiver {
    /// An agent, by its whole name.
    Agent(Arc<str>),
    /// A process, by its number.
    Process(Arc<str>),
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => f.pad(name),
            Self::Process(number) => write!(f, "process {number}"),
        }
    }
}

/// A queue at the broker.
///
/// The queues of one owner for different promises are different queues. A platform that changes its promise therefore
/// finds no queue of a kind that it does not expect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Queue {
    /// Its reader.
    pub owner: Receiver,
    /// The broker's promise about messages in it.
    pub promise: BrokerPromise,
}

/// The kind of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ACL message, bit-efficiently encoded.
    Message,
    /// A frame of the bus of a process.
    Frame,
    /// A frame of the receiver that was refused and is sent back.
    Refused {
        /// The reason, for machines.
        reason: RefusalReason,
        /// The reason, for people.
        explanation: Arc<str>,
    },
}

/// A message or a frame on its way to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerEnvelope {
    /// The queue it goes to.
    pub to: Receiver,
    /// The place among all envelopes from this sender to this receiver.
    pub stamp: OrderStamp,
    /// The kind of the payload.
    pub kind: Kind,
    /// The path of the process that wrote a frame, `node/…/process/…`. Written only at the levels at which the broker
    /// does not prove the sender.
    pub process: Option<Arc<str>>,
    /// The agent that wrote a frame. Without an agent, the process wrote it.
    pub author: Option<Arc<str>>,
    /// The proof that the author speaks through its process.
    pub proof: Option<Bytes>,
    /// The evidence that the author wrote the message or the frame.
    pub evidence: Option<Bytes>,
    /// How long the broker keeps the envelope if it is not taken; without it, for ever.
    pub life: Option<Duration>,
    /// The message or the frame.
    pub payload: Bytes,
}

/// A message or a frame that a broker delivers. Only `tag` and `from` come from the broker itself. A sender may have
/// written anything into the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerDelivery {
    /// Names the delivery on its connection; tags rise.
    pub tag: u64,
    /// The user that sent the envelope, as the broker names it, if the broker proves users.
    pub from: Option<String>,
    /// The place of the envelope; `None` if its stamp is missing or unreadable.
    pub stamp: Option<OrderStamp>,
    /// The claimed kind; `None` if the claim is no known kind.
    pub kind: Option<Kind>,
    /// The path of the process that is named as the writer.
    pub process: Option<Arc<str>>,
    /// The agent that is named as the writer.
    pub author: Option<Arc<str>>,
    /// The author's proof.
    pub proof: Option<Bytes>,
    /// The evidence that the author wrote it.
    pub evidence: Option<Bytes>,
    /// The payload.
    pub payload: Bytes,
}

impl BrokerDelivery {
    /// How many bytes the delivery brings.
    pub(crate) fn bytes(&self) -> usize {
        let shown = self.proof.iter().chain(&self.evidence);
        self.payload.len() + shown.map(Bytes::len).sum::<usize>()
    }
}
