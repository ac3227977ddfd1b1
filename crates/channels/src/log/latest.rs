//! The last event of each key, gathered from the logs of all nodes.
//!
//! A node reads its logs from the beginning, part by part, and gives the last event of each key in each part. This
//! state machine keeps the latest of them. In one log, the later event has the greater number. Between the logs of
//! different nodes, the later event is the one that was published later, by the clocks of the publishers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{LogPart, LoggedEvent};
use crate::filter::EventKey;
use crate::path::ChannelPath;
use sealbus_bus::Moment;

/// The most events held while gathering, and their bytes.
pub(crate) const MOST_VALUES: (usize, usize) = (16_384, 64 << 20);

/// The last events so far.
#[derive(Debug)]
pub(crate) struct Latest {
    key: EventKey,
    nodes: BTreeMap<Arc<str>, OfNode>,
    /// The number of events held, and their bytes.
    size: (usize, usize),
}

#[derive(Debug, Default)]
struct OfNode {
    /// The number of the next event to read, by channel.
    next: BTreeMap<ChannelPath, u64>,
    /// The channels whose end has not been reached.
    behind: BTreeSet<ChannelPath>,
    last: HashMap<(ChannelPath, String), Found>,
}

#[derive(Debug)]
struct Found {
    event: LoggedEvent,
    published: Moment,
}

/// There are more keys than can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyKeys;

impl Latest {
    pub(crate) fn new(key: EventKey) -> Self {
        Self {
            key,
            nodes: BTreeMap::new(),
            size: (0, 0),
        }
    }

    /// The positions for the next question to a node; `None` if the node has not answered yet.
    pub(crate) fn positions(&self, node: &str) -> Option<BTreeMap<ChannelPath, u64>> {
        Some(self.nodes.get(node)?.next.clone())
    }

    /// Whether a node has given everything that it kept when it was first asked.
    pub(crate) fn is_complete(&self, node: &str) -> bool {
        let of = self.nodes.get(node);
        of.is_some_and(|of| of.behind.is_empty())
    }

    /// Whether any log of the channels has been found.
    pub(crate) fn has_logs(&self) -> bool {
        self.nodes.values().any(|of| !of.next.is_empty())
    }

    /// Takes in a node's answer. Repeated answers change nothing.
    ///
    /// # Errors
    /// [`TooManyKeys`] if a part has no room: nothing of it, nor of the parts behind it, is taken in.
    pub(crate) fn take_in(
        &mut self,
        node: &Arc<str>,
        parts: Vec<LogPart>,
    ) -> Result<(), TooManyKeys> {
        let of = self.nodes.entry(node.clone()).or_default();
        for part in parts {
            for event in part.events {
                let next = of.next.entry(part.channel.clone()).or_insert(event.number);
                if event.number < *next {
                    continue;
                }
                // The event cannot be read, or has no key. A node gives no such event.
                let Some((key, published)) = value_of(&self.key, &event) else {
                    continue;
                };
                let place = (part.channel.clone(), key);
                let former = of
                    .last
                    .get(&place)
                    .map_or((0, 0), |it| (1, it.event.frame.len()));
                let size = (
                    self.size.0 + 1 - former.0,
                    self.size.1 + event.frame.len() - former.1,
                );
                if size.0 > MOST_VALUES.0 || size.1 > MOST_VALUES.1 {
                    of.behind.insert(part.channel);
                    return Err(TooManyKeys);
                }
                self.size = size;
                *next = event.number + 1;
                of.last.insert(place, Found { event, published });
            }
            let next = of.next.entry(part.channel.clone()).or_default();
            *next = part.next.max(*next);
            // A damaged part never arrives, so nothing waits for it.
            if part.has_more && part.damage.is_none() {
                of.behind.insert(part.channel);
            } else {
                of.behind.remove(&part.channel);
            }
        }
        Ok(())
    }

