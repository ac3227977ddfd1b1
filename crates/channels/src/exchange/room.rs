//! Room for published events: the receivers that a publisher waits for, how long it waits, and the receivers that
//! events then pass by.

use std::sync::Arc;

use super::chosen::Chosen;
use super::consumer::{Consumer, Room};
use super::filter_errors::Sieve;
use super::publication::{Publication, Turn};
use super::targets::{ChannelReceivers, PeerTargets, There};
use super::{Exchange, Now, Outcome};
use crate::event::{ChannelHeader, Mechanism};
use crate::frame::Frame;
use crate::qos::Reliability;
use sealbus_bus::Gate;

impl Exchange {
    /// The gate to wait at, if a receiver has no room. If a subscription has made its publishers wait too long, the
    /// event passes it by. The publisher waits for the first receiver without room, and the time of all others runs as
    /// well: otherwise each of them would make publishers wait that long, one after another.
    pub(super) fn full(
        &mut self,
        chosen: &mut Chosen,
        targets: &ChannelReceivers,
        cost: usize,
        is_event: bool,
        publication: &Publication<'_>,
        now: Now,
    ) -> Option<Arc<Gate>> {
        let mut turn = publication.turn;
        let mut wait = None;
        for index in &chosen.here {
            let consumer = &targets.here.get(*index)?.consumer;
            match consumer.has_room(cost, turn, now.since_start) {
                Room::Free => continue,
                _ if wait.is_some() => continue,
                Room::Full(since) if is_event && self.is_stalled(since, &consumer.gate, now) => {
                    chosen.passed_here.push(*index);
                    continue;
                }
                Room::Full(_) | Room::Taken => {}
            }
            if let Some(report) = consumer.note_wait(now.moment) {
                self.outcomes.push(Outcome::Flow {
                    agent: consumer.agent.clone(),
                    pattern: consumer.options.pattern.clone(),
                    report,
                });
            }
            // A publisher that waits uses up no turn at the gates of others.
            turn = Turn::default();
            wait = Some(consumer.gate.clone());
        }
        for id in &chosen.groups {
            let room = self.groups.room(*id, cost, turn, now.since_start);
            match room {
                None | Some((Room::Free, _)) => {}
                Some(_) if wait.is_some() => {}
                Some((Room::Full(since), gate)) if self.is_stalled(since, &gate, now) => {
                    chosen.passed_groups.push(*id);
                }
                Some((Room::Full(_) | Room::Taken, gate)) => {
                    turn = Turn::default();
                    wait = Some(gate);
                }
            }
        }
        if publication.qos.reliability != Reliability::BestEffort {
            wait = self.full_there(chosen, targets, is_event, publication, wait, now);
        }
        if wait.is_some() {
            return wait;
        }
        // Those that the event passes by are in the order of the others. There may be thousands.
        let mut passed = chosen.passed_here.iter().peekable();
        chosen
            .here
            .retain(|index| passed.next_if_eq(&index).is_none());
        let mut passed = chosen.passed_groups.iter().peekable();
        chosen.groups.retain(|id| passed.next_if_eq(&id).is_none());
        None
    }

    /// As [`full`](Self::full), for the receivers in other processes. `wait`: the gate at which the publisher waits anyway.
    fn full_there(
        &mut self,
        chosen: &mut Chosen,
        targets: &ChannelReceivers,
        is_event: bool,
        publication: &Publication<'_>,
        mut wait: Option<Arc<Gate>>,
        now: Now,
    ) -> Option<Arc<Gate>> {
        let turn = publication.turn;
        // Each with the place of its process among the chosen ones, in order.
        let mut stalled: Vec<(usize, u32)> = Vec::new();
        for (place, there) in chosen.there.iter().enumerate() {
            let Some(of_peer) = targets.there.get(there.at) else {
                continue;
            };
            let Some(peer) = self.peers.get(of_peer.peer) else {
                continue;
            };
            let (frames, bytes) = peer.outgoing.size();
            let is_full = frames >= self.config.kept_frames || bytes >= self.config.kept_bytes;
            if wait.is_none() && (is_full || turn.is_behind_others_at(&peer.gate)) {
                wait = Some(peer.gate.clone());
            }
            // The charged subscriptions are sorted in the same order.
            let mut subscriptions = of_peer.subscriptions.iter();
            for id in there.charged.iter().flat_map(|ids| ids.iter()) {
                let Some(it) = subscriptions.find(|it| it.id == *id) else {
                    continue;
                };
                let it = &it.subscription;
                let has_credit = it.has_credit();
                if has_credit && (wait.is_some() || !turn.is_behind_others_at(&it.gate)) {
                    continue;
                }
                self.probe_later(of_peer.peer, now);
                if !has_credit {
                    let since = it.stall(now.since_start);
                    if wait.is_some() {
                        continue;
                    }
                    if is_event && self.is_stalled(since, &it.gate, now) {
                        stalled.push((place, *id));
                        continue;
                    }
                }
                wait = Some(it.gate.clone());
            }
        }
        if wait.is_none() && !stalled.is_empty() {
            let is_kept = publication.qos.persistence.is_persistent();
            self.leave_out(chosen, targets, &stalled, is_kept, now);
        }
        wait
    }

