//! The targets of a channel: computed once for each channel, until a subscription comes or goes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::ChannelRight;

use super::Exchange;
use super::consumer::Consumer;
use super::counts::Counts;
use super::options::SubscriptionOptions;
use super::peer::RemoteSubscription;
use crate::event::ChannelHeader;
use crate::path::ChannelPath;
use crate::permission::ChannelPermissions;

/// The kinds of messages that a subscription wants on a channel and is allowed to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uses {
    /// Events.
    pub(super) sees: bool,
    /// Events of its group.
    pub(super) shares: bool,
    /// Messages to its agent.
    pub(super) reads: bool,
    /// Requests, which it answers.
    pub(super) answers: bool,
}

impl Uses {
    /// The part of an agent's wishes that the policy allows; `None` if nothing.
    pub(super) fn new(
        rights: &ChannelPermissions,
        agent: &str,
        channel: &ChannelPath,
        takes_events: bool,
        answers: bool,
        is_in_group: bool,
    ) -> Option<Self> {
        let reads = rights.may(agent, ChannelRight::Subscribe, channel);
        let answers = answers && rights.may(agent, ChannelRight::Answer, channel);
        (reads || answers).then_some(Self {
            sees: takes_events && reads && !is_in_group,
            shares: takes_events && reads && is_in_group,
            reads,
            answers,
        })
    }
}

/// A subscription of this process that matches a channel.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) consumer: Arc<Consumer>,
    pub(super) uses: Uses,
}

impl Here {
    /// Whether the subscription sees an event that is published now: not if it reads the event from a log.
    pub(super) fn sees(&self, header: &ChannelHeader) -> bool {
        self.uses.sees && !(is_kept(header) && self.consumer.options.reads_logs())
    }
}

/// A subscription of another process that matches a channel.
#[derive(Debug)]
pub(super) struct There {
    pub(super) id: u32,
    pub(super) subscription: Arc<RemoteSubscription>,
    pub(super) uses: Uses,
}

impl There {
    /// As [`Here::sees`].
    pub(super) fn sees(&self, header: &ChannelHeader) -> bool {
        self.uses.sees && !(is_kept(header) && self.subscription.reads_logs)
    }
}

/// Whether an event is in a log.
pub(super) fn is_kept(header: &ChannelHeader) -> bool {
    header.qos.persistence.is_persistent()
}

/// The subscriptions of one other process that match a channel.
#[derive(Debug)]
pub(super) struct PeerTargets {
    pub(super) peer: u32,
    pub(super) subscriptions: Vec<There>,
    /// The subscriptions that push back and see events, if every subscription that takes events sees all of them.
    pub(super) all: Option<Arc<[u32]>>,
}

/// The receivers of something on a channel.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The counters of the channel. They stay the same when its targets change.
    pub(super) counts: Arc<Counts>,
    pub(super) here: Vec<Here>,
    /// Subscriptions of this process that match but are not allowed anything. Another process may not know that yet.
    pub(super) barred: Vec<u32>,
    pub(super) there: Vec<PeerTargets>,
    /// The groups of subscriptions that match, here and elsewhere.
    pub(super) groups: Vec<u32>,
    /// Subscriptions of processes that were given up, and that may come back.
    pub(super) away: Vec<Arc<RemoteSubscription>>,
    /// The level that the platform declares for the channel.
    pub(super) level: Option<SecurityLevel>,
}

/// The state of a channel, as the exchange knows it.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) counts: Arc<Counts>,
    /// The state of all subscriptions that the targets were computed for.
    pub(super) generation: u64,
    pub(super) targets: Arc<Targets>,
}

impl Exchange {
    /// A channel in use, and its targets.
    pub(super) fn known(&self, path: &str) -> Option<(ChannelPath, Arc<Targets>)> {
        let (path, channel) = self.channels.get_key_value(path)?;
        let is_current = channel.generation == self.generation;
        is_current.then(|| (path.clone(), channel.targets.clone()))
    }

