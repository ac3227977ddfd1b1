//! A Master with its sockets, as run by `sealbus up`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::tls::{Acceptor, CertificateSource};
use sealbus_seal::{Certificate, Fingerprint};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::admin::{Admin, ELSEWHERE, Parting};
use super::backup::{Backups, files_of};
use super::config::MasterConfig;
use super::desk::{DeskHandle, News};
use super::election::{Elected, elect};
use super::issuance_log::{self, Publisher};
use super::kept_ports::{Ports, free_port, keep_ports};
use super::master_error::MasterError;
use super::masters::{self, Masters};
use super::own_processes::start_system;
use super::state_store::{Led, keep_root};
use super::taking_in::{hand_in, look, take_in, take_in_revocations};
use super::unstored::Ledger;
use super::written::Written;
use super::{
    Authorities, Broker, SystemAgents, authority_care, broker_watch, lay, server_certificate,
};
use crate::enrolment;
use sealbus_control::clock::now;
use sealbus_control::clock::timestamp;
use sealbus_control::local::{Listener, listen};
use sealbus_control::operators::{OperatorKey, socket_in};
use sealbus_enrolment::{ENROLMENT, HTTP, LogServer, accept};
use sealbus_store::{Leadership, Store};

/// How long operators may take to learn that this Master leads no longer.
const PARTING: Duration = Duration::from_secs(1);

/// A running Master.
pub struct Master {
    admin: Arc<Admin>,
    directory: PathBuf,
    tasks: JoinSet<()>,
    operators: JoinSet<()>,
    ended: watch::Receiver<bool>,
    broker: Option<Arc<Broker>>,
    leadership: Leadership,
    _lock: Option<File>,
}

impl Master {
    /// Starts a Master, with a new state or on its stored one. If another Master leads, this one waits.
    ///
    /// # Errors
    /// [`MasterError`].
    pub async fn start(config: MasterConfig) -> Result<Self, MasterError> {
        let elected = Self::stand_by(&config, false, |_| {}).await?;
        Self::lead(config, elected).await
    }

    /// Waits until this Master may lead. `yields` says that this Master has just handed over. `waits` is called once
    /// with the name of the instance that leads, if there is one.
    ///
    /// # Errors
    /// [`MasterError`].
    pub async fn stand_by(
        config: &MasterConfig,
        yields: bool,
        waits: impl FnMut(&str),
    ) -> Result<Elected, MasterError> {
        elect(config, yields, waits).await
    }

