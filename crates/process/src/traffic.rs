//! Traffic through this process: its counters, and the heads of messages for readers that watch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use sealbus_bus::{Arrival, Bus, Delegation, LinkCounts, Watcher};
use sealbus_channels::{ChannelPath, ChannelPattern, Channels};
use sealbus_control::clock::now;
use sealbus_control::text::excerpt;
use sealbus_control::traffic::{
    AgentTraffic, ChannelTraffic, LEASE, LONGEST_NAME, LinkTraffic, MOST_AGENTS, MOST_BODIES,
    MOST_CHANNELS, MOST_HEADS, MessageHead, ProcessTraffic, TapEntry, Watch, WatchedBody, is_named,
};

/// The most readers that watch at the same time.
const MOST_WATCHES: usize = 8;

/// The watches of this process.
#[derive(Default)]
pub(super) struct Watches {
    open: Mutex<Vec<Watching>>,
    /// The agents about whom watchers see less.
    private: RwLock<TapEntry>,
}

struct Watching {
    watch: Watch,
    pattern: Option<ChannelPattern>,
    /// When the watch ends, unless it is requested again.
    until: Instant,
    heads: VecDeque<MessageHead>,
    /// The number of bodies among the heads.
    bodies: usize,
    skipped: u64,
}

impl Watching {
    fn wants(&self, arrival: &Arrival<'_>) -> bool {
        let message = arrival.message.seen();
        let watch = &self.watch;
        if let Some(pattern) = &self.pattern {
            let path = arrival.channel.map(ChannelPath::new);
            if !path.is_some_and(|path| path.is_ok_and(|path| pattern.matches(&path))) {
                return false;
            }
        }
        let sender = message.sender();
        (watch.names(arrival.receiver) || sender.is_some_and(|sender| watch.names(sender.name())))
            && (watch.performatives.is_empty()
                || watch
                    .performatives
                    .iter()
                    .any(|wanted| message.performative().as_str().eq_ignore_ascii_case(wanted)))
            && watch.conversation.as_ref().is_none_or(|wanted| {
                let id = message.conversation_id();
                id.and_then(|id| id.text()).as_deref() == Some(wanted)
            })
            && watch
                .protocol
                .as_ref()
                .is_none_or(|wanted| message.protocol().as_deref() == Some(wanted))
    }

    /// The body as this reader gets it, if it asked for bodies.
    fn body(&mut self, arrival: &Arrival<'_>, is_private: bool) -> Option<WatchedBody> {
        if !self.watch.bodies {
            return None;
        }
        let content = arrival.message.message().content_bytes()?;
        if is_private {
            return Some(WatchedBody::Private);
        }
        if self.bodies >= MOST_BODIES {
            return Some(WatchedBody::Skipped);
        }
        self.bodies += 1;
        Some(WatchedBody::of(&content))
    }
}

/// Whether one of these patterns names the sender or the receiver.
fn concerns(patterns: &[String], arrival: &Arrival<'_>) -> bool {
    if patterns.is_empty() {
        return false;
    }
    let sender = arrival.message.message().sender();
    is_named(patterns, arrival.receiver)
        || sender.is_some_and(|sender| is_named(patterns, sender.name()))
}

impl Watcher for Watches {
    fn arrived(&self, arrival: &Arrival<'_>) {
        let private = self.private.read();
        if concerns(&private.none, arrival) {
            return;
        }
        for watching in self.open.lock().iter_mut() {
            if watching.heads.len() >= MOST_HEADS {
                watching.skipped += 1;
            } else if watching.wants(arrival) {
                let is_private = arrival.message.is_sealed() || concerns(&private.heads, arrival);
                let body = watching.body(arrival, is_private);
                watching.heads.push_back(MessageHead {
                    body,
                    ..head(arrival)
                });
            }
        }
    }
}

