//! The way to the task of a peer, and the messages on that way.

use std::sync::Arc;

use sealbus_bus::MessageRoom;
use sealbus_fipa::AclMessage;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::peer::Request;

/// Bytes one permit stands for.
pub(crate) const UNIT: usize = 1 << 10;

/// The way to a peer's task.
#[derive(Clone)]
pub(crate) struct PeerHandle {
    pub(crate) requests: mpsc::Sender<Request<Ticket>>,
    /// Room for bytes on their way to the peer.
    pub(crate) room: Arc<Semaphore>,
}

/// The data that a message carries with it on its way out.
pub(crate) struct Ticket {
    /// The message without its content.
    pub(crate) message: AclMessage,
    pub(crate) receiver: Arc<str>,
    pub(crate) _room: Option<OwnedSemaphorePermit>,
    pub(crate) _share: Option<OwnedSemaphorePermit>,
    /// Its room among the messages of other processes to all platforms.
    pub(crate) _of_all: Option<Arc<MessageRoom>>,
}
