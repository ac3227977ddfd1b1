//! Events of queue groups under way: held for a group, given to a member, handled, or given to another member.

use std::sync::Arc;

use sealbus_bus::{Acknowledgement, MESSAGE_OVERHEAD, Provenance, ReceivedMessage, shared_size};
use sealbus_bus::{RefusalReason, UndeliverableReason};
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_seal::SecurityLevel;
use sealbus_seal::permission::ChannelRight;

use super::aftermath::{Source, not_taken};
use super::chosen::Chosen;
use super::groups::{Fate, GroupKey, Held};
use super::options::SubscriptionOptions;
use super::publication::Publication;
use super::share::{MemberKey, Share};
use super::stream::KeptFrame;
use super::subscriptions::SubscribeError;
use super::targets::{ChannelReceivers, Here};
use super::{Exchange, Now, Outcome};
use crate::event::{ChannelHeader, ReceivedEvent};
use crate::filter::ChannelFilter;
use crate::flow::FlowPolicy;
use crate::frame::{self, Head, Stamp};
use crate::path::ChannelPath;
use crate::sealed::outline;

impl Exchange {
    /// Checks that a subscription can be a member of the group that its options name.
    pub(super) fn check_group(options: &SubscriptionOptions) -> Result<(), SubscribeError> {
        let Some(group) = &options.group else {
            return Ok(());
        };
        let is_legal = !group.is_empty()
            && group.len() <= frame::LONGEST_NAME
            && !group.chars().any(char::is_control);
        if !is_legal {
            return Err(SubscribeError::GroupName(group.clone()));
        }
        let cannot = if options.durable.is_some() {
            "be durable: what a group has not handled is held by its publishers, not by the logs"
        } else if options.reads_logs() {
            "begin before now: its events are those that are published while it has members"
        } else if !options.takes_events {
            "leave out events: they are what a group shares"
        } else if options.policy != FlowPolicy::PushBack {
            "drop events, nor end when it is full: each event of a group is handled. Take the policy push-back"
        } else if options.prefetch == 0 || options.prefetch > frame::MOST_PREFETCHED {
            "have so many events at a time: take from 1 to 1024"
        } else {
            return Ok(());
        };
        Err(SubscribeError::NotInGroup {
            group: group.clone(),
            cannot,
        })
    }

    /// Adds a subscription of this process to its group, if it has one.
    pub(super) fn join_group(
        &mut self,
        id: u32,
        agent: &Arc<str>,
        options: &SubscriptionOptions,
        filter: Option<&ChannelFilter>,
    ) -> Result<(), SubscribeError> {
        let Some(name) = &options.group else {
            return Ok(());
        };
        let key = GroupKey {
            name: name.as_str().into(),
            pattern: options.pattern.clone(),
            filter: options.filter.clone(),
        };
        let share = (agent.clone(), options.prefetch as usize);
        self.groups
            .join(key, filter, (None, id), share, None)
            .map_err(SubscribeError::TooManyGroups)
    }

    /// Looks at the group of a member, which may have room again.
    pub(super) fn look_at_group(&mut self, member: MemberKey, now: Now) {
        self.groups.look_at(member);
        self.serve_groups(now);
    }

    /// Chooses the member of a group that gets a best-effort event, which is not held.
    pub(super) fn draw(
        &self,
        group: u32,
        header: &ChannelHeader,
        targets: &ChannelReceivers,
        chosen: &mut Chosen,
    ) {
        let may =
            |agent: &str, path: &ChannelPath| self.rights.may(agent, ChannelRight::Subscribe, path);
        let Some(member) = self.groups.least_busy(group, &header.channel, &may) else {
            return;
        };
        chosen.drawn.push(member);
        let (process, id) = member;
        match process {
            None => {
                let is_it = |it: &Here| it.consumer.id == id;
                chosen.here.extend(targets.here.iter().position(is_it));
            }
            Some(index) => {
                let Some(at) = targets.there.iter().position(|it| it.peer == index) else {
                    return;
                };
                let found = targets.there[at]
                    .subscriptions
                    .iter()
                    .find(|it| it.id == id);
                chosen.name(at, found.as_slice());
            }
        }
    }

    /// Holds an accepted event for a group until a member gets it.
    pub(super) fn hold(
        &mut self,
        group: u32,
        header: &ChannelHeader,
        publication: &Publication<'_>,
        now: Now,
    ) {
        let receipt = publication.receipt.cloned();
        if let Some(receipt) = &receipt {
            receipt.expect();
        }
        let size = shared_size(publication.message);
        let held = Held::new(
            header.clone(),
            publication.message.clone(),
            publication.publisher.clone(),
            receipt,
            size + MESSAGE_OVERHEAD,
        );
        self.groups.hold(group, held, size, now.moment);
    }

    /// Gives waiting events to the members that are free.
    pub(super) fn serve_groups(&mut self, now: Now) {
        // The outermost call does the work that follows from giving an event.
        if std::mem::replace(&mut self.is_serving, true) {
            return;
        }
        let rights = self.rights.clone();
        let may =
            |agent: &str, path: &ChannelPath| rights.may(agent, ChannelRight::Subscribe, path);
        while let Some(group) = self.groups.next_to_serve() {
            while let Some(share) = self.groups.give(group, now.moment, &may) {
                self.give(share, now);
            }
            let change = self.groups.next_change(group);
            self.sweep_by(change, now);
            let care_at = self.groups.was_served(group, now.since_start);
            self.set_alarm(care_at);
            if let Some(pattern) = self.groups.forget_if_over(group) {
                self.changes.note(&pattern);
            }
        }
        self.is_serving = false;
        self.end_shares();
    }

