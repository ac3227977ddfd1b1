//! What waits for the writer of a connection, bounded in bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::codec::Frame;
use crate::{Fault, FaultCode};

/// Bytes that wait for the writer before senders wait. The longest frame fits.
pub(super) const OUTGOING: usize = 32 * 1024 * 1024;
/// What a frame costs of them besides its body.
const OVERHEAD: usize = 256;

/// Why a notice was not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// As much waits for the other side as may wait.
    #[error("the other side does not read: {OUTGOING} bytes wait for it")]
    ReadsNothing,
}

/// The frames on their way to the writer, and the room that is left for more.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) frames: mpsc::UnboundedSender<(Frame, OwnedSemaphorePermit)>,
    pub(super) room: Arc<Semaphore>,
}

/// The same for those who must not keep the connection open.
pub(super) struct WeakOutgoing {
    pub(super) frames: mpsc::WeakUnboundedSender<(Frame, OwnedSemaphorePermit)>,
    pub(super) room: Arc<Semaphore>,
}

impl Outgoing {
    /// Waits for room. Nothing happens if the connection is closed.
    pub(super) async fn send(&self, frame: Frame) -> Result<(), Fault> {
        let room = self.room.clone().acquire_many_owned(cost(&frame)).await;
        let room = room.map_err(|_| gone())?;
        self.frames.send((frame, room)).map_err(|_| gone())
    }

    pub(super) fn try_send(&self, frame: Frame) -> Result<(), Untold> {
        let room = self.room.clone().try_acquire_many_owned(cost(&frame));
        let room = room.map_err(|error| match error {
            TryAcquireError::Closed => Untold::Closed,
            TryAcquireError::NoPermits => Untold::ReadsNothing,
        })?;
        self.frames.send((frame, room)).map_err(|_| Untold::Closed)
    }
}

impl WeakOutgoing {
    pub(super) fn upgrade(&self) -> Option<Outgoing> {
        Some(Outgoing {
            frames: self.frames.upgrade()?,
            room: self.room.clone(),
        })
    }
}

fn cost(frame: &Frame) -> u32 {
    let body = match frame {
        Frame::Call { body, .. } | Frame::Answer { body, .. } | Frame::Notice { body } => {
            body.get().len()
        }
        Frame::Fault { .. } => 0,
    };
    u32::try_from((body + OVERHEAD).min(OUTGOING)).unwrap_or(u32::MAX)
}

/// The fault of a request on a closed connection.
pub(super) fn gone() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "the connection was closed before the answer came",
    )
}
