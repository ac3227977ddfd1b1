//! The subscriptions of this process: their beginning and end, and the reports about them and their queues.

use std::sync::Arc;

use sealbus_seal::permission::ChannelRight;
use thiserror::Error;

use super::aftermath::Aftermath;
use super::consumer::Consumer;
use super::options::{Ended, SubscriptionOptions};
use super::peer::Peer;
use super::{Exchange, Now};
use crate::filter::{ChannelFilter, FilterError};
use crate::frame::{self, Announcement, Frame};
use crate::log::Replay;
use crate::pattern::ChannelPattern;

/// Why a subscription was not made.
#[derive(Clone, Debug, Error)]
pub enum SubscribeError {
    /// The filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The subscription would never get anything.
    #[error(
        "a subscription that takes neither events nor requests gets nothing: choose at least one"
    )]
    Nothing,
    /// The agent may not read the channel.
    #[error(
        "agent {agent} may not subscribe to {pattern}: the platform's policy does not allow it"
    )]
    NotPermitted {
        /// The agent.
        agent: Arc<str>,
        /// The channels.
        pattern: ChannelPattern,
    },
    /// There are no logs to resume or replay from.
    #[error(
        "this platform keeps no events: a subscription cannot be durable, nor begin before now"
    )]
    NoLog,
    /// There are more subscriptions than other processes accept.
    #[error("this process has {0} subscriptions, which is the limit")]
    TooMany(usize),
    /// Another subscription of the agent already has the durable name.
    #[error(
        "agent {agent} has a subscription with the durable name {durable:?} already: end it, or take another name"
    )]
    DurableTwice {
        /// The agent.
        agent: Arc<str>,
        /// The name.
        durable: String,
    },
    /// A durable subscription cannot begin with the last event of each key.
    #[error(
        "the durable subscription {0:?} cannot begin with the last event of each key: it goes on where it stopped, behind every \
         event before. Leave out one of the two"
    )]
    DurableLast(String),
    /// The durable name is not valid.
    #[error("{0:?} cannot be a durable name: a durable name has 1 to {max} bytes and no control characters", max = frame::LONGEST_NAME)]
    DurableName(String),
    /// The group name is not valid.
    #[error("{0:?} cannot be the name of a group: such a name has 1 to {max} bytes and no control characters", max = frame::LONGEST_NAME)]
    GroupName(String),
    /// The subscription asks for something that a group cannot give.
    #[error("a subscription of the group {group:?} cannot {cannot}")]
    NotInGroup {
        /// The group.
        group: String,
        /// The wish that it cannot have, and the advice.
        cannot: &'static str,
    },
    /// There are more groups than a process knows.
    #[error("this process knows {0} groups, which is the limit: let some end")]
    TooManyGroups(usize),
    /// The agent has left this process.
    #[error("agent {0} has left this process and cannot subscribe")]
    Detached(Arc<str>),
    /// The QoS asked for cannot be had.
    #[error(transparent)]
    Unavailable(#[from] crate::qos::UnavailableQos),
}

impl Exchange {
    pub(crate) fn subscribe(
        &mut self,
        agent: &Arc<str>,
        options: SubscriptionOptions,
        now: Now,
    ) -> Result<Arc<Consumer>, SubscribeError> {
        if !options.takes_events && !options.answers {
            return Err(SubscribeError::Nothing);
        }
        Self::check_group(&options)?;
        if let Some(durable) = &options.durable {
            let is_legal = !durable.is_empty()
                && durable.len() <= frame::LONGEST_NAME
                && !durable.chars().any(char::is_control);
            if !is_legal {
                return Err(SubscribeError::DurableName(durable.clone()));
            }
            if matches!(options.replay, Replay::LastPerKey(_)) {
                return Err(SubscribeError::DurableLast(durable.clone()));
            }
            let has_it = |other: &Consumer| {
                other.agent == *agent && other.options.durable.as_ref() == Some(durable)
            };
            if self.consumers.values().any(|other| has_it(other)) {
                return Err(SubscribeError::DurableTwice {
                    agent: agent.clone(),
                    durable: durable.clone(),
                });
            }
        }
        if self.consumers.len() >= self.config.subscriptions_per_process {
            return Err(SubscribeError::TooMany(self.consumers.len()));
        }
        // A pattern is checked channel by channel, as the channels are used.
        if !self.may_subscribe(agent, &options.pattern, options.answers) {
            return Err(SubscribeError::NotPermitted {
                agent: agent.clone(),
                pattern: options.pattern,
            });
        }
        let filter = compile(&options.filter)?;
        let id = self.next_subscription;
        self.join_group(id, agent, &options, filter.as_ref())?;
        self.next_subscription += 1;
        let consumer = Arc::new(Consumer::new(
            id,
            agent.clone(),
            options,
            filter,
            &self.config,
        ));
        if self.resting.contains(agent) {
            consumer.set_resting(true);
        }
        self.here.insert(&consumer.options.pattern, id);
        self.consumers.insert(id, consumer.clone());
        self.changes.note(&consumer.options.pattern);
        let processes = self.introduced();
        let indexes = self.peers.indexes();
        for index in indexes {
            if let Some(peer) = self.peers.get_mut(index)
                && peer.is_introduced()
            {
                announce(peer, &consumer, processes, now);
                self.mark_ready(index);
            }
        }
        self.serve_groups(now);
        Ok(consumer)
    }

    /// Whether the pattern may match a channel on which the agent has rights.
    pub(crate) fn may_subscribe(
        &self,
        agent: &str,
        pattern: &ChannelPattern,
        answers: bool,
    ) -> bool {
        let may = |right| self.rights.may_on_some(agent, right, pattern);
        may(ChannelRight::Subscribe) || answers && may(ChannelRight::Answer)
    }

