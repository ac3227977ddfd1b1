//! The effects of time: greetings, frames sent again, processes given up, ended requests, expired events.

use std::sync::Arc;
use std::time::Duration;

use super::aftermath::Aftermath;
use super::{Exchange, Now};
use crate::frame::Frame;
use sealbus_bus::Gate;
use sealbus_bus::Moment;
use sealbus_bus::UndeliverableReason;

/// The number of unacknowledged frames at which a process is not probed any more.
const PROBES: usize = 1024;
/// The least time between two looks through all queues.
const SWEEP: Duration = Duration::from_millis(10);

impl Exchange {
    pub(super) fn set_alarm(&mut self, at: Option<Duration>) {
        if let Some(at) = at
            && self.alarm.is_none_or(|alarm| at < alarm)
        {
            self.alarm = Some(at);
            self.is_alarm_sooner = true;
        }
    }

    /// Has another process looked at, at this time.
    pub(super) fn wake_for(&mut self, index: u32, at: Option<Duration>) {
        let (Some(at), Some(peer)) = (at, self.peers.get_mut(index)) else {
            return;
        };
        if peer.due.is_none_or(|due| at < due) {
            if let Some(former) = peer.due.replace(at) {
                self.due.remove(&(former, index));
            }
            self.due.insert((at, index));
            self.set_alarm(Some(at));
        }
    }

    /// The time at which to call [`tick`](Self::tick), if it is sooner than the last answer.
    pub(crate) fn take_alarm(&mut self) -> Option<Duration> {
        if std::mem::take(&mut self.is_alarm_sooner) {
            self.alarm
        } else {
            None
        }
    }

