//! The targets of a channel: computed once for each channel, and valid until one of its subscriptions comes or goes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_seal::permission::ChannelRight;
use sealbus_seal::{SecurityLevel, Timestamp};

use super::Exchange;
use super::consumer::Consumer;
use super::counts::Counts;
use super::options::SubscriptionOptions;
use super::peer::RemoteSubscription;
use crate::event::ChannelHeader;
use crate::filter::ChannelFilter;
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
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
    /// The uses of a subscription that its agent has left behind.
    const NONE: Self = Self {
        sees: false,
        shares: false,
        reads: false,
        answers: false,
    };

    /// The uses that the agent wants and the policy allows; `None` if there are none.
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

/// The agent of a subscription, and all facts that are equal in the agent's former place and in its new one.
type Same<'a> = (&'a str, &'a ChannelPattern, &'a str, [bool; 3]);

/// A subscription of this process that matches a channel.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) consumer: Arc<Consumer>,
    pub(super) uses: Uses,
}

impl Here {
    /// Whether the subscription gets an event as it is published. It does not if it reads the event from a log.
    pub(super) fn sees(&self, header: &ChannelHeader) -> bool {
        self.uses.sees && !(is_kept(header) && self.consumer.options.reads_logs())
    }

    fn same(&self) -> Same<'_> {
        let it = &self.consumer.options;
        let filter = self.consumer.filter.as_ref();
        let filter = filter.map_or("", ChannelFilter::as_str);
        let kinds = [it.takes_events, it.answers, it.reads_logs()];
        (&*self.consumer.agent, &it.pattern, filter, kinds)
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

    /// Whether the subscription gets an event that names no subscription of its process. It does even if its agent has
    /// left it behind, because that process does not know this.
    pub(super) fn is_in_all(&self) -> bool {
        self.uses.sees || self.subscription.takes_events && self.uses == Uses::NONE
    }

    /// `None` for a member of a group, because the group gives its events to another member itself.
    fn same(&self) -> Option<Same<'_>> {
        let it = &*self.subscription;
        let filter = it.filter.as_ref().map_or("", ChannelFilter::as_str);
        let kinds = [it.takes_events, it.answers, it.reads_logs];
        let is_alone = it.group.is_none();
        is_alone.then_some((&*it.agent, &it.pattern, filter, kinds))
    }
}

/// Whether events of this kind are kept in a log.
pub(super) fn is_kept(header: &ChannelHeader) -> bool {
    header.qos.persistence.is_persistent()
}

/// The subscriptions of one other process that match a channel.
#[derive(Debug)]
pub(super) struct PeerTargets {
    pub(super) peer: u32,
    /// Sorted by number. Subscriptions that agents have left behind have no uses.
    pub(super) subscriptions: Vec<There>,
    /// The subscriptions that push back and see events, if a frame that names none may go to the process: every
    /// subscription that takes events sees all of them, and no agent has moved away from its subscription.
    pub(super) all: Option<Arc<[u32]>>,
}

/// The receivers of something on a channel.
#[derive(Debug, Default)]
pub(super) struct ChannelReceivers {
    /// The counters of the channel. They stay when its targets change.
    pub(super) counts: Arc<Counts>,
    pub(super) here: Vec<Here>,
    /// Subscriptions of this process that match but may not get anything. Another process may not know that yet.
    pub(super) barred: Vec<u32>,
    pub(super) there: Vec<PeerTargets>,
    /// The groups of subscriptions that match, here and elsewhere.
    pub(super) groups: Vec<u32>,
    /// Subscriptions of processes that were given up and may come back.
    pub(super) away: Vec<Arc<RemoteSubscription>>,
    /// The level that the platform declares for the channel.
    pub(super) level: Option<SecurityLevel>,
}

/// The state of a channel, as the exchange knows it.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) counts: Arc<Counts>,
    /// The number of the last change that the targets take into account.
    pub(super) as_of: u64,
    pub(super) targets: Arc<ChannelReceivers>,
}

impl Exchange {
    /// A channel in use, and its targets.
    pub(super) fn known(&self, path: &str) -> Option<(ChannelPath, Arc<ChannelReceivers>)> {
        let (path, channel) = self.channels.get_key_value(path)?;
        let is_current = channel.as_of == self.changes.number();
        is_current.then(|| (path.clone(), channel.targets.clone()))
    }

    /// The receivers of something on a channel.
    pub(super) fn targets(&mut self, path: &ChannelPath) -> Arc<ChannelReceivers> {
        if let Some(channel) = self.channels.get_mut(path)
            && self.changes.spare(path, channel.as_of)
        {
            channel.as_of = self.changes.number();
            return channel.targets.clone();
        }
        let mut targets = ChannelReceivers {
            level: self.declared_level(path),
            ..ChannelReceivers::default()
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
        let left = self.left(&targets.here, &there);
        for (peer, mut subscriptions) in there {
            for it in &mut subscriptions {
                if left.contains(&(peer, it.id)) {
                    it.uses = Uses::NONE;
                }
            }
            if subscriptions.iter().all(|it| it.uses == Uses::NONE) {
                continue;
            }
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
        channel.as_of = self.changes.number();
        channel.targets = targets.clone();
        targets
    }

    /// The subscriptions that agents have left behind. An agent that moves is in two processes for a while. Events for
    /// the process that it leaves would come back, although the agent gets them in the other one. A subscription counts
    /// as left only once the agent has the same one there, because nothing else gets its events.
    fn left(&self, here: &[Here], there: &HashMap<u32, Vec<There>>) -> HashSet<(u32, u32)> {
        let mut latest: HashMap<Same<'_>, (Option<Timestamp>, u64, u32)> = HashMap::new();
        for (index, subscriptions) in there {
            let epoch = self.peers.get(*index).map_or(0, |peer| peer.epoch);
            for it in subscriptions {
                let Some(same) = it.same() else { continue };
                let came = (it.subscription.since, epoch, *index);
                let last = latest.entry(same).or_insert(came);
                *last = came.max(*last);
            }
        }
        let alone = here.iter().filter(|it| it.consumer.options.group.is_none());
        let here: HashSet<Same<'_>> = alone.map(Here::same).collect();
        let mut left = HashSet::new();
        for (index, subscriptions) in there {
            for it in subscriptions {
                let Some(same) = it.same() else { continue };
                let is_latest = latest.get(&same).is_some_and(|last| last.2 == *index);
                if !is_latest || here.contains(&same) {
                    left.insert((*index, it.id));
                }
            }
        }
        left
    }

    /// Makes room for other channels: forgets half of them, beginning with those without subscriptions.
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
