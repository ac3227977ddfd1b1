//! The RabbitMQ of a platform: started in a folder of the Master's, or found.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::BoxFuture;
use sealbus_seal::tls::{CertificateSource, Connector};
use sealbus_seal::{SecurityLevel, random_hex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use sealbus_files::write_private;

use super::RabbitKind;
use super::files::{BrokerCertificate, BrokerSetup};
use super::managed::{BrokerPorts, ManagedBroker};
use super::management::Management;
use crate::administration::Administration;
use crate::client::BrokerFailure;
use crate::config::{BrokerDescription, BrokerPromise, Login};
use crate::kind::{BrokerKind, BrokerSettings};
use crate::site::{Program, RunningBroker, Site};

/// The virtual host, in the platform's description.
pub(super) const VHOST: &str = "vhost";
/// The file name of the passwords: the operator's, and the one that all agents share.
const PASSWORDS: &str = "passwords.json";
/// The operator's user on a managed broker.
const OPERATOR: &str = "sealbus-operator";
/// The user that all agents share at levels `none` and `tls`.
const AGENTS: &str = "sealbus-agents";

/// The RabbitMQ a platform runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RabbitSettings {
    /// The choice.
    pub broker: BrokerChoice,
    /// The broker's promise about messages and frames.
    pub promise: BrokerPromise,
    /// How long a message that is not taken waits before it goes to the dead letters; without it, for ever.
    pub message_life: Option<Duration>,
}

/// The choice of RabbitMQ for a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerChoice {
    /// A broker that starts and ends with the platform.
    Managed,
    /// A broker that already exists.
    Existing {
        /// The brokers of the cluster, as `HOST:PORT`.
        addresses: Vec<String>,
        /// Their management interfaces (HTTPS).
        management: Vec<String>,
        /// A management administrator.
        operator: Login,
    },
}

#[derive(Serialize, Deserialize)]
struct Passwords {
    operator: String,
    agents: String,
}

impl BrokerSettings for RabbitSettings {
    fn kind(&self) -> &'static dyn BrokerKind {
        &RabbitKind
    }

    fn start<'a>(
        &'a self,
        site: &'a Site<'a>,
    ) -> BoxFuture<'a, Result<RunningBroker, BrokerFailure>> {
        Box::pin(start(self, site))
    }
}

async fn start(settings: &RabbitSettings, site: &Site<'_>) -> Result<RunningBroker, BrokerFailure> {
    let files = |error: io::Error| {
        let folder = site.folder.display();
        BrokerFailure::new(format!(
            "the broker's files in {folder} cannot be written: {error}"
        ))
    };
    let passwords = passwords(site.folder).map_err(files)?;
    let source = CertificateSource::new(site.credential).map_err(BrokerFailure::new)?;
    // The management interface asks for no certificate: its users have passwords.
    let tls = Connector::new(SecurityLevel::Tls, source, site.trust.clone(), &[])
        .map_err(BrokerFailure::new)?;
    let vhost = site.platform.to_string();
    let mut program = None;
    let (addresses, management, operator) = match &settings.broker {
        BrokerChoice::Existing {
            addresses,
            management,
            operator,
        } => (addresses.clone(), management.clone(), operator.clone()),
        BrokerChoice::Managed => {
            let operator = Login {
                user: OPERATOR.to_owned(),
                password: passwords.operator,
            };
            let configure = |ports: &mut BrokerPorts| {
                let setup = BrokerSetup {
                    level: site.level,
                    address: site.address,
                    port: ports.amqp,
                    management_port: ports.management,
                    operator: operator.clone(),
                    vhost: vhost.clone(),
                    certificate: BrokerCertificate::new(site.root, site.credential),
                    installed_at: site.folder.display().to_string(),
                };
                setup.write(site.folder)
            };
            let started = ManagedBroker::start(site.folder, site.address, configure).await;
            let started = started.map_err(BrokerFailure::new)?;
            let ports = started.ports();
            program = Some(started);
            let at = |port| SocketAddr::new(site.address, port).to_string();
            (vec![at(ports.amqp)], vec![at(ports.management)], operator)
        }
    };
    let administration = Management::new(management, &vhost, &operator, tls, site.platform.clone());
    let login = (!site.level.authenticates()).then(|| Login {
        user: AGENTS.to_owned(),
        password: passwords.agents,
    });
    if let Err(error) = administration.prepare(login.as_ref()).await {
        if let Some(program) = &mut program {
            program.stop().await;
        }
        return Err(error);
    }
    Ok(RunningBroker {
        administration: Arc::new(administration),
        program: program.map(|program| Box::new(program) as Box<dyn Program>),
        description: BrokerDescription {
            kind: RabbitKind.name().to_owned(),
            addresses,
            login,
            message_life: settings.message_life.map(|life| life.as_secs()),
            promise: settings.promise,
            own: Map::from_iter([(VHOST.to_owned(), Value::from(vhost))]),
        },
    })
}

impl Program for ManagedBroker {
    fn keep_running(&mut self) -> BoxFuture<'_, Result<bool, BrokerFailure>> {
        Box::pin(async { Self::keep_running(self).await.map_err(BrokerFailure::new) })
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Self::stop(self))
    }
}

/// The passwords kept in `folder`, or new ones.
fn passwords(folder: &Path) -> io::Result<Passwords> {
    let path = folder.join(PASSWORDS);
    if let Ok(kept) = fs::read(&path)
        && let Ok(passwords) = serde_json::from_slice(&kept)
    {
        return Ok(passwords);
    }
    let random = || random_hex::<16>().map_err(io::Error::other);
    let passwords = Passwords {
        operator: random()?,
        agents: random()?,
    };
    fs::create_dir_all(folder)?;
    write_private(&path, &serde_json::to_vec(&passwords)?)?;
    Ok(passwords)
}
