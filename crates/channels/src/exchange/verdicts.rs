//! The verdicts on frames: taken, refused, or without a receiver. This covers the frames sent, and the replies to
//! frames that came.

use std::sync::Arc;

use sealbus_bus::{ArrivedFrame, FrameOrigin, RefusalReason, UndeliverableReason};
use sealbus_fipa::bitefficient;

use super::aftermath::not_taken;
use super::arrival::{Objection, Origin};
use super::peer::{RemoteSubscription, Untaken};
use super::stream::KeptFrame;
use super::{Exchange, Now, Outcome};
use crate::event::{Mechanism, ReceivedEvent};
use crate::filter::HIGHEST_COST;
use crate::frame::{Frame, HeadMechanism};
use crate::sealed::outline;

impl Exchange {
    /// Notes a refusal, and tells the other process.
    pub(super) fn object(
        &mut self,
        from: &Origin<'_>,
        frame: &Frame<'_>,
        objection: Objection,
        now: Now,
    ) {
        if let Objection::Refused(refused) = &objection {
            let channel = match frame {
                Frame::Event { head, .. } | Frame::Reply { head, .. } => Some(head.channel),
                Frame::Announce { announcement, .. } => Some(announcement.pattern),
                _ => None,
            };
            let proved = match from.arrived.provenance.certified() {
                Some(verified) => verified.identity().to_string(),
                None => from.arrived.process.to_string(),
            };
            self.outcomes.push(Outcome::Refused {
                tried_by: author(from.arrived),
                proved: Some(proved),
                channel: channel.map(str::to_owned),
                reason: refused.reason,
                explanation: refused.explanation.clone(),
            });
        }
        self.tell_objection(from.index, from.number, &objection, now);
    }

