//! The sessions between this process and others: how a session begins, is acknowledged, and is broken off.

use sealbus_bus::{Acknowledgement, ExplainedRefusal, RefusalReason, UndeliverableReason};

use super::arrival::malformed;
use super::peer::{self, Untaken};
use super::stream::KeptFrame;
use super::{Exchange, Now};
use crate::frame::Frame;

/// The pause after which publishers wait again for the announcements of a process that let its time pass, as a multiple
/// of that time. A process that greets on and on thus holds them up for a small part of the time.
const PAUSE: u32 = 10;

impl Exchange {
    /// Breaks off a session with a process that makes this one keep ever more answers and acknowledges none. The frames
    /// kept for it are given up.
    pub(super) fn break_off(&mut self, index: u32, now: Now) -> ExplainedRefusal {
        let explanation = "it asks on and on, and acknowledges none of the answers";
        let reason = UndeliverableReason::Refused {
            reason: RefusalReason::OverLimit,
            explanation: explanation.to_owned(),
        };
        if let Some(peer) = self.peers.get_mut(index) {
            peer.own_epoch = peer.own_epoch.saturating_add(1);
        }
        self.lose(index, &reason, now);
        self.excuse(index);
        self.begin(index, now);
        ExplainedRefusal {
            reason: RefusalReason::OverLimit,
            explanation: explanation.to_owned(),
        }
    }

    pub(super) fn acknowledge_if_due(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let at = peer.incoming.deadline();
        if at.is_some_and(|at| at <= now.since_start) {
            // An acknowledgement names the events that wait in the queues.
            self.end_row(now);
            self.acknowledge(index);
            self.mark_ready(index);
        } else {
            self.wake_for(index, at);
        }
    }

    /// Tells a process which of its frames have come, and the events of which have been read.
    pub(super) fn acknowledge(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let (key, mut read) = (peer.key, u64::MAX);
        peer.readers.retain(|id| {
            let reader = self.consumers.get(id);
            let upto = reader.and_then(|reader| reader.read_up_to(key));
            read = read.min(upto.unwrap_or(u64::MAX));
            upto.is_some()
        });
        peer::acknowledge(peer, read);
    }

    pub(super) fn hello(&mut self, index: u32, from: u64, to: u64, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        // The hello comes from an earlier life of the process. The present one is told the known epochs, and takes a
        // higher epoch if its clock was set back.
        if from < peer.epoch {
            return self.correct(index, now);
        }
        let has_outlived = to > peer.own_epoch;
        if from > peer.epoch || has_outlived {
            let was_introduced = peer.is_introduced();
            if was_introduced {
                let reason = UndeliverableReason::ProcessUnreachable(format!(
                    "{} was started anew, or has given this process up",
                    peer.identity
                ));
                self.lose(index, &reason, now);
            }
            let Some(peer) = self.peers.get_mut(index) else {
                return;
            };
            peer.epoch = from;
            // The process announces its subscriptions now, and publishers wait for that. A process that only greets, and
            // announces nothing within the time, stays excused for a while: else each hello would hold them up again.
            let (time, pause) = (now.since_start, self.config.introduction * PAUSE);
            peer.awaited_until = peer.awaited_until.filter(|until| time < *until + pause);
            peer.is_excused &= peer.awaited_until.is_some_and(|until| until <= time);
            self.all_announced = false;
            if has_outlived {
                peer.own_epoch = to.saturating_add(1);
            }
            peer.is_wanted = true;
            peer.greet_at
                .get_or_insert(now.since_start + peer.greet_pause);
            if peer.own_epoch != to {
                peer.greet();
            } else {
                peer.is_heard = true;
            }
            let at = peer.greet_at;
            self.begin(index, now);
            self.wake_for(index, at);
        } else if to == peer.own_epoch {
            peer.is_heard = true;
        } else {
            // The process does not know the epoch of this process yet, or knows it no longer.
            self.correct(index, now);
        }
    }

    /// Tells a process the epochs, at a limited rate, because it speaks in an unknown session or does not know them.
    pub(super) fn correct(&mut self, index: u32, now: Now) {
        let pause = self.config.greet.0;
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let is_soon = peer
            .corrected
            .is_some_and(|last| now.since_start.saturating_sub(last) < pause);
        if is_soon {
            return;
        }
        peer.corrected = Some(now.since_start);
        peer.greet();
        self.mark_ready(index);
    }

    /// A process has taken all frames up to `upto`, and its agents all events up to `read`. It sent this behind its
    /// frame `after`.
    pub(super) fn acknowledged(
        &mut self,
        index: u32,
        (upto, read): (u64, u64),
        after: u64,
        now: Now,
    ) -> Result<(), ExplainedRefusal> {
        let Some(peer) = self.peers.get_mut(index) else {
            return Ok(());
        };
        // That frame came back to the process, which sends it and the acknowledgement again.
        if after > peer.incoming.taken() {
            return Ok(());
        }
        let room = (self.config.kept_frames, self.config.kept_bytes);
        peer.outgoing.read(read);
        let mut unread = Vec::new();
        let mut untaken = Vec::new();
        let mut shares = Vec::new();
        let result = peer
            .outgoing
            .acknowledge(upto, now.since_start, |number, kept| {
                if let Some(share) = kept.share {
                    untaken.push((number, Untaken::Share(share)));
                    shares.push(share);
                    return;
                }
                let Some(receipt) = &kept.receipt else {
                    if kept.is_returnable && number > read {
                        unread.push((number, kept));
                    }
                    return;
                };
                let waits_for_agents = matches!(
                    Frame::decode(&kept.parcel.head),
                    Ok(Frame::Event { head, .. })
                        if head.acknowledgement == Some(Acknowledgement::ReceiverAgent)
                );
                if waits_for_agents {
                    untaken.push((number, Untaken::Receipt(receipt.clone())));
                    return;
                }
                receipt.acknowledge();
                if kept.is_returnable && number > read {
                    let receipt = None;
                    unread.push((number, KeptFrame { receipt, ..kept }));
                }
            });
        peer.untaken.extend(untaken);
        for (number, kept) in unread {
            peer.outgoing.keep_unread(number, kept, room);
        }
        if result.is_err() {
            return Err(malformed("it acknowledges what was never sent"));
        }
        peer.gate.open();
        for share in shares {
            self.share_arrived(share);
        }
        Ok(())
    }
}
