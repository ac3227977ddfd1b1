//! A RabbitMQ for the papers' benchmark, set up as a platform sets it up, and its clients' access to it.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealbus_brokers::rabbitmq::{
    BrokerCertificate, BrokerPorts, BrokerSetup, ManagedBroker, Management, bare, names,
};
use sealbus_brokers::{
    Account, Administration, BrokerConfig, BrokerPromise, BrokerSecurity, Login, ProcessLogin,
    Queue, Receiver,
};
use sealbus_seal::tls::{CertificateSource, Connector};
use sealbus_seal::{Credential, Identity, ProcessId, SecurityLevel};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::drivers::certify::Certificates;
use crate::drivers::stage::{DriverError, failed};
use crate::mesh::credentials::{Authority, platform};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// File name of the socket on which clients are certified.
const AUTHORITY: &str = "authority";

/// The options of a setting.
#[derive(Deserialize)]
struct Settings {
    level: SecurityLevel,
}

/// The facts that clients need.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Access {
    broker: String,
    management: String,
    operator: Login,
    agents: Login,
    /// The socket on which certificates are requested.
    authority: PathBuf,
}

/// Starts a broker with the settings in the first line of the input, prints its address, and ends it when the input
/// ends.
pub(crate) fn serve() -> Result<(), DriverError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let Settings { level } = serde_json::from_str(&line).map_err(failed)?;
    let folder = std::env::temp_dir().join(format!("sealbus-bench-{}", std::process::id()));
    let result = runtime.block_on(async {
        // A run that is broken off ends this process by a signal. The broker is in a process group of its own and would
        // stay.
        let mut broken_off = signal(SignalKind::terminate())?;
        let (mut broker, access) = start(&folder, level).await?;
        let mut output = std::io::stdout().lock();
        writeln!(
            output,
            "{}",
            serde_json::to_string(&access).map_err(failed)?
        )?;
        output.flush()?;
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            while input.read_line(&mut line).is_ok_and(|length| length > 0) {}
            let _ = ended.send(());
        });
        tokio::select! {
            _ = end => {}
            _ = broken_off.recv() => {}
        }
        broker.stop().await;
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&folder);
    result
}

async fn start(
    folder: &Path,
    level: SecurityLevel,
) -> Result<(ManagedBroker, Access), DriverError> {
    let name = platform().map_err(failed)?;
    let authority = Arc::new(Authority::create().map_err(failed)?);
    let identity = Identity::agent(&name, names::BROKER).map_err(failed)?;
    let credential = authority.credential(identity).map_err(failed)?;
    let login = |user: &str| -> Result<Login, DriverError> {
        Ok(Login {
            user: user.to_owned(),
            password: ProcessId::random().map_err(failed)?.to_string(),
        })
    };
    let operator = login("operator")?;
    let configure = |ports: &mut BrokerPorts| {
        let setup = BrokerSetup {
            level,
            address: LOOPBACK,
            port: ports.amqp,
            management_port: ports.management,
            operator: operator.clone(),
            vhost: name.to_string(),
            certificate: BrokerCertificate::new(authority.root(), &credential),
            installed_at: folder.display().to_string(),
        };
        setup.write(folder)
    };
    let mut broker = ManagedBroker::start(folder, LOOPBACK, configure)
        .await
        .map_err(failed)?;
    let ports = broker.ports();
    let access = Access {
        broker: format!("{LOOPBACK}:{}", ports.amqp),
        management: format!("{LOOPBACK}:{}", ports.management),
        agents: login("agents")?,
        operator,
        authority: folder.join(AUTHORITY),
    };
    Certificates::serve(authority, &access.authority)?;
    if let Err(error) = prepare(&access, level).await {
        broker.stop().await;
        return Err(error);
    }
    Ok((broker, access))
}

async fn prepare(access: &Access, level: SecurityLevel) -> Result<(), DriverError> {
    let mut clients = access.open(level, BrokerPromise::default())?;
    let management = clients.management()?;
    let shared = (!level.authenticates()).then_some(&access.agents);
    management.prepare(shared).await.map_err(failed)
}

/// The access to the broker for the agents of a process.
pub(crate) struct Doorway {
    access: Access,
    level: SecurityLevel,
    promise: BrokerPromise,
    certificates: Certificates,
    management: Option<Arc<Management>>,
    /// The queues that were made.
    queues: Vec<Queue>,
}

