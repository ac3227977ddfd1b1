//! The numbers of processes, their agents and their channels.

use std::collections::BTreeMap;

use sealbus_control::traffic::{AgentTraffic, ChannelTraffic, ProcessTraffic};

use crate::list::{
    AGENT_MAILBOX_MESSAGES, AGENT_MESSAGES_RECEIVED, AGENT_MESSAGES_SENT, CHANNEL_DROPPED,
    CHANNEL_FILTER_ERRORS, CHANNEL_PUBLISHED, CHANNEL_RECEIVED, CHANNEL_SUBSCRIPTIONS, LEFT_OUT,
    LINKS, LINKS_UNACKNOWLEDGED_BYTES, MAILBOX_BYTES, MAILBOX_MESSAGES, MESSAGES_RECEIVED,
    MESSAGES_RETURNED, MESSAGES_SENT, MESSAGES_UNDELIVERABLE, PROCESS_AGENTS, REFUSALS,
};
use crate::sample::Sample;

/// Most processes with numbers of their own in one answer.
pub const MOST_PROCESSES: usize = 100;
/// Most agents with numbers of their own in one answer.
pub const MOST_AGENTS: usize = 100;
/// Most channels with numbers of their own in one answer. A channel counts once for each process.
pub const MOST_CHANNELS: usize = 50;

impl Sample {
    /// Notes the traffic through processes. Beyond the limits, it notes the first ones by name. A choice by activity
    /// would change, and Prometheus would take each change for a restart.
    pub fn put_processes(&mut self, processes: &[ProcessTraffic]) {
        let mut by_name: BTreeMap<&str, Vec<&ProcessTraffic>> = BTreeMap::new();
        for process in processes {
            by_name.entry(&process.group).or_default().push(process);
        }
        let told = by_name.iter().take(MOST_PROCESSES);
        for (name, process) in told.flat_map(|(name, all)| all.iter().map(move |it| (*name, *it))) {
            self.put_process(name, process);
        }
        let left_out = by_name.len().saturating_sub(MOST_PROCESSES);
        self.put(&LEFT_OUT, ["processes"], left_out as u64);
    }

    fn put_process(&mut self, name: &str, process: &ProcessTraffic) {
        self.put(&MESSAGES_SENT, [name], process.sent);
        self.put(&MESSAGES_RECEIVED, [name], process.received);
        self.put(&MESSAGES_UNDELIVERABLE, [name], process.undeliverable);
        self.put(&MESSAGES_RETURNED, [name], process.returned);
        for (reason, count) in &process.refused {
            self.put(&REFUSALS, [name, reason], *count);
        }
        let agents = (process.agents.len() as u64).saturating_add(process.agents_left_out);
        self.put(&PROCESS_AGENTS, [name], agents);
        self.put(&MAILBOX_MESSAGES, [name], process.waiting);
        self.put(&MAILBOX_BYTES, [name], process.waiting_bytes);
        if let Some(links) = &process.links {
            self.put(&LINKS, [name], links.connected);
            self.put(&LINKS_UNACKNOWLEDGED_BYTES, [name], links.unacknowledged);
        }
    }

