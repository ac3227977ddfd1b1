//! The requests of operators, over a socket that only the Master's own user may open.

mod apply;
mod door;
mod kept;
mod metrics;
mod parting;
mod programs;
mod secrets;
mod services;
mod traffic;

pub(crate) use door::{Entrance, Newcomer};
pub(crate) use parting::{ELSEWHERE, Parting};

use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::BROKER_KINDS;
use sealbus_fipa::Aid;
use sealbus_gateways::GatewayPolicy;
use sealbus_manifest::Manifest;
use sealbus_seal::{Fingerprint, certificate_pem};
use tokio::sync::{Mutex, watch};

use super::backup::Backups;
use super::broker_certificate::certify_broker;
use super::desk::{Desk, DeskHandle};
use super::gateways;
use super::listing::{agents, agents_beside, known, nodes};
use super::masters::{Masters, alone, single};
use super::system::SystemAgents;
use sealbus_ca::{Outlook, Unstored};
use sealbus_control::admin::{
    AdminAnswer, AdminRequest, CertificationEvents, CertifiedBroker, Checkpoint, GatewayState,
    MasterStatus, Page, PlatformStatus, Revoked,
};
use sealbus_control::clock::timestamp;
use sealbus_control::operators::OperatorKey;
use sealbus_control::{Blob, Fault, FaultCode};

/// Serves operators.
pub(crate) struct Admin {
    pub(crate) desk: DeskHandle,
    /// The key that operators prove.
    pub(crate) key: OperatorKey,
    pub(crate) system: Arc<SystemAgents>,
    /// The fault of the store, while there is one.
    pub(crate) store_trouble: watch::Receiver<Option<String>>,
    pub(crate) backups: Backups,
    /// The manifest in force. Only one manifest at a time is put in force.
    pub(crate) manifest: Mutex<Option<Box<Manifest>>>,
    pub(crate) root: Fingerprint,
    pub(crate) enrolment: std::net::SocketAddr,
    pub(crate) address: std::net::SocketAddr,
    /// The number of the Master's term.
    pub(crate) term: u64,
    /// All Masters, where there may be several.
    pub(crate) masters: Option<Arc<Masters>>,
    /// Whether the platform lives in a program of its agents. All connections then only read.
    pub(crate) is_embedded: bool,
    /// Begins when the Master leads no longer.
    pub(crate) parting: Parting,
    /// Set when the platform must end.
    pub(crate) ended: watch::Sender<bool>,
}