    /// Tells a process that the frame with this number was not accepted.
    pub(super) fn tell_objection(
        &mut self,
        index: u32,
        number: u64,
        objection: &Objection,
        now: Now,
    ) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        // A message without a number is not kept, so no outcome is reported.
        if number == 0 {
            return;
        }
        peer.report(now.since_start, |stamp| match objection {
            Objection::Refused(refused) => Frame::Refusal {
                stamp,
                refused: number,
                reason: refused.reason,
                text: &refused.explanation,
            },
            Objection::Absent => Frame::Absent {
                stamp,
                message: number,
            },
        });
        self.mark_ready(index);
    }

    /// The agents of a process have taken the event of a frame, or will not. For a group's event: a member has handled
    /// it, or not.
    pub(super) fn taken(&mut self, index: u32, number: u64, is_taken: bool, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let untaken = match peer.untaken.remove(&number) {
            Some(untaken) => Some(untaken),
            None => peer.outgoing.kept(number).and_then(|kept| {
                let share = kept.share.take().map(Untaken::Share);
                // If the frame is lost now, nobody needs to be told.
                kept.is_settled |= share.is_some();
                share.or_else(|| kept.receipt.take().map(Untaken::Receipt))
            }),
        };
        match untaken {
            Some(Untaken::Receipt(receipt)) if is_taken => receipt.acknowledge(),
            Some(Untaken::Receipt(receipt)) => receipt.fail(&not_taken()),
            Some(Untaken::Share(share)) => self.share_ended(share, is_taken, now),
            None => {}
        }
    }

    pub(super) fn absent(&mut self, index: u32, number: u64, now: Now) {
        let is_returned = self.peers.get_mut(index).is_some_and(|peer| {
            peer.outgoing.owed(number).is_some_and(|kept| {
                kept.is_returnable || matches!(
                    Frame::decode(&kept.parcel.head),
                    Ok(Frame::Event { head, .. }) if matches!(head.mechanism, HeadMechanism::Message { .. })
                )
            })
        });
        if is_returned {
            self.give_back(index, number, &UndeliverableReason::ReceiverGone, now);
        } else {
            self.taken(index, number, false, now);
        }
    }

    pub(super) fn refused(
        &mut self,
        index: u32,
        number: u64,
        reason: RefusalReason,
        text: &str,
        now: Now,
    ) {
        if reason == RefusalReason::NotOpened {
            self.was_not_opened(index, number);
        }
        let reason = UndeliverableReason::Refused {
            reason,
            explanation: text.to_owned(),
        };
        self.give_back(index, number, &reason, now);
    }

    /// A frame was not accepted. Its author is told.
    fn give_back(&mut self, index: u32, number: u64, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let identity = peer.identity.clone();
        let Some(kept) = peer.outgoing.owed(number).filter(|kept| !kept.is_settled) else {
            return;
        };
        kept.is_settled = true;
        if let Some(share) = kept.share.take() {
            return self.share_returned(share, false, reason, now);
        }
        let receipt = kept.receipt.take();
        let parcel = kept.parcel.clone();
        match Frame::decode(&parcel.head) {
            Ok(Frame::Announce { announcement, .. }) => {
                tracing::warn!(
                    process = %identity,
                    agent = parcel.author.as_deref().unwrap_or_default(),
                    channels = announcement.pattern,
                    "a subscription is not accepted by another process: {reason}"
                );
            }
            Ok(Frame::Event { head, targets, .. }) => {
                if let HeadMechanism::Request { id } = head.mechanism {
                    for subscription in targets.iter() {
                        self.decline((Some(index), subscription), id);
                    }
                }
            }
            _ => {}
        }
        let kept = KeptFrame {
            receipt,
            ..KeptFrame::new(parcel)
        };
        self.report(kept, &identity, reason);
    }

    /// Gives an event of this process back to its publisher, because the subscriber has moved away.
    pub(super) fn give_back_here(&mut self, event: &ReceivedEvent) {
        let message = match event.message.is_sealed() {
            true => Arc::new(outline(&event.message.message().to_owned())),
            false => event.message.clone().into_message(),
        };
        let Some(publisher) = message.sender.as_ref() else {
            return;
        };
        let mut body = Vec::new();
        let reason = match bitefficient::encode(&message, &mut body) {
            Ok(()) => UndeliverableReason::ReceiverGone,
            Err(error) => UndeliverableReason::Encoding(error),
        };
        let receiver = match &event.header.mechanism {
            Mechanism::Message { receiver } => receiver.to_string(),
            _ => event.header.channel.to_string(),
        };
        self.outcomes.push(Outcome::Failed {
            publisher: publisher.name.as_str().into(),
            receiver,
            body: body.into(),
            reason,
        });
    }

    /// The agent of a subscription has moved away from another process. Gives the events that came too late for it back
    /// to their publishers.
    pub(super) fn give_back_missed(
        &mut self,
        (index, id): (u32, u32),
        subscription: &RemoteSubscription,
        moved_before: u64,
        now: Now,
    ) {
        let Some(peer) = self.peers.get(index) else {
            return;
        };
        // Frames that were made before the subscription was known are for other subscriptions.
        let first = moved_before.max(subscription.known_before);
        let mut budget = HIGHEST_COST;
        let missed = peer.outgoing.kept_from(first).filter(|(_, kept)| {
            kept.is_returnable
                && !kept.is_settled
                && subscription.is_target(id, &kept.parcel, &mut budget)
        });
        let missed: Vec<u64> = missed.map(|(number, _)| number).collect();
        for number in missed {
            self.give_back(index, number, &UndeliverableReason::ReceiverGone, now);
        }
    }

    /// Reports that no agent takes an event, if its publisher waits for that.
    pub(super) fn note_nobody(&mut self, from: &Origin<'_>, now: Now) {
        if let Some(peer) = self.peers.get_mut(from.index)
            && from.number != 0
        {
            peer.report(now.since_start, |stamp| Frame::Absent {
                stamp,
                message: from.number,
            });
            self.mark_ready(from.index);
        }
    }
}

/// The writer of a frame, for the log of refusals.
fn author(arrived: &ArrivedFrame) -> String {
    match &arrived.origin {
        FrameOrigin::Agent(name) => name.to_string(),
        FrameOrigin::Process => arrived.process.to_string(),
    }
}
