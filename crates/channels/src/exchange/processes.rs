//! The other processes of the platform: how they join, begin a session, are given up and leave.

use std::sync::Arc;

use sealbus_seal::Identity;

use super::consumer::PeerKey;
use super::filter_errors::Untold;
use super::peer::Peer;
use super::stream::{self, Kept};
use super::subscriptions::announce;
use super::{Exchange, Now, Outcome};
use crate::frame::{Frame, HeadMechanism};
use sealbus_bus::UndeliverableReason;

impl Exchange {
    /// There is another process on the platform.
    pub(crate) fn process_joined(&mut self, identity: &Identity, now: Now) {
        if self.indexes.contains_key(identity) {
            return;
        }
        let index = self.next_peer;
        self.next_peer += 1;
        let peer = Peer::new(
            PeerKey { index, serial: 0 },
            Arc::new(identity.clone()),
            self.config.epoch,
            self.config.resend,
            self.config.greet.0,
        );
        self.indexes.insert(identity.clone(), index);
        self.peers.insert(index, peer);
        if self.is_interested || !self.consumers.is_empty() {
            self.want(index, now);
        }
    }

    /// A process is no more.
    pub(crate) fn process_left(&mut self, identity: &Identity, now: Now) {
        self.heard = None;
        let Some(index) = self.indexes.remove(identity) else {
            return;
        };
        let reason = UndeliverableReason::ProcessUnreachable(format!("{identity} has ended"));
        self.lose(index, &reason, now);
        self.peers.remove(index);
    }

    /// An agent of this process publishes: it is to be known who subscribes elsewhere. Returns whether it is.
    pub(crate) fn take_interest(&mut self, now: Now) -> bool {
        if !self.is_interested {
            self.is_interested = true;
            let indexes = self.peers.indexes();
            for index in indexes {
                self.want(index, now);
            }
        }
        self.knows_all()
    }

    /// Whether all processes have announced their subscriptions.
    pub(crate) fn knows_all(&self) -> bool {
        self.peers.values().all(|peer| peer.is_known)
    }

    /// There is a reason to talk to a process.
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
            self.set_alarm(at);
        }
    }

    /// Gives a process up: what it has not acknowledged is reported, what it announced is forgotten, and the two begin
    /// anew.
    pub(super) fn lose(&mut self, index: u32, reason: &UndeliverableReason, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let former = peer.key;
        peer.key.serial += 1;
        peer.is_heard = false;
        peer.is_known = false;
        peer.is_blocked = false;
        peer.probe_at = None;
        peer.untold = Untold::default();
        peer.early_acknowledgement = None;
        peer.last_report = 0;
        peer.incoming = stream::Incoming::default();
        peer.greet_pause = self.config.greet.0;
        peer.greet_at = peer.is_wanted.then_some(now.since_start);
        let kept = peer.outgoing.take();
        let untaken: Vec<_> = peer.untaken.drain().map(|(_, receipt)| receipt).collect();
        let subscriptions: Vec<_> = peer.subscriptions.drain().collect();
        let gate = peer.gate.clone();
        let identity = peer.identity.clone();
        let at = peer.greet_at;
        for (id, subscription) in subscriptions {
            self.there
                .remove(&subscription.pattern, |other| *other == (index, id));
            subscription.gate.open_all();
        }
        self.generation += 1;
        for kept in kept {
            self.report(kept, &identity, reason);
        }
        for receipt in untaken {
            receipt.fail(reason);
        }
        for consumer in self.consumers.values() {
            consumer.forget(former);
        }
        self.stop_awaiting(Some(index), None);
        gate.open_all();
        self.set_alarm(at);
    }

    /// A new session with a process has begun: it hears of all subscriptions there are.
    pub(super) fn begin(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if !peer.is_introduced() {
            return;
        }
        for consumer in self.consumers.values() {
            announce(peer, consumer, now);
        }
        peer.tell(None, now.since_start, |stamp| Frame::Known { stamp });
        self.mark_ready(index);
    }

    /// Tells the publisher of a frame that it was lost.
    pub(super) fn report(&mut self, kept: Kept, identity: &Identity, reason: &UndeliverableReason) {
        if let Some(receipt) = &kept.receipt {
            receipt.fail(reason);
        }
        let Some(publisher) = kept.parcel.author.clone() else {
            return;
        };
        let receiver = match Frame::decode(&kept.parcel.head) {
            Ok(Frame::Event { head, .. }) => match head.mechanism {
                HeadMechanism::Message { receiver } => receiver.to_owned(),
                // Who asked hears that there was no answer.
                HeadMechanism::Request { .. } => return,
                _ => head.channel.to_owned(),
            },
            Ok(Frame::Reply { .. } | Frame::Keep { .. }) => identity.to_string(),
            _ => return,
        };
        self.outcomes.push(Outcome::Failed {
            publisher,
            receiver,
            body: kept.parcel.message(),
            reason: reason.clone(),
        });
    }

    pub(super) fn peer_of(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers.get_mut(key.index).filter(|peer| peer.key == key)
    }
}
