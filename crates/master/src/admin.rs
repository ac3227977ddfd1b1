//! What operators ask, over a socket only the Master's own user may open.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::GATEWAY;
use sealbus_fipa::Aid;
use sealbus_fipa::management::{DfAgentDescription, DfFunction, ServiceDescription};
use sealbus_gateways::http::GatewayPolicy;
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{Fingerprint, Name, certificate_pem};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::broker_certificate::certify_broker;
use super::desk::{Desk, DeskHandle};
use super::gateways;
use super::listing::{agents, nodes};
use super::system::SystemAgents;
use crate::registry::Origin;
use sealbus_control::admin::{
    AdminAnswer, AdminRequest, PlatformStatus, SendMessage, ServiceStatus, SilentNode,
};
use sealbus_control::channel_log::{LogAnswer, LogRequest};
use sealbus_control::clock::timestamp;
use sealbus_control::node::{LogPosition, NodeAnswer, NodeRequest};
use sealbus_control::rpc::{self, Incoming, MAX_FRAME};
use sealbus_control::{Blob, Fault, FaultCode, UnixMillis};
use sealbus_management::client::{Answer, ask_df};

/// Longest life of a token or ticket, in seconds.
const LONGEST_TOKEN: u64 = 30 * 86_400;
/// Size of a piece of a log.
const LOG_PIECE: u32 = 64 * 1024;
/// How long a node may take to read it.
const READING: Duration = Duration::from_secs(10);
/// How long a move may take before the operator is told that it goes on.
const MOVING: Duration = Duration::from_secs(90);
/// How long the end of a process is waited for beyond its grace.
const ENDING: Duration = Duration::from_secs(4);
/// How long nodes may take that are to come back to a Master that was started again, with room for it to give them up.
const COMING_BACK: Duration = Duration::from_secs(20);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Serves operators.
pub(crate) struct Admin {
    pub(crate) desk: DeskHandle,
    pub(crate) system: Arc<SystemAgents>,
    pub(crate) root: Fingerprint,
    pub(crate) enrolment: std::net::SocketAddr,
    pub(crate) address: std::net::SocketAddr,
    /// Set when the platform is to end.
    pub(crate) ended: watch::Sender<bool>,
}

impl Admin {
    /// Accepts operators for ever.
    pub(crate) async fn accept(self: Arc<Self>, listener: UnixListener) {
        // They end with this.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let ours = rustix::process::getuid().as_raw();
                    let theirs = stream.peer_cred().map(|peer| peer.uid());
                    if theirs.is_ok_and(|uid| uid == ours || uid == 0) {
                        connections.spawn(self.clone().serve(stream));
                    } else {
                        tracing::warn!("an operator of another user was not let in");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "an operator could not be let in");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let (_caller, mut incoming, drive) = rpc::open(stream, MAX_FRAME);
        let mut driving = JoinSet::new();
        driving.spawn(drive);
        while let Some(Incoming::Call { body, answer }) = incoming.recv().await {
            let admin = self.clone();
            tokio::spawn(async move {
                let result = match Incoming::parse(&body) {
                    Ok(request) => admin.answer(request).await,
                    Err(fault) => Err(fault),
                };
                answer.send(result).await;
            });
        }
    }

