//! The broker as the Master keeps it: who may log in, who has a queue, and, if it is managed, that it runs.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_brokers::rabbitmq::{
    BrokerCertificate, BrokerError, BrokerPorts, BrokerSetup, Login, ManagedBroker, Management,
    ManagementError, Member, names,
};
use sealbus_bus::Outbox;
use sealbus_seal::tls::{CertificateSource, Connector, TlsError};
use sealbus_seal::{
    Certificate, CertificateError, Credential, Identity, KeyError, KeyPair, PlatformName,
    SecurityLevel,
};
use tokio::sync::{Mutex, watch};

use super::broker_alarms::{Alarms, shown};
use super::broker_certificate::certify_broker;
use super::dead_letters::DeadLetters;
use super::desk::{Desk, DeskHandle, News};
use sealbus_control::admin::BrokerStatus;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::{Blob, BrokerDescription, Fault, FaultCode, TransportDescription};

/// The folder of a managed broker in the Master's state directory.
const FOLDER: &str = "broker";
/// File name of the operator's password, and of that which all agents share.
const PASSWORDS: &str = "passwords.json";
/// The operator's user on a managed broker.
const OPERATOR: &str = "sealbus-operator";
/// The user all agents share at levels `none` and `tls`.
const AGENTS: &str = "sealbus-agents";
/// How often is looked who is there at least, should the broker have been away at a change.
const LOOK: Duration = Duration::from_secs(5);
/// A queue is removed when it was empty for so long: the broker counts anew every 5 s, and learns late that a reader died.
const SETTLING: Duration = Duration::from_secs(15);
/// Changes in quick succession are looked at together.
const TOGETHER: Duration = Duration::from_millis(200);

/// The RabbitMQ a platform runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RabbitSettings {
    /// Which.
    pub broker: BrokerChoice,
    /// After so long a message that was not taken goes to the dead letters; without it none does.
    pub message_life: Option<Duration>,
}

/// Which RabbitMQ a platform runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerChoice {
    /// One that is started with the platform and ended with it.
    Managed,
    /// One that is there.
    Existing {
        /// The brokers of the cluster, as `HOST:PORT`.
        addresses: Vec<String>,
        /// Their management interfaces (HTTPS).
        management: Vec<String>,
        /// A management administrator.
        operator: Login,
    },
}

