//! A platform in miniature on a real RabbitMQ, started in a folder of its own on loopback.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod cluster;
pub mod processes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_brokers::rabbitmq::{
    BrokerCertificate, BrokerPorts, BrokerSetup, Login, ManagedBroker, Management, RabbitConfig,
    RabbitEndpoint, RabbitSecurity, names,
};
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, Outbox, ProcessEndpoint, ReceivedMessage,
    ResolveError, Resolver,
};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::issuance::Grant;
use sealbus_seal::tls::{CertificateSource, Connector};
use sealbus_seal::{
    CLOCK_SKEW, Credential, Identity, IssuingAuthority, KeyPair, PlatformName, ProcessId,
    RootAuthority, SecurityLevel, SigningRequest, Timestamp, Trust, Validity,
};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// Longer than anything takes on a loaded machine; nothing waits for it unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(300);
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DAY: Duration = Duration::from_secs(86_400);

/// A platform on a broker of its own.
pub struct Platform {
    pub name: PlatformName,
    pub level: SecurityLevel,
    pub management: Management,
    pub broker: Option<ManagedBroker>,
    pub ports: BrokerPorts,
    pub folder: TempDir,
    /// The other brokers of its cluster.
    pub others: Vec<cluster::Member>,
    operator: Login,
    issuing: IssuingAuthority,
    root: RootAuthority,
    shared: Login,
}

/// Every agent is in another process.
struct Elsewhere(PlatformName);

impl Resolver for Elsewhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async {
            let identity = Identity::process(&self.0, "node-1", ProcessId::random().unwrap());
            Ok(Location::Process(ProcessEndpoint {
                identity: identity.unwrap(),
                address: SocketAddr::new(LOOPBACK, 1),
            }))
        })
    }
}

pub struct Agent {
    pub bus: Bus,
    pub endpoint: RabbitEndpoint,
    pub outbox: Outbox,
    pub mailbox: Mailbox,
    pub credential: Arc<Credential>,
}

