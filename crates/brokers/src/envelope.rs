//! Messages and frames as a broker carries them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealbus_bus::RefusalReason;

use crate::stamp::Stamp;

/// The owner of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Receiver {
    /// An agent's, by the agent's whole name.
    Agent(Arc<str>),
    /// A process's, by the number of the process.
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

/// The kind of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ACL message, bit-efficiently encoded.
    Message,
    /// A frame of the bus of a process.
    Frame,
    /// A frame of the receiver that was refused and is sent back.
    Refused {
        /// Why, for machines.
        reason: RefusalReason,
        /// Why, for people.
        explanation: Arc<str>,
    },
}

/// A message or a frame on its way to the broker, which keeps it on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The queue it goes to.
    pub to: Receiver,
    /// Its place among all that this sender sends to this receiver.
    pub stamp: Stamp,
    /// The kind of the payload.
    pub kind: Kind,
    /// The path of the process that wrote a frame, `node/…/process/…`. It is written only at the levels at which the broker
    /// does not prove who sends.
    pub process: Option<Arc<str>>,
    /// The agent that wrote a frame; without it the process did.
    pub author: Option<Arc<str>>,
    /// The proof that the author speaks through its process.
    pub proof: Option<Bytes>,
    /// How long the broker keeps it if nobody takes it; without it, for ever.
    pub life: Option<Duration>,
    /// The message or the frame.
    pub payload: Bytes,
}

/// A message or a frame that a broker delivers. Only `tag` and `from` are the broker's word: a sender may have written anything into the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Names the delivery on its connection; tags rise.
    pub tag: u64,
    /// The user that sent it, in the broker's words, if the broker proves users.
    pub from: Option<String>,
    /// Its place; `None` if it has none that can be read.
    pub stamp: Option<Stamp>,
    /// The kind that it claims; `None` if that is no kind.
    pub kind: Option<Kind>,
    /// The path of the process that it says wrote it.
    pub process: Option<Arc<str>>,
    /// The agent that it says wrote it.
    pub author: Option<Arc<str>>,
    /// The author's proof.
    pub proof: Option<Bytes>,
    /// The payload.
    pub payload: Bytes,
}
