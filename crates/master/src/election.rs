//! How a Master comes to lead: at once if the state is in a file, and by the role if it is in etcd.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_ca::CaService;
use sealbus_control::clock::{now, timestamp};
use sealbus_control::local::forbid_inspection;
use sealbus_files::folder;
use sealbus_seal::PlatformName;
use sealbus_store::etcd::EtcdStore;
use sealbus_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::authorities::{Authorities, own_authority, remove_authority, trust};
use super::blind::BlindCa;
use super::config::MasterConfig;
use super::cut_off::StandbyAlarms;
use super::forwarding::forward;
use super::foundation::PlatformSettings;
use super::kept_ports::{
    KeptPorts, Ports, bind_again, keep_enrolment_port, kept_enrolment_port, kept_ports,
};
use super::master_error::MasterError;
use super::masters::Masters;
use super::standby::{Candidate, Election, twins};
use super::standby_admin::serve_operators;
use super::state_store::{Led, State, StateError, check_kept_root, was_elsewhere};
use super::unstored::Ledger;

/// How often a Master of a new platform checks whether another Master has begun the platform.
const LOOK: Duration = Duration::from_secs(1);

/// The right to lead, in a term of one's own.
pub struct Elected {
    pub(super) led: Led,
    pub(super) kept: KeptPorts,
    pub(super) server: TcpListener,
    /// The Masters beside this one, where there may be some.
    pub(super) masters: Option<Arc<Masters>>,
    /// The acts of its CA while it stood by, if it had a CA.
    pub(super) ledger: Option<Arc<Ledger>>,
    waited: bool,
}

impl Elected {
    /// Whether the Master stood by before: another Master led, or the store did not answer. The platform is then in order, and
    /// its manifest is in force.
    pub fn has_waited(&self) -> bool {
        self.waited
    }
}

/// Waits until this Master may lead. `yields` says that this Master has just handed over. `waits` is called once with
/// the name of the instance that leads, if there is one.
///
/// # Errors
/// [`MasterError`].
pub(super) async fn elect(
    config: &MasterConfig,
    yields: bool,
    mut waits: impl FnMut(&str),
) -> Result<Elected, MasterError> {
    if config.address.is_unspecified() {
        return Err(MasterError::Unspecified(config.address));
    }
    let directory = &config.directory;
    forbid_inspection();
    folder(directory).map_err(|error| MasterError::Directory {
        path: directory.clone(),
        error,
    })?;
    // This comes first: the state tells a second Master on this directory that there is one already.
    let settings = &config.settings;
    let state = State::hold(directory, &settings.name, settings.etcd.as_ref()).await?;
    let Some((etcd, _)) = state.etcd.clone() else {
        let led = state.lead().await?;
        let kept = kept_ports(&led.fenced, None).await?;
        let (server, _) = listen(config, &kept).await?;
        return Ok(Elected {
            led,
            kept,
            server,
            masters: None,
            ledger: None,
            waited: false,
        });
    };
    let mut was_without_store = false;
    let Ready {
        server,
        mut candidate,
        blind,
    } = loop {
        match get_ready(config, &state, &etcd, yields).await {
            Err(error) if error.is_away() => {
                act_without_store(config, &state, &etcd, error, &mut waits).await?;
                was_without_store = true;
            }
            ready => break ready?,
        }
    };
    let (leader_at, alone) = (candidate.leader_at.subscribe(), candidate.alone.subscribe());
    let ledger = blind.as_ref().map(|blind| blind.ledger().clone());
    let broker = config.settings.broker.as_ref();
    let waiting = candidate.wait(&mut waits, broker.is_none());
    let election = tokio::select! {
        election = waiting => election,
        () = forward(&server, leader_at.clone(), blind.clone()) => Election::Over,
        error = act_blindly(blind, &etcd, directory, leader_at, alone) => return Err(error),
        // Another Master has begun the platform. This one reports that now, and not when it is needed.
        error = foreign_root(&*etcd, directory, &settings.name) => {
            candidate.give_back().await;
            return Err(error.into());
        }
    };
    let elected = match election {
        Election::Won(fenced) => own_ca(&*etcd, directory, settings).await.map(|_| fenced),
        Election::Over => return Err(MasterError::Over),
        Election::OnBroker(leader) => {
            let broker = broker.map_or("a broker", |broker| broker.kind().title());
            Err(MasterError::OnBroker { leader, broker })
        }
        Election::Restoring => Err(StoreError::Restoring.into()),
        Election::Copied(twin) => Err(twin.refusal(directory)),
    };
    let fenced = match elected {
        Ok(fenced) => fenced,
        Err(error) => {
            candidate.give_back().await;
            return Err(error);
        }
    };
    Ok(Elected {
        led: Led {
            fenced,
            lock: state.lock,
        },
        // Another Master may have led meanwhile.
        kept: kept_ports(&*etcd, Some(etcd.instance())).await?,
        server,
        ledger,
        // The others may have ended before the store answered.
        waited: was_without_store || candidate.stood_by(),
        masters: Some(Arc::new(Masters::new(candidate))),
    })
}

