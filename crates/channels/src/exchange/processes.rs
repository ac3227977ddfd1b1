//! The other processes of the platform: how they join, begin a session, are given up and leave.

use std::sync::Arc;

use sealbus_seal::Identity;

use super::aftermath::PeerKey;
use super::peer::{Peer, RemoteSubscription, Untaken, Untold};
use super::publication::{PublishError, Turn};
use super::stream::{self, KeptFrame};
use super::subscriptions::announce;
use super::{Exchange, Now, Outcome};
use crate::frame::{Frame, HeadMechanism};
use sealbus_bus::Gate;
use sealbus_bus::UndeliverableReason;

impl Exchange {
    /// Another process has joined the platform, or a known one has a new address.
    pub(crate) fn process_joined(&mut self, identity: &Identity, now: Now) {
        if let Some(index) = self.index_of(identity) {
            return self.ask_for_life(index, now);
        }
        let index = self.next_peer;
        self.next_peer += 1;
        let peer = Peer::new(
            PeerKey { index, serial: 0 },
            Arc::new(identity.clone()),
            self.config.epoch,
            self.config.greet.0,
        );
        self.indexes.insert(identity.clone(), index);
        self.peers.insert(index, peer);
        self.all_announced = false;
        if self.is_interested {
            self.want(index, now);
        }
    }

    /// Checks a process, which may have been started again unnoticed: it must acknowledge a frame, or it greets.
    fn ask_for_life(&mut self, index: u32, now: Now) {
        if let Some(peer) = self.peers.get_mut(index)
            && peer.is_introduced()
        {
            peer.tell(None, now.since_start, |stamp| Frame::Void { stamp });
            self.mark_ready(index);
        }
    }

    /// A process has ended.
    pub(crate) fn process_left(&mut self, identity: &Identity, now: Now) {
        self.heard = None;
        let Some(index) = self.indexes.remove(identity) else {
            return;
        };
        let reason = UndeliverableReason::ProcessUnreachable(format!("{identity} has ended"));
        self.part_with(index, &reason, now);
    }

    /// The platform has given up this process: no other process listens to it any more.
    pub(crate) fn given_up(&mut self, reason: &UndeliverableReason, now: Now) {
        self.heard = None;
        for (_, index) in std::mem::take(&mut self.indexes) {
            self.part_with(index, reason, now);
        }
    }

    fn part_with(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        self.lose(index, reason, now);
        self.forget_away(index, None);
        if let Some(due) = self.peers.get(index).and_then(|peer| peer.due) {
            self.due.remove(&(due, index));
        }
        self.peers.remove(index);
        self.announcements.open_all();
    }

    /// From now on publishers wait until the platform has told this process of others.
    pub(crate) fn is_to_be_acquainted(&mut self) {
        self.is_acquainted = false;
        self.all_announced = false;
    }

    /// The platform has told this process of the others whose agents use channels.
    pub(crate) fn acquainted(&mut self) {
        if !self.is_acquainted {
            self.is_acquainted = true;
            self.acquainted_until = None;
            self.announcements.open_all();
        }
    }

    /// An agent of this process publishes, so this process asks for the subscriptions of other processes.
    pub(crate) fn take_interest(&mut self, now: Now) {
        if !self.is_interested {
            self.is_interested = true;
            let indexes = self.peers.indexes();
            for index in indexes {
                self.want(index, now);
            }
        }
    }

    /// Whether all processes have announced their subscriptions, except those that publishers do not wait for.
    pub(crate) fn knows_all(&mut self) -> bool {
        if !self.all_announced && self.is_acquainted {
            let mut peers = self.peers.values();
            self.all_announced = peers.all(|peer| peer.is_known || peer.is_excused);
        }
        self.all_announced
    }

    /// The gate to wait at until every process has announced its subscriptions; `None` if all have.
    ///
    /// # Errors
    /// [`PublishError::NotAnnounced`] if publishers have waited too long for a process, and
    /// [`PublishError::NotAcquainted`] if they have waited too long for the platform.
    pub(super) fn await_announcements(
        &mut self,
        turn: Turn<'_>,
        now: Now,
    ) -> Result<Option<Arc<Gate>>, PublishError> {
        if self.knows_all() {
            let gate = &self.announcements;
            return Ok(turn.is_behind_others_at(gate).then(|| gate.clone()));
        }
        let (time, limit) = (now.since_start, self.config.introduction);
        if !self.is_acquainted {
            let until = *self.acquainted_until.get_or_insert(time + limit);
            if until <= time {
                self.announcements.open_all();
                return Err(PublishError::NotAcquainted {
                    seconds: limit.as_secs(),
                });
            }
            let gate = self.announcements.clone();
            self.open_at(until, &gate);
            return Ok(Some(gate));
        }
        for index in self.peers.indexes() {
            let Some(peer) = self.peers.get_mut(index) else {
                continue;
            };
            if peer.is_known || peer.is_excused {
                continue;
            }
            let until = *peer.awaited_until.get_or_insert(time + limit);
            if until <= time {
                let process = peer.identity.clone();
                // Only one publisher is told. A process that keeps silent on purpose must not stop the others.
                self.excuse(index);
                return Err(PublishError::NotAnnounced {
                    process,
                    seconds: limit.as_secs(),
                });
            }
            self.wake_for(index, Some(until));
        }
        Ok(Some(self.announcements.clone()))
    }

