//! `describe agent`, `describe node`: everything that the platform knows about one agent or node.

use sealbus_control::RefusalRecord;
use sealbus_control::admin::{
    AgentStatus, CertificateStatus, MailboxReport, NodeStatus, Page, ServiceStatus, ask,
};
use sealbus_manifest::isolation::Isolation;
use serde::Serialize;

use super::agents::list as table_of_agents;
use super::certificates::shown as table_of_certificates;
use super::{cell, instant, is_agent};
use crate::arguments::{DescribeAgent, DescribeNode};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

#[derive(Serialize)]
struct DescribedAgent {
    agent: AgentStatus,
    certificates: Vec<CertificateStatus>,
    services: Vec<ServiceStatus>,
    mailbox: MailboxReport,
    refused: Vec<RefusalRecord>,
}

/// `sealbus describe agent AGENT`
pub(crate) async fn agent(
    connection: &mut Connection,
    describe: &DescribeAgent,
    output: Output,
) -> Result<(), CliError> {
    let agents = connection.list(ask::Agents::default()).await?;
    let agent = agents
        .into_iter()
        .find(|agent| is_agent(&agent.name, &describe.agent))
        .ok_or_else(|| CliError::NotFound {
            message: format!("there is no agent {}", describe.agent),
            help: "`sealbus ps` lists the agents".to_owned(),
        })?;
    let local = agent.name.split('@').next().unwrap_or_default().to_owned();
    let its = ask::Certificates {
        all: true,
        of: Some(local.clone()),
        page: Page::default(),
    };
    let mut certificates = connection.list(its).await?;
    let path = format!("/agent/{local}");
    certificates.retain(|certificate| certificate.identity.ends_with(&path));
    let all = ask::DfSearch {
        service_type: None,
        service_name: None,
        page: Page::default(),
    };
    let mut services = connection.list(all).await?;
    services.retain(|service| service.agent == agent.name);
    let mailbox = connection.ask(ask::Mailbox { agent: local }).await?;
    let mut refused = connection.ask(ask::Refusals).await?;
    let concerns = |name: &str| is_agent(&agent.name, name) || is_agent(name, &agent.name);
    refused
        .retain(|record| concerns(&record.who) || record.receiver.as_deref().is_some_and(concerns));
    let told = DescribedAgent {
        agent,
        certificates,
        services,
        mailbox,
        refused,
    };
    output.show(&told, || told.text());
    Ok(())
}

impl DescribedAgent {
    fn text(&self) -> String {
        let agent = &self.agent;
        let state = agent
            .state
            .map_or_else(|| "ended".to_owned(), |state| state.to_string());
        let mut facts = table(&["AGENT", &agent.name]);
        facts.add_row(["state", &state]);
        facts.add_row(["note", agent.note.as_deref().unwrap_or("-")]);
        facts.add_row(["node", agent.node.as_deref().unwrap_or("-")]);
        facts.add_row(["process", &agent.process]);
        facts.add_row(["pid", &cell(agent.pid.as_ref())]);
        facts.add_row(["address", &cell(agent.address.as_ref())]);
        facts.add_row(["restarts", &agent.restarts.to_string()]);
        facts.add_row(["messages that wait", &self.mailbox.total.to_string()]);
        facts.add_row(["refused attempts", &self.refused.len().to_string()]);
        let mut text = facts.trim_fmt();
        if !self.services.is_empty() {
            let mut services = table(&["SERVICE", "TYPE"]);
            for service in &self.services {
                services.add_row([
                    cell(service.name.as_ref()),
                    cell(service.service_type.as_ref()),
                ]);
            }
            text = format!("{text}\n\n{}", services.trim_fmt());
        }
        if !self.certificates.is_empty() {
            text = format!("{text}\n\n{}", table_of_certificates(&self.certificates));
        }
        text
    }
}

#[derive(Serialize)]
struct DescribedNode {
    node: NodeStatus,
    agents: Vec<AgentStatus>,
}

/// `sealbus describe node NODE`
pub(crate) async fn node(
    connection: &mut Connection,
    describe: &DescribeNode,
    output: Output,
) -> Result<(), CliError> {
    let nodes = connection.list(ask::Nodes::default()).await?;
    let node = nodes
        .into_iter()
        .find(|node| node.name == describe.node)
        .ok_or_else(|| CliError::NotFound {
            message: format!("there is no node {}", describe.node),
            help: "`sealbus nodes` lists the nodes".to_owned(),
        })?;
    let mut agents = connection.list(ask::Agents::default()).await?;
    agents.retain(|agent| agent.node.as_ref() == Some(&node.name));
    let told = DescribedNode { node, agents };
    output.show(&told, || told.text());
    Ok(())
}

impl DescribedNode {
    fn text(&self) -> String {
        let node = &self.node;
        let mut facts = table(&["NODE", &node.name]);
        facts.add_row(["state", node.state.as_str()]);
        facts.add_row(["machine", &node.host]);
        facts.add_row(["address", &node.address]);
        facts.add_row(["processors", &node.processors.to_string()]);
        facts.add_row([
            "isolation",
            node.isolation.map_or("impossible", Isolation::as_str),
        ]);
        facts.add_row(["processes", &node.processes.to_string()]);
        facts.add_row(["heard", &instant(node.heard)]);
        format!("{}\n\n{}", facts.trim_fmt(), table_of_agents(&self.agents))
    }
}
