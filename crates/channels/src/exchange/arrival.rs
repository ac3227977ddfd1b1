//! The arrival of frames from other processes: their sessions, numbers, checks and effects.

use std::sync::Arc;

use sealbus_bus::{ArrivedFrame, ExplainedRefusal, RefusalReason, RefusedFrame};
use sealbus_seal::Identity;

use super::{Exchange, Now};
use crate::frame::Frame;
use crate::qos::Reliability;

/// The limit of frames kept for one process, answers to its frames included, as a multiple of the limit for publishers.
const OVERFULL: usize = 4;

/// The reason why a frame of the right session is not accepted.
pub(super) enum Objection {
    /// An agent tried something that it may not do.
    Refused(ExplainedRefusal),
    /// The agent is not here.
    Absent,
}

impl From<ExplainedRefusal> for Objection {
    fn from(refused: ExplainedRefusal) -> Self {
        Self::Refused(refused)
    }
}

pub(super) fn refuse(reason: RefusalReason, explanation: impl Into<String>) -> Objection {
    Objection::Refused(ExplainedRefusal {
        reason,
        explanation: explanation.into(),
    })
}

pub(super) fn malformed(explanation: impl Into<String>) -> ExplainedRefusal {
    ExplainedRefusal {
        reason: RefusalReason::Malformed,
        explanation: explanation.into(),
    }
}

/// The origin of a frame.
pub(super) struct Origin<'a> {
    pub(super) index: u32,
    pub(super) number: u64,
    pub(super) arrived: &'a ArrivedFrame,
}

impl Exchange {
    /// Takes frames of other processes, oldest first, and leaves `frames` empty. Returns the refused frames: their
    /// bytes are not a frame, or the frame cannot come from that process.
    pub(crate) fn take_all(
        &mut self,
        frames: &mut Vec<ArrivedFrame>,
        now: Now,
    ) -> Vec<RefusedFrame> {
        let mut all_refused = Vec::new();
        for (place, frame) in frames.drain(..).enumerate() {
            if let Err(error) = self.take_next(frame, now) {
                let (frame, refused) = *error;
                all_refused.push(RefusedFrame {
                    place,
                    frame,
                    refused,
                });
            }
        }
        self.end_row(now);
        all_refused
    }

    /// Takes one frame.
    #[cfg(test)]
    pub(crate) fn take(
        &mut self,
        arrived: ArrivedFrame,
        now: Now,
    ) -> Result<(), Box<(ArrivedFrame, ExplainedRefusal)>> {
        let taken = self.take_next(arrived, now);
        self.end_row(now);
        taken
    }

    /// Takes a frame. Its event may have to wait in the row.
    fn take_next(
        &mut self,
        arrived: ArrivedFrame,
        now: Now,
    ) -> Result<(), Box<(ArrivedFrame, ExplainedRefusal)>> {
        let Some(index) = self.index_of_origin(&arrived.process) else {
            // The frame came before the platform reported its process. That process will greet again.
            tracing::debug!(process = %arrived.process, "a frame of a process that is not known yet");
            return Ok(());
        };
        let frame = match Frame::decode(&arrived.payload) {
            Ok(frame) => frame,
            Err(error) => {
                let refused = malformed(error.to_string());
                return Err(Box::new((arrived, refused)));
            }
        };
        if !matches!(frame, Frame::Event { .. }) {
            self.end_row(now);
        }
        let Some(stamp) = frame.stamp() else {
            if let Frame::Hello { from, to } = frame {
                self.hello(index, from, to, now);
            }
            return Ok(());
        };
        let pace = self.config.pace();
        let Some(peer) = self.peers.get_mut(index) else {
            return Ok(());
        };
        if !peer.is_introduced() || stamp.session != peer.session_in() {
            self.correct(index, now);
            return Ok(());
        }
        peer.is_heard = true;
        if let Frame::Acknowledge {
            upto, read, after, ..
        } = frame
        {
            let taken = self.acknowledged(index, (upto, read), after, now);
            return taken.map_err(|refused| Box::new((arrived, refused)));
        }
        if peer.outgoing.size().0 > OVERFULL * self.config.kept_frames {
            let refused = self.break_off(index, now);
            return Err(Box::new((arrived, refused)));
        }
        if let Frame::Event { head, .. } = &frame
            && head.reliability == Reliability::BestEffort
        {
            self.handle(index, 0, &arrived, &frame, now);
            return Ok(());
        }
        if stamp.number == 0 {
            let refused = malformed("a frame that must have a number has none");
            return Err(Box::new((arrived, refused)));
        }
        let size = arrived.payload.len();
        let time = now.since_start;
        if peer.incoming.take(stamp.number, size, time, pace) {
            self.handle(index, stamp.number, &arrived, &frame, now);
        }
        self.acknowledge_if_due(index, now);
        Ok(())
    }