    /// Ends a subscription of this process.
    pub(crate) fn unsubscribe(&mut self, id: u32, why: Ended, now: Now) {
        let Some(consumer) = self.consumers.remove(&id) else {
            return;
        };
        self.here
            .remove(&consumer.options.pattern, |other| *other == id);
        self.changes.note(&consumer.options.pattern);
        self.groups.close((None, id));
        let has_moved = self.resting.contains(&consumer.agent);
        let mut aftermath = Aftermath::default();
        let missed = consumer.end(why, &mut aftermath);
        if missed > 0 {
            self.note_missed(&consumer, missed, now);
        }
        // The process of the subscription announces its end, so it need not announce credit.
        aftermath.credit.clear();
        self.settle(id, aftermath, now);
        self.groups.leave((None, id));
        self.serve_groups(now);
        self.stop_awaiting(None, Some(id));
        let indexes = self.peers.indexes();
        for index in indexes {
            if let Some(peer) = self.peers.get_mut(index)
                && peer.is_introduced()
            {
                let moved_before = match has_moved {
                    true => peer.incoming.taken() + 1,
                    false => 0,
                };
                peer.report(now.since_start, |stamp| Frame::Withdraw {
                    stamp,
                    subscription: id,
                    moved_before,
                });
                self.mark_ready(index);
            }
        }
    }

    /// Drops a subscription for its agent. If it was disconnected, it has ended already, and its unread events were
    /// kept for the agent: now nobody takes them.
    pub(crate) fn drop_subscription(&mut self, consumer: &Consumer, now: Now) {
        self.unsubscribe(consumer.id, Ended::Cancelled, now);
        let mut aftermath = Aftermath::default();
        consumer.end(Ended::Cancelled, &mut aftermath);
        self.settle(consumer.id, aftermath, now);
    }

    /// Ends all subscriptions of an agent that has left.
    pub(crate) fn agent_left(&mut self, agent: &str, now: Now) {
        let ids: Vec<u32> = self
            .consumers
            .values()
            .filter(|consumer| *consumer.agent == *agent)
            .map(|consumer| consumer.id)
            .collect();
        for id in ids {
            self.unsubscribe(id, Ended::Cancelled, now);
        }
        self.resting.remove(agent);
    }

    /// Sets whether an agent rests: its subscriptions then hand out nothing and settle nothing. Returns them.
    pub(crate) fn set_resting(&mut self, agent: &str, rests: bool) -> Vec<Arc<Consumer>> {
        if rests {
            self.resting.insert(agent.into());
        } else {
            self.resting.remove(agent);
        }
        let consumers = self.consumers.values();
        let consumers: Vec<_> = consumers
            .filter(|consumer| *consumer.agent == *agent)
            .cloned()
            .collect();
        for consumer in &consumers {
            consumer.set_resting(rests);
        }
        consumers
    }

    /// Handles the aftermath of events that have left the queue of a subscription.
    pub(crate) fn settle(&mut self, id: u32, aftermath: Aftermath, now: Now) {
        if aftermath.has_room
            && let Some(consumer) = self.consumers.get(&id)
        {
            consumer.gate.open();
        }
        for (key, limit) in aftermath.credit {
            if let Some(peer) = self.peer_of(key) {
                peer.tell(None, now.since_start, |stamp| Frame::Credit {
                    stamp,
                    subscription: id,
                    limit,
                });
                self.mark_ready(key.index);
            }
        }
        for (source, request) in aftermath.unanswered {
            match source {
                None => self.decline((None, id), request.0),
                Some(key) => {
                    if let Some(peer) = self.peer_of(key) {
                        peer.tell(None, now.since_start, |stamp| Frame::NoAnswer {
                            stamp,
                            request: request.0,
                            subscription: id,
                        });
                        self.mark_ready(key.index);
                    }
                }
            }
        }
        for (key, number, is_taken) in aftermath.taken {
            if let Some(peer) = self.peer_of(key) {
                if is_taken {
                    let taken = number;
                    peer.tell(None, now.since_start, |stamp| Frame::Taken { stamp, taken });
                } else {
                    let message = number;
                    peer.report(now.since_start, |stamp| Frame::Absent { stamp, message });
                }
                self.mark_ready(key.index);
            }
        }
        for event in aftermath.returned {
            self.give_back_here(&event);
        }
        let at = now.since_start + self.config.acknowledge_after;
        for key in aftermath.read {
            if let Some(peer) = self.peer_of(key) {
                peer.incoming.acknowledge_by(at);
                self.wake_for(key.index, Some(at));
            }
        }
        for (share, is_handled) in aftermath.shares {
            self.share_ended(share, is_handled, now);
        }
    }
}

pub(super) fn compile(text: &str) -> Result<Option<ChannelFilter>, FilterError> {
    if text.is_empty() {
        return Ok(None);
    }
    ChannelFilter::new(text).map(Some)
}

/// Announces a subscription of this process to another one.
pub(super) fn announce(peer: &mut Peer, consumer: &Consumer, processes: usize, now: Now) {
    let options = &consumer.options;
    let credit = consumer.open_window(peer.key, processes);
    peer.tell(Some(&consumer.agent), now.since_start, |stamp| {
        Frame::Announce {
            stamp,
            announcement: Announcement {
                subscription: consumer.id,
                pattern: options.pattern.as_str(),
                filter: &options.filter,
                policy: options.policy,
                answers: options.answers,
                takes_events: options.takes_events,
                credit,
                reads_logs: options.reads_logs(),
                group: options.group.as_deref().unwrap_or_default(),
                prefetch: match options.group {
                    Some(_) => options.prefetch,
                    None => 0,
                },
            },
        }
    });
}
