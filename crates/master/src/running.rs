//! A Master with its sockets, as run by `sealbus up`.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::tls::{Acceptor, CertificateSource, TlsError};
use sealbus_seal::{
    CertificateError, Credential, Fingerprint, Identity, IdentityError, KeyError, KeyPair,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::admin::Admin;
use super::authorities::CA_NAME;
use super::backup::{Backups, files_of};
use super::desk::DeskHandle;
use super::foundation::Foundation;
use super::issuance_log::{self, Publisher, SharedLogError};
use super::kept_ports::{Ports, keep_ports, kept_ports};
use super::state_store::{Led, State, StateError, keep_root};
use super::written::{ClockBehind, Written};
use super::{
    Authorities, AuthoritiesError, Broker, BrokerStartError, FoundationError, HostedProcess,
    OwnHost, PlatformSettings, SystemAgents, SystemError, authority_care, broker_watch, lay,
};
use crate::enrolment;
use sealbus_brokers::lasting_address;
use sealbus_control::clock::now;
use sealbus_control::clock::timestamp;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::operators::{OperatorKey, socket_in};
use sealbus_control::private::{folder, forbid_inspection, listen};
use sealbus_control::{Fault, FaultCode, ProcessContact};
use sealbus_enrolment::{ENROLMENT, HTTP, LogServer, accept, bind};
use sealbus_process::{OpenError, Process};
use sealbus_store::{Fenced, Leadership, Store, StoreError};

/// Life of the certificate that newcomers see.
const SERVER_CERTIFICATE: Duration = Duration::from_secs(30 * 86_400);

/// How often a Master on a shared store looks whether it still leads.
const LOOK: Duration = Duration::from_secs(1);

/// The settings of a Master.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// The directory for its state and keys.
    pub directory: PathBuf,
    /// The settings of the platform.
    pub settings: PlatformSettings,
    /// The address on which it listens.
    pub address: IpAddr,
    /// Port of its agents. With 0 the system chooses at the first start.
    pub port: u16,
    /// Port for joining. With 0 the system chooses at the first start.
    pub enrolment_port: u16,
    /// The address for Prometheus, if it is to have the Master's metrics.
    pub metrics: Option<SocketAddr>,
    /// Start although the clock is behind the last write to the store: it was ahead then.
    pub accept_clock: bool,
}

/// A running Master.
pub struct Master {
    admin: Arc<Admin>,
    directory: PathBuf,
    tasks: JoinSet<()>,
    ended: watch::Receiver<bool>,
    broker: Option<Arc<Broker>>,
    leadership: Leadership,
    _lock: Option<File>,
}