    /// The index of the process that a frame came from. Most frames come from the same process as the frame before.
    fn index_of_origin(&mut self, process: &Arc<Identity>) -> Option<u32> {
        if let Some((known, index)) = &self.heard
            && Arc::ptr_eq(known, process)
        {
            return Some(*index);
        }
        let index = self.index_of(process)?;
        self.heard = Some((process.clone(), index));
        Some(index)
    }

    // ---- frames of a session, each once and in order ----

    fn handle(
        &mut self,
        index: u32,
        number: u64,
        arrived: &ArrivedFrame,
        frame: &Frame<'_>,
        now: Now,
    ) {
        let from = Origin {
            index,
            number,
            arrived,
        };
        let result = match *frame {
            Frame::Hello { .. } | Frame::Acknowledge { .. } => Ok(()),
            Frame::Void { .. } => {
                self.tell_credit(index, now);
                Ok(())
            }
            Frame::Announce { announcement, .. } => self.announced(&from, &announcement, now),
            Frame::Withdraw {
                subscription,
                moved_before,
                ..
            } => {
                self.withdrawn(index, subscription, moved_before, now);
                Ok(())
            }
            Frame::Credit {
                subscription,
                limit,
                ..
            } => {
                if let Some(peer) = self.peers.get(index)
                    && let Some(it) = peer.subscriptions.get(&subscription)
                {
                    it.raise(limit);
                }
                self.look_at_group((Some(index), subscription), now);
                self.tell_missed(index, subscription, now);
                Ok(())
            }
            Frame::Missed {
                subscription,
                count,
                ..
            } => {
                if let Some(consumer) = self.consumers.get(&subscription).cloned() {
                    self.note_missed(&consumer, count, now);
                }
                Ok(())
            }
            Frame::FilterErrors {
                subscription,
                count,
                text,
                ..
            } => {
                if let Some(consumer) = self.consumers.get(&subscription).cloned() {
                    self.count_filter_errors(&consumer, count, text);
                }
                Ok(())
            }
            Frame::Known { .. } => {
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.is_known = true;
                    peer.awaited_until = None;
                    // Subscriptions that the process has not announced again have ended.
                    self.forget_away(index, None);
                    self.announcements.open_all();
                }
                Ok(())
            }
            Frame::Taken { taken, .. } => {
                self.taken(index, taken, true, now);
                Ok(())
            }
            Frame::Event {
                head,
                targets,
                body,
                ..
            } => self.event(&from, &head, targets, body, now),
            Frame::Reply {
                head,
                subscription,
                body,
                ..
            } => self.answer(&from, &head, subscription, body),
            Frame::NoAnswer {
                request,
                subscription,
                ..
            } => {
                self.decline((Some(index), subscription), request);
                Ok(())
            }
            Frame::Refusal {
                refused,
                reason,
                text,
                ..
            } => {
                self.refused(index, refused, reason, text, now);
                Ok(())
            }
            Frame::Absent { message, .. } => {
                self.absent(index, message, now);
                Ok(())
            }
            Frame::Keep { .. } => Err(refuse(
                RefusalReason::NotPermitted,
                "this process keeps no log of channels",
            )),
        };
        if let Err(objection) = result {
            self.object(&from, frame, objection, now);
        }
    }
}
