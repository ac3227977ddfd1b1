//! Agents of the platform as servers of A2A 1.0, over JSON-RPC, REST and gRPC.
//!
//! Each agent that offers a tool, or a service with the protocol fipa-request, has a card and an address of its own. Each caller
//! is an agent of the platform (`sealbus_callers`). A task is a conversation: a `request` in the caller's name, whose
//! state follows the agent's messages.
//!
//! | question | place |
//! |---|---|
//! | What may a request say? | [`wire`], [`proto`], [`frames`], [`Fault`]: free of I/O |
//! | Which agents are there, and what do they take? | `catalogue`, `card`, `input`: free of I/O |
//! | Who vouches for a card? | `signature`, `canonical` |
//! | Which extensions of A2A are known? | [`extensions`]: free of I/O |
//! | What has become of a task? | `log`: free of I/O; `tasks` holds the tasks of a caller |
//! | What does an agent say to a task? | `work` |
//! | What do FIPA agents say to each other? | [`acl`]: free of I/O; `talk` |
//! | How does a task outlive the gateway? | [`record`]: free of I/O; `shelf` has the files |
//! | Which address is told of a task? | [`push`]: free of I/O; `webhook` posts |
//! | How does an operation come in? | `rpc`, `rest`, `grpc`, `http`, `stream` |

pub mod acl;
mod canonical;
mod card;
mod catalogue;
pub mod extensions;
mod fault;
pub mod frames;
mod grpc;
mod http;
mod input;
mod lines;
mod log;
pub mod neighbour;
mod operations;
pub mod proto;
pub mod push;
pub mod record;
mod rest;
mod rpc;
mod shelf;
mod signature;
mod stream;
mod talk;
mod tasks;
mod webhook;
pub mod wire;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use sealbus::Platform;
use sealbus::process::STATE_VARIABLE;
pub use sealbus_callers::{OpenedGateway, ServeError};
use sealbus_manifest::A2A_AGENT;
pub use sealbus_manifest::callers::CallersEntry;
use sealbus_web::reach::Reach;
use sealbus_web::{Client, trust};

pub use fault::Fault;
use http::Http;

/// Serves callers over HTTP until the program is told to stop. The platform must have placed the agents of
/// [`CallersEntry::agents`] and the agent `a2a` in this process, or be an embedded one. Tasks are kept in `folder`, and only in
/// memory without one.
///
/// # Errors
/// [`ServeError`]. After an error nothing is open.
pub async fn serve(
    platform: &Platform,
    entry: CallersEntry,
    folder: Option<PathBuf>,
) -> Result<(), ServeError> {
    let http = http(&entry, folder)?;
    sealbus_callers::serve(platform, entry, A2A_AGENT, http).await
}

/// Opens the door for A2A clients beside the agents of a program, on an embedded platform. It serves as long as the program has its
/// place there. Tasks are kept in the folder that `SEALBUS_STATE` names, and only in memory without it. On a platform of others this
/// does nothing: the manifest there has `[gateway.a2a]`.
///
/// ```no_run
/// use sealbus::{Platform, agent};
/// use sealbus_a2a::CallersEntry;
/// # struct TeaHouse;
/// # impl sealbus::Agent for TeaHouse {}
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let platform = Platform::join().await?;
/// sealbus_a2a::open(&platform, CallersEntry::open_to_all("127.0.0.1:7781".parse()?)).await?;
/// platform.run([agent("tea-house", TeaHouse)]).await?;
/// platform.close().await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ServeError`]. After an error the platform is to be closed.
pub async fn open(
    platform: &Platform,
    entry: CallersEntry,
) -> Result<Option<OpenedGateway>, ServeError> {
    if platform.placed().is_some() {
        return Ok(None);
    }
    entry.check("gateway.a2a").map_err(ServeError::Entry)?;
    let state = std::env::var_os(STATE_VARIABLE).filter(|it| !it.is_empty());
    let folder = state.map(|state| PathBuf::from(state).join(A2A_AGENT));
    let http = http(&entry, folder)?;
    let opened = sealbus_callers::open(platform, entry, A2A_AGENT, http).await?;
    Ok(Some(opened))
}

/// The service, as the entry describes it.
fn http(entry: &CallersEntry, folder: Option<PathBuf>) -> Result<Http, ServeError> {
    let web = match &entry.webhooks {
        Some(webhooks) => {
            let tls = trust::client(entry.trust.as_deref()).map_err(ServeError::Trust)?;
            let reach = Reach::new(&webhooks.allow).map_err(ServeError::Reach)?;
            let may_reach = move |address| reach.check(address);
            Some(Client::new(tls, Arc::new(may_reach)))
        }
        None => None,
    };
    Ok(Http::new(entry, web, folder))
}
