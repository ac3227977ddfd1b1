//! Frames for the bus of the other process. The bus is a target like an agent, with a credit of its own.

use std::convert::Infallible;

use bytes::Bytes;
use sealbus_bus::{FrameSender, LostFrame, OutgoingFrame, Rejected, UndeliverableReason};

use super::{Outward, TargetState};
use crate::flow::{Admission, Queued};
use crate::frame::{self, LONGEST_PIECE, PROCESS_SENDER};
use crate::session::Shared;

/// Bodies of at least this length are kept as they are until acknowledged. Shorter bodies are copied, so that the bytes
/// to write lie together.
const SHARED: usize = 4 << 10;

impl Outward {
    /// Accepts a frame for the bus of the process. See [`sealbus_bus::ProcessDestination::try_send`].
    pub(crate) fn try_send_frame(
        &mut self,
        handle: u32,
        serial: u64,
        outgoing: &OutgoingFrame<'_>,
    ) -> Result<(), Rejected> {
        if self.is_forgotten {
            return Err(Rejected::Closed);
        }
        match self.targets.get(handle as usize) {
            Some(Some(target)) if target.serial == serial => {
                if let TargetState::Closing { .. } = target.state {
                    return Err(Rejected::Moving);
                }
            }
            _ if self.returning.contains(&serial) => return Err(Rejected::Moving),
            _ => return Err(Rejected::Closed),
        }
        let length = outgoing.length();
        let limit = self.largest();
        if length > limit {
            return Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size: length,
                limit,
            }));
        }
        let sender = match outgoing.sender {
            FrameSender::Process => PROCESS_SENDER,
            FrameSender::Agent(agent) => self.bind_for(handle, agent)?,
        };
        let has_window = self.session.kept() < self.window;
        let statement = outgoing.statement.filter(|_| self.level.authenticates());
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return Err(Rejected::Closed);
        };
        match target.credit.admit(has_window, true) {
            Admission::Full => {
                if !target.is_waited_for {
                    target.is_waited_for = true;
                    self.blocked.push(handle);
                }
                return Err(Rejected::Full);
            }
            Admission::Now if length <= LONGEST_PIECE => {
                target.credit.sent(length);
                let is_shared = outgoing.body.len() >= SHARED;
                let write = |out: &mut Vec<u8>, sequence| {
                    let start = frame::begin_message(out, sender, handle);
                    out.extend_from_slice(outgoing.head);
                    if !is_shared {
                        out.extend_from_slice(outgoing.body);
                        out.extend_from_slice(outgoing.tail);
                    }
                    frame::finish_message(&mut out[start..], 0, sequence, statement.is_some());
                };
                if is_shared {
                    let shared = Shared {
                        body: outgoing.body.clone(),
                        tail: outgoing.tail,
                    };
                    self.session.append_shared(shared, write);
                } else {
                    let Ok(()) = self.session.append_with(|out, sequence| {
                        write(out, sequence);
                        Ok::<_, Infallible>(())
                    });
                }
                if let Some(statement) = statement {
                    self.note_unsigned(sender, statement);
                }
            }
            Admission::Now | Admission::Queue => {
                // If the head leaves no room for the body in the first piece, the body is not kept separately.
                let is_apart = outgoing.head.len() < LONGEST_PIECE && length > LONGEST_PIECE;
                let frame = if is_apart {
                    Queued {
                        sender,
                        head: Bytes::copy_from_slice(outgoing.head),
                        payload: outgoing.body.clone(),
                        tail: outgoing.tail,
                        statement,
                    }
                } else {
                    Queued {
                        statement,
                        ..Queued::message(sender, outgoing.to_bytes())
                    }
                };
                self.line.enqueue(handle, &mut target.credit, frame);
                self.note_queued(sender);
            }
        }
        self.sent += 1;
        Ok(())
    }

    /// The report on a frame that was not acknowledged.
    pub(super) fn as_lost(&self, frame: Queued, may_have_arrived: bool) -> LostFrame {
        LostFrame {
            sender: self.name_of(frame.sender),
            payload: frame.into_bytes(),
            may_have_arrived,
        }
    }
}
