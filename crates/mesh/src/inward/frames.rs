//! Frames for the bus of this process. Their writers are checked here; the bus checks their contents.

use bytes::Bytes;
use sealbus_bus::{
    ArrivedFrame, ExplainedRefusal, FrameCredit, FrameWriter, Provenance, RefusedFrame,
};
use sealbus_proof::Evidence;

use super::Inward;
use super::line::WriterOrRefusal;
use super::messages::give_back;
use super::senders::never_bound;
use super::targets::{OpenTarget, Whom};
use crate::frame::{PROCESS_SENDER, Why};
use crate::link::Link;

use std::mem;
use std::sync::Arc;

/// Successive frames for the bus.
#[derive(Default)]
pub(super) struct FrameRow {
    frames: Vec<ArrivedFrame>,
    /// The senders and the targets of the frames.
    handles: Vec<(u32, u32)>,
}

impl FrameRow {
    /// Takes the credit of the frames in the row, if they are for this target, for the next frame.
    fn take_credit(&mut self, target: u32) -> Option<FrameCredit> {
        let (_, last) = self.handles.last()?;
        let frame = self.frames.last_mut().filter(|_| *last == target)?;
        Some(mem::replace(&mut frame.credit, FrameCredit::free()))
    }
}

impl Inward {
    /// Adds a frame to the row of frames that go to the bus together, or returns the reason why not.
    pub(super) fn deliver_frame(
        &mut self,
        link: &Arc<Link>,
        sender: u32,
        target: u32,
        payload: Bytes,
        origin: WriterOrRefusal,
    ) {
        let Some(Some(slot)) = self.targets.get(target as usize) else {
            return;
        };
        let window = match &slot.open {
            Some(OpenTarget {
                whom: Whom::Process(window),
                ..
            }) => window,
            _ => {
                give_back(link, target, sender, slot.why_not, &payload);
                return;
            }
        };
        match origin {
            Ok(writer) => {
                let credit = match self.frames.take_credit(target) {
                    Some(credit) => credit.and(payload.len()),
                    None => window.credit(payload.len()),
                };
                self.frames.handles.push((sender, target));
                self.frames.frames.push(ArrivedFrame {
                    writer,
                    payload,
                    credit,
                });
            }
            Err(refused) => {
                // This frees the frame's room again.
                drop(window.credit(payload.len()));
                self.note_frame(sender, &refused);
                give_back(link, target, sender, Why::Refused(refused.reason), &payload);
            }
        }
    }

    /// Hands the frames of the row to the bus.
    pub(super) fn end_frames(&mut self, link: &Arc<Link>) {
        if self.frames.frames.is_empty() {
            return;
        }
        let refused = self.bus.take_frames(&mut self.frames.frames);
        self.received += (self.frames.handles.len() - refused.len()) as u64;
        for RefusedFrame {
            place,
            frame,
            refused,
        } in refused
        {
            if let Some((sender, target)) = self.frames.handles.get(place) {
                let why = Why::Refused(refused.reason);
                give_back(link, *target, *sender, why, &frame.payload);
            }
        }
        self.frames.handles.clear();
    }

    /// The writer of a frame, as the connection proved it. `proved`: the writer's evidence, or why its proof was
    /// refused.
    pub(super) fn origin(
        &self,
        sender: u32,
        proved: Result<Option<Evidence>, ExplainedRefusal>,
    ) -> WriterOrRefusal {
        if sender == PROCESS_SENDER {
            return Ok(self.peer_writer.clone());
        }
        let sender = self
            .senders
            .get(sender as usize)
            .and_then(Option::as_ref)
            .ok_or_else(never_bound)?;
        sender.check()?;
        Ok(match proved? {
            Some(evidence) => Arc::new(FrameWriter {
                process: sender.writer.process.clone(),
                origin: sender.writer.origin.clone(),
                provenance: Provenance::Signed(evidence),
            }),
            None => sender.writer.clone(),
        })
    }

    /// Notes a frame whose writer is not believed.
    fn note_frame(&self, sender: u32, refused: &ExplainedRefusal) {
        let sender = self.senders.get(sender as usize).and_then(Option::as_ref);
        let proved = match sender.and_then(|sender| sender.provenance.certified()) {
            Some(verified) => verified.identity().to_string(),
            None => self.peer.to_string(),
        };
        self.bus.refused(
            sender.map_or("an agent that was not bound", |sender| &sender.name),
            Some(proved),
            None,
            refused.reason,
            refused.explanation.clone(),
        );
    }
}
