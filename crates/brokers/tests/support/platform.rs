//! A platform in miniature on a real RabbitMQ, started in a folder of its own on loopback.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::rabbitmq::{
    BrokerCertificate, BrokerPorts, BrokerSetup, ManagedBroker, Management, RabbitClient, names,
};
use sealbus_brokers::{
    Accounts, Administration, BrokerConfig, BrokerEndpoint, BrokerPromise, BrokerSecurity, Login,
};
use sealbus_bus::{Bus, BusConfig};
use sealbus_seal::tls::{CertificateSource, Connector};
use sealbus_seal::{Credential, Identity, SecurityLevel, Trust};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::{Agent, Authority, Elsewhere, LOOPBACK, PATIENCE, cluster};

/// How long a queue must be empty before it is removed.
pub const SETTLING: Duration = Duration::from_secs(15);

/// A platform on a broker of its own.
pub struct Platform {
    pub authority: Arc<Authority>,
    pub level: SecurityLevel,
    /// The promise of its agents' queues.
    pub promise: BrokerPromise,
    pub management: Arc<Management>,
    pub accounts: Accounts,
    pub broker: Option<ManagedBroker>,
    pub ports: BrokerPorts,
    pub folder: TempDir,
    /// The other brokers of its cluster.
    pub others: Vec<cluster::Member>,
    pub operator: Login,
    pub shared: Login,
}

impl Platform {
    pub async fn start(level: SecurityLevel) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let authority = Arc::new(Authority::new());
        let folder = folder();
        let operator = Login {
            user: "operator".to_owned(),
            password: "a secret of this test".to_owned(),
        };
        let configure = |ports: &mut BrokerPorts| {
            setup(&authority, level, *ports, &operator, folder.path());
            Ok(())
        };
        let broker = ManagedBroker::start(folder.path(), LOOPBACK, configure)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let ports = broker.ports();
        let vhost = authority.name.as_str();
        let management = Arc::new(management(&authority, ports, &operator, vhost));
        let shared = Login {
            user: "agents".to_owned(),
            password: "shared by all".to_owned(),
        };
        let login = (!level.authenticates()).then_some(&shared);
        management.prepare(login).await.unwrap();
        let promise = BrokerPromise::default();
        let accounts = Accounts::new(management.clone(), level, promise, SETTLING);
        Self {
            authority,
            level,
            promise,
            management,
            accounts,
            broker: Some(broker),
            ports,
            folder,
            others: Vec::new(),
            operator,
            shared,
        }
    }

    pub fn trust(&self) -> Arc<Trust> {
        self.authority.trust()
    }

    pub fn config(&self) -> BrokerConfig {
        let security = match self.level {
            SecurityLevel::None => BrokerSecurity::None(self.shared.clone()),
            SecurityLevel::Tls => BrokerSecurity::Tls(self.shared.clone(), self.trust()),
            SecurityLevel::Auth => BrokerSecurity::Auth(self.trust()),
            SecurityLevel::Signed | SecurityLevel::Sealed => BrokerSecurity::Signed(self.trust()),
        };
        let others = self.others.iter().map(|member| member.broker.ports());
        let addresses = std::iter::once(self.ports)
            .chain(others)
            .map(|ports| format!("127.0.0.1:{}", ports.amqp))
            .collect();
        let mut config = BrokerConfig::new(self.authority.name.clone(), addresses, security);
        config.promise = self.promise;
        config
    }

    /// Gives agents that start from now on queues with this promise.
    pub fn promising(&mut self, promise: BrokerPromise) {
        self.promise = promise;
        self.accounts = Accounts::new(self.management.clone(), self.level, promise, SETTLING);
    }

    /// An agent in a process of its own.
    pub async fn agent(&self, local: &str) -> Agent {
        self.agent_with(local, self.config()).await
    }

    pub async fn agent_with(&self, local: &str, config: BrokerConfig) -> Agent {
        let name = &self.authority.name;
        let whole = format!("{local}@{name}");
        let identity = Identity::from_agent_name(&whole).unwrap();
        self.accounts.admit(&identity, LOOPBACK).await.unwrap();
        let mut bus = BusConfig::new(name.clone());
        // No process is given up because the machine is busy.
        bus.hold_time = PATIENCE;
        let bus = Bus::new(bus, Handle::current());
        bus.set_resolver(Arc::new(Elsewhere(name.clone())));
        let client = Arc::new(RabbitClient::new(&config));
        let endpoint = BrokerEndpoint::open(config, client, &bus).unwrap();
        let credential = self.authority.certify(identity);
        let (outbox, mailbox) = bus.attach(&whole, Some(credential.clone()), None).unwrap();
        assert!(
            endpoint.receiving(&whole, PATIENCE).await,
            "{local} cannot receive"
        );
        Agent {
            bus,
            endpoint,
            outbox,
            mailbox,
            credential,
        }
    }

    /// Runs `rabbitmqctl` on the broker.
    pub fn control(&self, arguments: &[&str]) -> String {
        control(self.folder.path(), self.ports, arguments)
    }

    pub async fn stop(mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.stop().await;
        }
        for member in &mut self.others {
            member.broker.stop().await;
        }
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        // A failed test leaves no broker behind, nor the port mapper that Erlang started beside it.
        let others = self.others.iter().map(|member| &member.broker);
        let mut is_left = false;
        for broker in self.broker.iter().chain(others) {
            is_left |= kill(broker);
        }
        if is_left {
            end_mapper(self.ports.mapper);
        }
    }
}