impl Platform {
    pub async fn start(level: SecurityLevel) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let name = PlatformName::new("factory").unwrap();
        let now = Timestamp::from(SystemTime::now());
        let root = RootAuthority::create(&name, Validity::starting(now, DAY)).unwrap();
        let issuing = root
            .create_authority("ca-1", Validity::starting(now, DAY))
            .unwrap();
        let folder = folder();
        let ports = BrokerPorts::keep(folder.path(), LOOPBACK).unwrap();
        let operator = Login {
            user: "operator".to_owned(),
            password: "a secret of this test".to_owned(),
        };
        let certified = certify(&issuing, Identity::agent(&name, names::BROKER).unwrap());
        setup(
            &name,
            level,
            ports,
            &operator,
            &certified,
            &root,
            folder.path(),
        );
        let broker = ManagedBroker::start(folder.path(), LOOPBACK, ports)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let trust =
            Arc::new(Trust::new(name.clone(), &[root.certificate().clone()], CLOCK_SKEW).unwrap());
        let source = CertificateSource::new(&certified).unwrap();
        let tls = Connector::new(SecurityLevel::Tls, source, trust, &[]).unwrap();
        let management = Management::new(
            vec![format!("127.0.0.1:{}", ports.management)],
            name.as_str(),
            &operator,
            tls,
            name.clone(),
        );
        management.prepare(&operator.user).await.unwrap();
        let shared = Login {
            user: "agents".to_owned(),
            password: "shared by all".to_owned(),
        };
        if !level.authenticates() {
            management.admit_all(&shared).await.unwrap();
        }
        Self {
            name,
            level,
            management,
            broker: Some(broker),
            ports,
            folder,
            others: Vec::new(),
            operator,
            issuing,
            root,
            shared,
        }
    }

    pub fn trust(&self) -> Arc<Trust> {
        let roots = [self.root.certificate().clone()];
        Arc::new(Trust::new(self.name.clone(), &roots, CLOCK_SKEW).unwrap())
    }

    pub fn config(&self) -> RabbitConfig {
        let security = match self.level {
            SecurityLevel::None => RabbitSecurity::None(self.shared.clone()),
            SecurityLevel::Tls => RabbitSecurity::Tls(self.shared.clone(), self.trust()),
            _ => RabbitSecurity::Auth(self.trust()),
        };
        let others = self.others.iter().map(|member| member.ports);
        let addresses = std::iter::once(self.ports)
            .chain(others)
            .map(|ports| format!("127.0.0.1:{}", ports.amqp))
            .collect();
        RabbitConfig::new(self.name.clone(), addresses, security)
    }

    /// An agent in a process of its own.
    pub async fn agent(&self, local: &str) -> Agent {
        self.agent_with(local, self.config()).await
    }

    pub async fn agent_with(&self, local: &str, config: RabbitConfig) -> Agent {
        let whole = format!("{local}@{}", self.name);
        self.management.open_queue(&whole).await.unwrap();
        if self.level.authenticates() {
            self.management.admit(local, LOOPBACK).await.unwrap();
        }
        let bus = Bus::new(BusConfig::new(self.name.clone()), Handle::current());
        bus.set_resolver(Arc::new(Elsewhere(self.name.clone())));
        let endpoint = RabbitEndpoint::open(config, &bus).unwrap();
        let credential = certify(&self.issuing, Identity::from_agent_name(&whole).unwrap());
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
        // A test that failed leaves no broker behind, nor the port mapper that Erlang started beside it.
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

/// Kills a broker, as a power failure would; says whether it ran.
pub fn kill(broker: &ManagedBroker) -> bool {
    let Some(pid) = broker.pid() else {
        return false;
    };
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    true
}

fn end_mapper(port: u16) {
    // It refuses while it believes that a broker lives.
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

impl Agent {
    pub async fn send(&self, to: &str, content: &str) {
        self.outbox.send(message(to, content)).await.unwrap();
    }

    pub async fn receive(&mut self) -> ReceivedMessage {
        tokio::time::timeout(PATIENCE, self.mailbox.recv())
            .await
            .expect("no message came")
            .expect("the mailbox was closed")
    }

    pub async fn receive_text(&mut self) -> String {
        let received = self.receive().await;
        let message = received.into_message();
        message.content_text().unwrap_or_default().to_owned()
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

/// Waits until `look` finds what it looks for.
pub async fn wait_for(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + 2 * PATIENCE;
    while !look().await {
        assert!(
            std::time::Instant::now() < deadline,
            "waited in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn message(to: &str, content: &str) -> AclMessage {
    let mut message = AclMessage::new(Performative::Inform);
    message.receivers.push(Aid::new(to).unwrap());
    message.content = Some(content.into());
    message
}

fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("sealbus-rabbitmq-")
        .tempdir()
        .unwrap()
}

fn setup(
    name: &PlatformName,
    level: SecurityLevel,
    ports: BrokerPorts,
    operator: &Login,
    certified: &Credential,
    root: &RootAuthority,
    folder: &Path,
) {
    BrokerSetup {
        level,
        address: LOOPBACK,
        port: ports.amqp,
        management_port: ports.management,
        operator: operator.clone(),
        vhost: name.to_string(),
        certificate: BrokerCertificate::new(root.certificate(), certified),
        installed_at: folder.display().to_string(),
    }
    .write(folder)
    .unwrap();
}

fn certify(issuing: &IssuingAuthority, identity: Identity) -> Arc<Credential> {
    let key = KeyPair::generate().unwrap();
    let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
    let grant = Grant::by_operator(identity, LOOPBACK);
    let now = Timestamp::from(SystemTime::now());
    let issued = issuing
        .issue(&grant, &request, Validity::starting(now, DAY))
        .unwrap();
    Arc::new(Credential::new(key, issued.chain).unwrap())
}
