//! Operators' commands on the state of a Master that does not run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use sealbus_seal::{CertificateChain, PlatformName};

use super::authorities::Authorities;
use super::broker_certificate::certify_broker;
use super::foundation::{PlatformSettings, lay};
use super::master_error::MasterError;
use super::standby::{other_leader, twins};
use super::state_store::{State, keep_root};
use sealbus_control::clock::{now, timestamp};
use sealbus_store::etcd::EtcdSettings;
use sealbus_store::{Fenced, latest_term};

/// Certifies a broker of the platform `name`, while its Master does not run. The Master's state is in `directory` and, if given,
/// in `etcd`. If the platform was never started, this begins its state there, so a platform's broker can exist before the
/// platform.
///
/// Returns the root certificate (DER) and the broker's chain.
///
/// # Errors
/// [`MasterError`]. It is [`MasterError::State`] if the Master runs after all, [`MasterError::Copied`] if a Master with its name
/// or its CA runs, and [`MasterError::OtherLeads`] if another Master leads.
pub async fn certify_broker_of(
    directory: &Path,
    name: PlatformName,
    etcd: Option<&EtcdSettings>,
    address: IpAddr,
    request: Vec<u8>,
) -> Result<(Vec<u8>, CertificateChain), MasterError> {
    sealbus_files::make_folder(directory).map_err(|error| MasterError::Directory {
        path: directory.to_owned(),
        error,
    })?;
    let state = State::hold(directory, &name, etcd).await?;
    if let Some((etcd, _)) = &state.etcd {
        twins::await_none(etcd, directory).await?;
    }
    state.reach(directory, &name).await?;
    // The term comes first: if another Master begins to lead after the look, the claim fails.
    let latest = latest_term(&*state.store).await?;
    if let Some((etcd, _)) = &state.etcd
        && let Some(leader) = other_leader(etcd).await?
    {
        return Err(MasterError::OtherLeads {
            host: leader.host,
            enrolment: leader.enrolment,
        });
    }
    let State { store, lock, .. } = state;
    let fenced = Fenced::claim_after(store, latest).await?;
    let authorities = Authorities::keep(directory, &name, None, timestamp(now()))?;
    if etcd.is_some() {
        keep_root(&fenced, directory, &name).await?;
    }
    let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let settings = PlatformSettings::new(name);
    let foundation = lay(
        &settings,
        authorities,
        Arc::new(fenced),
        Some(directory),
        nowhere,
    )
    .await?;
    let certified = certify_broker(&foundation.desk, address, request).await;
    foundation.desk.close().await;
    drop(lock);
    Ok(certified?)
}