/// A Master that can stand by.
struct Ready {
    server: TcpListener,
    candidate: Candidate,
    blind: Option<Arc<BlindCa>>,
}

/// Reaches the state, unless another Master runs on a copy of the state directory.
async fn reach(config: &MasterConfig, state: &State, etcd: &EtcdStore) -> Result<(), MasterError> {
    let (directory, name) = (&config.directory, &config.settings.name);
    twins::await_none(etcd, directory).await?;
    Ok(state.reach(directory, name).await?)
}

async fn get_ready(
    config: &MasterConfig,
    state: &State,
    etcd: &Arc<EtcdStore>,
    yields: bool,
) -> Result<Ready, MasterError> {
    let (directory, settings) = (&config.directory, &config.settings);
    reach(config, state, etcd).await?;
    let own = own_ca(&**etcd, directory, settings).await?;
    let kept = kept_ports(&**etcd, Some(etcd.instance())).await?;
    let (server, enrolment) = listen(config, &kept).await?;
    keep_enrolment_port(directory, enrolment.port())?;
    let trust = own.is_some().then(|| trust(directory, &settings.name));
    let trust = trust.transpose()?.map(Arc::new);
    let alarms = Arc::new(StandbyAlarms::new(trust.clone()));
    let candidate = Candidate::new(etcd.clone(), enrolment, own, alarms.clone(), yields);
    let away = candidate.away.subscribe();
    let blind = trust.map(|trust| BlindCa::open(directory, settings, trust, away, alarms));
    let blind = blind.transpose()?.map(Arc::new);
    if let Some(blind) = &blind {
        blind.learn(&**etcd).await?;
    }
    Ok(Ready {
        server,
        candidate,
        blind,
    })
}

