//! Subscriptions that other processes announce and withdraw.

use std::sync::Arc;

use sealbus_bus::{FrameOrigin, RefusalReason};

use sealbus_seal::VerifiedIdentity;

use super::arrival::{Objection, Origin, refuse};
use super::groups::GroupKey;
use super::known_filters::FilterRefusal;
use super::peer::RemoteSubscription;
use super::{Exchange, Now};
use crate::frame::Announcement;
use crate::pattern::ChannelPattern;

impl Exchange {
    pub(super) fn announced(
        &mut self,
        from: &Origin<'_>,
        announcement: &Announcement<'_>,
        now: Now,
    ) -> Result<(), Objection> {
        let FrameOrigin::Agent(agent) = &from.arrived.origin else {
            return Err(refuse(
                RefusalReason::NotProved,
                "a subscription is announced by its agent",
            ));
        };
        let most = self.config.subscriptions_per_process;
        let pattern = ChannelPattern::new(announcement.pattern)
            .map_err(|error| refuse(RefusalReason::Malformed, error.to_string()))?;
        if !self.may_subscribe(agent, &pattern, announcement.answers) {
            return Err(refuse(
                RefusalReason::NotPermitted,
                format!("the policy does not let {agent} subscribe to {pattern}"),
            ));
        }
        let Some(peer) = self.peers.get_mut(from.index) else {
            return Ok(());
        };
        let filter = peer.filters.get(announcement.filter).map_err(|error| {
            let reason = match error {
                FilterRefusal::NoFilter(_) => RefusalReason::Malformed,
                FilterRefusal::TooLarge => RefusalReason::OverLimit,
            };
            refuse(reason, error.to_string())
        })?;
        self.withdrawn(from.index, announcement.subscription, 0, now);
        let former = self.forget_away(from.index, Some(announcement.subscription));
        let certified = from.arrived.provenance.certified();
        let since = certified.map(VerifiedIdentity::not_before);
        let Some(peer) = self.peers.get_mut(from.index) else {
            return Ok(());
        };
        if peer.subscriptions.len() >= most {
            return Err(refuse(
                RefusalReason::OverLimit,
                format!("a process may have {most} subscriptions"),
            ));
        }
        let subscription = RemoteSubscription::new(
            agent.clone(),
            pattern.clone(),
            filter,
            announcement,
            since,
            peer.outgoing.next(),
        );
        if let Some(former) = former
            && former.agent == subscription.agent
            && former.pattern == subscription.pattern
        {
            subscription.inherit(&former);
        }
        let subscription = Arc::new(subscription);
        if let Some(name) = &subscription.group {
            let key = GroupKey {
                name: name.clone(),
                pattern: pattern.clone(),
                filter: announcement.filter.to_owned(),
            };
            let member = (Some(from.index), announcement.subscription);
            let share = (agent.clone(), announcement.prefetch as usize);
            let (filter, remote) = (subscription.filter.as_ref(), subscription.clone());
            self.groups
                .join(key, filter, member, share, Some(remote))
                .map_err(|most| {
                    let explanation = format!("a process knows {most} groups at most");
                    refuse(RefusalReason::OverLimit, explanation)
                })?;
        }
        peer.subscriptions
            .insert(announcement.subscription, subscription);
        self.there
            .insert(&pattern, (from.index, announcement.subscription));
        self.changes.note(&pattern);
        self.tell_missed(from.index, announcement.subscription, now);
        self.serve_groups(now);
        Ok(())
    }

    /// A subscription has ended. If its agent has moved, it takes no frame from `moved_before` on; otherwise this is 0.
    pub(super) fn withdrawn(&mut self, index: u32, id: u32, moved_before: u64, now: Now) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(subscription) = peer.subscriptions.remove(&id) else {
            return;
        };
        self.there
            .remove(&subscription.pattern, |other| *other == (index, id));
        self.changes.note(&subscription.pattern);
        subscription.gate.open_all();
        if moved_before > 0 {
            self.give_back_missed((index, id), &subscription, moved_before, now);
        }
        self.stop_awaiting(Some(index), Some(id));
        self.groups.leave((Some(index), id));
        self.serve_groups(now);
    }
}