/// Kills a broker, as a power failure would. Returns whether it ran.
pub fn kill(broker: &ManagedBroker) -> bool {
    let Some(pid) = broker.pid() else {
        return false;
    };
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    true
}

fn end_mapper(port: u16) {
    // The mapper refuses while it believes that a broker lives.
    for _ in 0..100 {
        let ended = Command::new("epmd")
            .args(["-port", &port.to_string(), "-kill"])
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if ended.is_ok_and(|status| status.success()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs `rabbitmqctl` on the broker in `folder`.
pub fn control(folder: &Path, ports: BrokerPorts, arguments: &[&str]) -> String {
    let places = ["/usr/lib/rabbitmq/bin", "/opt/rabbitmq/sbin"].map(PathBuf::from);
    let programs = places.map(|place| place.join("rabbitmqctl"));
    let program = programs.iter().find(|program| program.is_file()).unwrap();
    let done = Command::new(program)
        .arg("--quiet")
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LANG", "C.UTF-8")
        .env("HOME", folder)
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_NODENAME", node_name(ports))
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", ports.mapper.to_string())
        // Erlang nodes give each other seven seconds to shake hands, which is too little on a busy machine.
        .env("RABBITMQ_CTL_ERL_ARGS", "-kernel net_setuptime 120")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {text} {error}");
    text
}

pub fn node_name(ports: BrokerPorts) -> String {
    format!("sealbus{}@localhost", ports.amqp)
}

pub fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("sealbus-rabbitmq-")
        .tempdir()
        .unwrap()
}

/// Writes the files of a broker into `folder`, including its certificate.
pub fn setup(
    authority: &Authority,
    level: SecurityLevel,
    ports: BrokerPorts,
    operator: &Login,
    folder: &Path,
) {
    let certified = broker_credential(authority);
    BrokerSetup {
        level,
        address: LOOPBACK,
        port: ports.amqp,
        management_port: ports.management,
        operator: operator.clone(),
        vhost: authority.name.to_string(),
        certificate: BrokerCertificate::new(authority.root.certificate(), &certified),
        installed_at: folder.display().to_string(),
    }
    .write(folder)
    .unwrap();
}

fn broker_credential(authority: &Authority) -> Arc<Credential> {
    authority.certify(Identity::agent(&authority.name, names::BROKER).unwrap())
}

/// The management interface of a broker, for one virtual host.
pub fn management(
    authority: &Authority,
    ports: BrokerPorts,
    operator: &Login,
    vhost: &str,
) -> Management {
    let source = CertificateSource::new(&broker_credential(authority)).unwrap();
    let tls = Connector::new(SecurityLevel::Tls, source, authority.trust(), &[]).unwrap();
    let addresses = vec![format!("127.0.0.1:{}", ports.management)];
    Management::new(addresses, vhost, operator, tls, authority.name.clone())
}
