//! The traffic through the processes of this node, as each process reports it.

use std::collections::BTreeMap;
use std::time::Duration;

use sealbus_bus::{MOST_ASKERS, RefusalReason};
use sealbus_control::text::excerpt;
use sealbus_control::traffic::{
    LONGEST_BODY, LONGEST_NAME, MOST_AGENTS, MOST_BODIES, MOST_CHANNELS, MOST_HEADS,
    ProcessTraffic, Watch, WatchedBody, ask_process,
};

use super::processes::Placement;
use super::shared::Shared;

/// How long a process may take to answer. A busy process is left out, and counts again the next time.
const ANSWERING: Duration = Duration::from_secs(2);
/// Stands for reasons that this version does not know.
const OTHER: &str = "other";

impl Shared {
    /// Asks all attached processes.
    pub(crate) async fn observe(&self, watch: Option<Watch>) -> Vec<ProcessTraffic> {
        let platform = self.platform.read().name.clone();
        let asked = self.processes.attached().into_iter();
        let asked = asked.map(|(placement, caller)| {
            let (watch, platform) = (watch.clone(), platform.as_str());
            async move {
                let asking = ask_process::Observe { watch };
                match caller.ask(asking, ANSWERING).await {
                    Ok(traffic) => Some(bounded(traffic, platform, &self.name, &placement)),
                    Err(fault) => {
                        tracing::debug!(process = placement.process, %fault, "does not say what passes through it");
                        None
                    }
                }
            }
        });
        let answers = futures_util::future::join_all(asked).await;
        share(answers.into_iter().flatten().collect())
    }
}

/// A process's answer in the form that its node passes on: only about its own agents, within the limits, and with texts
/// that cannot control a terminal.
fn bounded(
    traffic: ProcessTraffic,
    platform: &str,
    node: &str,
    placement: &Placement,
) -> ProcessTraffic {
    let short = |text: &str| excerpt(text, LONGEST_NAME);
    let local = |name: &str| {
        let (local, of) = name.split_once('@')?;
        (of == platform).then(|| local.to_owned())
    };
    let is_own = |name: &str| local(name).is_some_and(|name| placement.has(&name));
    // The gateway's stand-ins take messages for agents of other platforms.
    let is_outside = |name: &str| local(name).is_none();
    let mut bounded = ProcessTraffic {
        node: node.to_owned(),
        refused: by_known_reason(traffic.refused),
        ..traffic
    };
    bounded.agents.retain(|it| is_own(&it.agent));
    bounded.agents.truncate(MOST_AGENTS);
    bounded.channels.truncate(MOST_CHANNELS);
    for channel in &mut bounded.channels {
        channel.channel = short(&channel.channel);
    }
    bounded
        .heads
        .retain(|head| is_own(&head.to) || is_outside(&head.to));
    bounded.heads.truncate(MOST_HEADS);
    for head in &mut bounded.heads {
        for text in [
            &mut head.from,
            &mut head.to,
            &mut head.performative,
            &mut head.provenance,
        ] {
            *text = short(text);
        }
        for text in [
            &mut head.channel,
            &mut head.conversation,
            &mut head.protocol,
        ] {
            *text = text.as_deref().map(short);
        }
        head.on_behalf_of.truncate(MOST_ASKERS);
        for asker in &mut head.on_behalf_of {
            *asker = short(asker);
        }
        head.body = head.body.take().map(cut_off);
    }
    let bodies = bounded.heads.iter_mut().map(|head| &mut head.body);
    let shown = bodies.filter(|body| matches!(body, Some(WatchedBody::Shown { .. })));
    for body in shown.skip(MOST_BODIES) {
        *body = Some(WatchedBody::Skipped);
    }
    bounded.process.clone_from(&placement.process);
    bounded.group.clone_from(&placement.group);
    bounded
}

/// Counts refused attempts by known reasons only: each word that a process invents would stay in a metrics store for ever.
fn by_known_reason(refused: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in refused {
        let is_known = RefusalReason::ALL.iter().any(|it| it.as_str() == reason);
        let reason = if is_known { reason } else { OTHER.to_owned() };
        let sum = known.entry(reason).or_default();
        *sum = sum.saturating_add(count);
    }
    known
}

/// Cuts the body to the limit.
fn cut_off(body: WatchedBody) -> WatchedBody {
    // A byte that is not text has become three.
    const MOST: usize = 3 * LONGEST_BODY;
    let (text, before) = match body {
        WatchedBody::Shown { text, left_out } if text.len() > MOST => (text, left_out),
        other => return other,
    };
    match WatchedBody::of(text.as_bytes()) {
        WatchedBody::Shown { text, left_out } => WatchedBody::Shown {
            text,
            left_out: left_out.saturating_add(before),
        },
        other => other,
    }
}

