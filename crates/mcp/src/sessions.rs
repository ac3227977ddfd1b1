//! The sessions of the protocol before 2026-07-28: those of rmcp, in which the ids of open requests differ.

use futures_util::stream::{self, Stream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};

use crate::open_requests::{OpenRequests, answered, refusal};

/// The sessions of one caller.
#[derive(Default)]
pub(crate) struct Sessions {
    all: LocalSessionManager,
    open: OpenRequests,
}

impl Sessions {
    /// How many there are.
    pub(crate) async fn count(&self) -> usize {
        self.all.sessions.read().await.len()
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.all.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.all.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.all.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.all.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let mut unanswered = None;
        if let JsonRpcMessage::Request(request) = &mut message {
            unanswered = self.open.open(id, request);
            if unanswered.is_none() {
                let refusal = ServerSseMessage::from_message(refusal(&request.id));
                return Ok(stream::iter([refusal]).left_stream());
            }
        }
        let events = self.all.create_stream(id, message).await?;
        // Before the caller has the answer: then it may use the id again.
        let events = events.inspect(move |event| {
            if event.message.as_deref().and_then(answered).is_some() {
                drop(unanswered.take());
            }
        });
        Ok(events.right_stream())
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.all.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.all.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.all.resume(id, last_event_id).await
    }
}
