//! The platform as a server of the Model Context Protocol (MCP, revisions 2025-03-26 to 2026-07-28): hosts of language
//! models use agents' tools.
//!
//! Each caller from outside is an agent of the platform (`sealbus_callers`). A call of a tool is a `request` in that
//! agent's name, and ends with the reply of the tool's agent. If the caller gives the call up, the tool's agent gets a
//! `cancel`. [`serve`] runs the server over HTTP for many callers, and [`serve_stdio`] over standard input and output
//! for one.
//!
//! | question | place |
//! |---|---|
//! | Which tools are there, under which names? | `catalogue`, `naming`: free of I/O |
//! | What becomes of a call? | `call`, `own_tools` |
//! | How does a request come in? | `http`, `stdio` |
//! | May it come in beside the others of its session? | `open_requests`; `sessions` for HTTP |

mod call;
mod catalogue;
mod feed;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod http;
mod naming;
mod open_requests;
mod own_tools;
mod resources;
mod server;
mod sessions;
mod stdio;

use sealbus::Platform;
use sealbus::body::JSON;
use sealbus::directory::ServiceDescription;
pub use sealbus_callers::ServeError;
use sealbus_manifest::MCP_AGENT;
use sealbus_manifest::callers::CallersEntry;

use http::Http;
pub use stdio::serve_stdio;

/// Serves callers over HTTP until the program is told to stop. The platform must have placed the agents of
/// [`CallersEntry::agents`] and the agent `mcp` in this process, or be an embedded one.
///
/// # Errors
/// [`ServeError`]. After an error nothing is open.
pub async fn serve(platform: &Platform, entry: CallersEntry) -> Result<(), ServeError> {
    sealbus_callers::serve(platform, entry, MCP_AGENT, Http::default()).await
}

/// The services that may be tools.
fn wanted() -> ServiceDescription {
    let mut service = ServiceDescription::default();
    service.protocols.push("fipa-request".to_owned());
    service.languages.push(JSON.to_owned());
    service
}
