//! The frames that wait for the writer of a connection. Their bytes are limited.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::codec::Frame;
use crate::Fault;
use crate::asker::gone;

/// The bytes that may wait for the writer before senders wait; and as many of frames that are sent at once. The longest
/// frame fits.
pub(super) const OUTGOING: usize = 32 * 1024 * 1024;
/// The bytes that a frame counts as in addition to its body.
const OVERHEAD: usize = 256;

/// Why a notice was not accepted for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// Too many bytes already wait for the other side.
    #[error("the other side does not read: {OUTGOING} bytes wait for it")]
    ReadsNothing,
}

/// The remaining room, in bytes. Frames that are sent at once have room of their own. Otherwise a long frame that waits
/// would occupy all the remaining room, and the other side would seem to read nothing although it does.
#[derive(Clone, Debug)]
pub(super) struct Room {
    waiting: Arc<Semaphore>,
    at_once: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        let room = || Arc::new(Semaphore::new(OUTGOING));
        Self {
            waiting: room(),
            at_once: room(),
        }
    }
}

impl Room {
    /// Notes that nothing is sent any more.
    pub(super) fn close(&self) {
        self.waiting.close();
        self.at_once.close();
    }
}

/// The frames on their way to the writer, and the remaining room.
#[derive(Clone, Debug)]
pub(super) struct OutgoingFrames {
    pub(super) frames: mpsc::UnboundedSender<(Frame, OwnedSemaphorePermit)>,
    pub(super) room: Room,
}

/// A handle that does not keep the connection open.
pub(super) struct WeakOutgoingFrames {
    pub(super) frames: mpsc::WeakUnboundedSender<(Frame, OwnedSemaphorePermit)>,
    pub(super) room: Room,
}

impl OutgoingFrames {
    /// Waits for room, then sends. Nothing happens if the connection is closed.
    pub(super) async fn send(&self, frame: Frame) -> Result<(), Fault> {
        let room = self.room.waiting.clone();
        let room = room.acquire_many_owned(cost(&frame)).await;
        let room = room.map_err(|_| gone())?;
        self.frames.send((frame, room)).map_err(|_| gone())
    }

    pub(super) fn try_send(&self, frame: Frame) -> Result<(), Untold> {
        let room = self.room.at_once.clone();
        let room = room.try_acquire_many_owned(cost(&frame));
        let room = room.map_err(|error| match error {
            TryAcquireError::Closed => Untold::Closed,
            TryAcquireError::NoPermits => Untold::ReadsNothing,
        })?;
        self.frames.send((frame, room)).map_err(|_| Untold::Closed)
    }
}

impl WeakOutgoingFrames {
    pub(super) fn upgrade(&self) -> Option<OutgoingFrames> {
        Some(OutgoingFrames {
            frames: self.frames.upgrade()?,
            room: self.room.clone(),
        })
    }
}

/// The bytes that a frame counts as, on its way to the writer or held by its receiver.
pub(super) fn cost(frame: &Frame) -> u32 {
    let body = match frame {
        Frame::Call { body, .. } | Frame::Answer { body, .. } | Frame::Notice { body } => {
            body.get().len()
        }
        Frame::Fault { .. } => 0,
    };
    u32::try_from((body + OVERHEAD).min(OUTGOING)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::asker::to_json;

    #[test]
    fn a_long_frame_that_waits_keeps_no_notice_out() {
        let (frames, _unread) = mpsc::unbounded_channel();
        let room = Room::default();
        let outgoing = OutgoingFrames { frames, room };
        let notice = |length| {
            let body = to_json(&"x".repeat(length)).unwrap();
            Frame::Notice { body }
        };
        let sent = outgoing.send(notice(20 << 20)).now_or_never();
        sent.unwrap().unwrap();
        let mut waits = pin!(outgoing.send(notice(20 << 20)));
        assert!(waits.as_mut().now_or_never().is_none());
        outgoing.try_send(notice(10)).unwrap();
    }
}
