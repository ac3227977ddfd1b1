//! The subscriptions that get a message, and the frames that name those of other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::filter_errors::FailedFilters;
use super::peer::RemoteSubscription;
use super::share::MemberKey;
use super::targets::{ChannelReceivers, PeerTargets, There};
use crate::frame;

/// The chosen targets: subscriptions here and, for each other process, the subscriptions there. If none are named, all
/// subscriptions of that process are meant.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) here: Vec<usize>,
    pub(super) there: Vec<ChosenThere>,
    /// Filters that could not be evaluated.
    pub(super) failed: FailedFilters,
    /// Subscriptions of this process, and below of others, that the event passes by.
    pub(super) passed_here: Vec<usize>,
    pub(super) passed_there: Vec<Arc<RemoteSubscription>>,
    /// The groups that get the event, and below those that it passes by.
    pub(super) groups: Vec<u32>,
    pub(super) passed_groups: Vec<u32>,
    /// The members of groups that get the event without its being held.
    pub(super) drawn: Vec<MemberKey>,
}

pub(super) struct ChosenThere {
    /// Index in [`ChannelReceivers::there`].
    pub(super) at: usize,
    /// The subscriptions named in the frame.
    pub(super) named: Vec<u32>,
    /// The subscriptions whose credit the frame takes.
    pub(super) charged: Option<Arc<[u32]>>,
}

impl Chosen {
    /// Adds all subscriptions of one process that see events. That process decides which of them want this event, and
    /// each of them pays for it.
    pub(super) fn all(&mut self, at: usize, there: &PeerTargets) {
        let all = there.subscriptions.iter().filter(|it| it.is_in_all());
        let charged: Arc<[u32]> = all
            .filter(|it| it.subscription.pushes_back())
            .map(|it| it.id)
            .collect();
        self.there.push(ChosenThere {
            at,
            named: Vec::new(),
            charged: (!charged.is_empty()).then_some(charged),
        });
    }

    /// Names all subscriptions of an agent in one frame, because the agent opens a sealed event once.
    pub(super) fn gather(&mut self, targets: &ChannelReceivers) {
        let mut named: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        self.there.retain(|there| {
            // A process that evaluates its own filters gets a frame that names no subscriptions.
            let is_named = !there.named.is_empty();
            if is_named {
                let of_process = named.entry(there.at).or_default();
                of_process.extend(&there.named);
            }
            !is_named
        });
        for (at, ids) in named {
            let subscriptions = targets.there.get(at).into_iter();
            let subscriptions = subscriptions.flat_map(|it| &it.subscriptions);
            let named: Vec<&There> = subscriptions.filter(|it| ids.contains(&it.id)).collect();
            for part in by_agent(named) {
                self.name(at, &part);
            }
        }
    }

    /// Adds subscriptions of one process, which the frames name.
    pub(super) fn name(&mut self, at: usize, subscriptions: &[&There]) {
        for part in subscriptions.chunks(frame::MOST_TARGETS) {
            let charged: Arc<[u32]> = part
                .iter()
                .filter(|it| it.subscription.pushes_back())
                .map(|it| it.id)
                .collect();
            self.there.push(ChosenThere {
                at,
                named: part.iter().map(|it| it.id).collect(),
                charged: (!charged.is_empty()).then_some(charged),
            });
        }
    }
}

/// Divides subscriptions of one process into parts that a frame can name. All of one agent are in one part, because the
/// agent takes a sealed event once. If an agent has more than a frame can name, the rest are left out.
pub(super) fn by_agent(mut subscriptions: Vec<&There>) -> Vec<Vec<&There>> {
    subscriptions.sort_by_key(|it| (it.subscription.agent.clone(), it.id));
    let mut parts: Vec<Vec<&There>> = Vec::new();
    for of_agent in subscriptions.chunk_by(|a, b| a.subscription.agent == b.subscription.agent) {
        match parts.last_mut() {
            Some(part) if part.len() + of_agent.len() <= frame::MOST_TARGETS => {
                part.extend(of_agent);
            }
            _ => parts.push(of_agent.iter().take(frame::MOST_TARGETS).copied().collect()),
        }
    }
    for part in &mut parts {
        part.sort_by_key(|it| it.id);
    }
    parts
}
