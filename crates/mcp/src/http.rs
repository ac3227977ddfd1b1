//! Streamable HTTP. Each caller has sessions of its own: the id of another caller's session does not exist for it.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_callers::{Answer, Caller, LONGEST_BODY, Service, text_answer};

use crate::host::Host;
use crate::server::{Desk, Server};

/// The path of the only endpoint.
const PATH: &str = "/mcp";
/// Sessions of one caller, in the protocol before 2026-07-28. A session that is idle for five minutes ends.
const SESSIONS: usize = 64;

/// The service for one caller.
pub(crate) struct Seat {
    service: StreamableHttpService<Server, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
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
        let sessions = Arc::new(LocalSessionManager::default());
        let (desk, host) = (self.desk.clone(), Arc::new(Host::from(caller)));
        let serve = move || Ok(Server::new(desk.clone(), host.clone()));
        Arc::new(Seat {
            service: StreamableHttpService::new(serve, sessions.clone(), config),
            sessions,
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
        seat.sessions.sessions.read().await.len()
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

    async fn admit(&self, seat: &Seat, head: &Parts) -> Result<(), Answer> {
        let opens = !head.headers.contains_key("mcp-session-id");
        if opens && seat.sessions.sessions.read().await.len() >= SESSIONS {
            // Requests of the present protocol need no session, but nothing before the body tells them apart for sure.
            let version = head.headers.get("mcp-protocol-version");
            let is_stateless =
                version.is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
            if !is_stateless {
                let why = "too many sessions: end one";
                return Err(text_answer(StatusCode::TOO_MANY_REQUESTS, why));
            }
        }
        Ok(())
    }

    async fn answer(&self, seat: &Arc<Seat>, _base: &str, request: Request<Bytes>) -> Answer {
        seat.service.handle(request.map(Full::new)).await
    }
}