    /// The last event of each key, by node: a part for each log, which ends where the log was read to.
    pub(crate) fn into_parts(self) -> Vec<(Arc<str>, Vec<LogPart>)> {
        let mut last: HashMap<(ChannelPath, String), (Arc<str>, Found)> = HashMap::new();
        let mut positions = Vec::new();
        for (node, of) in self.nodes {
            for (place, found) in of.last {
                let is_later = |(_, other): &(_, Found)| other.published <= found.published;
                if last.get(&place).is_none_or(is_later) {
                    last.insert(place, (node.clone(), found));
                }
            }
            positions.push((node, of.next));
        }
        let mut events: HashMap<(Arc<str>, ChannelPath), Vec<LoggedEvent>> = HashMap::new();
        for ((channel, _), (node, found)) in last {
            events.entry((node, channel)).or_default().push(found.event);
        }
        let parts = |(node, next): (Arc<str>, BTreeMap<ChannelPath, u64>)| {
            let parts = next.into_iter().map(|(channel, next)| {
                let of_log = events.remove(&(node.clone(), channel.clone()));
                let mut part = LogPart::empty(channel, next);
                part.events = of_log.unwrap_or_default();
                part.events.sort_by_key(|event| event.number);
                part
            });
            let parts = parts.collect();
            (node, parts)
        };
        positions.into_iter().map(parts).collect()
    }
}

/// The value of the key of an event, and when the event was published.
fn value_of(key: &EventKey, event: &LoggedEvent) -> Option<(String, Moment)> {
    let (header, message) = event.read().ok()?;
    let value = key.of(&header, &message.message()).ok()?;
    Some((value, header.published))
}

#[cfg(test)]
mod tests {
    //! Checks the last events against a simple model: all events of all logs, among which the last of each key is looked up.

    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use proptest::prelude::*;
    use sealbus_fipa::{AclMessage, Performative, bitefficient};

    use super::*;
    use crate::event::{ChannelHeader, Mechanism};
    use crate::frame::{Frame, Head, Stamp};
    use crate::qos::Qos;

    /// An event of one of three nodes, on one of two channels.
    #[derive(Clone, Debug)]
    struct Published {
        node: usize,
        channel: usize,
        /// `None` if it has no key.
        key: Option<u8>,
        /// Clocks of publishers differ.
        at: u64,
    }

    fn published() -> impl Strategy<Value = Published> {
        let key = prop::option::weighted(0.9, 0..6_u8);
        (0..3_usize, 0..2_usize, key, 0..40_u64).prop_map(|(node, channel, key, at)| Published {
            node,
            channel,
            key,
            at,
        })
    }

    fn channel(of: usize) -> ChannelPath {
        ChannelPath::new(["/a", "/b"][of]).unwrap()
    }

    fn logged(event: &Published, number: u64) -> LoggedEvent {
        let mut message = AclMessage::new(Performative::Inform).with_content("a reading");
        message.sender = Some(sealbus_bus::aid_of("sensor@factory"));
        if let Some(key) = event.key {
            message = message.with_user_defined("X-key", key.to_string());
        }
        let mut body = Vec::new();
        bitefficient::encode(&message, &mut body).unwrap();
        let header = ChannelHeader::new(
            Mechanism::Event,
            channel(event.channel),
            Qos::default(),
            0,
            Moment::from_unix_ms(event.at),
        );
        let mut frame = Vec::new();
        Frame::Keep {
            stamp: Stamp::default(),
            head: Head::of(&header),
            evidence: &[],
            body: &body,
        }
        .encode(&mut frame);
        LoggedEvent {
            number,
            kept: None,
            frame: Bytes::from(frame),
            again: false,
            missed: 0,
        }
    }

    /// The answer of a node: the last event of each key among the next `most` events of each log.
    fn answer(
        logs: &BTreeMap<ChannelPath, Vec<(Published, LoggedEvent)>>,
        positions: Option<&BTreeMap<ChannelPath, u64>>,
        most: usize,
    ) -> Vec<LogPart> {
        let mut parts = Vec::new();
        for (channel, log) in logs {
            let next = positions.and_then(|positions| positions.get(channel));
            let next = next.copied().unwrap_or(1);
            let read: Vec<_> = log.iter().skip(next as usize - 1).take(most).collect();
            let mut last = BTreeMap::new();
            for (event, logged) in &read {
                last.extend(event.key.map(|key| (key, logged.clone())));
            }
            let mut part = LogPart::empty(channel.clone(), next + read.len() as u64);
            part.events = last.into_values().collect();
            part.events.sort_by_key(|event| event.number);
            part.has_more = part.next <= log.len() as u64;
            parts.push(part);
        }
        parts
    }

