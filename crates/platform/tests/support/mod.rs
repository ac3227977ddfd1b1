//! A Master and nodes on the loopback of one test process, and agent processes that join by ticket.

#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod keeping;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::Bus;
use sealbus_control::Fault;
use sealbus_control::admin::{AdminRequest, AgentStatus, NodeState, NodeStatus, ask};
use sealbus_control::ask::Ask;
use sealbus_control::operators;
use sealbus_control::rpc::RpcCaller;
use sealbus_manifest::isolation::Isolation;
use sealbus_master::{Master, MasterConfig, PlatformSettings};
use sealbus_node::{IsolationConfig, Node, NodeConfig, SLOTS};
use sealbus_process::attachment::Attachment;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{PlatformName, SecurityLevel};

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Far longer than anything takes, so that a test never depends on how fast things go.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) struct Operator(RpcCaller);

impl Operator {
    pub(crate) async fn of(master: &Master) -> Self {
        Self(operators::connect(master.directory()).await.unwrap())
    }

    pub(crate) async fn ask<A: Ask<Requests = AdminRequest>>(
        &self,
        ask: A,
    ) -> Result<A::Answer, Fault> {
        self.0.ask(ask, LONG).await
    }

    pub(crate) async fn token(&self, node: Option<&str>) -> Token {
        let request = ask::Token {
            node: node.map(str::to_owned),
            lifetime: 600,
            master: false,
        };
        let issued = self.ask(request).await.unwrap();
        Token::parse(Purpose::Join, &issued.token).unwrap()
    }

    pub(crate) async fn ticket(&self, agent: &str, node: Option<&str>) -> String {
        let request = ask::Ticket {
            agent: agent.to_owned(),
            others: Vec::new(),
            node: node.map(str::to_owned),
            lifetime: 600,
        };
        self.ask(request).await.unwrap().token
    }

    pub(crate) async fn agents(&self) -> Vec<AgentStatus> {
        let all = ask::Agents::default();
        self.ask(all).await.unwrap().agents
    }

    pub(crate) async fn nodes(&self) -> Vec<NodeStatus> {
        let all = ask::Nodes::default();
        self.ask(all).await.unwrap().nodes
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        seen: impl Fn(&[AgentStatus]) -> bool,
    ) -> Vec<AgentStatus> {
        let waiting = async {
            loop {
                let agents = self.agents().await;
                if seen(&agents) {
                    return agents;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(LONG, waiting).await {
            Ok(agents) => agents,
            Err(_) => panic!("{what} did not come about: {:#?}", self.agents().await),
        }
    }
}

pub(crate) fn config(directory: &Path, level: SecurityLevel) -> MasterConfig {
    let mut settings = PlatformSettings::new(PlatformName::new("factory").unwrap());
    settings.level = level;
    MasterConfig {
        directory: directory.join("master"),
        settings,
        address: HERE,
        port: 0,
        enrolment_port: 0,
        metrics: None,
        accept_clock: false,
    }
}

pub(crate) fn node_config(directory: &Path, name: &str, token: Option<Token>) -> NodeConfig {
    NodeConfig {
        directory: directory.join(name),
        token,
        join: None,
        name: None,
        address: HERE,
        isolation: IsolationConfig {
            mode: Some(Isolation::None),
            launcher: "/nowhere".into(),
            hidden: Vec::new(),
            slots: SLOTS,
        },
        metrics: None,
    }
}

pub(crate) async fn platform(
    directory: &Path,
    level: SecurityLevel,
) -> (Master, Operator, Node, Node) {
    platform_of(config(directory, level), directory).await
}

pub(crate) async fn platform_of(
    config: MasterConfig,
    directory: &Path,
) -> (Master, Operator, Node, Node) {
    let master = Master::start(config).await.unwrap();
    let operator = Operator::of(&master).await;
    let mut nodes = Vec::new();
    for name in ["one", "two"] {
        let token = operator.token(None).await;
        nodes.push(
            Node::start(node_config(directory, name, Some(token)))
                .await
                .unwrap(),
        );
    }
    alive(&operator, 2).await;
    let (two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    (master, operator, one, two)
}

pub(crate) async fn alive(operator: &Operator, count: usize) {
    let waiting = async {
        loop {
            let nodes = operator.nodes().await;
            if nodes
                .iter()
                .filter(|node| node.state == NodeState::Alive)
                .count()
                == count
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LONG, waiting).await.is_err() {
        panic!(
            "there are not {count} nodes alive: {:#?}",
            operator.nodes().await
        );
    }
}

pub(crate) async fn joined(operator: &Operator, agent: &str, node: &str) -> (Process, AgentHandle) {
    joined_on(operator, agent, node, None).await
}

/// The same, in a process that uses this bus.
pub(crate) async fn joined_on(
    operator: &Operator,
    agent: &str,
    node: &str,
    bus: Option<Bus>,
) -> (Process, AgentHandle) {
    let ticket = operator.ticket(agent, Some(node)).await;
    let attachment = Attachment::join(&ticket).await.unwrap();
    let process = Process::open(Arc::new(attachment), bus).await.unwrap();
    let handle = process.agent(agent).await.unwrap();
    (process, handle)
}
