//! The traffic through the processes of this node, as each process reports it.

use std::time::Duration;

use sealbus_control::text::excerpt;
use sealbus_control::traffic::{
    LONGEST_NAME, MOST_AGENTS, MOST_CHANNELS, MOST_HEADS, ProcessTraffic, Watch, ask_process,
};

use super::processes::Placement;
use super::shared::Shared;

/// How long a process may take to answer. A process that is busy is left out, and counts again the next time.
const ANSWERING: Duration = Duration::from_secs(2);
/// Most reasons of refusals in one answer.
const MOST_REASONS: usize = 32;

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

/// A process's answer in the form that its node passes on: only about its own agents, within the limits, in texts that
/// cannot steer a terminal.
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
        refused: traffic
            .refused
            .into_iter()
            .take(MOST_REASONS)
            .map(|(reason, count)| (short(&reason), count))
            .collect(),
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
    }
    bounded.process.clone_from(&placement.process);
    bounded.group.clone_from(&placement.group);
    bounded
}

/// Cuts the reports to the room in one answer of the node. Each process gets the same share.
fn share(mut processes: Vec<ProcessTraffic>) -> Vec<ProcessTraffic> {
    let count = processes.len().max(1);
    let (agents, channels) = (MOST_AGENTS / count, MOST_CHANNELS / count);
    let heads = 2 * MOST_HEADS / count;
    for traffic in &mut processes {
        let busy =
            |it: &sealbus_control::traffic::AgentTraffic| std::cmp::Reverse(it.sent + it.received);
        traffic.agents.sort_by_key(busy);
        traffic.agents_left_out += cut(&mut traffic.agents, agents.max(1));
        traffic.channels_left_out += cut(&mut traffic.channels, channels.max(1));
        traffic.skipped += cut(&mut traffic.heads, heads.max(1));
    }
    processes
}

/// Cuts a list, and says how much was cut off.
fn cut<T>(list: &mut Vec<T>, most: usize) -> u64 {
    let cut_off = list.len().saturating_sub(most);
    list.truncate(most);
    cut_off as u64
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

    #[test]
    fn a_process_speaks_of_its_own_agents_only_and_within_the_limits() {
        let agent = |name: &str| AgentTraffic {
            agent: name.to_owned(),
            sent: 7,
            ..AgentTraffic::default()
        };
        let head = |to: &str| MessageHead {
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
        assert!(
            seen.refused.len() <= MOST_REASONS
                && seen.refused.keys().all(|it| !it.contains('\u{9b}'))
        );
    }
}
