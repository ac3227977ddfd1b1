//! Frames on their way to the transport: the turns of the processes, and frames that could not be sent.

use std::sync::Arc;

use sealbus_seal::Identity;

use super::peer::Peer;
use super::stream::Parcel;
use super::{Exchange, Now};
use crate::frame::{self, Frame, HeadMechanism};
use sealbus_bus::{LostFrame, UndeliverableReason};

impl Exchange {
    /// A process that has frames to send, or had some when it was marked. Each call returns another one.
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        if let Some(peer) = self.peers.get_mut(index) {
            peer.is_ready = false;
        }
        Some(index)
    }

    pub(crate) fn identity(&self, index: u32) -> Option<&Arc<Identity>> {
        self.peers.get(index).map(|peer| &peer.identity)
    }

    pub(crate) fn index_of(&self, identity: &Identity) -> Option<u32> {
        self.indexes.get(identity).copied()
    }

    /// The next frame for a process, unless its transport has no room.
    pub(crate) fn next_parcel(&self, index: u32) -> Option<&Parcel> {
        let peer = self.peers.get(index)?;
        if peer.is_blocked {
            return None;
        }
        peer.outgoing.peek(peer.is_introduced())
    }

    /// The transport has taken the frame.
    pub(crate) fn sent(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.outgoing.advance(peer.is_introduced());
        }
    }

    /// The transport has no room until [`unblock`](Self::unblock) is called.
    pub(crate) fn block(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.is_blocked = true;
        }
    }

    pub(crate) fn unblock(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.is_blocked = false;
            self.mark_ready(index);
        }
    }

    /// The transport can never take the frame. Its publisher is told, and the other process learns that the frame will
    /// not come.
    pub(crate) fn impossible(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let is_known = peer.is_introduced();
        let number = peer
            .outgoing
            .peek(is_known)
            .filter(|parcel| !matches!(Frame::decode(&parcel.head), Ok(Frame::Void { .. })))
            .and(peer.outgoing.peek_number(is_known));
        let Some(number) = number else {
            peer.outgoing.advance(is_known);
            return;
        };
        self.give_up(index, number, reason, now);
    }

    /// Puts a void in place of a frame that will never be accepted, and tells its publisher.
    fn give_up(&mut self, index: u32, number: u64, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let session = peer.session_out();
        let void = Parcel::of_process(&Frame::Void {
            stamp: frame::Stamp { session, number },
        });
        let Some(kept) = peer.outgoing.void(number, void) else {
            return;
        };
        for id in kept.charged.iter().flat_map(|ids| ids.iter()) {
            if let Some(subscription) = peer.subscriptions.get(id) {
                subscription.refund(kept.cost);
            }
        }
        if kept.is_settled {
            return;
        }
        if let Some(share) = kept.share {
            // An earlier copy of the frame may have arrived.
            return self.share_returned(share, true, reason, now);
        }
        let identity = peer.identity.clone();
        if let Ok(Frame::Event { head, targets, .. }) = Frame::decode(&kept.parcel.head)
            && let HeadMechanism::Request { id } = head.mechanism
        {
            for subscription in targets.iter() {
                self.decline((Some(index), subscription), id);
            }
        }
        self.report(kept, &identity, reason);
    }

    /// The other process, or the transport on its behalf, refuses a frame because it does not accept the frame's
    /// writer.
    pub(crate) fn frame_refused(
        &mut self,
        identity: &Identity,
        frame: &[u8],
        reason: &UndeliverableReason,
        now: Now,
    ) {
        let Some(index) = self.index_of(identity) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        match Frame::decode(frame).map(|frame| frame.stamp()) {
            // The process takes no frames at all. If that changes, it will greet.
            Ok(None) => {
                peer.is_wanted = false;
                peer.greet_at = None;
                self.excuse(index);
            }
            Ok(Some(stamp)) if stamp.number != 0 && stamp.session == peer.session_out() => {
                self.give_up(index, stamp.number, reason, now);
                self.send_again(index, stamp.number, now);
            }
            _ => {}
        }
    }

    /// Frames that the transport had taken have come back. They are sent again, before all others.
    pub(crate) fn frames_lost(&mut self, identity: &Identity, frames: &[LostFrame], now: Now) {
        let Some(index) = self.index_of(identity) else {
            return;
        };
        let session = self.peers.get(index).map(Peer::session_out);
        let stamps = frames
            .iter()
            .filter_map(|frame| Frame::decode(&frame.payload).ok()?.stamp());
        // Frames without a number are not kept.
        let first = stamps
            .filter(|stamp| Some(stamp.session) == session)
            .map(|stamp| match stamp.number {
                0 => u64::MAX,
                number => number,
            })
            .min();
        if let Some(first) = first {
            self.send_again(index, first, now);
        }
    }

    /// Schedules the frame `number` and all later ones to be sent again soon, because frames often come back one by one.
    fn send_again(&mut self, index: u32, number: u64, now: Now) {
        if let Some(peer) = self.peers.get_mut(index) {
            let first = peer.again_from.map_or(number, |first| first.min(number));
            peer.again_from = Some(first);
            self.wake_for(index, Some(now.since_start));
        }
    }

    pub(super) fn mark_ready(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let since = peer.outgoing.waiting_since();
        if !std::mem::replace(&mut peer.is_ready, true) {
            self.ready.push_back(index);
        }
        self.wake_for(index, since.map(|since| since + self.config.absence));
    }
}
