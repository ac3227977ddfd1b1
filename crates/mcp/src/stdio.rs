//! One caller over standard input and output: for hosts that start a command.

use std::sync::Arc;

use sealbus::{Platform, agent};
use sealbus_callers::{CallerAgent, ServeError, follow};

use crate::host::Host;
use crate::server::{Desk, Server};
use crate::wanted;

/// Serves one caller over this program's standard input and output, until the input ends or the program is told to stop.
/// The caller is the one agent that the platform has placed in this process. Nothing else may be written to the output.
///
/// # Errors
/// [`ServeError`].
pub async fn serve_stdio(platform: &Platform) -> Result<(), ServeError> {
    let (caller, known) = CallerAgent::new();
    let talking = async {
        let Ok(caller) = known.await else {
            return;
        };
        let desk = Arc::new(Desk::default());
        let voice = caller.voice.clone();
        let server = Server::new(desk.clone(), Arc::new(Host::from(caller)));
        let serving = async {
            // Pipes are read without a thread, so that a silent host holds up no end.
            match rmcp::serve_server(server, rmcp::transport::stdio_pipes()).await {
                Ok(service) => drop(service.waiting().await),
                Err(error) => tracing::warn!(%error, "the host did not begin as MCP has it"),
            }
        };
        tokio::select! {
            () = serving => platform.process().stop("the host has left"),
            () = follow(&voice, wanted(), |news| desk.take(news, voice.platform())) => {}
        }
    };
    let running = platform.run([agent("host", caller)]);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => Ok(ended?),
        () = talking => Ok(running.await?),
    }
}
