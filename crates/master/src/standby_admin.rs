//! The operators of a Master that stands by. It takes revocations. For all other commands it says where the leading
//! Master is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealbus_control::admin::{AdminRequest, Revoked};
use sealbus_control::local::{Listener, Stream, listen};
use sealbus_control::operators::{OperatorKey, standby_socket_in};
use sealbus_control::rpc::{self, Incoming, LONGEST_FRAME, LONGEST_FRAME_UNKNOWN};
use sealbus_control::{Fault, FaultCode};
use sealbus_store::Store;
use sealbus_web::accept_each;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::admin::{Entrance, Newcomer};
use super::blind::BlindCa;
use super::master_error::MasterError;

/// Removes the socket when the Master no longer stands by.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves operators as long as the Master stands by. Returns only an error.
pub(super) async fn serve_operators(
    ca: Arc<BlindCa>,
    store: Arc<dyn Store>,
    directory: &Path,
    leader_at: watch::Receiver<Option<SocketAddr>>,
) -> MasterError {
    let (listener, key, _door) = match open(directory) {
        Ok(open) => open,
        Err(error) => return error,
    };
    let (key, entrance) = (Arc::new(key), Arc::new(Entrance::default()));
    accept_each(&listener, |stream, _, _| {
        let newcomer = entrance.came(&stream)?;
        let (ca, store, key) = (ca.clone(), store.clone(), key.clone());
        let serving = serve(stream, newcomer.clone(), ca, store, key, leader_at.clone());
        Some(newcomer.until_it_must_go(serving))
    })
    .await;
    std::future::pending().await
}

fn open(directory: &Path) -> Result<(Listener, OperatorKey, SocketFile), MasterError> {
    // An operator who finds the socket must find the key.
    let key = OperatorKey::keep(directory).map_err(|error| MasterError::OperatorKey {
        path: directory.to_owned(),
        error,
    })?;
    let path = standby_socket_in(directory);
    let listener = listen(&path).map_err(|error| MasterError::AdminSocket {
        path: path.clone(),
        error,
    })?;
    Ok((listener, key, SocketFile(path)))
}

async fn serve(
    stream: Stream,
    newcomer: Arc<Newcomer>,
    ca: Arc<BlindCa>,
    store: Arc<dyn Store>,
    key: Arc<OperatorKey>,
    leader_at: watch::Receiver<Option<SocketAddr>>,
) {
    let (caller, mut incoming, drive) = rpc::open(stream, LONGEST_FRAME_UNKNOWN);
    let mut driving = JoinSet::new();
    driving.spawn(drive);
    if newcomer.is_operator(&key, &mut incoming).await {
        caller.allow_frames(LONGEST_FRAME);
        while let Some(Incoming::Call { body, answer }) = incoming.recv().await {
            let result = match Incoming::parse::<AdminRequest>(&body) {
                Ok(AdminRequest::Revoke { what, reason }) => {
                    let revoked = ca.revoke(&what, &reason, &*store).await;
                    revoked.map(|is_stored| Revoked {
                        certificates: Vec::new(),
                        is_stored,
                    })
                }
                Ok(_) => Err(stands_by(&ca, *leader_at.borrow())),
                Err(fault) => Err(fault),
            };
            answer
                .send(result.map(sealbus_control::admin::AdminAnswer::from))
                .await;
        }
    }
    drop((caller, incoming));
    let _ = tokio::time::timeout(Duration::from_secs(10), driving.join_next()).await;
}

fn stands_by(ca: &BlindCa, leader_at: Option<SocketAddr>) -> Fault {
    let (code, message, advice) = match (ca.is_away(), leader_at) {
        (true, _) => (
            FaultCode::Unavailable,
            "it stands by, and etcd does not answer: no command but `ca revoke` is taken until it is back".to_owned(),
            "bring etcd back: `sealbus store check` says which members are away",
        ),
        (false, Some(leader)) => (
            FaultCode::NotLeading,
            format!("it stands by for the Master that leads, at {}", leader.ip()),
            "run the command there",
        ),
        (false, None) => (
            FaultCode::Unavailable,
            "it stands by for the Master that leads".to_owned(),
            "run the command on its machine, or repeat it in a few seconds",
        ),
    };
    Fault::new(code, message).advise(advice)
}
