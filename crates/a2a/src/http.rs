//! Requests to agents: `/agents/NAME` for JSON-RPC, `/agents/NAME/…` for REST, and the cards.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use parking_lot::{Mutex, RwLock};
use percent_encoding::percent_decode_str;
use sealbus::Voice;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_callers::{Answer, Caller, Service, text_answer, trace};
use sealbus_manifest::callers::CallersEntry;
use sealbus_web::Client;
use serde_json::Value;

use crate::Fault;
use crate::card::{AGENTS, CARD, Security, card, tag};
use crate::catalogue::{Catalogue, Exposed};
use crate::operations::Desk;
use crate::signature::{KEYS, Signer};
use crate::tasks::Tasks;
use crate::{rest, rpc};

/// The version of the protocol.
const VERSION: &str = "1.0";

/// Serves all callers.
pub(crate) struct Http {
    catalogue: RwLock<Catalogue>,
    /// The voices of all callers. A caller without a key reads the cards of agents that any of these may write to.
    voices: Mutex<Vec<Voice>>,
    has_anonymous: bool,
    security: Security,
    signer: OnceLock<Signer>,
    web: Option<Client>,
}

impl Http {
    pub(crate) fn new(entry: &CallersEntry, web: Option<Client>) -> Self {
        Self {
            catalogue: RwLock::default(),
            voices: Mutex::default(),
            has_anonymous: entry.anonymous.is_some(),
            security: Security::new(entry),
            signer: OnceLock::new(),
            web,
        }
    }

    /// The agent that a path names, and the rest of the path.
    fn find<'p>(&self, path: &'p str) -> Option<(Arc<Exposed>, &'p str)> {
        let path = path.strip_prefix(AGENTS)?;
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let name = percent_decode_str(name).decode_utf8().ok()?;
        Some((self.catalogue.read().get(&name)?, rest))
    }

    fn signed(&self, agent: &Exposed, base: &str) -> Value {
        let mut card = card(agent, base, &self.security);
        if let Some(signer) = self.signer.get() {
            signer.sign(&mut card, base);
        }
        card
    }

    fn card(&self, agent: &Exposed, base: &str, headers: &HeaderMap) -> Answer {
        let body = self.signed(agent, base).to_string();
        let tag = tag(body.as_bytes());
        let known = headers.get(IF_NONE_MATCH);
        let mut answer = if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
            text_answer(StatusCode::NOT_MODIFIED, Bytes::new())
        } else {
            text_answer(StatusCode::OK, body)
        };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=60"),
        );
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        answer
    }
}

/// The answer for an agent that does not exist or that the caller may not see.
fn nothing() -> Answer {
    let why = "there is no such agent: its card is at /agents/NAME/.well-known/agent-card.json";
    text_answer(StatusCode::NOT_FOUND, why)
}

/// The version of a request's protocol. Without one, it is 0.3.
fn version(head: &Parts) -> Result<(), Fault> {
    let header = head.headers.get("a2a-version").map(HeaderValue::as_bytes);
    let query = head.uri.query().unwrap_or_default();
    let mut query = form_urlencoded::parse(query.as_bytes());
    let parameter = query.find(|(name, _)| name == "A2A-Version").map(|it| it.1);
    let said = header.or(parameter.as_ref().map(|it| it.as_bytes()));
    match said.map(<[u8]>::trim_ascii) {
        Some(said) if said == VERSION.as_bytes() => Ok(()),
        _ => Err(Fault::VersionNotSupported),
    }
}

/// Checks that a body is JSON. Other kinds, which web pages may send without asking, are refused.
fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let media_type = media_type
        .and_then(|it| it.split(';').next())
        .map(str::trim);
    media_type.is_some_and(|it| {
        it.eq_ignore_ascii_case("application/json")
            || it.eq_ignore_ascii_case("application/a2a+json")
    })
}

impl Service for Http {
    type Seat = Tasks;

    fn seat(&self, caller: Caller) -> Tasks {
        self.voices.lock().push(caller.voice.clone());
        Tasks::new(caller)
    }

    fn began(&self, voice: &Voice) {
        self.signer.get_or_init(|| Signer::new(voice.clone()));
    }

    fn opened(&self, base: &str) -> String {
        let reached = format!("{base}{AGENTS}NAME");
        tracing::info!("A2A clients reach agents of this platform at {reached}");
        reached
    }

    fn offers(&self) -> usize {
        self.catalogue.read().len()
    }

    fn wanted(&self) -> ServiceDescription {
        let mut service = ServiceDescription::default();
        service
            .protocols
            .push(crate::catalogue::PROTOCOL.to_owned());
        service
    }

    fn news(&self, news: Option<Vec<DfAgentDescription>>, platform: &str) {
        let mut catalogue = self.catalogue.write();
        match news {
            Some(entries) => catalogue.take(entries, platform),
            None => *catalogue = Catalogue::default(),
        }
    }

    fn public(&self, head: &Parts, base: &str) -> Option<Answer> {
        if head.uri.path() == KEYS && head.method == Method::GET {
            let keys = self.signer.get().map(Signer::keys).unwrap_or_default();
            let mut answer = text_answer(StatusCode::OK, keys.to_string());
            let headers = answer.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
            return Some(answer);
        }
        if !head.uri.path().starts_with(AGENTS) {
            return Some(nothing());
        }
        let is_stranger = !self.has_anonymous && !head.headers.contains_key(AUTHORIZATION);
        if !is_stranger || head.method != Method::GET {
            return None;
        }
        let (agent, rest) = self.find(head.uri.path())?;
        let mut voices = self.voices.lock().clone().into_iter();
        let is_shown = rest == CARD && voices.any(|voice| voice.may_write_to(&agent.aid));
        is_shown.then(|| self.card(&agent, base, &head.headers))
    }

    async fn answer(&self, seat: &Arc<Tasks>, base: &str, request: Request<Bytes>) -> Answer {
        let (head, body) = request.into_parts();
        let found = self.find(head.uri.path());
        let voice = &seat.caller.voice;
        let Some((agent, rest)) = found.filter(|it| voice.may_write_to(&it.0.aid)) else {
            return nothing();
        };
        if rest == CARD && head.method == Method::GET {
            return self.card(&agent, base, &head.headers);
        }
        let after = head.headers.get("last-event-id");
        let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
        let card = || self.signed(&agent, base);
        let desk = Desk {
            tasks: seat.clone(),
            agent: agent.clone(),
            card: &card,
            web: self.web.clone(),
            after,
            trace: trace(None, Some(&head.headers)),
        };
        let mut version = version(&head);
        if !body.is_empty() && !is_json(&head.headers) {
            let why = "A request is application/json or application/a2a+json";
            version = Err(Fault::ContentTypeNotSupported(why.to_owned()));
        }
        if !rest.is_empty() {
            let request = rest::Request {
                method: &head.method,
                path: rest,
                query: head.uri.query().unwrap_or_default(),
                body: &body,
            };
            return rest::answer(&desk, request, version).await;
        }
        if head.method != Method::POST {
            return rpc::refused(&Value::Null, &Fault::NoMethod);
        }
        rpc::answer(&desk, &body, version).await
    }
}
