//! The Master's own processes, which hold the system agents.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::desk::{DeskHandle, News};
use super::foundation::Foundation;
use super::kept_ports::{ListenAddress, open_at};
use super::master_error::MasterError;
use super::{HostedProcess, OwnHost, SystemAgents};
use sealbus_control::ProcessContact;
use sealbus_control::names::MASTER_NODE;
use sealbus_process::Process;
use sealbus_store::Store;

/// Opens the Master's processes: one, or, if agents' messages travel at a level below `auth`, a second one for the
/// control plane.
pub(super) async fn start_system(
    foundation: Foundation,
    store: Arc<dyn Store>,
    agents: ListenAddress,
    control: ListenAddress,
) -> Result<(SystemAgents, SocketAddr), MasterError> {
    let desk = foundation.desk.clone();
    let (is_apart, term) = desk
        .run(|desk, _| Ok((desk.platform.is_control_apart(), desk.term)))
        .await?;
    let open = |hosted: fn(SocketAddr) -> HostedProcess, at: ListenAddress| {
        let (desk, news) = (desk.clone(), foundation.news.clone());
        let open = move |at| open_process(desk.clone(), hosted(at), news.clone());
        let is_in_use = |error: &MasterError| match error {
            MasterError::Open(error) => error.is_address_in_use(),
            _ => false,
        };
        let (address, port) = (at.address.ip(), at.address.port());
        open_at(address, port, at.may_change, is_in_use, open)
    };
    let (at, control_at) = (agents.address, control.address);
    let (control, process) = if is_apart {
        let control = open(HostedProcess::control, control).await?;
        (control, open(HostedProcess::services, agents).await?)
    } else {
        let process = open(|at| HostedProcess::system(Some(at)), agents).await?;
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
        SystemAgents::start(control, process, foundation, store, term).await?,
        address,
    ))
}

async fn open_process(
    desk: DeskHandle,
    hosted: HostedProcess,
    news: watch::Receiver<News>,
) -> Result<Process, MasterError> {
    let (host, _) = OwnHost::adopt(desk, hosted, news).await?;
    Ok(Process::open(host, None).await?)
}
