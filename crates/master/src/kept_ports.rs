//! The ports that a Master chooses once and keeps, in the store.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use sealbus_brokers::lasting_address;
use sealbus_enrolment::bind;
use sealbus_files::write_private;
use sealbus_store::{Batch, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::master_error::MasterError;

/// How often another port is drawn.
const DRAWS: usize = 10;

/// The key of the row with the ports of the Master that led last.
const PORTS_ROW: &str = "ports";

/// The file in the state directory with the port at which nodes join.
const ENROLMENT_PORT: &str = "enrolment.port";

/// The ports that were chosen once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) enrolment: u16,
    pub(super) agents: u16,
    /// The port of the control plane, if that has a process of its own.
    #[serde(default)]
    pub(super) control: u16,
    /// The instance that listens on these ports, if there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<String>,
}

/// The ports that a Master is to use again.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptPorts {
    pub(super) ports: Ports,
    /// Whether they are this Master's own. If not, the Master may choose others in place of ports that are in use.
    pub(super) are_own: bool,
    /// Whether this Master led last, or the platform has no other.
    pub(super) led_last: bool,
}

impl KeptPorts {
    /// The port to use, from the operator's wish (0 for none) and the kept port, and whether another one will do.
    pub(super) fn choose(&self, wish: u16, kept: u16) -> (u16, bool) {
        match wish {
            0 => (kept, !self.are_own),
            wish => (wish, false),
        }
    }
}

fn row_of(instance: &str) -> String {
    format!("{PORTS_ROW}/{instance}")
}

async fn row(store: &dyn Store, key: &str) -> Result<Option<Ports>, StoreError> {
    let row = store.get(key).await?;
    Ok(row.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}

/// The ports for a Master: its own, or those of the Master that led last, because nodes know these.
pub(super) async fn kept_ports(
    store: &dyn Store,
    instance: Option<&str>,
) -> Result<KeptPorts, StoreError> {
    let last = row(store, PORTS_ROW).await?.unwrap_or_default();
    let led_last = last.instance.as_deref() == instance;
    let own = match instance {
        Some(instance) if !led_last => row(store, &row_of(instance)).await?,
        _ => None,
    };
    Ok(KeptPorts {
        are_own: led_last || own.is_some(),
        led_last,
        ports: own.unwrap_or(last),
    })
}

/// Keeps the ports of the Master that leads now.
pub(super) async fn keep_ports(
    store: &dyn Store,
    kept: &KeptPorts,
    ports: Ports,
) -> Result<(), StoreError> {
    if kept.led_last && kept.ports == ports {
        return Ok(());
    }
    let row = serde_json::to_vec(&ports).unwrap_or_default();
    let mut batch = Batch::new();
    if let Some(instance) = &ports.instance {
        batch.put(row_of(instance), row.clone());
    }
    batch.put(PORTS_ROW, row);
    store.commit(batch).await.map(|_| ())
}

/// The port at which this directory's Master last let nodes join, for a time without the store.
pub(super) fn kept_enrolment_port(directory: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(directory.join(ENROLMENT_PORT)).ok()?;
    text.trim().parse().ok().filter(|port| *port > 0)
}

/// Keeps that port.
///
/// # Errors
/// [`MasterError::Directory`].
pub(super) fn keep_enrolment_port(directory: &Path, port: u16) -> Result<(), MasterError> {
    if kept_enrolment_port(directory) == Some(port) {
        return Ok(());
    }
    let written = write_private(&directory.join(ENROLMENT_PORT), port.to_string().as_bytes());
    written.map_err(|error| MasterError::Directory {
        path: directory.to_owned(),
        error,
    })
}

/// Listens on a port, or on another one as [`open_at`] says.
pub(super) async fn bind_again(
    address: IpAddr,
    port: u16,
    may_change: bool,
) -> io::Result<TcpListener> {
    let is_in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    open_at(address, port, may_change, is_in_use, bind).await
}

/// Opens at a port; port 0 stands for any. If the port is in use and `may_change`, or any port will do, draws another one.
/// Another program can take a port between its choice and its use.
pub(super) async fn open_at<T, E, F: Future<Output = Result<T, E>>>(
    address: IpAddr,
    port: u16,
    may_change: bool,
    is_in_use: impl Fn(&E) -> bool,
    open: impl Fn(SocketAddr) -> F,
) -> Result<T, E> {
    let mut at = lasting_address(address, port);
    for _ in 0..DRAWS {
        match open(at).await {
            Err(error) if (may_change || port == 0) && is_in_use(&error) => {
                at = lasting_address(address, 0);
            }
            done => return done,
        }
    }
    open(at).await
}

/// An address to listen on.
#[derive(Clone, Copy)]
pub(super) struct ListenAddress {
    pub(super) address: SocketAddr,
    /// Whether another port will do.
    pub(super) may_change: bool,
}

/// The address to listen on. It is checked, so that an error names it.
pub(super) async fn free_port(
    address: IpAddr,
    port: u16,
    may_change: bool,
) -> Result<ListenAddress, MasterError> {
    let at = SocketAddr::new(address, port);
    let probe = bind_again(address, port, may_change).await;
    let failed = |error| MasterError::Listen {
        what: "its agents",
        address: at,
        error,
    };
    let found = probe.and_then(|probe| probe.local_addr()).map_err(failed)?;
    Ok(ListenAddress {
        address: found,
        may_change: may_change || port == 0,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;
    use std::io::ErrorKind;
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Opens at a port where others listen the first `taken` times. Returns the result and the ports tried.
    async fn opened(
        port: u16,
        may_change: bool,
        taken: usize,
    ) -> (Result<u16, ErrorKind>, Vec<u16>) {
        let tried = RefCell::new(Vec::new());
        let open = |at: SocketAddr| {
            tried.borrow_mut().push(at.port());
            ready(match tried.borrow().len() > taken {
                true => Ok(at.port()),
                false => Err(ErrorKind::AddrInUse),
            })
        };
        let is_in_use = |error: &ErrorKind| *error == ErrorKind::AddrInUse;
        let ended = open_at(HERE, port, may_change, is_in_use, open).await;
        (ended, tried.into_inner())
    }

    #[tokio::test]
    async fn a_port_that_others_took_is_drawn_again_if_it_may_change() {
        for (port, may_change) in [(0, false), (7400, true)] {
            let (ended, tried) = opened(port, may_change, 3).await;
            assert_eq!(tried.len(), 4);
            assert_eq!(ended, Ok(tried[3]));
            assert!(port == 0 || tried[0] == port);
        }
        assert_eq!(
            opened(7400, false, 1).await,
            (Err(ErrorKind::AddrInUse), vec![7400])
        );
        let (ended, tried) = opened(0, false, usize::MAX).await;
        assert_eq!((ended, tried.len()), (Err(ErrorKind::AddrInUse), DRAWS + 1));
    }

    #[tokio::test]
    async fn a_listener_makes_way_for_one_that_came_before() {
        let other = TcpListener::bind((HERE, 0)).await.unwrap();
        let taken = other.local_addr().unwrap().port();
        assert!(bind_again(HERE, taken, false).await.is_err());
        let bound = bind_again(HERE, taken, true).await.unwrap();
        assert_ne!(bound.local_addr().unwrap().port(), taken);
    }
}