    /// Gives events back to their publishers if no member has been allowed to have them for too long.
    pub(super) fn care_for_groups(&mut self, now: Now) {
        let rights = self.rights.clone();
        let may =
            |agent: &str, path: &ChannelPath| rights.may(agent, ChannelRight::Subscribe, path);
        self.groups.care(now, self.config.patience, &may);
        self.serve_groups(now);
    }

    /// Gives an event to a member.
    fn give(&mut self, share: Share, now: Now) {
        let Some(held) = self.groups.held(share) else {
            return;
        };
        let (header, message) = (held.header.clone(), held.message.clone());
        let publisher = held.publisher.clone();
        let (process, id) = share.member;
        // A held event is sealed anew each time it is given, to the agents that may read it then.
        let (message, inside) = match header.qos.level == Some(SecurityLevel::Sealed) {
            false => (message, None),
            true => match self.seal_share(share, &header, &publisher, &message, now) {
                Ok(sealed) => (sealed.message, Some(sealed.inside)),
                Err(reason) => return self.groups.postpone(share, reason),
            },
        };
        let Some(index) = process else {
            match self.consumers.get(&id).cloned() {
                Some(consumer) => {
                    self.share_arrived(share);
                    let message =
                        ReceivedMessage::shared(message, Provenance::SameProcess).opened(inside);
                    let event = ReceivedEvent::new(header, message);
                    self.enqueue(&consumer, event, Source::Group(share), now);
                }
                None => self.groups.returned(share, None),
            }
            return;
        };
        let encoded = match self.encode(&message) {
            Ok(encoded) => encoded,
            Err(error) => {
                let reason = UndeliverableReason::Refused {
                    reason: RefusalReason::Malformed,
                    explanation: error.to_string(),
                };
                return self.groups.give_up(share, reason);
            }
        };
        if let Some(peer) = self.peers.get_mut(index) {
            let cost = (encoded.len() + MESSAGE_OVERHEAD) as u64;
            if let Some(subscription) = peer.subscriptions.get(&id) {
                subscription.charge(cost);
            }
            let stamp = Stamp {
                session: peer.session_out(),
                number: peer.outgoing.next(),
            };
            let parcel = encoded.parcel(&publisher, stamp, &Head::of(&header), &[id]);
            let kept = KeptFrame {
                share: Some(share),
                charged: Some(Arc::from([id])),
                cost,
                ..KeptFrame::new(parcel)
            };
            peer.outgoing.push(kept, now.since_start);
            self.mark_ready(index);
            self.probe_later(index, now);
        }
        self.keep_buffer(encoded);
    }

    /// The process of a member has received an event.
    pub(super) fn share_arrived(&mut self, share: Share) {
        let wanted = self.groups.held(share).map(|held| &held.header.qos);
        if wanted.is_some_and(|qos| qos.acknowledgement != Some(Acknowledgement::ReceiverAgent))
            && let Some(receipt) = self.groups.take_receipt(share)
        {
            receipt.acknowledge();
        }
    }

    /// A member has handled an event, or does not take it.
    pub(super) fn share_ended(&mut self, share: Share, is_handled: bool, now: Now) {
        if is_handled {
            self.groups.handled(share);
        } else {
            self.groups.returned(share, None);
        }
        self.serve_groups(now);
    }

    /// An event cannot reach a member, although the member may have had it.
    pub(super) fn share_returned(
        &mut self,
        share: Share,
        may_be_again: bool,
        reason: &UndeliverableReason,
        now: Now,
    ) {
        if may_be_again && let Some(held) = self.groups.held(share) {
            held.header.may_be_again = true;
        }
        let is_sealed_anew = matches!(
            reason,
            UndeliverableReason::Refused {
                reason: RefusalReason::NotOpened,
                ..
            }
        );
        match is_sealed_anew {
            true => self.groups.not_opened(share, reason.clone()),
            false => self.groups.returned(share, Some(reason.clone())),
        }
        self.serve_groups(now);
    }

    /// Tells the publishers of events that have ended.
    fn end_shares(&mut self) {
        for (held, fate) in self.groups.take_over() {
            let receipt = held.receipt.as_deref();
            match fate {
                Fate::Handled => receipt.into_iter().for_each(|it| it.acknowledge()),
                Fate::Expired => receipt.into_iter().for_each(|it| it.fail(&not_taken())),
                Fate::Failed(reason) => {
                    receipt.into_iter().for_each(|it| it.fail(&reason));
                    let path = &held.header.channel;
                    let is_sealed = held.header.qos.level == Some(SecurityLevel::Sealed);
                    let outline = is_sealed.then(|| outline(&held.message));
                    let message = outline.as_ref().unwrap_or(&held.message);
                    self.tell_publisher(&held.publisher, path, message, reason);
                }
            }
        }
    }

    /// Tells a publisher that not all receivers got its event. For a sealed event the publisher gets the outline.
    pub(super) fn tell_publisher(
        &mut self,
        publisher: &Arc<str>,
        channel: &ChannelPath,
        message: &AclMessage,
        reason: UndeliverableReason,
    ) {
        let mut body = Vec::new();
        if let Err(error) = bitefficient::encode(message, &mut body) {
            tracing::error!(%publisher, %channel, %error, "an event that failed cannot be encoded");
            return;
        }
        self.outcomes.push(Outcome::Failed {
            publisher: publisher.clone(),
            receiver: channel.to_string(),
            body: body.into(),
            reason,
        });
    }
}
