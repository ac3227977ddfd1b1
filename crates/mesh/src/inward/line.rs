//! Level `signed`: the frames for the bus that wait for a proof, in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{ExplainedRefusal, FrameWriter};

/// The writer of a frame with its proof, or why the frame is refused.
pub(super) type WriterOrRefusal = Result<Arc<FrameWriter>, ExplainedRefusal>;

/// A frame for the bus that waits for its proof, or for a frame before it.
pub(super) struct HeldFrame {
    pub(super) sender: u32,
    pub(super) target: u32,
    pub(super) payload: Bytes,
    /// The writer, or why the frame is refused; `None` until its proof has come.
    pub(super) origin: Option<WriterOrRefusal>,
}

/// The frames for the bus that wait, in the order in which they came. The bus takes them in this order, whoever wrote
/// them.
#[derive(Default)]
pub(super) struct FrameLine {
    frames: VecDeque<HeldFrame>,
    /// The number of the first frame.
    first: u64,
}

impl FrameLine {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame, and returns its number.
    pub(super) fn push(&mut self, frame: HeldFrame) -> u64 {
        self.frames.push_back(frame);
        self.first + self.frames.len() as u64 - 1
    }

    pub(super) fn settle(&mut self, number: u64, origin: WriterOrRefusal) {
        let place = number.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(frame) = place.and_then(|place| self.frames.get_mut(place)) {
            frame.origin = Some(origin);
        }
    }

    /// Takes out the first frame, unless it still waits for its proof.
    pub(super) fn next(&mut self) -> Option<HeldFrame> {
        self.frames.front()?.origin.as_ref()?;
        self.first += 1;
        self.frames.pop_front()
    }
}