    async fn answer(&self, request: AdminRequest) -> Result<AdminAnswer, Fault> {
        match request {
            AdminRequest::Status => self.status().await,
            AdminRequest::Nodes => {
                let nodes = self.desk.run(|desk, _| Ok(nodes(desk))).await?;
                Ok(AdminAnswer::Nodes { nodes })
            }
            AdminRequest::Agents => self.agents().await,
            AdminRequest::Refusals => {
                let records = self
                    .desk
                    .run(|desk, _| Ok(desk.refusals.latest.iter().cloned().collect()));
                Ok(AdminAnswer::Refusals {
                    records: records.await?,
                })
            }
            AdminRequest::Token { node, lifetime } => self.token(node, lifetime).await,
            AdminRequest::Ticket {
                agent,
                node,
                lifetime,
            } => self.ticket(agent, node, lifetime).await,
            AdminRequest::Start { agents } => {
                self.desk
                    .run(move |desk, now| desk.state.start(&agents, now))
                    .await?;
                self.agents().await
            }
            AdminRequest::StartAgain { agent } => {
                let name = local(&agent);
                self.desk
                    .run(move |desk, now| desk.state.start_again(&name, now))
                    .await?;
                self.agents().await
            }
            AdminRequest::Kill { agent, grace } => {
                self.kill(agent, Duration::from_millis(grace)).await
            }
            AdminRequest::Move { agent, node } => self.move_agent(agent, node).await,
            AdminRequest::Mailbox { agent } => self.mailbox(&agent).await,
            AdminRequest::ChannelLogs => self.channel_logs().await,
            AdminRequest::Log { agent, from } => self.log(&agent, from).await,
            AdminRequest::CertificationEvents { from, limit } => {
                self.desk
                    .run(move |desk, _| {
                        let events = desk.ca.events().since(from, limit.min(10_000) as usize);
                        let next = events
                            .last()
                            .map_or_else(|| from.min(desk.ca.events().next()), |e| e.sequence + 1);
                        Ok(AdminAnswer::CertificationEvents { events, next })
                    })
                    .await
            }
            AdminRequest::Certificates { all } => {
                let found = self
                    .desk
                    .run(move |desk, now| Ok(desk.ca.certificates(all, timestamp(now))));
                Ok(AdminAnswer::Certificates {
                    certificates: found.await?,
                })
            }
            AdminRequest::Revoke { what, reason } => {
                let revoked = self
                    .desk
                    .run(move |desk, now| desk.revoke_by_hand(&what, &reason, now));
                Ok(AdminAnswer::Certificates {
                    certificates: revoked.await?,
                })
            }
            AdminRequest::Root => {
                let root = |desk: &mut Desk, _| {
                    let root = desk.platform.roots.first();
                    let lacks =
                        || Fault::new(FaultCode::Internal, "the platform has no root certificate");
                    Ok(AdminAnswer::Root {
                        certificate: certificate_pem(&root.ok_or_else(lacks)?.0),
                    })
                };
                self.desk.run(root).await
            }
            AdminRequest::Checkpoint => {
                let (size, root, signed) = self.desk.run(|desk, _| desk.ca.checkpoint()).await?;
                let root = root.iter().map(|byte| format!("{byte:02x}")).collect();
                Ok(AdminAnswer::Checkpoint {
                    size,
                    root,
                    signed: Blob(signed.into_bytes()),
                })
            }
            AdminRequest::Send { message } => self.send(message).await,
            AdminRequest::DfSearch {
                service_type,
                service_name,
            } => self.search(service_type, service_name).await,
            AdminRequest::DfRegister {
                agent,
                service_type,
                service_name,
                lease,
            } => {
                self.register(agent, service_type, service_name, lease)
                    .await
            }
            AdminRequest::Gateway => {
                let rules = self.system.gateway.get().await;
                Ok(self.gateway(rules).await)
            }
            AdminRequest::GatewayAllow { rule } => {
                let rules = self.system.gateway.allow(rule).await?;
                gateways::tell(self.system.operator.correspondent(), rules.clone()).await;
                Ok(self.gateway(rules).await)
            }
            AdminRequest::GatewayDeny { platform } => {
                let rules = self.system.gateway.deny(&platform).await?;
                gateways::tell(self.system.operator.correspondent(), rules.clone()).await;
                Ok(self.gateway(rules).await)
            }
            AdminRequest::Federate { df, addresses } => {
                let name = Aid::new(df)
                    .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))?;
                let df = addresses.into_iter().fold(name, Aid::with_address);
                self.system.directories.join(df).await?;
                Ok(AdminAnswer::Done)
            }
            AdminRequest::Broker => {
                let broker = self.desk.run(|desk, _| Ok(desk.broker.clone())).await?;
                let broker = broker.ok_or_else(|| {
                    let message = "the platform runs on the mesh: it has no broker";
                    Fault::new(FaultCode::Unknown, message.to_owned())
                })?;
                Ok(AdminAnswer::Broker(broker.status().await?))
            }
            AdminRequest::CertifyBroker { address, request } => {
                let (root, chain) = certify_broker(&self.desk, address, request.0).await?;
                let chain = chain.to_certificates();
                Ok(AdminAnswer::BrokerCertified {
                    root: Blob(root),
                    chain: chain.iter().map(|der| Blob(der.to_vec())).collect(),
                })
            }
            AdminRequest::Shutdown { grace } => {
                self.shut_down(Duration::from_millis(grace)).await;
                Ok(AdminAnswer::Done)
            }
        }
    }

    async fn gateway(&self, rules: GatewayPolicy) -> AdminAnswer {
        AdminAnswer::Gateway {
            status: gateways::status(self.system.operator.correspondent()).await,
            rules,
        }
    }

    async fn status(&self) -> Result<AdminAnswer, Fault> {
        let (enrolment, address) = (self.enrolment, self.address);
        self.desk
            .run(move |desk, _| {
                let alive = |node: &&crate::registry::Node| node.state.is_there();
                let living = agents(desk, 0)
                    .iter()
                    .filter(|agent| agent.state.is_some())
                    .count();
                Ok(AdminAnswer::Status(PlatformStatus {
                    name: desk.platform.name.clone(),
                    level: desk.platform.level.clone(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    pid: std::process::id(),
                    enrolment,
                    address,
                    since: desk.since,
                    nodes: desk.state.nodes().values().filter(alive).count() as u32,
                    agents: living as u32,
                    certificates: desk.ca.issued_in_all(),
                    refusals: desk.refusals.total,
                }))
            })
            .await
    }

    async fn agents(&self) -> Result<AdminAnswer, Fault> {
        let agents = self.desk.run(|desk, now| Ok(agents(desk, now))).await?;
        Ok(AdminAnswer::Agents { agents })
    }

    async fn token(&self, node: Option<String>, lifetime: u64) -> Result<AdminAnswer, Fault> {
        let (root, address) = (self.root, self.enrolment.to_string());
        let lifetime = lifetime_of(lifetime)?;
        self.desk
            .run(move |desk, now| {
                let name = node.map(|node| legal("node", &node)).transpose()?;
                let token = Token::new(Purpose::Join, desk.name.clone(), name, vec![address], root)
                    .map_err(|error| internal(&error))?;
                desk.tokens
                    .change()
                    .enter(&token, lifetime, timestamp(now))
                    .map_err(|error| internal(&error))?;
                let expires = now + lifetime.as_millis() as UnixMillis;
                Ok(AdminAnswer::Secret {
                    token: token.to_string(),
                    expires,
                })
            })
            .await
    }

    async fn ticket(
        &self,
        agent: String,
        node: Option<String>,
        lifetime: u64,
    ) -> Result<AdminAnswer, Fault> {
        if agent == GATEWAY {
            let message = "the gateway is started by its platform, not with a ticket";
            return Err(Fault::new(FaultCode::IllegalName, message)
                .advise("add [gateway.http] to the manifest"));
        }
        let root = self.root;
        let lifetime = lifetime_of(lifetime)?;
        self.await_expected_nodes(&agent, node.as_deref()).await;
        let (answer, known) = self
            .desk
            .run(move |desk, now| {
                let name = legal("agent", &agent)?;
                let (node, address) = desk.state.attachment_of(&agent, node.as_deref())?;
                let addresses = vec![address.to_string()];
                let token = Token::new(
                    Purpose::Ticket,
                    desk.name.clone(),
                    Some(name),
                    addresses,
                    root,
                )
                .map_err(|error| internal(&error))?;
                let expires = now + lifetime.as_millis() as UnixMillis;
                desk.state
                    .expect(&agent, &node, token.secret().hash(), expires, now)?;
                let (sender, known) = oneshot::channel();
                desk.waiting.entry(agent).or_default().push(sender);
                Ok((
                    AdminAnswer::Secret {
                        token: token.to_string(),
                        expires,
                    },
                    known,
                ))
            })
            .await?;
        // Shown only once its node knows it.
        match tokio::time::timeout(READING, known).await {
            Ok(Ok(result)) => result.map(|_| answer),
            _ => Err(Fault::new(
                FaultCode::Unavailable,
                "the node does not answer",
            )),
        }
    }

    /// Nodes come back within seconds when the Master was started again: who needs one waits for them.
    async fn await_expected_nodes(&self, agent: &str, wish: Option<&str>) {
        let (agent, wish) = (agent.to_owned(), wish.map(str::to_owned));
        let waiting = self.wait_until(COMING_BACK, move |desk| {
            desk.state.attachment_of(&agent, wish.as_deref()).is_ok()
                || !desk.state.expects_node(wish.as_deref())
        });
        waiting.await;
    }

    async fn kill(&self, agent: String, grace: Duration) -> Result<AdminAnswer, Fault> {
        let agent = local(&agent);
        let name = agent.clone();
        self.desk
            .run(move |desk, now| desk.state.kill(&name, grace, now))
            .await?;
        self.wait_until(grace + ENDING, move |desk| {
            desk.state
                .group_of(&agent)
                .is_none_or(|(_, group)| group.process.is_none())
        })
        .await;
        Ok(AdminAnswer::Done)
    }

    async fn wait_until(
        &self,
        limit: Duration,
        over: impl Fn(&Desk) -> bool + Clone + Send + 'static,
    ) {
        let waiting = async {
            loop {
                let over = over.clone();
                if self
                    .desk
                    .run(move |desk, _| Ok(over(desk)))
                    .await
                    .unwrap_or(true)
                {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(limit, waiting).await;
    }

    async fn move_agent(&self, agent: String, node: String) -> Result<AdminAnswer, Fault> {
        let agent = local(&agent);
        let (moved, agents) = self
            .desk
            .run(move |desk, now| {
                let group = desk.state.move_agent(&agent, &node, now)?;
                let (sender, moved) = oneshot::channel();
                let agents = desk
                    .state
                    .groups()
                    .get(&group)
                    .map(|group| group.agents.clone());
                desk.waiting.entry(group).or_default().push(sender);
                Ok((moved, agents.unwrap_or_default()))
            })
            .await?;
        match tokio::time::timeout(MOVING, moved).await {
            Ok(Ok(result)) => result.map(|node| AdminAnswer::Moved { agents, node }),
            _ => Err(
                Fault::new(FaultCode::Unavailable, "the move takes long and goes on")
                    .advise("see `sealbus ps`"),
            ),
        }
    }

    /// What all nodes answer, each with its name.
    async fn ask_all_nodes(
        &self,
        request: &NodeRequest,
    ) -> Result<Vec<(String, Result<NodeAnswer, Fault>)>, Fault> {
        let nodes = self.desk.run(|desk, _| Ok(nodes(desk))).await?;
        let asked = nodes.into_iter().map(|node| async move {
            let answer = match node.state.absence() {
                None => self.system.master.ask(&node.name, request, READING).await,
                Some(why) => Err(Fault::new(FaultCode::Unavailable, why)),
            };
            (node.name, answer)
        });
        Ok(futures_util::future::join_all(asked).await)
    }

    async fn mailbox(&self, agent: &str) -> Result<AdminAnswer, Fault> {
        let agent = local(agent);
        let (mut letters, mut total, mut silent) = (Vec::new(), 0, Vec::new());
        for (node, answer) in self.ask_all_nodes(&NodeRequest::Mailbox { agent }).await? {
            match answer.and_then(NodeAnswer::mailbox) {
                Ok((more, there)) => {
                    letters.extend(more);
                    total += there;
                }
                Err(fault) => silent.push(silent_node(node, fault)),
            }
        }
        Ok(AdminAnswer::Mailbox {
            letters,
            total,
            silent,
        })
    }

    async fn channel_logs(&self) -> Result<AdminAnswer, Fault> {
        let request = NodeRequest::ChannelLog {
            request: LogRequest::List,
        };
        let (mut logs, mut silent) = (Vec::new(), Vec::new());
        for (node, answer) in self.ask_all_nodes(&request).await? {
            let listed = answer.and_then(NodeAnswer::channel_log);
            match listed.and_then(LogAnswer::list) {
                Ok(more) => logs.extend(more),
                Err(fault) => silent.push(silent_node(node, fault)),
            }
        }
        logs.sort_by(|one, two| (&one.channel, &one.node).cmp(&(&two.channel, &two.node)));
        Ok(AdminAnswer::ChannelLogs { logs, silent })
    }

    async fn log(&self, agent: &str, from: LogPosition) -> Result<AdminAnswer, Fault> {
        let agent = local(agent);
        let (log, node) = self
            .desk
            .run(move |desk, _| {
                let (name, group) = desk.state.group_of(&agent).ok_or_else(|| {
                    Fault::new(FaultCode::Unknown, format!("there is no agent {agent}"))
                })?;
                if !matches!(group.origin, Origin::Program { .. }) {
                    let message =
                        format!("the platform did not start {agent} and keeps no log of it");
                    return Err(Fault::new(FaultCode::Unknown, message));
                }
                let node = group.last_node.clone().ok_or_else(|| {
                    Fault::new(FaultCode::Unknown, format!("{agent} was never started"))
                })?;
                let known = desk.state.nodes().get(&node);
                if let Some(why) = known.and_then(|known| known.state.absence()) {
                    let message =
                        format!("the log of {agent} is on {node}, where it ran last: {why}");
                    return Err(Fault::new(FaultCode::Unavailable, message)
                        .advise("start that node again, or read its log on its machine"));
                }
                Ok((name.to_owned(), node))
            })
            .await?;
        let request = NodeRequest::Log {
            log,
            from,
            limit: LOG_PIECE,
        };
        let answer: NodeAnswer = self.system.master.ask(&node, &request, READING).await?;
        let (text, next) = answer.log()?;
        Ok(AdminAnswer::Log { text, next })
    }

    async fn send(&self, message: SendMessage) -> Result<AdminAnswer, Fault> {
        let replies = self.system.operator.send(message).await?;
        Ok(AdminAnswer::Replies { replies })
    }

    async fn search(
        &self,
        service_type: Option<String>,
        service_name: Option<String>,
    ) -> Result<AdminAnswer, Fault> {
        let wanted = ServiceDescription {
            name: service_name.clone(),
            service_type: service_type.clone(),
            ..ServiceDescription::default()
        };
        let any = service_type.is_none() && service_name.is_none();
        let template = DfAgentDescription {
            services: if any { Vec::new() } else { vec![wanted] },
            ..DfAgentDescription::default()
        };
        let found = self.system.directories.search(template).await?;
        let fits = |wish: &Option<String>, found: &Option<String>| wish.is_none() || wish == found;
        let services = found
            .into_iter()
            .flat_map(|entry| {
                let agent = entry.name.map(|name| name.name).unwrap_or_default();
                entry
                    .services
                    .into_iter()
                    .map(move |service| (agent.clone(), service))
            })
            .filter(|(_, service)| {
                fits(&service_type, &service.service_type) && fits(&service_name, &service.name)
            })
            .map(|(agent, service)| ServiceStatus {
                agent,
                name: service.name,
                service_type: service.service_type,
            })
            .collect();
        Ok(AdminAnswer::Services { services })
    }

    async fn register(
        &self,
        agent: String,
        service_type: String,
        service_name: String,
        lease: Option<u64>,
    ) -> Result<AdminAnswer, Fault> {
        let agent = local(&agent);
        let platform = self.desk.run(|desk, _| Ok(desk.name.clone())).await?;
        let illegal =
            |error: &dyn std::error::Error| Fault::new(FaultCode::IllegalName, error.to_string());
        let name = format!("{agent}@{platform}");
        let aid = Aid::new(name.clone()).map_err(|error| illegal(&error))?;
        let df = Aid::new(format!("df@{platform}")).map_err(|error| illegal(&error))?;
        let known = agent.clone();
        let alive = self
            .desk
            .run(move |desk, _| Ok(desk.state.life(&known).is_some()))
            .await?;
        if !alive {
            return Err(Fault::new(
                FaultCode::Unknown,
                format!("there is no agent {agent} now"),
            ));
        }
        let lease_time = lease.map(lease_end).transpose()?;
        let template = DfAgentDescription {
            name: Some(aid.clone()),
            ..Default::default()
        };
        let present = self
            .system
            .directories
            .search(template)
            .await?
            .into_iter()
            .next();
        let service = ServiceDescription {
            name: Some(service_name.clone()),
            service_type: Some(service_type),
            ..ServiceDescription::default()
        };
        let function = match present {
            Some(mut entry) => {
                entry.services.retain(|known| known.name != service.name);
                entry.services.push(service);
                entry.lease_time = lease_time.or(entry.lease_time);
                DfFunction::Modify(entry)
            }
            None => DfFunction::Register(DfAgentDescription {
                name: Some(aid.clone()),
                services: vec![service],
                lease_time,
                ..DfAgentDescription::default()
            }),
        };
        let message = ask_df(&df, &function).with_sender(aid);
        let reply = self.system.directories.on_behalf(&name, message).await?;
        Answer::read(&reply)
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
        Ok(AdminAnswer::Done)
    }

    /// Ends all agents, then the nodes, then the Master.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        let _ = self
            .desk
            .run(move |desk, now| {
                desk.state.stop_all(grace, now);
                Ok(())
            })
            .await;
        self.wait_until(grace + ENDING, |desk| {
            let mut programs = desk
                .state
                .groups()
                .values()
                .filter(|g| g.origin != Origin::System);
            programs.all(|group| group.process.is_none())
        })
        .await;
        let forgotten = self.desk.run(|desk, _| {
            desk.state.forget_programs();
            Ok(())
        });
        if let Err(fault) = forgotten.await {
            tracing::error!(%fault, "the programs could not be forgotten");
        }
        let alive = self.desk.run(|desk, _| {
            let nodes = desk.state.nodes().iter();
            let alive = nodes.filter(|(_, node)| node.state.is_there());
            Ok(alive.map(|(name, _)| name.clone()).collect::<Vec<_>>())
        });
        for node in alive.await.unwrap_or_default() {
            let leave = NodeRequest::Leave { grace: 0 };
            let told: Result<NodeAnswer, Fault> =
                self.system.master.ask(&node, &leave, ENDING).await;
            if let Err(fault) = told {
                tracing::warn!(%node, %fault, "could not be told to end");
            }
        }
        self.ended.send_replace(true);
    }
}

fn internal(error: &dyn std::error::Error) -> Fault {
    Fault::new(FaultCode::Internal, error.to_string())
}

fn silent_node(node: String, fault: Fault) -> SilentNode {
    SilentNode {
        node,
        why: fault.message,
    }
}

fn local(agent: &str) -> String {
    agent.split('@').next().unwrap_or(agent).to_owned()
}

fn legal(what: &'static str, name: &str) -> Result<Name, Fault> {
    Name::new(what, name).map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
}

fn lifetime_of(seconds: u64) -> Result<Duration, Fault> {
    if (1..=LONGEST_TOKEN).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let message = format!("a token cannot be good for {seconds} s");
    Err(Fault::new(FaultCode::BadRequest, message).advise("from 1 second to 30 days"))
}

fn lease_end(seconds: u64) -> Result<sealbus_fipa::DateTime, Fault> {
    let end = sealbus_control::clock::now().saturating_add(seconds.saturating_mul(1000));
    i64::try_from(end)
        .ok()
        .and_then(|end| sealbus_fipa::DateTime::from_unix_ms(end).ok())
        .ok_or_else(|| Fault::new(FaultCode::BadRequest, "the lease is too long"))
}
