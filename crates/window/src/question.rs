//! The page's questions on behalf of a user, and the answers.

use std::path::Path;

use sealbus_control::admin::{
    BrokerStatus, CertificateStatus, CertificationEvent, ChannelLogsReport, Checkpoint,
    GatewayState, Page, ServiceStatus, ask,
};
use sealbus_control::node::LogPosition;
use sealbus_control::rpc::RpcCaller;
use sealbus_control::{Fault, FaultCode};
use serde::{Deserialize, Serialize};

use crate::board::is_agent;
use crate::feed::{PATIENCE, open};

/// Lines of an agent's log.
const LOG_LINES: u32 = 200;
/// Events of the certification log that are read at once, and events in an answer.
const READ: u32 = 10_000;
const MOST_EVENTS: usize = 500;
/// Most certificates in an answer: the latest.
const MOST_CERTIFICATES: usize = 2_000;

/// A question.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Question {
    /// Everything about one agent.
    Agent {
        /// Its name, full or local.
        agent: String,
    },
    /// Certificates, and the latest events of certification.
    Certificates,
    /// The logs of persistent channels.
    ChannelLogs,
    /// The gateways to other platforms and to hosts of language models.
    Gateway,
    /// The message broker.
    Broker,
}

/// An answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Agent {
        certificates: Vec<CertificateStatus>,
        events: Vec<CertificationEvent>,
        services: Vec<ServiceStatus>,
        /// The last lines that the agent printed; none if it prints elsewhere.
        log: Option<String>,
    },
    Certificates {
        certificates: Vec<CertificateStatus>,
        events: Vec<CertificationEvent>,
        log: Checkpoint,
    },
    ChannelLogs(ChannelLogsReport),
    Gateway(Box<GatewayState>),
    Broker {
        /// None if the platform runs on the mesh.
        broker: Option<BrokerStatus>,
    },
}

/// The latest entries of a list.
fn latest<T>(mut list: Vec<T>, most: usize) -> Vec<T> {
    list.split_off(list.len().saturating_sub(most))
}

/// The latest events of certification about those that are wanted.
async fn events(
    caller: &RpcCaller,
    is_wanted: impl Fn(&CertificationEvent) -> bool,
) -> Result<Vec<CertificationEvent>, Fault> {
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let asked = ask::CertificationEvents { from, limit: READ };
        let told = caller.ask(asked, PATIENCE).await?;
        if told.events.is_empty() {
            return Ok(found);
        }
        found.extend(told.events.into_iter().filter(&is_wanted));
        found = latest(found, MOST_EVENTS);
        from = told.next;
    }
}

impl Question {
    /// Asks the Master.
    pub(crate) async fn answer(self, directory: &Path) -> Result<Answer, Fault> {
        let caller = open(directory, false).await?;
        match self {
            Self::Agent { agent } => {
                let local = agent.split('@').next().unwrap_or_default().to_owned();
                let path = format!("/agent/{local}");
                let its = ask::Certificates {
                    all: true,
                    of: Some(local.clone()),
                    page: Page::default(),
                };
                let mut certificates = caller.list(its, PATIENCE).await?;
                certificates.retain(|certificate| certificate.identity.ends_with(&path));
                let all = ask::DfSearch {
                    service_type: None,
                    service_name: None,
                    page: Page::default(),
                };
                let mut services = caller.list(all, PATIENCE).await?;
                services.retain(|service| is_agent(&service.agent, &local));
                let log = ask::Log {
                    agent: local.clone(),
                    from: LogPosition::LastLines { lines: LOG_LINES },
                };
                // A program that the platform did not start has no log here.
                let log = caller.ask(log, PATIENCE).await.ok().map(|log| log.text);
                let is_its = |event: &CertificationEvent| is_agent(&event.subject, &local);
                Ok(Answer::Agent {
                    certificates: latest(certificates, MOST_CERTIFICATES),
                    events: events(&caller, is_its).await?,
                    services,
                    log,
                })
            }
            Self::Certificates => {
                let all = ask::Certificates {
                    all: true,
                    of: None,
                    page: Page::default(),
                };
                let certificates = caller.list(all, PATIENCE).await?;
                Ok(Answer::Certificates {
                    certificates: latest(certificates, MOST_CERTIFICATES),
                    events: events(&caller, |_| true).await?,
                    log: caller.ask(ask::Checkpoint, PATIENCE).await?,
                })
            }
            Self::ChannelLogs => {
                let logs = caller.ask(ask::ChannelLogs, PATIENCE).await?;
                Ok(Answer::ChannelLogs(logs))
            }
            Self::Gateway => {
                let gateway = caller.ask(ask::Gateway, PATIENCE).await?;
                Ok(Answer::Gateway(Box::new(gateway)))
            }
            Self::Broker => match caller.ask(ask::Broker, PATIENCE).await {
                Ok(broker) => Ok(Answer::Broker {
                    broker: Some(broker),
                }),
                Err(fault) if fault.code == FaultCode::Unknown => {
                    Ok(Answer::Broker { broker: None })
                }
                Err(fault) => Err(fault),
            },
        }
    }
}