impl Access {
    pub(crate) fn open(
        &self,
        level: SecurityLevel,
        promise: BrokerPromise,
    ) -> Result<Doorway, DriverError> {
        Ok(Doorway {
            access: self.clone(),
            level,
            promise,
            certificates: Certificates::ask(&self.authority)?,
            management: None,
            queues: Vec::new(),
        })
    }
}

impl Doorway {
    pub(crate) fn config(&self) -> Result<BrokerConfig, DriverError> {
        let login = self.access.agents.clone();
        let security = match self.level {
            SecurityLevel::None => BrokerSecurity::None(login),
            SecurityLevel::Tls => BrokerSecurity::Tls(login, self.certificates.trust()?),
            SecurityLevel::Auth => BrokerSecurity::Auth(self.certificates.trust()?),
            SecurityLevel::Signed | SecurityLevel::Sealed => {
                BrokerSecurity::Signed(self.certificates.trust()?)
            }
        };
        let addresses = vec![self.access.broker.clone()];
        let platform = platform().map_err(failed)?;
        let mut config = BrokerConfig::new(platform, addresses, security);
        config.promise = self.promise;
        Ok(config)
    }

    /// The queue of an agent or a process.
    pub(crate) fn queue(&self, owner: Receiver) -> Queue {
        Queue {
            owner,
            promise: self.promise,
        }
    }

    fn management(&mut self) -> Result<Arc<Management>, DriverError> {
        if let Some(management) = &self.management {
            return Ok(management.clone());
        }
        let name = platform().map_err(failed)?;
        // The management interface asks for no certificate, so any one will do.
        let identity = Identity::agent(&name, names::BROKER).map_err(failed)?;
        let credential = self.certificates.credential(identity)?;
        let source = CertificateSource::new(&credential).map_err(failed)?;
        let trust = self.certificates.trust()?;
        let tls = Connector::new(SecurityLevel::Tls, source, trust, &[]).map_err(failed)?;
        let addresses = vec![self.access.management.clone()];
        let management = Management::new(
            addresses,
            name.as_str(),
            &self.access.operator,
            tls,
            name.clone(),
        );
        Ok(self.management.insert(Arc::new(management)).clone())
    }

    /// Makes an agent's queue and user, as the Master does. Returns the agent's certificate.
    pub(crate) async fn admit(
        &mut self,
        agent: &str,
    ) -> Result<Option<Arc<Credential>>, DriverError> {
        let management = self.management()?;
        let queue = self.queue(Receiver::Agent(agent.into()));
        management.open_queue(&queue).await.map_err(failed)?;
        self.queues.push(queue);
        if !self.level.encrypts() {
            return Ok(None);
        }
        let identity = Identity::from_agent_name(agent).map_err(failed)?;
        if self.level.authenticates() {
            let account = account(&identity);
            management.admit(&account).await.map_err(failed)?;
        }
        self.certificates.credential(identity).map(Some)
    }

    /// Makes a process's queue and user, as the Master does. Returns the process's login.
    pub(crate) async fn admit_process(
        &mut self,
        identity: Identity,
    ) -> Result<ProcessLogin, DriverError> {
        let Identity::Process { process, .. } = &identity else {
            return Err(failed(format!("{identity} is no process")));
        };
        let management = self.management()?;
        let queue = self.queue(Receiver::Process(process.to_string().into()));
        management.open_queue(&queue).await.map_err(failed)?;
        self.queues.push(queue);
        let mut credential = None;
        if self.level.encrypts() {
            credential = Some(self.certificates.credential(identity.clone())?);
        }
        if self.level.authenticates() {
            let account = account(&identity);
            management.admit(&account).await.map_err(failed)?;
        }
        Ok(ProcessLogin {
            identity,
            credential,
        })
    }

    /// Binds the queue of `agent` so that messages published under `key` reach it too.
    pub(crate) async fn bind(&mut self, agent: &str, key: &str) -> Result<(), DriverError> {
        let management = self.management()?;
        let queue = self.queue(Receiver::Agent(agent.into()));
        bare::bind(&management, &queue, key).await.map_err(failed)
    }

    /// Removes the queues that this process made, so that the next cell finds the broker in the same state.
    pub(crate) async fn dismiss(self) {
        if let Some(management) = self.management {
            for queue in &self.queues {
                let _ = management.remove_queue(queue).await;
            }
        }
    }
}

fn account(identity: &Identity) -> Account {
    Account {
        identity: identity.clone(),
        address: LOOPBACK,
    }
}