/// The reason why a Master could not be started. After such an error nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// The state directory cannot be made.
    #[error("the state directory {} cannot be made: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The state cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The issuance log cannot be brought from the store, or into it.
    #[error(transparent)]
    SharedLog(#[from] SharedLogError),
    /// The clock is behind the last write to the store.
    #[error(transparent)]
    ClockBehind(#[from] ClockBehind),
    /// The authorities could not be made or loaded.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The state could not be read or begun.
    #[error(transparent)]
    Foundation(#[from] FoundationError),
    /// A port is in use or not available.
    #[error(
        "the Master cannot listen for {what} on {address}: {error}; free it, or choose another port in the manifest"
    )]
    Listen {
        /// The purpose of the port.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The socket for operators cannot be made.
    #[error("the operators' socket {} cannot be made: {error}", path.display())]
    AdminSocket {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The operators' key cannot be kept.
    #[error("the operators' key in {} cannot be kept: {error}", path.display())]
    OperatorKey {
        /// The state directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The address stands for all interfaces.
    #[error("{0} does not name this machine alone: set an address by which others reach it")]
    Unspecified(IpAddr),
    /// The Master's own process could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system agents could not be started.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The platform has no broker.
    #[error(transparent)]
    Broker(#[from] BrokerStartError),
    /// The desk reported a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate is not readable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A name is not valid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Master {
    /// Starts a Master, with a new state or on its stored one.
    ///
    /// # Errors
    /// [`MasterError`].
    pub async fn start(config: MasterConfig) -> Result<Self, MasterError> {
        if config.address.is_unspecified() {
            return Err(MasterError::Unspecified(config.address));
        }
        let directory = config.directory.clone();
        forbid_inspection();
        folder(&directory).map_err(|error| MasterError::Directory {
            path: directory.clone(),
            error,
        })?;
        // This comes first: the state tells a second Master on this directory that there is one already.
        let settings = &config.settings;
        let state = State::open(&directory, &settings.name, settings.etcd.as_ref()).await?;
        let Led { fenced, lock } = state.lead().await?;
        let fenced = Arc::new(fenced);
        let leadership = fenced.leadership();
        let term = fenced.term();
        tracing::info!(%term, "this Master leads");
        let store: Arc<dyn Store> = fenced.clone();
        if !config.accept_clock {
            Written::last(&*store).await?.await_clock().await?;
        }
        let time = timestamp(now());
        let authorities = Authorities::keep(&directory, &config.settings.name, time)?;
        if config.settings.etcd.is_some() {
            keep_root(&*store, &authorities.root).await?;
            let log = issuance_log::folder_in(&directory);
            issuance_log::shared::reconcile(&*store, &log, files_of).await?;
        }
        let kept = kept_ports(&*store).await?;
        let port = |wish: u16, kept: u16| if wish == 0 { kept } else { wish };
        let enrolment_port = port(config.enrolment_port, kept.enrolment);
        let enrolment_at = lasting_address(config.address, enrolment_port);
        let server = bind(enrolment_at)
            .await
            .map_err(|error| MasterError::Listen {
                what: "nodes that join",
                address: enrolment_at,
                error,
            })?;
        let enrolment = server.local_addr().unwrap_or(enrolment_at);
        let agents_at = free_port(config.address, port(config.port, kept.agents)).await?;
        let files = issuance_log::folder_in(&directory);
        let settings = &config.settings;
        let metrics = match config.metrics {
            None => None,
            Some(address) => {
                let listener = sealbus_metrics::listen(address).await;
                Some(listener.map_err(|error| MasterError::Listen {
                    what: "Prometheus",
                    address,
                    error,
                })?)
            }
        };
        let foundation = lay(
            settings,
            authorities,
            store.clone(),
            Some(&files),
            agents_at,
        )
        .await?;
        let root = foundation.root.clone();
        let desk = foundation.desk.clone();
        let news = foundation.news.clone();
        let broker = match &config.settings.rabbitmq {
            None => None,
            Some(rabbitmq) => {
                let level = config.settings.level;
                let address = config.address;
                Some(Broker::start(rabbitmq, &desk, &root, level, address, &directory).await?)
            }
        };
        let control_port = match config.settings.level.authenticates() {
            true => 0,
            false => kept.control,
        };
        let control_at = free_port(config.address, control_port).await?;
        let (system, address) =
            start_system(foundation, store.clone(), agents_at, control_at).await?;
        let control = system.control.address();
        let ports = Ports {
            enrolment: enrolment.port(),
            agents: address.port(),
            control: control.map_or(kept.control, |address| address.port()),
        };
        keep_ports(&*store, kept, ports).await?;

        let mut tasks = JoinSet::new();
        if let Some(broker) = broker.clone() {
            let logins = broker.clone().follow_logins(desk.clone(), news.clone());
            tasks.spawn(logins);
            let queues = broker
                .clone()
                .follow_queues(desk.clone(), news, system.ams.clone());
            tasks.spawn(queues);
            if let Some(receives) = system.receives() {
                tasks.spawn(broker_watch::watch(broker, desk.clone(), receives));
            }
        }
        let root_certificate = root.clone().into();
        let credential = server_credential(&desk, config.address).await?;
        let source = CertificateSource::with_root(&credential, &root_certificate)?;
        let acceptor = Acceptor::for_enrolment(source.clone(), &[ENROLMENT, HTTP]);
        let newcomers = enrolment::Door {
            desk: desk.clone(),
            logs: LogServer::new(vec![(CA_NAME.to_owned(), files.clone())]),
        };
        tasks.spawn(accept(server, acceptor, move |stream, waiting| {
            newcomers.clone().serve(stream, waiting)
        }));
        let publisher = Publisher::new(
            desk.clone(),
            system.master.clone(),
            files,
            config.settings.etcd.is_some().then(|| store.clone()),
            root.clone(),
            config.settings.witnesses.clone(),
        );
        let backups = Backups::new(
            directory.clone(),
            store.clone(),
            issuance_log::folder_in(&directory),
            config.settings.name.to_string(),
        );
        tasks.spawn(publisher.run());
        if config.settings.etcd.is_some() {
            tasks.spawn(look(fenced));
        }
        tasks.spawn(authority_care::run(desk.clone(), directory.clone()));
        tasks.spawn(renew_server_credential(
            desk.clone(),
            config.address,
            source,
        ));
        // An operator who finds the socket must find the key.
        let key = OperatorKey::keep(&directory).map_err(|error| MasterError::OperatorKey {
            path: directory.clone(),
            error,
        })?;
        let path = socket_in(&directory);
        let listener = listen(&path).map_err(|error| MasterError::AdminSocket {
            path: path.clone(),
            error,
        })?;
        let (end, ended) = watch::channel(false);
        let admin = Arc::new(Admin {
            desk,
            key,
            system: Arc::new(system),
            backups,
            manifest: tokio::sync::Mutex::default(),
            root: Fingerprint::of(&root),
            term: term.number,
            enrolment,
            address,
            is_embedded: false,
            ended: end,
        });
        tasks.spawn(admin.clone().accept(listener));
        if let Some(listener) = metrics {
            tasks.spawn(admin.clone().serve_metrics(listener));
        }
        tracing::info!(platform = %config.settings.name, %enrolment, %address, "the Master is there");
        Ok(Self {
            admin,
            directory,
            tasks,
            ended,
            broker,
            leadership,
            _lock: lock,
        })
    }

    /// The address at which nodes join.
    pub fn enrolment_address(&self) -> SocketAddr {
        self.admin.enrolment
    }

    /// The address on which its agents listen for links.
    pub fn address(&self) -> SocketAddr {
        self.admin.address
    }

    /// The Master's state directory, with the operators' socket and key.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends all agents and nodes, and then the Master.
    pub async fn shut_down(&self, grace: Duration) {
        self.admin.shut_down(grace).await;
        if let Some(broker) = &self.broker {
            broker.stop().await;
        }
    }

    /// Waits until the platform was shut down, here or by an operator.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the Master is gone.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Waits until another Master has taken over the store. From then on this one changes nothing, and its nodes hear
    /// nothing from it. Only [`abandon`](Self::abandon) makes sense then. Returns [`StoreError::Superseded`].
    pub async fn superseded(&self) -> MasterError {
        self.leadership.ended().await.into()
    }

    /// Ends the Master alone. Nodes and agents go on, and find it again after a restart.
    pub async fn abandon(mut self) {
        self.tasks.shutdown().await;
        let _ = std::fs::remove_file(socket_in(&self.directory));
        self.admin.system.end().await;
        self.admin.desk.close().await;
    }
}

/// Notices that another Master has taken over, also while there is nothing to write.
async fn look(store: Arc<Fenced>) {
    loop {
        tokio::time::sleep(LOOK).await;
        match store.look().await {
            Err(StoreError::Superseded { .. }) => return,
            Err(error) => tracing::debug!(%error, "whether this Master still leads is not known"),
            Ok(()) => {}
        }
    }
}

/// Opens the Master's processes: one, or, if agents' messages travel at a level below `auth`, a second one for the
/// control plane.
async fn start_system(
    foundation: Foundation,
    store: Arc<dyn Store>,
    at: SocketAddr,
    control_at: SocketAddr,
) -> Result<(SystemAgents, SocketAddr), MasterError> {
    let desk = foundation.desk.clone();
    let is_apart = desk
        .run(|desk, _| Ok(desk.platform.is_control_apart()))
        .await?;
    let open = async |place: HostedProcess| -> Result<Process, MasterError> {
        let (host, _) = OwnHost::adopt(desk.clone(), place, foundation.news.clone()).await?;
        Ok(Process::open(host, None).await?)
    };
    let (control, process) = if is_apart {
        let control = open(HostedProcess::control(control_at)).await?;
        (control, open(HostedProcess::services(at)).await?)
    } else {
        let process = open(HostedProcess::system(Some(at))).await?;
        (process.clone(), process)
    };
    let contact = |process: &Process, at| ProcessContact {
        node: MASTER_NODE.to_owned(),
        process: process.membership().process.clone(),
        address: process.address().unwrap_or(at),
    };
    let (master, controls) = (contact(&process, at), contact(&control, control_at));
    let address = master.address;
    desk.run(move |desk, _| {
        desk.platform.master = master;
        desk.platform.control = controls;
        Ok(())
    })
    .await?;
    Ok((
        SystemAgents::start(control, process, foundation, store).await?,
        address,
    ))
}

/// The address to listen on. It is checked, so that an error names it.
async fn free_port(address: IpAddr, port: u16) -> Result<SocketAddr, MasterError> {
    let at = lasting_address(address, port);
    let probe = bind(at).await;
    let failed = |error| MasterError::Listen {
        what: "its agents",
        address: at,
        error,
    };
    probe.map(|_| at).map_err(failed)
}

async fn server_credential(desk: &DeskHandle, address: IpAddr) -> Result<Credential, MasterError> {
    let key = KeyPair::generate()?;
    let request = key.signing_request()?;
    let chain = desk
        .run(move |desk, now| {
            let identity = Identity::node(&desk.name, MASTER_NODE)
                .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
            let life = SERVER_CERTIFICATE;
            desk.ca
                .certify_own(identity, address, None, &request, life, timestamp(now))
        })
        .await?;
    Ok(Credential::new(key, chain)?)
}

async fn renew_server_credential(
    desk: DeskHandle,
    address: IpAddr,
    source: Arc<CertificateSource>,
) {
    loop {
        tokio::time::sleep(SERVER_CERTIFICATE / 2).await;
        let renewed = match server_credential(&desk, address).await {
            Ok(credential) => source.renew(&credential).map_err(MasterError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = renewed {
            tracing::error!(%error, "the Master's server certificate could not be renewed");
        }
    }
}
