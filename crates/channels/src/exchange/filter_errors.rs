//! Filters that cannot be evaluated for a published message. The publisher's process counts the failures and reports
//! them to the subscriber's process.
//!
//! A message is not sent to a subscription whose filter cannot be evaluated for it. The subscriber's process cannot
//! notice this by itself. It is told of the first such message at once, and of later ones together, once a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealbus_fipa::AclMessageRef;

use super::consumer::Consumer;
use super::share::MemberKey;
use super::targets::ChannelReceivers;
use super::{Exchange, Now, Outcome};
use crate::event::ChannelHeader;
use crate::filter::{ChannelFilter, EvaluationError, HIGHEST_COST};
use crate::frame::Frame;

/// The pause between two reports to a process about the same filters.
const PAUSE: Duration = Duration::from_secs(1);

/// The most that one process's filters may cost for one message in the publisher's process: as much as some thousand
/// usual subscriptions. Beyond it, that process gets the message for all of its subscriptions and evaluates their
/// filters itself. The filters of groups are counted separately, because only the publisher's process can evaluate
/// them: beyond the limit they fail.
const PROCESS_COST: u32 = 4 * HIGHEST_COST;

/// The owner of a filter, by its index among the targets of a channel.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Here(usize),
    /// The process, and the subscription's number there.
    There(usize, u32),
    /// The group.
    Group(u32),
}

/// Evaluates filters for one message, and remembers those that fail.
pub(super) struct Sieve<'a> {
    header: &'a ChannelHeader,
    message: &'a AclMessageRef<'a>,
    failed: Vec<(Whose, EvaluationError)>,
    /// The cost so far of the filters of the present process.
    cost: u32,
    /// The cost so far of the filters of groups, by the process that pays; `None` is this process.
    group_costs: HashMap<Option<u32>, u32>,
}

/// Filters that could not be evaluated.
#[derive(Default)]
pub(super) struct FailedFilters(Vec<(Whose, EvaluationError)>);

impl<'a> Sieve<'a> {
    pub(super) fn new(header: &'a ChannelHeader, message: &'a AclMessageRef<'a>) -> Self {
        Self {
            header,
            message,
            failed: Vec::new(),
            cost: 0,
            group_costs: HashMap::new(),
        }
    }

    /// Whether a message passes, or may pass, the filter of a subscription that cannot be told of failures.
    pub(super) fn may_pass(&mut self, filter: Option<&ChannelFilter>) -> bool {
        let Some(filter) = filter else { return true };
        if self.is_exhausted() {
            return true;
        }
        let (outcome, cost) = filter.evaluate(self.header, self.message);
        self.cost = self.cost.saturating_add(cost);
        outcome.unwrap_or(false)
    }

    /// Begins with the filters of another process.
    pub(super) fn begin_process(&mut self) {
        self.cost = 0;
    }

    /// Whether the filters of the present process have cost too much for this message.
    pub(super) fn is_exhausted(&self) -> bool {
        self.cost >= PROCESS_COST
    }

    /// Forgets the failures of a process's filters, because the process evaluates all of them itself.
    pub(super) fn leave_to_process(&mut self, at: usize) {
        self.failed
            .retain(|(whose, _)| !matches!(whose, Whose::There(of, _) if *of == at));
    }

    fn passes(&mut self, whose: Whose, filter: Option<&ChannelFilter>) -> bool {
        let Some(filter) = filter else { return true };
        let (outcome, cost) = filter.evaluate(self.header, self.message);
        self.cost = self.cost.saturating_add(cost);
        match outcome {
            Ok(passes) => passes,
            Err(error) => {
                self.failed.push((whose, error));
                false
            }
        }
    }

    /// Whether the message passes the filter of a subscription of this process. A filter that cannot be evaluated holds
    /// the message back.
    pub(super) fn passes_here(&mut self, index: usize, filter: Option<&ChannelFilter>) -> bool {
        self.passes(Whose::Here(index), filter)
    }

