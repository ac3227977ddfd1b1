//! Findings about a running platform.

use sealbus_control::PlacedState;
use sealbus_control::admin::{NodeState, ask};
use sealbus_manifest::Manifest;

use super::super::now;
use super::Finding;
use crate::connection::Connection;
use crate::error::CliError;

/// The health of the platform: its version, its nodes, its agents, their certificates, and its broker.
pub(super) async fn findings(
    connection: &mut Connection,
    manifest: &Manifest,
) -> Result<Vec<Finding>, CliError> {
    let status = connection.ask(ask::Status).await?;
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = Vec::new();
    findings.push(if status.version == own {
        Finding::good(
            "platform",
            format!(
                "{} runs at level {} (pid {})",
                status.name, status.level, status.pid
            ),
        )
    } else {
        Finding::warning(
            "platform",
            format!(
                "its Master is version {}, this command is {own}",
                status.version
            ),
            "use the Master's version, or start the platform again with this one",
        )
    });
    findings.push(nodes(connection).await?);
    findings.extend(agents(connection).await?);
    if manifest.broker.is_some() {
        findings.push(broker(connection).await?);
    }
    Ok(findings)
}

async fn nodes(connection: &mut Connection) -> Result<Finding, CliError> {
    let nodes = connection.list(ask::Nodes::default()).await?;
    let away: Vec<String> = nodes
        .iter()
        .filter(|node| matches!(node.state, NodeState::Dead | NodeState::Expected))
        .map(|node| format!("{} is {}", node.name, node.state.as_str()))
        .collect();
    let alive = nodes
        .iter()
        .filter(|node| node.state == NodeState::Alive)
        .count();
    Ok(match (away.as_slice(), alive) {
        (_, 0) => Finding::problem(
            "nodes",
            "no node is alive: no agent can be started",
            "add one: `sealbus token`, then `sealbus node --token TOKEN` on any machine",
        ),
        ([], alive) => Finding::good("nodes", format!("{alive} alive")),
        (away, _) => Finding::warning(
            "nodes",
            away.join(", "),
            "see their logs and the network; `sealbus describe node NAME` says when they were heard",
        ),
    })
}

async fn agents(connection: &mut Connection) -> Result<Vec<Finding>, CliError> {
    let agents = connection.list(ask::Agents::default()).await?;
    let (mut waiting, mut expired) = (Vec::new(), Vec::new());
    let now = now();
    for agent in &agents {
        match agent.state {
            Some(PlacedState::Initiated) => waiting.push(agent.name.as_str()),
            Some(PlacedState::Active) if agent.expires.is_some_and(|end| end < now) => {
                expired.push(agent.name.as_str());
            }
            _ => {}
        }
    }
    let mut findings = vec![if waiting.is_empty() {
        Finding::good("agents", format!("{} placed", agents.len()))
    } else {
        Finding::warning(
            "agents",
            format!("not running yet: {}", waiting.join(", ")),
            "`sealbus describe agent NAME` and `sealbus logs NAME` say why",
        )
    }];
    findings.push(if expired.is_empty() {
        Finding::good("certificates", "all active agents have a valid one")
    } else {
        Finding::problem(
            "certificates",
            format!("expired and not renewed: {}", expired.join(", ")),
            "compare the clocks of the machines; `sealbus ca log` shows what the CA refused",
        )
    });
    Ok(findings)
}

async fn broker(connection: &mut Connection) -> Result<Finding, CliError> {
    let status = connection.ask(ask::Broker).await?;
    let ill: Vec<String> = status
        .members
        .iter()
        .filter(|member| !member.running || !member.alarms.is_empty())
        .map(|member| member.name.clone())
        .collect();
    Ok(if ill.is_empty() {
        Finding::good("broker", format!("{} run", status.members.len()))
    } else {
        Finding::problem(
            "broker",
            format!("down, or taking no messages: {}", ill.join(", ")),
            "`sealbus broker status` says why; start it, or free its disk or memory",
        )
    })
}