fn head(arrival: &Arrival<'_>) -> MessageHead {
    let message = arrival.message.seen();
    let short = |text: &str| excerpt(text, LONGEST_NAME);
    let chain = Delegation::of(&message).unwrap_or_default();
    MessageHead {
        at: now(),
        from: message
            .sender()
            .map(|sender| short(sender.name()))
            .unwrap_or_default(),
        to: short(arrival.receiver),
        channel: arrival.channel.map(short),
        performative: short(message.performative().as_str()),
        conversation: message
            .conversation_id()
            .and_then(|id| id.text())
            .map(|id| short(&id)),
        protocol: message.protocol().map(|protocol| short(&protocol)),
        size: arrival.message.size() as u64,
        provenance: arrival.message.provenance().as_str().to_owned(),
        on_behalf_of: chain.askers().iter().map(|it| short(it)).collect(),
        body: None,
    }
}

impl Watches {
    /// From now on, shows less about these agents. Messages that watchers have not fetched yet are discarded.
    pub(super) fn obey(&self, private: &TapEntry) {
        if *self.private.read() != *private {
            private.clone_into(&mut self.private.write());
            for watching in self.open.lock().iter_mut() {
                watching.heads.clear();
            }
        }
    }

    /// Begins or continues a watch. Returns the heads since the last time, and the number of messages that were left
    /// out.
    fn go_on(self: &Arc<Self>, bus: &Bus, watch: Watch, now: Instant) -> (Vec<MessageHead>, u64) {
        let mut watches = self.open.lock();
        let until = now + LEASE;
        if let Some(known) = watches.iter_mut().find(|known| known.watch == watch) {
            known.until = until;
            known.bodies = 0;
            let heads = std::mem::take(&mut known.heads).into();
            return (heads, std::mem::take(&mut known.skipped));
        }
        watches.retain(|known| known.watch.id != watch.id);
        let pattern = watch.channel.as_deref().map(ChannelPattern::new);
        let Ok(pattern) = pattern.transpose() else {
            return (Vec::new(), 0);
        };
        if watch.is_bounded() && watches.len() < MOST_WATCHES {
            watches.push(Watching {
                watch,
                pattern,
                until,
                heads: VecDeque::new(),
                bodies: 0,
                skipped: 0,
            });
            drop(watches);
            bus.tap().open(self.clone());
        }
        (Vec::new(), 0)
    }

    /// Ends the watches that nobody has requested again.
    pub(super) fn end_overdue(self: &Arc<Self>, bus: &Bus, now: Instant) {
        if !bus.tap().is_open() {
            return;
        }
        let mut watches = self.open.lock();
        watches.retain(|watching| watching.until > now);
        let is_watched = !watches.is_empty();
        drop(watches);
        if !is_watched {
            let this: Arc<dyn Watcher> = self.clone();
            bus.tap().close(&this);
        }
    }
}

/// The traffic through the process of this bus.
pub(super) fn observe(bus: &Bus, watches: &Arc<Watches>, watch: Option<Watch>) -> ProcessTraffic {
    let (heads, skipped) = match watch {
        Some(watch) => watches.go_on(bus, watch, Instant::now()),
        None => (Vec::new(), 0),
    };
    let counters = bus.counters();
    let all = agents(bus);
    let waiting = all.iter().map(|it| it.waiting).sum();
    let waiting_bytes = all.iter().map(|it| it.waiting_bytes).sum();
    let (agents, agents_left_out) = busiest(all, MOST_AGENTS, |it| it.sent + it.received);
    let (channels, channels_left_out) = busiest(channels(bus), MOST_CHANNELS, |it| {
        it.published + it.received
    });
    let counts = bus.refusals().counts().into_iter();
    let refused = counts.filter(|(_, count)| *count > 0);
    ProcessTraffic {
        at: now(),
        sent: counters.accepted,
        received: counters.received,
        undeliverable: counters.undeliverable,
        returned: counters.returned,
        refused: refused
            .map(|(reason, count)| (reason.as_str().to_owned(), count))
            .collect(),
        waiting,
        waiting_bytes,
        links: bus.transport().and_then(|it| it.links()).map(link_traffic),
        agents,
        agents_left_out,
        channels,
        channels_left_out,
        heads,
        skipped,
        ..ProcessTraffic::default()
    }
}