    /// As [`passes_here`](Self::passes_here), for a subscription of another process. Returns true once the filters of
    /// that process have cost too much, because it then evaluates the others itself.
    pub(super) fn passes_there(
        &mut self,
        at: usize,
        id: u32,
        filter: Option<&ChannelFilter>,
    ) -> bool {
        self.is_exhausted() || self.passes(Whose::There(at, id), filter)
    }

    /// As [`passes_here`](Self::passes_here), for a group, whose members all have the same filter. The first of
    /// `payers` that can pays for it.
    pub(super) fn passes_group(
        &mut self,
        id: u32,
        filter: Option<&ChannelFilter>,
        mut payers: impl Iterator<Item = Option<u32>>,
    ) -> bool {
        if filter.is_none() {
            return true;
        }
        let spent = |payer: &Option<u32>| self.group_costs.get(payer).copied().unwrap_or(0);
        let Some(payer) = payers.find(|payer| spent(payer) < PROCESS_COST) else {
            self.failed.push((Whose::Group(id), EvaluationError::Cost));
            return false;
        };
        self.begin_process();
        let passes = self.passes(Whose::Group(id), filter);
        *self.group_costs.entry(payer).or_default() += self.cost;
        passes
    }

    pub(super) fn failed(self) -> FailedFilters {
        FailedFilters(self.failed)
    }
}

impl Exchange {
    /// Counts filters that could not be evaluated for a published message.
    pub(super) fn note_failed_filters(
        &mut self,
        targets: &ChannelReceivers,
        failed: FailedFilters,
        now: Now,
    ) {
        for (whose, error) in failed.0 {
            targets.counts.filter_errors.fetch_add(1, Ordering::Relaxed);
            match whose {
                Whose::Here(index) => {
                    if let Some(here) = targets.here.get(index) {
                        let consumer = here.consumer.clone();
                        self.count_filter_errors(&consumer, 1, &error.to_string());
                    }
                }
                Whose::There(at, id) => {
                    if let Some(there) = targets.there.get(at) {
                        self.note_untold(there.peer, id, error, now);
                    }
                }
                Whose::Group(group) => self.note_failed_group(group, &error, now),
            }
        }
    }

    fn note_failed_group(&mut self, group: u32, error: &EvaluationError, now: Now) {
        let members: Vec<MemberKey> = self.groups.members(group).collect();
        for (process, id) in members {
            match (process, self.consumers.get(&id).cloned()) {
                (Some(index), _) => self.note_untold(index, id, *error, now),
                (None, Some(consumer)) => {
                    self.count_filter_errors(&consumer, 1, &error.to_string());
                }
                (None, None) => {}
            }
        }
    }

    fn note_untold(&mut self, index: u32, id: u32, error: EvaluationError, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(subscription) = peer.subscriptions.get(&id) else {
            return;
        };
        let before = subscription.filter_errors.fetch_add(1, Ordering::Relaxed);
        let untold = &mut peer.untold;
        let entry = untold.by_subscription.entry(id);
        entry.or_insert_with(|| (0, error.to_string())).0 += 1;
        if before == 0 {
            self.tell_filter_errors(index, now);
        } else {
            let at = *untold.at.get_or_insert(now.since_start + PAUSE);
            self.wake_for(index, Some(at));
        }
    }

    /// Tells a process of the filter failures since the last report.
    pub(super) fn tell_filter_errors(&mut self, index: u32, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let untold = std::mem::take(&mut peer.untold);
        for (subscription, (count, text)) in untold.by_subscription {
            if peer.subscriptions.contains_key(&subscription) {
                peer.tell(None, now.since_start, |stamp| Frame::FilterErrors {
                    stamp,
                    subscription,
                    count,
                    text: &text,
                });
            }
        }
        self.mark_ready(index);
    }

    /// Counts failures of the filter of a subscription of this process, found here or by a publisher's process. The log
    /// reports them once.
    pub(crate) fn count_filter_errors(
        &mut self,
        consumer: &Arc<Consumer>,
        count: u64,
        problem: &str,
    ) {
        if consumer.count_filter_errors(count) {
            self.outcomes.push(Outcome::FilterError {
                agent: consumer.agent.clone(),
                pattern: consumer.options.pattern.clone(),
                filter: consumer.options.filter.clone(),
                problem: problem.to_owned(),
            });
        }
    }
}