impl Admin {
    async fn answer(&self, request: AdminRequest) -> Result<AdminAnswer, Fault> {
        Ok(match request {
            AdminRequest::Status => self.status().await?.into(),
            AdminRequest::Masters => AdminAnswer::Masters {
                masters: self.masters().await?,
            },
            AdminRequest::HandOver => self.hand_over()?.into(),
            AdminRequest::Nodes { page } => {
                let found = move |desk: &mut Desk, _| Ok(nodes(desk, &page));
                self.desk.run(found).await?.into()
            }
            AdminRequest::Agents { page } => {
                let found = move |desk: &mut Desk, now| Ok(agents(desk, &page, now));
                self.desk.run(found).await?.into()
            }
            AdminRequest::Refusals => {
                let latest = |desk: &mut Desk, _| {
                    let latest = desk.refusals.latest().into_iter();
                    Ok(latest.cloned().collect())
                };
                AdminAnswer::Refusals {
                    records: self.desk.run(latest).await?,
                }
            }
            AdminRequest::Token {
                node,
                lifetime,
                master,
            } => self.token(node, lifetime, master).await?.into(),
            AdminRequest::Ticket {
                agent,
                others,
                node,
                lifetime,
            } => self.ticket(agent, others, node, lifetime).await?.into(),
            AdminRequest::Compare { wanted } => self.compare(&wanted).await?.into(),
            AdminRequest::Apply {
                wanted,
                agreed,
                grace,
                taken_over,
            } => {
                let grace = Duration::from_millis(grace);
                self.apply(wanted, agreed, grace, taken_over).await?.into()
            }
            AdminRequest::StartAgain {
                agent,
                timeout,
                grace,
            } => {
                let timeout = Duration::from_millis(timeout);
                let agent = local(&agent);
                if let Some(grace) = grace {
                    let grace = Duration::from_millis(grace);
                    self.kill(agent.clone(), grace, true).await?;
                }
                self.start_again(agent.clone(), timeout).await?;
                let found = move |desk: &mut Desk, now| Ok(agents_beside(desk, &agent, now));
                self.desk.run(found).await?.into()
            }
            AdminRequest::Kill { agent, grace } => {
                let grace = Duration::from_millis(grace);
                self.kill(agent, grace, false).await?.into()
            }
            AdminRequest::Move { agent, node } => self.move_agent(agent, node).await?.into(),
            AdminRequest::Mailbox { agent } => self.mailbox(&agent).await?.into(),
            AdminRequest::ChannelLogs => self.channel_logs().await?.into(),
            AdminRequest::Evidence { question } => self.evidence(question).await?.into(),
            AdminRequest::Observe { watch } => self.observe(watch).await?.into(),
            // The door has narrowed the connection.
            AdminRequest::Narrow { .. } => AdminAnswer::Done,
            AdminRequest::Log { agent, from } => self.log(&agent, from).await?.into(),
            AdminRequest::CertificationEvents { from, limit } => {
                let events = move |desk: &mut Desk, _| {
                    let events = desk.ca.events().since(from, limit.min(10_000) as usize);
                    let next = events
                        .last()
                        .map_or_else(|| from.min(desk.ca.events().next()), |e| e.sequence + 1);
                    Ok(CertificationEvents { events, next })
                };
                self.desk.run(events).await?.into()
            }
            AdminRequest::Certificates { all, of, page } => {
                let found = move |desk: &mut Desk, now| {
                    let of = of.as_deref().map(local);
                    desk.ca
                        .certificates(all, of.as_deref(), &page, timestamp(now))
                };
                self.desk.run(found).await?.into()
            }
            AdminRequest::Revoke { what, reason } => {
                let revoked = move |desk: &mut Desk, now| {
                    desk.check_revocable(&what)?;
                    let certificates = desk.revoke_by_hand(&what, &reason, now)?;
                    let act = Unstored::Revoked {
                        what,
                        said: reason,
                        at: timestamp(now),
                    };
                    Ok((certificates, Some(act)))
                };
                let (certificates, is_stored) = self.desk.run_or_keep(revoked).await?;
                Revoked {
                    certificates,
                    is_stored,
                }
                .into()
            }
            AdminRequest::Authorities => {
                let all = |desk: &mut Desk, now| Ok(desk.ca.authorities(timestamp(now)));
                self.desk.run(all).await?.into()
            }
            AdminRequest::RevokeAuthority { name, reason } => {
                let revoke = move |desk: &mut Desk, now| {
                    desk.ca.revoke_authority(&name, &reason, timestamp(now))
                };
                vec![self.desk.order(revoke).await?].into()
            }
            AdminRequest::Root => {
                let root = |desk: &mut Desk, _| {
                    let root = desk.platform.roots.first();
                    let lacks =
                        || Fault::new(FaultCode::Internal, "the platform has no root certificate");
                    Ok(certificate_pem(&root.ok_or_else(lacks)?.0))
                };
                self.desk.run(root).await?.into()
            }
            AdminRequest::Checkpoint => {
                let (checkpoint, note) = self.desk.run(|desk, _| desk.ca.checkpoint()).await?;
                Checkpoint {
                    size: checkpoint.size,
                    root: data_encoding::HEXLOWER.encode(&checkpoint.root),
                    signed: Blob(note.to_string().into_bytes()),
                }
                .into()
            }
            AdminRequest::Send { message } => {
                self.check_receivers(message.receivers.clone()).await?;
                self.system.operator.send(message).await?.into()
            }
            AdminRequest::DfSearch {
                service_type,
                service_name,
                page,
            } => {
                let searching = self.search(service_type, service_name, page);
                searching.await?.into()
            }
            AdminRequest::DfRegister {
                agent,
                service_type,
                service_name,
                lease,
            } => {
                let registering = self.register(agent, service_type, service_name, lease);
                registering.await?.into()
            }
            AdminRequest::DfDeregister {
                agent,
                service_name,
            } => self.deregister(agent, service_name).await?.into(),
            AdminRequest::Gateway => self.gateway(self.system.gateway.get().await).await?.into(),
            AdminRequest::GatewayAllow { rule } => {
                let rules = self.system.gateway.allow(rule).await?;
                self.put_in_force(rules).await?.into()
            }
            AdminRequest::GatewayDeny { platform } => {
                let rules = self.system.gateway.deny(&platform).await?;
                self.put_in_force(rules).await?.into()
            }
            AdminRequest::Federate { df, addresses } => {
                let name = Aid::new(df)
                    .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))?;
                let df = addresses.into_iter().fold(name, Aid::with_address);
                self.system.directories.join(df).await?.into()
            }
            AdminRequest::Broker => {
                let broker = self.desk.run(|desk, _| Ok(desk.broker.clone())).await?;
                let broker = broker.ok_or_else(|| {
                    let message = "the platform runs on the mesh: it has no broker";
                    let kinds = BROKER_KINDS.iter().map(|kind| {
                        let (name, title) = (kind.name(), kind.title());
                        format!(
                            "transport = \"{name}\" in the manifest begins a platform on {title}"
                        )
                    });
                    let advice: Vec<_> = kinds.collect();
                    Fault::new(FaultCode::Unknown, message).advise(advice.join("; "))
                })?;
                broker.status().await?.into()
            }
            AdminRequest::CertifyBroker { address, request } => {
                let (root, chain) = certify_broker(&self.desk, address, request.0).await?;
                let chain = chain.to_certificates();
                let root = Blob(root);
                let chain = chain.iter().map(|der| Blob(der.to_vec())).collect();
                CertifiedBroker { root, chain }.into()
            }
            AdminRequest::CertifyCaller {
                name,
                request,
                lifetime,
            } => self.certify_caller(name, request, lifetime).await?.into(),
            AdminRequest::Backup { keys } => self.backups.make(keys).await?.into(),
            AdminRequest::BackupPiece { from } => self.backups.read(from)?.into(),
            AdminRequest::Shutdown { grace } => {
                self.shut_down(Duration::from_millis(grace)).await;
                AdminAnswer::Done
            }
        })
    }

    async fn masters(&self) -> Result<Vec<MasterStatus>, Fault> {
        let known = |desk: &mut Desk, _| Ok((desk.since, desk.ca.authority().name().to_owned()));
        let (since, authority) = self.desk.run(known).await?;
        Ok(match &self.masters {
            Some(masters) => masters.list(self.term, &authority),
            None => vec![single(self.enrolment, self.term, since, authority)],
        })
    }

    fn hand_over(&self) -> Result<(), Fault> {
        let masters = self.masters.as_ref().ok_or_else(alone)?;
        masters.hand_over()
    }

    /// Puts the operators' rules for the gateway in force. A gateway that does not run gets them when it starts.
    async fn put_in_force(&self, rules: GatewayPolicy) -> Result<GatewayState, Fault> {
        self.system.gateway.put_in_force(&self.desk).await?;
        gateways::until_obeyed(self.system.operator.correspondent(), &rules).await;
        self.gateway(rules).await
    }

    async fn gateway(&self, rules: GatewayPolicy) -> Result<GatewayState, Fault> {
        let known = self.desk.run(|desk, _| Ok(gateways::known(desk))).await?;
        let operator = self.system.operator.correspondent();
        Ok(gateways::state(operator, rules, known).await)
    }

    async fn status(&self) -> Result<PlatformStatus, Fault> {
        let (enrolment, address) = (self.enrolment, self.address);
        let mut warnings: Vec<_> = self.store_trouble.borrow().iter().cloned().collect();
        self.desk
            .run(move |desk, now| {
                let ending = desk.ca.outlook(timestamp(now));
                let mut alarms = Vec::new();
                warnings.extend(desk.log_warnings.values().cloned());
                if desk.state.is_restoring() {
                    warnings.push(
                        "restoring: the Master hears what its nodes run before it places anything"
                            .to_owned(),
                    );
                }
                match ending.0 {
                    Outlook::Good => {}
                    Outlook::EndsSoon => warnings.push(ending.to_string()),
                    Outlook::EndsVerySoon | Outlook::Ended => alarms.push(ending.to_string()),
                }
                let alive = |node: &&crate::registry::Node| node.state.is_there();
                let all = Page::default();
                let living = known(desk, all.places())
                    .filter(|(agent, ..)| desk.state.life(agent).is_some())
                    .count();
                Ok(PlatformStatus {
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
                    refusals: desk.refusals.total(),
                    log_alarms: desk.log_alarms.values().cloned().collect(),
                    ca_ends: ending.1.as_unix_seconds() * 1000,
                    warnings,
                    alarms,
                })
            })
            .await
    }

    /// Checks that the receivers exist. Nobody would read the failure that a message to a mistyped name becomes.
    async fn check_receivers(&self, receivers: Vec<String>) -> Result<(), Fault> {
        let check = move |desk: &mut Desk, _| {
            let suffix = format!("@{}", desk.name);
            for receiver in &receivers {
                let name = receiver.strip_suffix(&suffix).unwrap_or(receiver);
                if !name.contains('@') && desk.state.group_of(name).is_none() {
                    let message = format!("there is no agent {name}");
                    return Err(Fault::new(FaultCode::Unknown, message));
                }
            }
            Ok(())
        };
        self.desk.run(check).await
    }
}

fn local(agent: &str) -> String {
    agent.split('@').next().unwrap_or(agent).to_owned()
}
