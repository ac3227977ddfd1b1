//! The reports on the channels in use and on all subscriptions, for operators.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_seal::Identity;

use super::Exchange;
use super::counts::Counts;
use crate::flow::FlowPolicy;
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
use crate::queue::QueueCounters;

/// The report on a channel, for `channel list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// The channel.
    pub channel: ChannelPath,
    /// Events, messages and requests that agents of this process put on the channel.
    pub published: u64,
    /// Events, messages and requests that came from other processes.
    pub received: u64,
    /// Best-effort events that a process had no room for and did not get, counted for each process.
    pub dropped: u64,
    /// How often a subscription's filter could not be evaluated for messages that agents of this process put on the
    /// channel.
    pub filter_errors: u64,
    /// Subscriptions of this process that match.
    pub subscriptions_here: usize,
    /// Subscriptions of other processes that match.
    pub subscriptions_there: usize,
}

/// The report on a subscription, for `channel list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionReport {
    /// Its agent.
    pub agent: Arc<str>,
    /// The process of the subscription; `None` if it is this one.
    pub process: Option<Identity>,
    /// The channels.
    pub pattern: ChannelPattern,
    /// The filter; empty if there is none.
    pub filter: String,
    /// The policy when the subscription is full.
    pub policy: FlowPolicy,
    /// Whether the agent answers requests.
    pub answers: bool,
    /// The queue group that the subscription belongs to.
    pub group: Option<String>,
    /// How often the filter could not be evaluated. For a subscription of this process, messages published anywhere
    /// count; otherwise only messages published here.
    pub filter_errors: u64,
    /// For a subscription of this process: the number and bytes of waiting events, and the counters so far.
    pub queue: Option<(usize, usize, QueueCounters)>,
}

impl Exchange {
    /// The reports on the channels in use.
    pub(crate) fn channel_reports(&mut self) -> Vec<ChannelReport> {
        let paths: Vec<ChannelPath> = self.channels.keys().cloned().collect();
        let exact = self
            .consumers
            .values()
            .map(|it| it.options.pattern.as_path());
        let remote = self
            .peers
            .values()
            .flat_map(|peer| peer.subscriptions.values());
        let remote = remote.map(|it| it.pattern.as_path());
        let mut paths: Vec<ChannelPath> = paths
            .into_iter()
            .chain(exact.chain(remote).flatten())
            .collect();
        paths.sort();
        paths.dedup();
        let mut reports = Vec::with_capacity(paths.len());
        for path in paths {
            let targets = self.targets(&path);
            let Counts {
                published,
                kept,
                received,
                dropped,
                filter_errors,
            } = &*targets.counts;
            reports.push(ChannelReport {
                published: published.load(Ordering::Relaxed) + kept.load(Ordering::Relaxed),
                received: received.load(Ordering::Relaxed),
                dropped: dropped.load(Ordering::Relaxed),
                filter_errors: filter_errors.load(Ordering::Relaxed),
                subscriptions_here: targets.here.len(),
                subscriptions_there: targets.there.iter().map(|it| it.subscriptions.len()).sum(),
                channel: path,
            });
        }
        reports
    }

    /// The reports on all subscriptions.
    pub(crate) fn subscription_reports(&self) -> Vec<SubscriptionReport> {
        let here = self.consumers.values().map(|it| SubscriptionReport {
            agent: it.agent.clone(),
            process: None,
            pattern: it.options.pattern.clone(),
            filter: it.options.filter.clone(),
            policy: it.options.policy,
            answers: it.options.answers,
            group: it.options.group.clone(),
            filter_errors: it.counts().2.filter_errors,
            queue: Some(it.counts()),
        });
        let there = self.peers.values().flat_map(|peer| {
            peer.subscriptions.values().map(|it| SubscriptionReport {
                agent: it.agent.clone(),
                process: Some((*peer.identity).clone()),
                pattern: it.pattern.clone(),
                filter: it
                    .filter
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
                policy: it.policy,
                answers: it.answers,
                group: it.group.as_deref().map(str::to_owned),
                filter_errors: it.filter_errors.load(Ordering::Relaxed),
                queue: None,
            })
        });
        let mut reports: Vec<_> = here.chain(there).collect();
        reports.sort_by(|a, b| (a.pattern.as_str(), &a.agent).cmp(&(b.pattern.as_str(), &b.agent)));
        reports
    }
}