    /// Does the work that is due. Returns when to call it again.
    pub(crate) fn tick(&mut self, now: Now) -> Option<Duration> {
        let time = now.since_start;
        self.alarm = None;
        let due = self.due.range(..=(time, u32::MAX));
        let due: Vec<_> = due.copied().collect();
        for (at, index) in due {
            self.due.remove(&(at, index));
            if let Some(peer) = self.peers.get_mut(index) {
                peer.due = None;
            }
            self.tick_peer(index, now);
        }
        let over: Vec<u64> = self
            .asking
            .iter()
            .filter(|(_, asking)| asking.deadline <= time)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.end_request(id);
        }
        self.care_for_groups(now);
        if self.sweep_at.is_some_and(|at| at <= time) {
            self.sweep(now);
        }
        // Publishers that have waited long enough go on without the subscription.
        self.stalls.retain(|(at, gate)| {
            if *at <= time {
                gate.open();
            }
            *at > time
        });
        let next = self
            .asking
            .values()
            .map(|asking| asking.deadline)
            .chain(self.sweep_at)
            .chain(self.groups.care_at())
            .chain(self.stalls.iter().map(|(at, _)| *at))
            .chain(self.due.first().map(|(at, _)| *at))
            .min();
        self.set_alarm(next);
        self.is_alarm_sooner = false;
        self.alarm
    }

    /// Schedules a probe of a process that may owe nothing else: publishers wait for its credit, or for a member of a
    /// group to handle an event. The probe checks that the process is still there.
    pub(super) fn probe_later(&mut self, index: u32, now: Now) {
        let at = now.since_start + self.config.absence / 3;
        if let Some(peer) = self.peers.get_mut(index) {
            let at = *peer.probe_at.get_or_insert(at);
            self.wake_for(index, Some(at));
        }
    }

    /// A publisher waits at this gate of a subscription that has taken nothing since `since`. Returns whether the wait
    /// has been long enough.
    pub(super) fn is_stalled(&mut self, since: Duration, gate: &Arc<Gate>, now: Now) -> bool {
        let until = since + self.config.patience;
        if until <= now.since_start {
            return true;
        }
        self.open_at(until, gate);
        false
    }

    /// Schedules the opening of a gate for the next publisher, unless it is scheduled already.
    pub(super) fn open_at(&mut self, until: Duration, gate: &Arc<Gate>) {
        let mut is_known = false;
        self.stalls.retain(|(_, other)| {
            let is_it = Arc::ptr_eq(other, gate);
            is_known |= is_it;
            // Nobody waits at the gate of a subscription that has ended.
            is_it || Arc::strong_count(other) > 1
        });
        if !is_known {
            self.stalls.push((until, gate.clone()));
            self.set_alarm(Some(until));
        }
    }

    /// Sends a frame that the process must acknowledge, if one of its subscriptions has no credit left or has an event
    /// of its group.
    fn probe(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        peer.probe_at = None;
        let owes_credit = peer.subscriptions.values().any(|it| !it.has_credit());
        if !owes_credit && !self.groups.waits_for(index) {
            return;
        }
        // The probe also asks for the credit of the subscriptions, which they announce only from half a window on.
        if peer.outgoing.size().0 < PROBES {
            peer.tell(None, now.since_start, |stamp| Frame::Void { stamp });
            self.mark_ready(index);
        }
        self.probe_later(index, now);
    }

    fn tick_peer(&mut self, index: u32, now: Now) {
        let time = now.since_start;
        let absence = self.config.absence;
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if peer.outgoing.silence(time) >= absence {
            let reason = UndeliverableReason::ProcessUnreachable(format!(
                "{} has acknowledged nothing for {} s",
                peer.identity,
                absence.as_secs()
            ));
            // The new epoch keeps late frames of the old one from being taken.
            peer.own_epoch = peer.own_epoch.saturating_add(1);
            self.set_away(index);
            self.lose(index, &reason, now);
            self.excuse(index);
            self.begin(index, now);
        }
        let awaited_until = self.peers.get(index).and_then(|peer| peer.awaited_until);
        if awaited_until.is_some_and(|at| at <= time) {
            // Publishers now get an error that names the process.
            self.announcements.open_all();
        }
        let probe_at = self.peers.get(index).and_then(|peer| peer.probe_at);
        if probe_at.is_some_and(|at| at <= time) {
            self.probe(index, now);
        }
        let untold_at = self.peers.get(index).and_then(|peer| peer.untold.at);
        if untold_at.is_some_and(|at| at <= time) {
            self.tell_filter_errors(index, now);
        }
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let mut is_ready = false;
        if peer.greet_at.is_some_and(|at| at <= time) {
            if peer.is_heard {
                peer.greet_at = None;
            } else {
                peer.greet();
                peer.greet_at = Some(time + peer.greet_pause);
                peer.greet_pause = (peer.greet_pause * 2).min(self.config.greet.1);
                is_ready = true;
            }
        }
        if let Some(number) = peer.again_from.take() {
            peer.outgoing.send_again(number);
            // An acknowledgement may have come back too.
            peer.incoming.acknowledge_by(time);
            is_ready = true;
        }
        if peer.incoming.deadline().is_some_and(|at| at <= time) {
            is_ready = true;
            self.acknowledge(index);
        }
        let Some(peer) = self.peers.get(index) else {
            return;
        };
        let next = [
            peer.greet_at,
            peer.awaited_until.filter(|at| *at > time),
            peer.probe_at,
            peer.untold.at,
            peer.incoming.deadline(),
            peer.outgoing.waiting_since().map(|since| since + absence),
        ];
        let next = next.into_iter().flatten().min();
        if is_ready {
            self.mark_ready(index);
        }
        self.wake_for(index, next);
    }

    /// Has the queues searched at `moment`, when something in them changes.
    pub(super) fn sweep_by(&mut self, moment: Option<Moment>, now: Now) {
        let Some(moment) = moment else { return };
        let at = now.since_start + moment.since(now.moment).max(SWEEP);
        if self.sweep_at.is_none_or(|old| at < old) {
            self.sweep_at = Some(at);
            self.set_alarm(self.sweep_at);
        }
    }

    /// Gives up expired events in the queues, and wakes the subscriptions in which an event has become valid.
    fn sweep(&mut self, now: Now) {
        let consumers: Vec<_> = self.consumers.values().cloned().collect();
        self.sweep_at = None;
        for consumer in consumers {
            let mut aftermath = Aftermath::default();
            let next = consumer.advance(now.moment, &mut aftermath);
            self.settle(consumer.id, aftermath, now);
            self.sweep_by(next, now);
        }
        self.groups.sweep();
        self.serve_groups(now);
    }
}
