//! The inlet: it hands the exchange the frames from the transport, and the platform's news of other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_bus::{
    ArrivedFrame, FrameInlet, LostFrame, ProcessEndpoint, RefusedFrame, UndeliverableReason,
};
use sealbus_proof::Hash;
use sealbus_seal::Identity;

use super::Shared;
use crate::frame;

/// Takes the frames of other processes for the exchange.
pub(super) struct Inlet(pub(super) Arc<Shared>);

impl FrameInlet for Inlet {
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        let result = self.0.work(|exchange, now| exchange.take_all(frames, now));
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            self.0.introduced.notify_waiters();
        }
        result
    }

    fn statement(&self, frame: &[u8]) -> Option<Hash> {
        frame::statement(frame, &[])
    }

    fn process_joined(&self, process: &ProcessEndpoint) {
        let former = self
            .0
            .endpoints
            .lock()
            .insert(process.identity.clone(), process.clone());
        self.0.work(|exchange, now| {
            if former.is_some_and(|former| former != *process)
                && let Some(index) = exchange.index_of(&process.identity)
            {
                self.0.ways.lock().remove(&index);
            }
            exchange.process_joined(&process.identity, now);
        });
    }

    fn given_up(&self, reason: &UndeliverableReason) {
        self.0.work(|exchange, now| {
            self.0.ways.lock().clear();
            exchange.given_up(reason, now);
        });
        self.0.introduced.notify_waiters();
    }

    /// Ends the agent's subscriptions.
    fn agent_left(&self, name: &str) {
        self.0.work(|exchange, now| exchange.agent_left(name, now));
        self.0.turns.forget(name);
    }

    fn process_left(&self, process: &Identity) {
        self.0.endpoints.lock().remove(process);
        self.0.work(|exchange, now| {
            if let Some(index) = exchange.index_of(process) {
                self.0.ways.lock().remove(&index);
            }
            exchange.process_left(process, now);
        });
        self.0.introduced.notify_waiters();
    }

    fn lost(&self, process: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason) {
        self.0.work(|exchange, now| match reason {
            UndeliverableReason::Refused { .. } | UndeliverableReason::TooLarge { .. } => {
                for frame in frames {
                    exchange.frame_refused(process, &frame.payload, reason, now);
                }
            }
            _ => exchange.frames_lost(process, &frames, now),
        });
    }
}
