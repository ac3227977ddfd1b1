//! The way to the task of a peer, and the messages on that way.

use std::sync::Arc;

use sealbus_fipa::AclMessage;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::peer::Request;

/// Bytes one permit stands for.
pub(super) const UNIT: usize = 1 << 10;

/// The way to a peer's task.
#[derive(Clone)]
pub(super) struct PeerHandle {
    pub(super) requests: mpsc::Sender<Request<Ticket>>,
    /// Room for bytes on their way to it.
    pub(super) room: Arc<Semaphore>,
}

/// The data that a message carries with it on its way out.
pub(super) struct Ticket {
    /// Without its content.
    pub(super) message: AclMessage,
    pub(super) receiver: Arc<str>,
    pub(super) _room: Option<OwnedSemaphorePermit>,
    pub(super) _share: Option<OwnedSemaphorePermit>,
}
