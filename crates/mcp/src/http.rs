//! Streamable HTTP. Each caller has sessions of its own: the id of another caller's session does not exist for it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_callers::{Answer, Caller, LONGEST_BODY, Service, text_answer};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::host::Host;
use crate::server::{Desk, Server};
use crate::sessions::Sessions;

/// The path of the only endpoint.
const PATH: &str = "/mcp";
/// Sessions of one caller, in the protocol before 2026-07-28. A session that is idle for five minutes ends.
const SESSIONS: usize = 64;

/// The service for one caller.
pub(crate) struct Seat {
    service: StreamableHttpService<Server, Sessions>,
    sessions: Arc<Sessions>,
    /// Sessions are opened one by one, so that each is counted.
    opening: Mutex<()>,
}

/// Whether a request may open a session: `initialize` does, whichever version its head names.
fn may_open_session(request: &Request<Bytes>) -> bool {
    !request.headers().contains_key("mcp-session-id") && may_be_initialize(request.body())
}

/// Whether a body may be `initialize`. One that cannot be read may be.
pub(crate) fn may_be_initialize(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Called<'a> {
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
    }
    let called = serde_json::from_slice::<Called<'_>>(body);
    called.map_or(true, |it| it.method.as_deref() == Some("initialize"))
}

/// Serves all callers.
#[derive(Default)]
pub(crate) struct Http {
    desk: Arc<Desk>,
}

impl Service for Http {
    type Seat = Seat;

    fn seat(&self, caller: Caller) -> Arc<Seat> {
        // The door has looked at `Host` and `Origin`.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(LONGEST_BODY);
        let sessions = Arc::new(Sessions::default());
        let (desk, host) = (self.desk.clone(), Arc::new(Host::from(caller)));
        let serve = move || Ok(Server::new(desk.clone(), host.clone()));
        Arc::new(Seat {
            service: StreamableHttpService::new(serve, sessions.clone(), config),
            sessions,
            opening: Mutex::default(),
        })
    }

    fn opened(&self, base: &str) -> String {
        let reached = format!("{base}{PATH}");
        tracing::info!("hosts of language models reach this platform at {reached}");
        reached
    }

    fn offers(&self) -> usize {
        self.desk.catalogue.read().len()
    }

    async fn sessions(&self, seat: &Seat) -> usize {
        seat.sessions.count().await
    }

    fn wanted(&self) -> ServiceDescription {
        crate::wanted()
    }

    fn news(&self, news: Option<Vec<DfAgentDescription>>, platform: &str) {
        self.desk.take(news, platform);
    }

    fn public(&self, head: &Parts, _base: &str) -> Option<Answer> {
        let is_here = head.uri.path() == PATH;
        (!is_here).then(|| text_answer(StatusCode::NOT_FOUND, "the endpoint is /mcp"))
    }

    async fn answer(&self, seat: &Arc<Seat>, _base: &str, request: Request<Bytes>) -> Answer {
        let opening = match may_open_session(&request) {
            true => Some(seat.opening.lock().await),
            false => None,
        };
        if opening.is_some() && seat.sessions.count().await >= SESSIONS {
            let why = "too many sessions: end one";
            return text_answer(StatusCode::TOO_MANY_REQUESTS, why);
        }
        seat.service.handle(request.map(Full::new)).await
    }
}