    /// A process has been silent for too long. Events that its subscriptions miss are counted until it announces them
    /// again.
    pub(super) fn set_away(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(index) {
            for (id, subscription) in peer.subscriptions.drain() {
                subscription.gate.open_all();
                peer.away.insert(id, subscription);
            }
        }
    }

    /// Forgets one subscription of a process that was away, or all of them: the events that they miss are no longer
    /// counted. If `id` names one, returns it.
    pub(super) fn forget_away(
        &mut self,
        index: u32,
        id: Option<u32>,
    ) -> Option<Arc<RemoteSubscription>> {
        let peer = self.peers.get_mut(index)?;
        let ids: Vec<u32> = match id {
            Some(id) => vec![id],
            None => peer.away.keys().copied().collect(),
        };
        let mut last = None;
        for id in ids {
            let peer = self.peers.get_mut(index)?;
            if let Some(subscription) = peer.away.remove(&id) {
                self.there
                    .remove(&subscription.pattern, |other| *other == (index, id));
                self.changes.note(&subscription.pattern);
                last = Some(subscription);
            }
        }
        last
    }

    /// Lets publishers go on without the announcements of a process, until it greets again. If they have waited for it
    /// long enough already, a greeting counts only after a pause.
    pub(super) fn excuse(&mut self, index: u32) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.is_excused = true;
            self.announcements.open_all();
        }
    }

    /// Notes a reason to talk to a process.
    pub(super) fn want(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if !peer.is_wanted {
            peer.is_wanted = true;
            peer.greet();
            peer.greet_at = Some(now.since_start + peer.greet_pause);
            let at = peer.greet_at;
            self.mark_ready(index);
            self.wake_for(index, at);
        }
    }

    /// Gives a process up: reports its unacknowledged frames, forgets its announcements, and begins a new session.
    pub(super) fn lose(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        // The row belongs to the session that ends.
        self.end_row(now);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let former = peer.key;
        peer.key.serial += 1;
        peer.is_heard = false;
        peer.is_known = false;
        self.all_announced = false;
        peer.is_blocked = false;
        peer.probe_at = None;
        peer.untold = Untold::default();
        peer.again_from = None;
        peer.last_report = 0;
        peer.incoming = stream::IncomingStream::default();
        peer.greet_pause = self.config.greet.0;
        peer.greet_at = peer.is_wanted.then_some(now.since_start);
        let kept = peer.outgoing.take();
        let untaken = std::mem::take(&mut peer.untaken);
        peer.readers.clear();
        let subscriptions: Vec<_> = peer.subscriptions.drain().collect();
        let gate = peer.gate.clone();
        let identity = peer.identity.clone();
        let at = peer.greet_at;
        for (id, subscription) in subscriptions {
            self.there
                .remove(&subscription.pattern, |other| *other == (index, id));
            subscription.gate.open_all();
        }
        self.changes.note_all();
        // The events of the process's members go to other members.
        for kept in kept.into_iter().filter(|kept| kept.share.is_none()) {
            self.report(kept, &identity, reason);
        }
        for untaken in untaken.into_values() {
            if let Untaken::Receipt(receipt) = untaken {
                receipt.fail(reason);
            }
        }
        self.groups.leave_all(index);
        for consumer in self.consumers.values() {
            consumer.forget(former);
        }
        self.stop_awaiting(Some(index), None);
        gate.open_all();
        self.wake_for(index, at);
        self.serve_groups(now);
    }

    /// The number of other processes that hear announcements.
    pub(super) fn introduced(&self) -> usize {
        let introduced = |peer: &&Peer| peer.is_introduced();
        self.peers.values().filter(introduced).count()
    }

    /// Begins a new session with a process, and announces all subscriptions to it.
    pub(super) fn begin(&mut self, index: u32, now: Now) {
        let processes = self.introduced();
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if !peer.is_introduced() {
            return;
        }
        for consumer in self.consumers.values() {
            announce(peer, consumer, processes, now);
        }
        peer.tell(None, now.since_start, |stamp| Frame::Known { stamp });
        self.mark_ready(index);
    }

    /// Tells the publisher of a frame that it was lost.
    pub(super) fn report(
        &mut self,
        kept: KeptFrame,
        identity: &Identity,
        reason: &UndeliverableReason,
    ) {
        if let Some(receipt) = &kept.receipt {
            receipt.fail(reason);
        }
        let Some(publisher) = kept.parcel.author.clone() else {
            return;
        };
        let receiver = match Frame::decode(&kept.parcel.head) {
            Ok(Frame::Event { head, .. }) => match head.mechanism {
                HeadMechanism::Message { receiver } => receiver.to_owned(),
                // The requester learns that there was no answer.
                HeadMechanism::Request { .. } => return,
                _ => head.channel.to_owned(),
            },
            Ok(Frame::Reply { .. } | Frame::Keep { .. }) => identity.to_string(),
            _ => return,
        };
        self.outcomes.push(Outcome::Failed {
            publisher,
            receiver,
            body: kept.parcel.lost(),
            reason: reason.clone(),
        });
    }

    pub(super) fn peer_of(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers.get_mut(key.index).filter(|peer| peer.key == key)
    }
}
