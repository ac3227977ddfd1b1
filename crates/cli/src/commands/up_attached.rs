//! `up` on a terminal: the output of agents, and one line for each event of the platform.

use std::collections::BTreeMap;
use std::path::Path;

use owo_colors::OwoColorize;
use sealbus_control::admin::{AgentStatus, NodeStatus, ask};
use sealbus_control::node::LogPosition;
use sealbus_control::{PlacedState, RefusalRecord};
use sealbus_window::fresh;

use super::logs::{FOLLOW, STEP, Tails};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::shown;

/// The state of the platform at the last look.
#[derive(Default)]
struct LastLook {
    nodes: BTreeMap<String, &'static str>,
    /// Whether an agent was active, or had ended.
    agents: BTreeMap<String, bool>,
    refused: Vec<RefusalRecord>,
}

impl LastLook {
    /// The lines about the changes.
    fn news(
        &mut self,
        nodes: &[NodeStatus],
        agents: &[AgentStatus],
        refused: Vec<RefusalRecord>,
    ) -> Vec<String> {
        let mut news = Vec::new();
        for node in nodes {
            let state = node.state.as_str();
            if self.nodes.insert(node.name.clone(), state) != Some(state) {
                news.push(format!("{} is {state}", node.name));
            }
        }
        for agent in agents {
            let is_active = match agent.state {
                Some(PlacedState::Active) => true,
                None => false,
                Some(_) => continue,
            };
            let before = self.agents.insert(agent.name.clone(), is_active);
            let node = agent.node.as_deref().unwrap_or("no node");
            let why = agent.note.as_deref().map(|note| format!(": {note}"));
            match (is_active, before) {
                (true, before) if before != Some(true) => {
                    news.push(format!("{} is certified and active on {node}", agent.name));
                }
                (false, Some(true)) => {
                    news.push(format!(
                        "{} has ended{}",
                        agent.name,
                        why.unwrap_or_default()
                    ));
                }
                _ => {}
            }
        }
        for record in fresh(&self.refused, &refused) {
            let to = record.receiver.as_deref().unwrap_or("-");
            let line = format!("refused: {} \u{2192} {to}: {}", record.who, record.reason);
            news.push(line.red().to_string());
        }
        self.refused = refused;
        news
    }
}

/// Prints events until the Master is gone.
///
/// # Errors
/// When the Master does not answer any more.
pub(super) async fn follow(directory: &Path) -> Result<(), CliError> {
    let mut connection = Connection::to(directory).await?;
    connection.ask(ask::Narrow { bodies: false }).await?;
    let mut known = LastLook::default();
    let mut tails = Tails::new(LogPosition::Offset { offset: 0 });
    loop {
        let nodes = connection.list(ask::Nodes::default()).await?;
        let agents = connection.list(ask::Agents::default()).await?;
        let refused = connection.ask(ask::Refusals).await?;
        tails.add_all(&agents);
        for line in known.news(&nodes, &agents, refused) {
            anstream::println!("{}", shown(&line));
        }
        for (name, line) in tails.more(&mut connection, true).await? {
            // `--log` shows the steps.
            if line.contains(STEP) {
                continue;
            }
            anstream::println!("{}", shown(&tails.prefixed(&name, &line)));
        }
        tokio::time::sleep(FOLLOW).await;
    }
}