/// Does the work of this Master's CA while the store is `away`, if this Master belonged to the platform before. Returns once the
/// store answers.
///
/// The CA does not know the denials since it last read the store, and may renew a denied certificate. Nodes and processes that
/// know the denial refuse the renewed certificate, too.
async fn act_without_store(
    config: &MasterConfig,
    state: &State,
    etcd: &Arc<EtcdStore>,
    away: MasterError,
    waits: &mut impl FnMut(&str),
) -> Result<(), MasterError> {
    let (directory, settings) = (&config.directory, &config.settings);
    let port = match config.enrolment_port {
        0 => kept_enrolment_port(directory),
        wish => Some(wish),
    };
    let has_ca = was_elsewhere(directory) && own_authority(directory)?.is_some();
    let (Some(port), true) = (port, has_ca) else {
        return Err(away);
    };
    let own = Ports {
        enrolment: port,
        ..Ports::default()
    };
    let kept = KeptPorts {
        ports: own,
        are_own: true,
        led_last: false,
    };
    let (server, _) = listen(config, &kept).await?;
    let trust = Arc::new(trust(directory, &settings.name)?);
    let alarms = Arc::new(StandbyAlarms::new(Some(trust.clone())));
    let (_is_away, away_now) = watch::channel(true);
    let ca = Arc::new(BlindCa::open(directory, settings, trust, away_now, alarms)?);
    let (_no_leader, leader_at) = watch::channel(None);
    tracing::warn!(
        "{away}; until etcd answers, this Master renews certificates and revokes, and does nothing else"
    );
    waits("");
    let reaching = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let reached = reach(config, state, etcd).await;
            if !matches!(&reached, Err(error) if error.is_away()) {
                return reached;
            }
        }
    };
    tokio::select! {
        reached = reaching => reached,
        () = forward(&server, leader_at.clone(), Some(ca.clone())) => Err(away),
        error = serve_operators(ca.clone(), etcd.clone(), directory, leader_at) => Err(error),
    }
}

/// Does a CA's work while standing by, if there is a CA. Its acts come into the store once this Master is `alone`. Until then
/// they may be acts of a twin, which has handed them in. Returns only an error.
async fn act_blindly(
    ca: Option<Arc<BlindCa>>,
    etcd: &Arc<EtcdStore>,
    directory: &Path,
    leader_at: watch::Receiver<Option<SocketAddr>>,
    mut alone: watch::Receiver<bool>,
) -> MasterError {
    let Some(ca) = ca else {
        return std::future::pending().await;
    };
    let following = async {
        if alone.wait_for(|it| *it).await.is_ok() {
            ca.follow(etcd).await;
        }
    };
    tokio::select! {
        () = following => std::future::pending().await,
        error = serve_operators(ca.clone(), etcd.clone(), directory, leader_at) => error,
    }
}

/// Waits until the state belongs to another root than the one in `directory`, if that is not known yet.
async fn foreign_root(store: &dyn Store, directory: &Path, platform: &PlatformName) -> StateError {
    loop {
        match check_kept_root(store, directory, platform).await {
            Ok(true) => return std::future::pending().await,
            Err(error @ StateError::AnotherRoot { .. }) => return error,
            Ok(false) | Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The name and the certificate of this Master's own CA. A platform that begins has none yet.
///
/// # Errors
/// [`MasterError::Revoked`], or if there is neither a CA nor the root's key to make one.
async fn own_ca(
    store: &dyn Store,
    directory: &Path,
    settings: &PlatformSettings,
) -> Result<Option<(String, Vec<u8>)>, MasterError> {
    let platform = &settings.name;
    if !check_kept_root(store, directory, platform).await? {
        return Ok(None);
    }
    let own = match own_authority(directory)? {
        Some(own) => own,
        None => {
            let made =
                Authorities::keep(directory, platform, settings.signatures, timestamp(now()))?;
            let made = made.issuing;
            (made.name().to_owned(), made.chain().leaf().to_vec())
        }
    };
    let row = store.get(&CaService::authority_row(&own.0)).await?;
    if row.is_some_and(|row| CaService::is_revoked(&row.value)) {
        remove_authority(directory)?;
        return Err(MasterError::Revoked(own.0));
    }
    Ok(Some(own))
}

async fn listen(
    config: &MasterConfig,
    kept: &KeptPorts,
) -> Result<(TcpListener, SocketAddr), MasterError> {
    let (port, may_change) = kept.choose(config.enrolment_port, kept.ports.enrolment);
    let address = SocketAddr::new(config.address, port);
    let failed = |error| MasterError::Listen {
        what: "nodes that join",
        address,
        error,
    };
    let server = bind_again(config.address, port, may_change);
    let server = server.await.map_err(failed)?;
    let address = server.local_addr().map_err(failed)?;
    Ok((server, address))
}