    /// Removes subscriptions of other processes from the receivers of an event: each is given by the place of its
    /// process and its number, in order. There may be thousands.
    fn leave_out(
        &mut self,
        chosen: &mut Chosen,
        targets: &ChannelReceivers,
        stalled: &[(usize, u32)],
        is_kept: bool,
        now: Now,
    ) {
        for (place, there) in std::mem::take(&mut chosen.there).into_iter().enumerate() {
            let is_stalled = |id: u32| stalled.binary_search(&(place, id)).is_ok();
            let Some(of_peer) = targets.there.get(there.at) else {
                continue;
            };
            let first = stalled.partition_point(|(other, _)| *other < place);
            if stalled.get(first).is_none_or(|(other, _)| *other > place) {
                chosen.there.push(there);
                continue;
            }
            let is_all = there.named.is_empty();
            // A frame that names subscriptions skips their filters, which only their own process has evaluated.
            let must_pass_all = is_all && has_filters(of_peer);
            let reads_it = |it: &There| is_kept && it.subscription.reads_logs;
            let is_named = |it: &There| is_all || there.named.binary_search(&it.id).is_ok();
            let gets = |it: &&There| it.uses.sees && !reads_it(it) && is_named(it);
            let (passed, others): (Vec<&There>, Vec<&There>) = of_peer
                .subscriptions
                .iter()
                .filter(gets)
                .partition(|it| must_pass_all || is_stalled(it.id));
            let passed = passed.iter().map(|it| it.subscription.clone());
            chosen.passed_there.extend(passed);
            chosen.name(there.at, &others);
            self.probe_later(of_peer.peer, now);
        }
    }

    /// Counts a published event for the subscriptions that it passed by, and for the subscriptions of processes that
    /// are away.
    pub(super) fn note_passed(
        &mut self,
        header: &ChannelHeader,
        publication: &Publication<'_>,
        targets: &ChannelReceivers,
        chosen: &Chosen,
        now: Now,
    ) {
        for index in &chosen.passed_here {
            if let Some(here) = targets.here.get(*index) {
                let consumer = here.consumer.clone();
                self.note_missed(&consumer, 1, now);
            }
        }
        for subscription in &chosen.passed_there {
            subscription.miss();
        }
        for id in &chosen.passed_groups {
            if let Some(reason) = self.groups.not_handled(*id) {
                let (publisher, message) = (publication.publisher, publication.message);
                self.tell_publisher(publisher, &header.channel, message, reason);
            }
        }
        if targets.away.is_empty()
            || header.mechanism != Mechanism::Event
            || header.qos.reliability == Reliability::BestEffort
        {
            return;
        }
        let view = publication.message.view();
        let mut sieve = Sieve::new(header, &view);
        for subscription in &targets.away {
            if sieve.may_pass(subscription.filter.as_ref()) {
                subscription.miss();
            }
        }
    }

    /// Counts events that have passed a subscription of this process by. The log reports them at a limited rate.
    pub(super) fn note_missed(&mut self, consumer: &Arc<Consumer>, count: u64, now: Now) {
        if consumer.miss(count, now.moment) {
            self.outcomes.push(Outcome::Missed {
                agent: consumer.agent.clone(),
                pattern: consumer.options.pattern.clone(),
                missed: consumer.counts().2.missed,
            });
        }
    }

    /// Tells a process how many events have passed one of its subscriptions by.
    pub(super) fn tell_missed(&mut self, index: u32, subscription: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let missed = peer.subscriptions.get(&subscription);
        let count = missed.map_or(0, |it| it.take_missed());
        if count > 0 {
            peer.tell(None, now.since_start, |stamp| Frame::Missed {
                stamp,
                subscription,
                count,
            });
            self.mark_ready(index);
        }
    }

    /// Tells a process that asks how much credit the subscriptions of this process give.
    pub(super) fn tell_credit(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        for consumer in self.consumers.values() {
            if let Some(limit) = consumer.credit_of(peer.key) {
                peer.tell(None, now.since_start, |stamp| Frame::Credit {
                    stamp,
                    subscription: consumer.id,
                    limit,
                });
            }
        }
        self.mark_ready(index);
    }
}

fn has_filters(of_peer: &PeerTargets) -> bool {
    let mut subscriptions = of_peer.subscriptions.iter();
    subscriptions.any(|it| it.uses.sees && it.subscription.filter.is_some())
}