    /// The receivers of something on a channel.
    pub(super) fn targets(&mut self, path: &ChannelPath) -> Arc<Targets> {
        if let Some(channel) = self.channels.get(path)
            && channel.generation == self.generation
        {
            return channel.targets.clone();
        }
        let mut targets = Targets {
            level: self.declared_level(path),
            ..Targets::default()
        };
        self.here.for_each_match(path, |id| {
            if let Some(consumer) = self.consumers.get(id) {
                let SubscriptionOptions {
                    takes_events,
                    answers,
                    ref group,
                    ..
                } = consumer.options;
                let is_in_group = group.is_some();
                let (rights, agent) = (&self.rights, &consumer.agent);
                match Uses::new(rights, agent, path, takes_events, answers, is_in_group) {
                    Some(uses) => targets.here.push(Here {
                        consumer: consumer.clone(),
                        uses,
                    }),
                    None if takes_events && !is_in_group => targets.barred.push(*id),
                    None => {}
                }
            }
        });
        targets.here.sort_by_key(|here| here.consumer.id);
        let mut there: HashMap<u32, Vec<There>> = HashMap::new();
        self.there.for_each_match(path, |(index, id)| {
            let Some(peer) = self.peers.get(*index) else {
                return;
            };
            if let Some(it) = peer.away.get(id)
                && it.takes_events
                && it.group.is_none()
                && self.rights.may(&it.agent, ChannelRight::Subscribe, path)
            {
                targets.away.push(it.clone());
            }
            if let Some(it) = peer.subscriptions.get(id)
                && let Some(uses) = Uses::new(
                    &self.rights,
                    &it.agent,
                    path,
                    it.takes_events,
                    it.answers,
                    it.group.is_some(),
                )
            {
                there.entry(*index).or_default().push(There {
                    id: *id,
                    subscription: it.clone(),
                    uses,
                });
            }
        });
        for (peer, mut subscriptions) in there {
            subscriptions.sort_by_key(|it| it.id);
            let sees_all = subscriptions.iter().all(|it| {
                let sees_none = !it.subscription.takes_events || it.subscription.group.is_some();
                sees_none || it.uses.sees && it.subscription.filter.is_none()
            });
            let all = sees_all.then(|| {
                subscriptions
                    .iter()
                    .filter(|it| it.uses.sees && it.subscription.pushes_back())
                    .map(|it| it.id)
                    .collect()
            });
            targets.there.push(PeerTargets {
                peer,
                subscriptions,
                all,
            });
        }
        targets.there.sort_by_key(|targets| targets.peer);
        let may =
            |agent: &str, path: &ChannelPath| self.rights.may(agent, ChannelRight::Subscribe, path);
        targets.groups = self.groups.matching(path, &may);
        if self.channels.len() >= self.config.channels && !self.channels.contains_key(path) {
            self.forget_channels();
        }
        let lowest = self.lowest_number;
        let channel = self
            .channels
            .entry(path.clone())
            .or_insert_with(|| Channel {
                counts: Arc::new(Counts {
                    published: AtomicU64::new(lowest),
                    ..Counts::default()
                }),
                ..Channel::default()
            });
        targets.counts = channel.counts.clone();
        let targets = Arc::new(targets);
        channel.generation = self.generation;
        channel.targets = targets.clone();
        targets
    }

    /// Makes room for other channels: forgets half of them, those without subscriptions first.
    fn forget_channels(&mut self) {
        let keep = self.config.channels / 2;
        let mut left = self.channels.len();
        let mut highest = self.lowest_number;
        for only_unused in [true, false] {
            self.channels.retain(|_, channel| {
                let is_unused = channel.targets.here.is_empty() && channel.targets.there.is_empty();
                let stays = left <= keep || (only_unused && !is_unused);
                if !stays {
                    left -= 1;
                    highest = highest.max(channel.counts.published.load(Ordering::Relaxed));
                }
                stays
            });
        }
        self.lowest_number = highest;
    }
}
