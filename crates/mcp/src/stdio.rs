//! One caller over standard input and output: for hosts that start a command.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::SessionId;
use sealbus::{Platform, agent};
use sealbus_callers::{CallerAgent, ServeError, follow};

use crate::host::Host;
use crate::open_requests::{OpenRequest, OpenRequests, answered, refusal};
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
            let (read, write) = rmcp::transport::stdio_pipes();
            let lines = Lines::new(AsyncRwTransport::new_server(read, write));
            match rmcp::serve_server(server, lines).await {
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

/// The lines of a host, in which the ids of open requests differ.
struct Lines<T> {
    transport: T,
    session: SessionId,
    open: OpenRequests,
    /// Those that have no answer yet.
    unanswered: HashMap<RequestId, Arc<OpenRequest>>,
}

impl<T> Lines<T> {
    fn new(transport: T) -> Self {
        Self {
            transport,
            session: SessionId::from("stdio"),
            open: OpenRequests::default(),
            unanswered: HashMap::new(),
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Lines<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let Some(id) = answered(&message) {
            self.unanswered.remove(id);
        }
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let mut message = self.transport.receive().await?;
            match &mut message {
                JsonRpcMessage::Request(request) => {
                    let Some(open) = self.open.open(&self.session, request) else {
                        // rmcp gives up a read when it has something to write.
                        tokio::spawn(self.transport.send(refusal(&request.id)));
                        continue;
                    };
                    self.unanswered.insert(request.id.clone(), open);
                }
                // rmcp does not answer a cancelled request.
                JsonRpcMessage::Notification(told) => {
                    if let ClientNotification::CancelledNotification(it) = &told.notification
                        && let Some(id) = &it.params.request_id
                    {
                        self.unanswered.remove(id);
                    }
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
            return Some(message);
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport.close()
    }
}
