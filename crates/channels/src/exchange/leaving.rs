//! Events that an agent has published and nobody has received yet. They can be lost if the agent leaves now.

use std::collections::BTreeMap;
use std::fmt;

use super::Exchange;
use crate::frame::Frame;
use crate::path::ChannelPath;

/// Events that an agent has published and that have not arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndeliveredEvents {
    /// The channel.
    pub channel: ChannelPath,
    /// A group none of whose members has them, or a process that has not acknowledged them.
    pub to: String,
    /// The number of events.
    pub events: usize,
    /// Whether they may yet arrive. Events for a group without members count as not awaited.
    pub is_awaited: bool,
}

/// `2 events on /jobs for the group workers`.
impl fmt::Display for UndeliveredEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.events == 1 { "" } else { "s" };
        write!(
            f,
            "{} event{plural} on {} for {}",
            self.events, self.channel, self.to
        )
    }
}

impl Exchange {
    /// The events of an agent that no member of their group has, or that another process has not acknowledged. A member
    /// that has an event must handle it.
    pub(crate) fn undelivered(&self, publisher: &str) -> Vec<UndeliveredEvents> {
        let mut counts: BTreeMap<(String, ChannelPath), (usize, bool)> = BTreeMap::new();
        for (group, has_members, held) in self.groups.waiting() {
            if *held.publisher == *publisher {
                let place = (format!("the group {group}"), held.header.channel.clone());
                let count = counts.entry(place).or_default();
                *count = (count.0 + 1, has_members);
            }
        }
        for peer in self.peers.values() {
            for kept in peer.outgoing.all_kept() {
                if kept.parcel.author.as_deref() != Some(publisher) || kept.is_settled {
                    continue;
                }
                if let Ok(Frame::Event { head, .. }) = Frame::decode(&kept.parcel.head)
                    && let Ok(channel) = ChannelPath::new(head.channel)
                {
                    let place = (peer.identity.to_string(), channel);
                    let count = counts.entry(place).or_default();
                    *count = (count.0 + 1, true);
                }
            }
        }
        let undelivered = counts.into_iter();
        undelivered
            .map(|((to, channel), (events, is_awaited))| UndeliveredEvents {
                channel,
                to,
                events,
                is_awaited,
            })
            .collect()
    }
}