    /// Leads.
    ///
    /// # Errors
    /// [`MasterError`].
    pub async fn lead(config: MasterConfig, elected: Elected) -> Result<Self, MasterError> {
        let Elected {
            led: Led { fenced, lock },
            kept,
            server,
            masters,
            ledger,
            ..
        } = elected;
        let directory = config.directory.clone();
        let fenced = Arc::new(fenced);
        let leadership = fenced.leadership();
        let term = fenced.term();
        tracing::info!(%term, "this Master leads");
        let store: Arc<dyn Store> = fenced.clone();
        let mut tasks = JoinSet::new();
        if let Some(masters) = &masters {
            // The role stays, however long the rest takes.
            tasks.spawn(masters.clone().hold());
        }
        if !config.accept_clock {
            Written::last(&*store).await?.await_clock().await?;
        }
        let authorities = keep_authorities(&config, &*store, masters.as_deref()).await?;
        let authority = authorities.issuing.name().to_owned();
        let enrolment = server.local_addr().map_err(|error| MasterError::Listen {
            what: "nodes that join",
            address: SocketAddr::new(config.address, kept.ports.enrolment),
            error,
        })?;
        let (port, may_change) = kept.choose(config.port, kept.ports.agents);
        // A Master that sleeps on the same machine keeps the port it had.
        let may_change = may_change || masters.is_some() && config.port == 0;
        let agents_at = free_port(config.address, port, may_change).await?;
        let files = issuance_log::folder_in(&directory, &authority);
        let metrics = listen_for_prometheus(config.metrics).await?;
        let foundation = lay(
            &config.settings,
            authorities,
            store.clone(),
            Some(&directory),
            agents_at.address,
        )
        .await?;
        tracing::debug!("the state is read");
        let root = foundation.root.clone();
        let desk = foundation.desk.clone();
        let news = foundation.news.clone();
        // If the state was restored, nodes that obey it must not obey a Master that is left over from before.
        if masters.is_some() || term.epoch > 0 {
            let addresses = match &masters {
                Some(_) => masters::addresses(&*store, enrolment).await?,
                None => Vec::new(),
            };
            let follows_another = masters.is_some() && !kept.led_last;
            let begun = desk.run(move |desk, _| {
                desk.masters = addresses;
                desk.term = Some(term);
                if follows_another {
                    desk.state.supersede_master();
                }
                Ok(())
            });
            begun.await?;
        }
        let ledger = match &masters {
            Some(_) => {
                let ledger = keep_ledger(ledger, &directory, &desk)?;
                hand_in(&*store, &ledger, &authority).await;
                take_in_revocations(&*store, &desk).await;
                Some(ledger)
            }
            None => None,
        };
        let broker = match config.settings.broker.as_deref() {
            None => None,
            Some(settings) => {
                let level = config.settings.level;
                let address = config.address;
                Some(Broker::start(settings, &desk, &root, level, address, &directory).await?)
            }
        };
        let (control_port, may_change) = match config.settings.level.authenticates() {
            true => (0, false),
            false => (kept.ports.control, !kept.are_own || masters.is_some()),
        };
        let control_at = free_port(config.address, control_port, may_change).await?;
        let (system, address) =
            start_system(foundation, store.clone(), agents_at, control_at).await?;
        if let Some(masters) = &masters {
            let caller = system.master.clone();
            let following = masters.clone().follow(desk.clone(), store.clone(), caller);
            tasks.spawn(following);
        }
        if let Some(ledger) = ledger {
            let taking = take_in(store.clone(), desk.clone(), ledger, authority.clone());
            tasks.spawn(taking);
        }
        tracing::debug!("the agents are there");
        let control = system.control.address();
        let ports = Ports {
            enrolment: enrolment.port(),
            agents: address.port(),
            control: control.map_or(kept.ports.control, |address| address.port()),
            instance: masters.as_ref().map(|masters| masters.name().to_owned()),
        };
        keep_ports(&*store, &kept, ports).await?;

        if let Some(broker) = &broker {
            follow_broker(broker, &desk, news, &system, &mut tasks);
        }
        open_door(server, &config, &desk, &authority, &root, &mut tasks).await?;
        let publisher = Publisher::new(
            desk.clone(),
            system.master.clone(),
            authority.clone(),
            files,
            masters.is_some().then(|| store.clone()),
            root.clone(),
            config.settings.witnesses.clone(),
        );
        let backups = Backups::new(
            directory.clone(),
            store.clone(),
            config.settings.name.to_string(),
        );
        tasks.spawn(publisher.run());
        let (trouble, store_trouble) = watch::channel(None);
        if masters.is_some() {
            tasks.spawn(look(fenced, desk.clone(), trouble));
        }
        tasks.spawn(authority_care::run(desk.clone(), directory.clone()));
        let (key, listener) = open_to_operators(&directory)?;
        let (end, ended) = watch::channel(false);
        let admin = Arc::new(Admin {
            desk,
            key,
            system: Arc::new(system),
            store_trouble,
            backups,
            manifest: tokio::sync::Mutex::default(),
            root: Fingerprint::of(&root),
            term: term.number,
            masters,
            enrolment,
            address,
            is_embedded: false,
            parting: Parting::new(Some(leadership.clone())),
            ended: end,
        });
        let mut operators = JoinSet::new();
        operators.spawn(admin.clone().accept(listener));
        if let Some(listener) = metrics {
            tasks.spawn(admin.clone().serve_metrics(listener));
        }
        tracing::info!(platform = %config.settings.name, %enrolment, %address, "the Master is there");
        Ok(Self {
            admin,
            directory,
            tasks,
            operators,
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

    /// Ends all agents and nodes, and then the Master. Masters that stand by end too.
    pub async fn shut_down(&self, grace: Duration) {
        self.admin.shut_down(grace).await;
        if let Some(masters) = &self.admin.masters {
            masters.end().await;
        }
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

    /// Waits until another Master has taken over the store. From then on this Master changes nothing and tells its
    /// nodes nothing. Only [`abandon`](Self::abandon) makes sense then. Returns
    /// [`Superseded`](sealbus_store::StoreError::Superseded).
    pub async fn superseded(&self) -> MasterError {
        self.leadership.ended().await.into()
    }

    /// Whether the platform was shut down, here or by an operator.
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until an operator wants another Master to lead.
    pub async fn handing_over(&self) {
        match &self.admin.masters {
            Some(masters) => masters.handing_over().await,
            None => std::future::pending().await,
        }
    }

    /// Whether another Master stands by.
    pub fn has_standby(&self) -> bool {
        let masters = self.admin.masters.as_ref();
        masters.is_some_and(|masters| masters.has_standby())
    }

    /// Ends this Master alone, and lets another one lead at once.
    pub async fn hand_over(mut self) {
        self.part("another Master leads in a moment: run the command on its machine");
        self.tasks.shutdown().await;
        self.admin.system.stop("this Master hands over");
        // All acknowledged changes are written. The rest of the end need not be awaited: nodes obey the next Master as soon as
        // they hear it.
        self.admin.desk.close().await;
        // After the next Master's term has begun, requests in work could no longer be stored. The desk does not learn that
        // both have gone, so messages to them wait for those of the next Master.
        self.admin.system.directories.finish().await;
        if let Some(masters) = &self.admin.masters {
            masters.give_back().await;
        }
        self.abandon().await;
    }

    /// Ends the Master alone. Nodes and agents go on, and find it again after a restart.
    pub async fn abandon(mut self) {
        let leader = match &self.admin.masters {
            Some(masters) if self.leadership.has_ended() => masters.leader().await,
            _ => None,
        };
        self.part(leader.as_deref().unwrap_or(ELSEWHERE));
        self.tasks.shutdown().await;
        let _ = std::fs::remove_file(socket_in(&self.directory));
        let (operators, admin) = (&mut self.operators, &self.admin);
        let parting = async {
            // Operators learn this before the Master stands by.
            let _ = tokio::time::timeout(PARTING, operators.join_next()).await;
            operators.shutdown().await;
        };
        let giving_back = async {
            // This Master may stand by in a moment, and its row would have to end first.
            if let Some(masters) = &admin.masters {
                masters.give_back().await;
            }
        };
        // Messages go to the AMS and DF of the next Master only when this Master's have ended.
        tokio::join!(parting, giving_back, admin.system.end());
        self.admin.desk.close().await;
    }

    /// Tells operators that this Master leads no longer.
    fn part(&self, advice: &str) {
        self.admin.parting.begin(advice.to_owned());
    }
}

/// This Master's authorities, which are made at the first start. A state that several Masters share belongs to their root from then
/// on, and its issuance logs are brought here.
async fn keep_authorities(
    config: &MasterConfig,
    store: &dyn Store,
    masters: Option<&Masters>,
) -> Result<Authorities, MasterError> {
    let (directory, settings) = (&config.directory, &config.settings);
    let time = timestamp(now());
    let authorities = Authorities::keep(directory, &settings.name, settings.signatures, time)?;
    let root = Certificate::parse(&authorities.root)?;
    settings.check_signatures(root.public_key().algorithm())?;
    if let Some(masters) = masters {
        let issuing = &authorities.issuing;
        let certificate = issuing.chain().leaf();
        masters.certifies_with(issuing.name(), certificate).await;
        keep_root(store, directory, &settings.name).await?;
        issuance_log::shared::reconcile(store, directory, files_of).await?;
        tracing::debug!("the issuance logs are here");
    }
    Ok(authorities)
}

async fn listen_for_prometheus(
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, MasterError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = sealbus_metrics::listen(address).await;
    let failed = |error| MasterError::Listen {
        what: "Prometheus",
        address,
        error,
    };
    listener.map(Some).map_err(failed)
}

/// The file in which the desk keeps the acts of this Master's CA while the store is away. `held` is the file from the time in
/// which the Master stood by. Nobody else writes it.
fn keep_ledger(
    held: Option<Arc<Ledger>>,
    directory: &Path,
    desk: &DeskHandle,
) -> Result<Arc<Ledger>, MasterError> {
    let ledger = held.map_or_else(|| Ledger::open(directory), Ok);
    let ledger = ledger.map_err(|error| MasterError::Directory {
        path: directory.to_owned(),
        error,
    })?;
    desk.keep_in(ledger.clone());
    Ok(ledger)
}

/// Keeps the broker's logins and queues as the desk says, and watches it.
fn follow_broker(
    broker: &Arc<Broker>,
    desk: &DeskHandle,
    news: watch::Receiver<News>,
    system: &SystemAgents,
    tasks: &mut JoinSet<()>,
) {
    let (logins, queues) = (broker.clone(), broker.clone());
    tasks.spawn(logins.follow_logins(desk.clone(), news.clone()));
    tasks.spawn(queues.follow_queues(desk.clone(), news, system.ams.clone()));
    if let Some(receives) = system.receives() {
        tasks.spawn(broker_watch::watch(broker.clone(), desk.clone(), receives));
    }
}

/// Lets newcomers in at `server`, and shows them the issuance logs.
async fn open_door(
    server: TcpListener,
    config: &MasterConfig,
    desk: &DeskHandle,
    authority: &str,
    root: &[u8],
    tasks: &mut JoinSet<()>,
) -> Result<(), MasterError> {
    let directory = &config.directory;
    let root = root.to_vec().into();
    let credential = server_certificate::issue(desk, config.address).await?;
    let source = CertificateSource::with_root(&credential, &root)?;
    let acceptor = Acceptor::for_enrolment(source.clone(), &[ENROLMENT, HTTP]);
    let logs = issuance_log::names_in(directory, authority).into_iter();
    let logs = logs.map(|name| {
        let folder = issuance_log::folder_in(directory, &name);
        (name, folder)
    });
    let newcomers = enrolment::EnrolmentDoor {
        desk: desk.clone(),
        logs: LogServer::new(logs.collect()),
        directory: Arc::from(directory.as_path()),
    };
    tasks.spawn(accept(server, acceptor, move |stream, waiting| {
        newcomers.clone().serve(stream, waiting)
    }));
    let renewing = server_certificate::renew(desk.clone(), config.address, credential, source);
    tasks.spawn(renewing);
    Ok(())
}

/// The operators' key, and the socket where they come in. An operator who finds the socket must find the key.
fn open_to_operators(directory: &Path) -> Result<(OperatorKey, Listener), MasterError> {
    let key = OperatorKey::keep(directory).map_err(|error| MasterError::OperatorKey {
        path: directory.to_owned(),
        error,
    })?;
    let path = socket_in(directory);
    match listen(&path) {
        Ok(listener) => Ok((key, listener)),
        Err(error) => Err(MasterError::AdminSocket { path, error }),
    }
}