/// The platform has no broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerStartError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] BrokerError),
    /// It could not be prepared.
    #[error(transparent)]
    Management(#[from] ManagementError),
    /// Its files.
    #[error("the broker's files in {} cannot be written: {error}", directory.display())]
    Files {
        /// The folder.
        directory: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Its certificate.
    #[error("the broker was not certified: {0}")]
    Fault(#[from] Fault),
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The broker, as the Master keeps it.
pub(crate) struct Broker {
    management: Management,
    level: SecurityLevel,
    platform: String,
    /// The address in the certificates of the Master's own agents.
    address: IpAddr,
    /// Held while it is changed who may log in, so that nobody is dismissed who was admitted meanwhile.
    changing: Mutex<()>,
    /// Queues of agents that have ended, and when nothing was left in them first.
    emptied: Mutex<HashMap<String, Instant>>,
    managed: Mutex<Option<ManagedBroker>>,
    addresses: Vec<String>,
    dead_letters: DeadLetters,
    alarms: Alarms,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Passwords {
    operator: String,
    agents: String,
}

impl Broker {
    /// Starts or finds the broker, prepares it, admits the system agents, and tells the desk.
    pub(crate) async fn start(
        settings: &RabbitSettings,
        desk: &DeskHandle,
        root: &[u8],
        level: SecurityLevel,
        address: IpAddr,
        directory: &Path,
    ) -> Result<Arc<Self>, BrokerStartError> {
        let folder = directory.join(FOLDER);
        let passwords = passwords(&folder).map_err(|error| BrokerStartError::Files {
            directory: folder.clone(),
            error,
        })?;
        let (credential, platform, trust) = certify(desk, address).await?;
        let (managed, addresses, management, operator) = match &settings.broker {
            BrokerChoice::Existing {
                addresses,
                management,
                operator,
            } => (
                None,
                addresses.clone(),
                management.clone(),
                operator.clone(),
            ),
            BrokerChoice::Managed => {
                let operator = Login {
                    user: OPERATOR.to_owned(),
                    password: passwords.operator.clone(),
                };
                let files = |error| BrokerStartError::Files {
                    directory: folder.clone(),
                    error,
                };
                let ports = BrokerPorts::keep(&folder, address).map_err(files)?;
                let setup = BrokerSetup {
                    level,
                    address,
                    port: ports.amqp,
                    management_port: ports.management,
                    operator: operator.clone(),
                    vhost: platform.to_string(),
                    certificate: BrokerCertificate::new(root, &credential),
                    installed_at: folder.display().to_string(),
                };
                setup.write(&folder).map_err(files)?;
                let managed = ManagedBroker::start(&folder, address, ports).await?;
                let at = |port| std::net::SocketAddr::new(address, port).to_string();
                (
                    Some(managed),
                    vec![at(ports.amqp)],
                    vec![at(ports.management)],
                    operator,
                )
            }
        };
        let source = CertificateSource::new(&credential)?;
        // The management interface asks for no certificate: its users have passwords.
        let tls = Connector::new(SecurityLevel::Tls, source, trust, &[])?;
        let vhost = platform.to_string();
        let broker = Arc::new(Self {
            management: Management::new(management, &vhost, &operator, tls, platform.clone()),
            level,
            platform: platform.to_string(),
            address,
            changing: Mutex::new(()),
            emptied: Mutex::default(),
            managed: Mutex::new(managed),
            addresses: addresses.clone(),
            dead_letters: DeadLetters::default(),
            alarms: Alarms::default(),
        });
        let prepared = broker.prepare(&operator, &passwords).await;
        if let Err(error) = prepared {
            broker.stop().await;
            return Err(error.into());
        }
        let login = (!level.authenticates()).then(|| Login {
            user: AGENTS.to_owned(),
            password: passwords.agents,
        });
        let description = BrokerDescription {
            addresses,
            vhost,
            login,
            message_life: settings.message_life.map(|life| life.as_secs()),
        };
        let own = broker.clone();
        desk.run(move |desk, _| {
            desk.platform.transport = TransportDescription::RabbitMq(description);
            desk.broker = Some(own);
            Ok(())
        })
        .await?;
        Ok(broker)
    }

    async fn prepare(
        &self,
        operator: &Login,
        passwords: &Passwords,
    ) -> Result<(), ManagementError> {
        self.management.prepare(&operator.user).await?;
        if !self.level.authenticates() {
            let login = Login {
                user: AGENTS.to_owned(),
                password: passwords.agents.clone(),
            };
            self.management.admit_all(&login).await?;
        }
        for agent in SYSTEM_AGENTS {
            self.admit(agent, self.address).await?;
        }
        Ok(())
    }

    /// Lets an agent log in from `address`, and has messages wait for it from now on.
    pub(crate) async fn admit(&self, agent: &str, address: IpAddr) -> Result<(), ManagementError> {
        let _changing = self.changing.lock().await;
        let whole = format!("{agent}@{}", self.platform);
        self.emptied.lock().await.remove(&whole);
        self.management.open_queue(&whole).await?;
        if self.level.authenticates() {
            self.management.admit(agent, address).await?;
        }
        Ok(())
    }

    /// Lets a process log in that was just certified, and has frames of other processes wait for it. A certificate of
    /// somebody else is none of its business.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]: asking again may help.
    pub(crate) async fn admit_certified(&self, chain: &[Blob]) -> Result<(), Fault> {
        let certificate = chain
            .first()
            .and_then(|leaf| Certificate::parse(&leaf.0).ok());
        let Some(certificate) = certificate else {
            return Ok(());
        };
        let (identity, address) = (certificate.identity(), certificate.address());
        let (Identity::Process { process, .. }, Some(address)) = (identity, address) else {
            return Ok(());
        };
        let _changing = self.changing.lock().await;
        let admitting = async {
            self.management.open_process_queue(process).await?;
            if self.level.authenticates() {
                self.management.admit_process(identity, address).await?;
            }
            Ok(())
        };
        admitting
            .await
            .map_err(|error: ManagementError| Fault::new(FaultCode::Unavailable, error.to_string()))
    }

    /// Admits agents that are about to be started on `node`.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]: asking again may help.
    pub(crate) async fn admit_to(
        &self,
        desk: &DeskHandle,
        node: &str,
        agents: &[String],
    ) -> Result<(), Fault> {
        let name = node.to_owned();
        let address = desk
            .run(move |desk, _| {
                Ok(desk
                    .state
                    .nodes()
                    .get(&name)
                    .map(|node| node.description.address))
            })
            .await?
            .ok_or_else(|| super::state::not_a_member(node))?;
        for agent in agents {
            self.admit(agent, address)
                .await
                .map_err(|error| Fault::new(FaultCode::Unavailable, error.to_string()))?;
        }
        Ok(())
    }

    /// Keeps the broker's users and queues in line with who is placed where, until the Master ends. What was not delivered
    /// comes back to its senders, in the name of `ams`.
    pub(crate) async fn follow(
        self: Arc<Self>,
        desk: DeskHandle,
        mut news: watch::Receiver<News>,
        ams: Arc<Outbox>,
    ) {
        let mut was_away = false;
        loop {
            self.keep_running().await;
            match self.look(&desk, &ams).await {
                Ok(()) if was_away => {
                    tracing::info!("the broker's management interface is there again");
                    was_away = false;
                }
                Ok(()) => {}
                Err(Stopped::Desk) => return,
                Err(Stopped::Management(error)) if !was_away => {
                    tracing::warn!(%error, "who may log in to the broker is looked at again later");
                    was_away = true;
                }
                Err(Stopped::Management(_)) => {}
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
            tokio::time::sleep(TOGETHER).await;
            news.borrow_and_update();
        }
    }

    /// Starts a managed broker again that has died. What it had confirmed is on its disk.
    async fn keep_running(&self) {
        let mut managed = self.managed.lock().await;
        let Some(managed) = managed.as_mut() else {
            return;
        };
        match managed.keep_running().await {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the broker had died and was started again"),
            Err(error) => tracing::error!(%error, "the broker has died"),
        }
    }

    async fn look(&self, desk: &DeskHandle, ams: &Outbox) -> Result<(), Stopped> {
        self.admit_and_dismiss(desk).await?;
        self.take_dead(desk, ams).await?;
        self.alarms.look(&self.management.members().await?);
        Ok(())
    }

    async fn admit_and_dismiss(&self, desk: &DeskHandle) -> Result<(), Stopped> {
        let _changing = self.changing.lock().await;
        let address = self.address;
        let there = desk
            .run(move |desk, _| Ok(There::of(desk, address)))
            .await
            .map_err(|_| Stopped::Desk)?;
        for user in self.management.users().await? {
            if there.may_log_in(&user) == Some(false) {
                self.management.dismiss(&user).await?;
                tracing::info!(user, "may no longer log in to the broker");
            }
        }
        for queue in self.management.queues().await? {
            if let Some(agent) = names::agent_of_queue(&queue) {
                let local = agent.rsplit_once('@').map_or(agent, |(name, _)| name);
                if !there.queues.contains(local) && !self.management.is_read(&queue).await? {
                    self.close_queue(agent).await?;
                }
            } else if let Some(process) = names::process_of_queue(&queue)
                && !there.processes.contains(process)
            {
                // Who wrote to it learns of its end from the directory.
                self.management.remove_queue(&queue).await?;
            }
        }
        Ok(())
    }

    async fn close_queue(&self, agent: &str) -> Result<(), ManagementError> {
        let queue = names::queue(agent);
        let mut is_empty = true;
        while self.management.bury_left(agent).await? > 0 {
            is_empty = false;
        }
        // What a dead reader holds counts too, until the broker gives it back.
        let depth = self.management.depth(&queue).await?;
        is_empty &= depth.is_none_or(|depth| depth.messages == 0);
        let mut emptied = self.emptied.lock().await;
        let since = emptied.entry(agent.to_owned()).or_insert_with(Instant::now);
        if !is_empty {
            *since = Instant::now();
        }
        if since.elapsed() < SETTLING {
            return Ok(());
        }
        emptied.remove(agent);
        self.management.remove_queue(&queue).await?;
        tracing::debug!(agent, "has no queue any more");
        Ok(())
    }

    /// Counts what was not delivered, and tells its senders.
    async fn take_dead(&self, desk: &DeskHandle, ams: &Outbox) -> Result<(), ManagementError> {
        loop {
            let dead = self.management.take_dead().await?;
            if dead.is_empty() {
                return Ok(());
            }
            let is_proved = self.level.authenticates();
            for letter in dead {
                let noting = self
                    .dead_letters
                    .note(letter, &self.platform, is_proved, desk, ams);
                noting.await;
            }
        }
    }

    /// How it is, what waits there, and what was not delivered.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]: its management interface does not answer.
    pub(crate) async fn status(&self) -> Result<BrokerStatus, Fault> {
        let unavailable =
            |error: ManagementError| Fault::new(FaultCode::Unavailable, error.to_string());
        let members = self.management.members().await.map_err(unavailable)?;
        let waiting = self.management.waiting().await.map_err(unavailable)?;
        let (dead, dead_letters) = self.dead_letters.so_far();
        Ok(BrokerStatus {
            addresses: self.addresses.clone(),
            members: members.into_iter().map(shown).collect(),
            waiting: waiting.agents,
            kept: waiting.dead_letters,
            dead,
            dead_letters,
        })
    }

    /// Whether it takes messages and gives them out: most of the brokers run, and none is short of anything.
    pub(crate) async fn carries(&self) -> bool {
        let Ok(members) = self.management.members().await else {
            return false;
        };
        let running = members.iter().filter(|member| member.running).count();
        let is_short = |member: &Member| member.memory_alarm || member.disk_alarm;
        2 * running > members.len() && !members.iter().any(is_short)
    }

    /// Ends a managed broker.
    pub(crate) async fn stop(&self) {
        if let Some(mut managed) = self.managed.lock().await.take() {
            managed.stop().await;
        }
    }
}

enum Stopped {
    Desk,
    Management(ManagementError),
}

impl From<ManagementError> for Stopped {
    fn from(error: ManagementError) -> Self {
        Self::Management(error)
    }
}

/// Who is placed where.
struct There {
    platform: PlatformName,
    users: HashMap<String, HashSet<IpAddr>>,
    queues: HashSet<String>,
    /// Processes, by their numbers.
    processes: HashSet<String>,
}

impl There {
    fn of(desk: &Desk, master: IpAddr) -> Self {
        let mut there = Self {
            platform: desk.name.clone(),
            users: HashMap::new(),
            queues: HashSet::new(),
            processes: HashSet::new(),
        };
        let nodes = desk.state.nodes();
        for (name, node) in nodes {
            if !node.state.is_gone() {
                there.admit(name, node.description.address);
                there.processes.insert(node.process.clone());
            }
            there.queues.insert(name.clone());
        }
        for agent in SYSTEM_AGENTS {
            there.admit(agent, master);
        }
        for group in desk.state.groups().values() {
            if group.wanted {
                there.queues.extend(group.agents.iter().cloned());
            }
            for process in group.processes() {
                there.processes.insert(process.id.clone());
                let address = match nodes.get(&process.node) {
                    Some(node) => node.description.address,
                    None if process.node == MASTER_NODE => master,
                    None => continue,
                };
                for agent in process.agents.keys() {
                    if !process.barred.contains(agent) {
                        there.admit(agent, address);
                    }
                }
            }
        }
        there
    }

    fn admit(&mut self, agent: &str, address: IpAddr) {
        self.users
            .entry(agent.to_owned())
            .or_default()
            .insert(address);
        self.queues.insert(agent.to_owned());
    }

    /// Whether the agent or the process that a user is may log in; `None`: it is neither.
    fn may_log_in(&self, user: &str) -> Option<bool> {
        if let Some(Identity::Process { process, .. }) =
            names::process_of_user(user, &self.platform)
        {
            return Some(self.processes.contains(&process.to_string()));
        }
        let (agent, address) = names::agent_of_user(user)?;
        let addresses = self.users.get(agent);
        Some(addresses.is_some_and(|addresses| addresses.contains(&address)))
    }
}

async fn certify(
    desk: &DeskHandle,
    address: IpAddr,
) -> Result<
    (
        Credential,
        sealbus_seal::PlatformName,
        Arc<sealbus_seal::Trust>,
    ),
    BrokerStartError,
> {
    let key = KeyPair::generate()?;
    let (_, chain) = certify_broker(desk, address, key.signing_request()?).await?;
    let (platform, trust) = desk
        .run(|desk, _| Ok((desk.name.clone(), desk.ca.trust().clone())))
        .await?;
    Ok((Credential::new(key, chain)?, platform, trust))
}

/// The passwords kept in `folder`, or new ones.
fn passwords(folder: &Path) -> std::io::Result<Passwords> {
    let path = folder.join(PASSWORDS);
    if let Ok(kept) = std::fs::read(&path)
        && let Ok(passwords) = serde_json::from_slice(&kept)
    {
        return Ok(passwords);
    }
    let random = || {
        sealbus_seal::ProcessId::random()
            .map(|id| id.to_string())
            .map_err(|error| std::io::Error::other(error.to_string()))
    };
    let passwords = Passwords {
        operator: random()?,
        agents: random()?,
    };
    std::fs::create_dir_all(folder)?;
    sealbus_control::private::write_private(&path, &serde_json::to_vec(&passwords)?)?;
    Ok(passwords)
}