fn link_traffic(counts: LinkCounts) -> LinkTraffic {
    LinkTraffic {
        connected: counts.connected as u64,
        unacknowledged: counts.unacknowledged as u64,
    }
}

fn agents(bus: &Bus) -> Vec<AgentTraffic> {
    let agents = bus.agents();
    let traffic = agents.iter().map(|agent| {
        let counts = agent.mailbox().counts();
        AgentTraffic {
            agent: agent.name().to_string(),
            sent: agent.sent(),
            received: counts.received,
            waiting: counts.waiting as u64,
            waiting_bytes: counts.bytes as u64,
        }
    });
    traffic.collect()
}

fn channels(bus: &Bus) -> Vec<ChannelTraffic> {
    let reports = Channels::of(bus).channels().into_iter();
    let traffic = reports.map(|report| ChannelTraffic {
        channel: report.channel.to_string(),
        published: report.published,
        received: report.received,
        dropped: report.dropped,
        filter_errors: report.filter_errors,
        subscriptions: report.subscriptions_here as u64,
    });
    traffic.collect()
}

/// The `most` entries with the highest `rank`, and the number of those left out.
fn busiest<T>(mut all: Vec<T>, most: usize, rank: impl Fn(&T) -> u64) -> (Vec<T>, u64) {
    let left_out = all.len().saturating_sub(most);
    if left_out > 0 {
        all.select_nth_unstable_by_key(most, |entry| std::cmp::Reverse(rank(entry)));
        all.truncate(most);
    }
    (all, left_out as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sealbus_bus::{BusConfig, Outbox};
    use sealbus_fipa::{AclMessage, Performative};
    use tokio::runtime::Handle;

    use super::*;

    fn bus() -> Bus {
        Bus::new(
            BusConfig::new("factory".parse().unwrap()),
            Handle::current(),
        )
    }

    async fn send(from: &Outbox, to: &str, performative: Performative, count: usize) {
        for _ in 0..count {
            let message = AclMessage::new(performative.clone())
                .with_receiver(sealbus_bus::aid_of(to))
                .with_conversation_id("c7");
            from.send(message).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_passes_is_counted_and_watched_on_request_only() {
        let bus = bus();
        let (ann, _ann) = bus.attach("ann@factory", None, None).unwrap();
        let (_ben, mut ben) = bus.attach("ben@factory", None, None).unwrap();
        let watches = Arc::new(Watches::default());
        send(&ann, "ben@factory", Performative::Inform, 3).await;
        ben.recv().await;
        let seen = observe(&bus, &watches, None);
        assert_eq!((seen.sent, seen.received), (3, 3));
        let counts = |name: &str| seen.agents.iter().find(|it| it.agent == name).unwrap();
        assert_eq!(counts("ann@factory").sent, 3);
        let ben_counts = counts("ben@factory");
        assert_eq!((ben_counts.received, ben_counts.waiting), (3, 2));
        assert!(ben_counts.waiting_bytes > 0);
        assert!(!bus.tap().is_open());

        let cfps = Watch {
            id: 1,
            agents: vec!["be*".to_owned()],
            performatives: vec!["cfp".to_owned()],
            ..Watch::default()
        };
        let all = Watch {
            id: 2,
            ..Watch::default()
        };
        observe(&bus, &watches, Some(cfps.clone()));
        observe(&bus, &watches, Some(all.clone()));
        send(&ann, "ben@factory", Performative::Inform, 1).await;
        send(&ann, "ben@factory", Performative::Cfp, 1).await;
        let seen = observe(&bus, &watches, Some(cfps.clone()));
        let [head] = seen.heads.as_slice() else {
            panic!("{:?}", seen.heads)
        };
        assert_eq!(
            (head.from.as_str(), head.to.as_str()),
            ("ann@factory", "ben@factory")
        );
        assert_eq!(
            (head.performative.as_str(), head.conversation.as_deref()),
            ("cfp", Some("c7"))
        );
        assert_eq!(head.provenance, "same-process");
        // The other reader loses nothing because of this, and nothing is shown twice.
        assert_eq!(observe(&bus, &watches, Some(all.clone())).heads.len(), 2);
        assert!(observe(&bus, &watches, Some(all.clone())).heads.is_empty());

        // Heads beyond the limit are counted.
        send(&ann, "ben@factory", Performative::Inform, MOST_HEADS + 5).await;
        let seen = observe(&bus, &watches, Some(all));
        assert_eq!((seen.heads.len(), seen.skipped), (MOST_HEADS, 5));

        watches.end_overdue(&bus, Instant::now() + LEASE / 2);
        assert!(bus.tap().is_open());
        // Another process of the same bus has no watch.
        Arc::new(Watches::default()).end_overdue(&bus, Instant::now() + LEASE * 2);
        assert!(bus.tap().is_open());
        watches.end_overdue(&bus, Instant::now() + LEASE + Duration::from_secs(1));
        assert!(!bus.tap().is_open());
    }

    async fn say(from: &Outbox, to: &str, content: &str) {
        let message = AclMessage::new(Performative::Inform)
            .with_receiver(sealbus_bus::aid_of(to))
            .with_content(content);
        from.send(message).await.unwrap();
    }

    #[tokio::test]
    async fn bodies_are_seen_on_request_and_never_those_that_the_manifest_keeps() {
        let bus = bus();
        let (ann, _ann) = bus.attach("ann@factory", None, None).unwrap();
        let (doctor, _doctor) = bus.attach("doctor@factory", None, None).unwrap();
        let (vault, _vault) = bus.attach("vault@factory", None, None).unwrap();
        let (_ben, _ben_inbox) = bus.attach("ben@factory", None, None).unwrap();
        let watches = Arc::new(Watches::default());
        watches.obey(&TapEntry {
            heads: vec!["doctor".to_owned()],
            none: vec!["va*".to_owned()],
        });
        let heads = Watch {
            id: 1,
            ..Watch::default()
        };
        let bodies = Watch {
            id: 2,
            bodies: true,
            ..Watch::default()
        };
        observe(&bus, &watches, Some(heads.clone()));
        observe(&bus, &watches, Some(bodies.clone()));
        say(&ann, "ben@factory", "good morning").await;
        say(&doctor, "ben@factory", "a diagnosis").await;
        say(&ann, "doctor@factory", "a symptom").await;
        say(&vault, "ben@factory", "a secret").await;
        say(&ann, "vault@factory", "another secret").await;
        let seen = observe(&bus, &watches, Some(heads)).heads;
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|head| head.body.is_none()));
        let seen = observe(&bus, &watches, Some(bodies.clone())).heads;
        let shown: Vec<_> = seen.into_iter().map(|head| head.body.unwrap()).collect();
        assert_eq!(
            shown,
            [
                WatchedBody::of(b"good morning"),
                WatchedBody::Private,
                WatchedBody::Private
            ]
        );

        // Bodies beyond the limit are reported as left out, and the next answer has room again.
        for _ in 0..=MOST_BODIES {
            say(&ann, "ben@factory", "x").await;
        }
        let seen = observe(&bus, &watches, Some(bodies.clone())).heads;
        assert_eq!(seen.last().unwrap().body, Some(WatchedBody::Skipped));
        assert_eq!(seen[MOST_BODIES - 1].body, Some(WatchedBody::of(b"x")));
        say(&ann, "ben@factory", "y").await;
        let seen = observe(&bus, &watches, Some(bodies.clone())).heads;
        assert_eq!(seen[0].body, Some(WatchedBody::of(b"y")));

        // A manifest with stricter privacy takes back messages that no watcher has fetched.
        say(&ann, "ben@factory", "too late").await;
        watches.obey(&TapEntry {
            none: vec!["ben".to_owned()],
            ..TapEntry::default()
        });
        assert!(observe(&bus, &watches, Some(bodies)).heads.is_empty());
    }

    #[test]
    fn the_busiest_are_kept() {
        let (kept, left_out) = busiest((0..100_u64).collect(), 3, |it| *it);
        assert_eq!(left_out, 97);
        assert_eq!(kept.iter().sum::<u64>(), 97 + 98 + 99);
    }
}