/// Cuts the reports to the room in one answer of the node. Each process gets the same share.
fn share(mut processes: Vec<ProcessTraffic>) -> Vec<ProcessTraffic> {
    let count = processes.len().max(1);
    let (agents, channels) = (MOST_AGENTS / count, MOST_CHANNELS / count);
    let heads = 2 * MOST_HEADS / count;
    for traffic in &mut processes {
        let busy = |it: &sealbus_control::traffic::AgentTraffic| {
            std::cmp::Reverse(it.sent.saturating_add(it.received))
        };
        traffic.agents.sort_by_key(busy);
        let (left_out, unnamed) = (&mut traffic.agents_left_out, &mut traffic.channels_left_out);
        cut(&mut traffic.agents, agents.max(1), left_out);
        cut(&mut traffic.channels, channels.max(1), unnamed);
        cut(&mut traffic.heads, heads.max(1), &mut traffic.skipped);
    }
    processes
}

/// Cuts a list, and counts how much was cut off.
fn cut<T>(list: &mut Vec<T>, most: usize, left_out: &mut u64) {
    let cut_off = list.len().saturating_sub(most);
    list.truncate(most);
    *left_out = left_out.saturating_add(cut_off as u64);
}

#[cfg(test)]
mod tests {
    use sealbus_control::traffic::{AgentTraffic, MessageHead};

    use super::*;

    fn placement() -> Placement {
        let launch = serde_json::json!({
            "process": "mallory.3", "group": "mallory", "agents": ["mallory"], "command": [], "directory": null,
            "environment": {},
        });
        Placement::of(&serde_json::from_value(launch).unwrap())
    }

    fn head(to: &str) -> MessageHead {
        MessageHead {
            at: 1,
            from: "\u{1b}[2J".repeat(1000),
            to: to.to_owned(),
            channel: Some("\u{202e}".to_owned()),
            performative: "inform".to_owned(),
            conversation: None,
            protocol: None,
            size: 1,
            on_behalf_of: Vec::new(),
            provenance: "proved".to_owned(),
            body: None,
        }
    }

    #[test]
    fn a_process_speaks_of_its_own_agents_only_and_within_the_limits() {
        let agent = |name: &str| AgentTraffic {
            agent: name.to_owned(),
            sent: 7,
            ..AgentTraffic::default()
        };
        let mut heads = vec![head("mallory@factory"); 5 * MOST_HEADS];
        heads.insert(0, head("victim@factory"));
        let told = ProcessTraffic {
            node: "another".to_owned(),
            group: "victim".to_owned(),
            agents: vec![agent("mallory@factory"), agent("victim@factory")],
            refused: (0..1000).map(|it| (format!("\u{9b}{it}"), it)).collect(),
            heads,
            ..ProcessTraffic::default()
        };
        let seen = share(vec![bounded(told, "factory", "node-1", &placement())]);
        let [seen] = seen.as_slice() else { panic!() };
        assert_eq!(
            (seen.node.as_str(), seen.group.as_str()),
            ("node-1", "mallory")
        );
        assert_eq!(seen.agents, [agent("mallory@factory")]);
        assert_eq!(seen.heads.len(), MOST_HEADS);
        assert!(seen.heads.iter().all(|head| head.to == "mallory@factory"));
        assert!(
            seen.heads[0].from.starts_with("\\u{1b}[2J")
                && seen.heads[0].from.len() < 10 * LONGEST_NAME
        );
        assert_eq!(seen.heads[0].channel.as_deref(), Some("\\u{202e}"));
        // Whatever the process invents counts as one reason.
        assert_eq!(seen.refused, BTreeMap::from([(OTHER.to_owned(), 499_500)]));
    }

    #[test]
    fn a_process_fills_no_watcher_with_askers_and_bodies() {
        let shown = |length: usize| WatchedBody::Shown {
            text: "x".repeat(length),
            left_out: u64::MAX,
        };
        let mut heads = vec![head("mallory@factory"); MOST_BODIES + 1];
        for head in &mut heads {
            head.body = Some(shown(1 << 14));
            head.on_behalf_of = vec!["a\nb".repeat(1_000); 2 * MOST_ASKERS];
        }
        let told = ProcessTraffic {
            heads,
            skipped: u64::MAX,
            agents_left_out: u64::MAX,
            ..ProcessTraffic::default()
        };
        let told = bounded(told, "factory", "node-1", &placement());
        let (first, last) = (&told.heads[0], &told.heads[MOST_BODIES]);
        assert_eq!(first.body, Some(shown(LONGEST_BODY)));
        assert_eq!(last.body, Some(WatchedBody::Skipped));
        assert_eq!(first.on_behalf_of.len(), MOST_ASKERS);
        let asker = &first.on_behalf_of[0];
        assert!(!asker.contains('\n') && asker.len() < 10 * LONGEST_NAME);
        let crowd = vec![told; 50];
        assert!(share(crowd).iter().all(|it| it.skipped == u64::MAX));
    }
}