    proptest! {
        #[test]
        fn the_last_event_of_each_key_is_found(
            events in prop::collection::vec(published(), 0..60),
            late in prop::collection::vec(published(), 0..10),
            turns in prop::collection::vec((0..3_usize, 1..8_usize, any::<bool>()), 0..60),
        ) {
            let nodes: Vec<Arc<str>> = ["one", "three", "two"].map(Arc::from).to_vec();
            let mut logs = vec![BTreeMap::<ChannelPath, Vec<(Published, LoggedEvent)>>::new(); 3];
            let keep = |logs: &mut Vec<BTreeMap<_, Vec<_>>>, event: &Published| {
                let log = logs[event.node].entry(channel(event.channel)).or_default();
                let number = log.len() as u64 + 1;
                log.push((event.clone(), logged(event, number)));
            };
            events.iter().for_each(|event| keep(&mut logs, event));
            let key: EventKey = "properties.key".parse().unwrap();
            let mut latest = Latest::new(key);
            let mut late = late.iter();
            // Some answers are lost, some come twice, and publishers go on.
            for (node, most, is_doubled) in turns {
                let parts = answer(&logs[node], latest.positions(&nodes[node]).as_ref(), most);
                if most == 7 {
                    continue;
                }
                latest.take_in(&nodes[node], parts.clone()).unwrap();
                if is_doubled {
                    latest.take_in(&nodes[node], parts).unwrap();
                }
                late.next().into_iter().for_each(|event| keep(&mut logs, event));
            }
            for (node, logs) in nodes.iter().zip(&logs) {
                loop {
                    let positions = latest.positions(node);
                    latest.take_in(node, answer(logs, positions.as_ref(), 5)).unwrap();
                    if latest.is_complete(node) {
                        break;
                    }
                }
            }
            prop_assert_eq!(latest.has_logs(), logs.iter().any(|logs| !logs.is_empty()));
            let parts = latest.into_parts();
            // A complete node has given everything that it kept when it was last asked, so nothing is left out here.
            let mut expected: BTreeMap<(usize, u8), (u64, usize, u64)> = BTreeMap::new();
            for (node, logs) in logs.iter().enumerate() {
                let mut last_here = BTreeMap::new();
                for (event, logged) in logs.values().flatten() {
                    let Some(key) = event.key else { continue };
                    last_here.insert((event.channel, key), (event.at, node, logged.number));
                }
                for (place, candidate) in last_here {
                    let best = expected.entry(place).or_insert(candidate);
                    *best = candidate.max(*best);
                }
            }
            let mut expected: Vec<(usize, ChannelPath, u64)> = expected
                .into_iter()
                .map(|((of, _), (_, node, number))| (node, channel(of), number))
                .collect();
            let mut found = Vec::new();
            for (name, parts) in &parts {
                let node = nodes.iter().position(|node| node == name).unwrap();
                for part in parts {
                    prop_assert_eq!(part.next, logs[node][&part.channel].len() as u64 + 1);
                    for event in &part.events {
                        found.push((node, part.channel.clone(), event.number));
                    }
                }
            }
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_held_has_a_limit() {
        let node: Arc<str> = "node".into();
        let mut latest = Latest::new(EventKey::new("properties.key").unwrap());
        let mut part = LogPart::empty(channel(0), 2);
        let long = AclMessage::new(Performative::Inform).with_content("x".repeat(1 << 20));
        for number in 1..=80 {
            let event = Published {
                node: 0,
                channel: 0,
                key: Some(number),
                at: 1,
            };
            let mut message = long.clone().with_user_defined("X-key", number.to_string());
            message.sender = Some(sealbus_bus::aid_of("sensor@factory"));
            let mut body = Vec::new();
            bitefficient::encode(&message, &mut body).unwrap();
            let logged = logged(&event, number.into());
            let Ok(Frame::Keep { stamp, head, .. }) = Frame::decode(&logged.frame) else {
                panic!("no event");
            };
            let mut frame = Vec::new();
            Frame::Keep {
                stamp,
                head,
                evidence: &[],
                body: &body,
            }
            .encode(&mut frame);
            part.events = vec![LoggedEvent {
                frame: frame.into(),
                ..logged.clone()
            }];
            part.next = u64::from(number) + 1;
            if latest.take_in(&node, vec![part.clone()]).is_err() {
                assert!(number >= 63, "only {number} MiB are held");
                assert!(!latest.is_complete(&node));
                assert_eq!(
                    latest.positions(&node).unwrap()[&channel(0)],
                    u64::from(number)
                );
                return;
            }
        }
        panic!("80 MiB are held");
    }
}