    /// Notes the agents and channels of processes, with the same choice as [`put_processes`](Self::put_processes). Processes
    /// name channels as they like, so each process has the same share of the channels.
    pub fn put_agents_and_channels(&mut self, processes: &[ProcessTraffic]) {
        let agents = processes.iter().flat_map(|process| &process.agents);
        let mut agents: Vec<&AgentTraffic> = agents.collect();
        agents.sort_by_key(|it| &it.agent);
        for agent in agents.iter().take(MOST_AGENTS) {
            let name = agent.agent.as_str();
            self.put(&AGENT_MESSAGES_SENT, [name], agent.sent);
            self.put(&AGENT_MESSAGES_RECEIVED, [name], agent.received);
            self.put(&AGENT_MAILBOX_MESSAGES, [name], agent.waiting);
        }
        let untold = |list: usize, most: usize| list.saturating_sub(most) as u64;
        for process in processes {
            self.put(&LEFT_OUT, ["agents"], process.agents_left_out);
            self.put(&LEFT_OUT, ["channels"], process.channels_left_out);
        }
        self.put(&LEFT_OUT, ["agents"], untold(agents.len(), MOST_AGENTS));

        let mut channels: Vec<(usize, &ChannelTraffic, &String)> = Vec::new();
        for process in processes {
            let mut own: Vec<&ChannelTraffic> = process.channels.iter().collect();
            own.sort_by_key(|it| &it.channel);
            let own = own.into_iter().enumerate();
            channels.extend(own.map(|(place, it)| (place, it, &process.group)));
        }
        channels.sort_by_key(|(place, it, process)| (*place, &it.channel, *process));
        for (_, channel, process) in channels.iter().take(MOST_CHANNELS) {
            let labels = [process.as_str(), channel.channel.as_str()];
            self.put(&CHANNEL_PUBLISHED, labels, channel.published);
            self.put(&CHANNEL_RECEIVED, labels, channel.received);
            self.put(&CHANNEL_DROPPED, labels, channel.dropped);
            self.put(&CHANNEL_FILTER_ERRORS, labels, channel.filter_errors);
            self.put(&CHANNEL_SUBSCRIPTIONS, labels, channel.subscriptions);
        }
        self.put(
            &LEFT_OUT,
            ["channels"],
            untold(channels.len(), MOST_CHANNELS),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_series_is_bounded() {
        let agents = |process: usize| (0..1_000).map(move |it| format!("a-{process}-{it}@factory"));
        let reasons = (0..11).map(|it| (format!("reason-{it}"), 1));
        let process = |number: usize| ProcessTraffic {
            group: format!("p-{number:04}"),
            refused: reasons.clone().collect(),
            agents: agents(number)
                .map(|agent| AgentTraffic {
                    agent,
                    ..AgentTraffic::default()
                })
                .collect(),
            channels: (0..100)
                .map(|it| ChannelTraffic {
                    channel: format!("/{it}"),
                    ..ChannelTraffic::default()
                })
                .collect(),
            ..ProcessTraffic::default()
        };
        let processes: Vec<_> = (0..2_000).map(process).collect();
        let mut sample = Sample::of("factory", "node-1");
        sample.put_processes(&processes);
        sample.put_agents_and_channels(&processes);
        let text = sample.text().unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= 3_000, "{series}");
        for left_out in [
            "sealbus_left_out{what=\"processes\"} 1900",
            "sealbus_left_out{what=\"agents\"} 1999900",
            "sealbus_left_out{what=\"channels\"} 199950",
        ] {
            assert!(text.contains(left_out), "{left_out}");
        }
        assert!(text.contains("sealbus_process_agents{process=\"p-0099\"} 1000\n"));
        assert!(!text.contains("p-0100"));
    }

    #[test]
    fn a_process_takes_neither_the_places_nor_the_sums_of_others() {
        let process = |group: &str, channels: Vec<String>, left_out| ProcessTraffic {
            group: group.to_owned(),
            channels: channels
                .into_iter()
                .map(|channel| ChannelTraffic {
                    channel,
                    ..ChannelTraffic::default()
                })
                .collect(),
            agents: vec![AgentTraffic::default()],
            agents_left_out: left_out,
            channels_left_out: left_out,
            ..ProcessTraffic::default()
        };
        let first = (0..500).map(|it| format!("/!{it:03}")).collect();
        let mallory = process("mallory", first, u64::MAX);
        let seller = process("seller", vec!["/tea".to_owned()], 7);
        let processes = [mallory, seller];
        let mut sample = Sample::of("factory", "node-1");
        sample.put_processes(&processes);
        sample.put_agents_and_channels(&processes);
        let text = sample.text().unwrap();
        let tea = "sealbus_channel_published_total{process=\"seller\",channel=\"/tea\"} 0\n";
        assert!(text.contains(tea), "{text}");
        assert!(text.contains("channel=\"/!048\"") && !text.contains("channel=\"/!049\""));
        let left_out = format!("sealbus_left_out{{what=\"agents\"}} {}\n", u64::MAX);
        assert!(text.contains(&left_out), "{text}");
    }

    #[test]
    fn two_runs_of_one_process_are_added_up() {
        let run = |sent| ProcessTraffic {
            group: "seller".to_owned(),
            sent,
            ..ProcessTraffic::default()
        };
        let mut sample = Sample::of("factory", "node-1");
        sample.put_processes(&[run(3), run(4)]);
        let text = sample.text().unwrap();
        assert!(
            text.contains("sealbus_messages_sent_total{process=\"seller\"} 7\n"),
            "{text}"
        );
    }
}
