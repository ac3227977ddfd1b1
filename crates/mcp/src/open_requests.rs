//! The open requests of sessions, by their ids. rmcp knows a request of a session by its id alone: of two with one id,
//! one would get the answer of the other, or be cancelled in its place. So the later one is refused.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::SessionId;
use sealbus_callers::shown;

/// The open requests of sessions.
#[derive(Clone, Default)]
pub(crate) struct OpenRequests(Arc<Mutex<HashSet<(SessionId, RequestId)>>>);

/// An open request. Its id is taken as long as this lives.
pub(crate) struct OpenRequest {
    all: OpenRequests,
    name: (SessionId, RequestId),
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.name);
    }
}

impl OpenRequests {
    /// Opens a request. Its id is taken until its work has ended and the returned request is dropped, when it is answered.
    /// `None` if an open request of the session has this id.
    pub(crate) fn open(
        &self,
        session: &SessionId,
        request: &mut JsonRpcRequest<ClientRequest>,
    ) -> Option<Arc<OpenRequest>> {
        let name = (session.clone(), request.id.clone());
        if !self.0.lock().insert(name.clone()) {
            return None;
        }
        let all = self.clone();
        let open = Arc::new(OpenRequest { all, name });
        // A caller may leave while the work goes on.
        request.request.extensions_mut().insert(open.clone());
        Some(open)
    }
}

/// The answer to a request whose id an open one has.
pub(crate) fn refusal(id: &RequestId) -> ServerJsonRpcMessage {
    let taken = shown(&id.to_string(), 128);
    let why = format!(
        "a request with the id {taken} is not answered yet: give each request of a session an id of its own"
    );
    JsonRpcMessage::error(ErrorData::invalid_request(why, None), Some(id.clone()))
}

/// The id of the request that a message answers, if it is an answer.
pub(crate) fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_until_its_request_is_answered_and_its_work_has_ended() {
        let requests = OpenRequests::default();
        let (one, other) = (SessionId::from("one"), SessionId::from("other"));
        let ping = || -> JsonRpcRequest<ClientRequest> {
            serde_json::from_str(r#"{"jsonrpc": "2.0", "id": 7, "method": "ping"}"#).unwrap()
        };
        let is_free = || requests.open(&one, &mut ping()).is_some();
        let mut first = ping();
        let unanswered = requests.open(&one, &mut first).unwrap();
        assert!(!is_free() && requests.open(&other, &mut ping()).is_some());
        drop(unanswered);
        assert!(!is_free());
        drop(first);
        assert!(is_free());
        let mut second = ping();
        let unanswered = requests.open(&one, &mut second).unwrap();
        drop(second);
        assert!(!is_free());
        drop(unanswered);
        assert!(is_free());
    }
}
