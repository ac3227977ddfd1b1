//! Requests to agents: `/agents/NAME` for JSON-RPC, `/agents/NAME/…` for REST, the service of gRPC, and the cards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, Uri};
use parking_lot::{Mutex, RwLock};
use percent_encoding::percent_decode_str;
use sealbus::Voice;
use sealbus::directory::{AgentState, AmsAgentDescription, DfAgentDescription, ServiceDescription};
use sealbus_callers::tools::local_name;
use sealbus_callers::{Answer, Caller, Service, follow_news, text_answer, trace, typed_answer};
use sealbus_manifest::callers::CallersEntry;
use sealbus_web::Client;
use serde_json::Value;

use crate::Fault;
use crate::card::{AGENTS, CARD, Security, card, tag};
use crate::catalogue::{Catalogue, Exposed};
use crate::extensions;
use crate::operations::Desk;
use crate::shelf::Shelf;
use crate::signature::{KEYS, Signer};
use crate::tasks::{Task, Tasks};
use crate::work::Work;
use crate::{grpc, rest, rpc, webhook};

/// The version of the protocol.
const VERSION: &str = "1.0";

/// A task at work, among those of its caller.
type TaskOfCaller = (Arc<Tasks>, Arc<Task>);

/// Serves all callers.
pub(crate) struct Http {
    catalogue: RwLock<Catalogue>,
    /// The tasks of all callers. A caller without a key reads the cards of agents that any of these may write to.
    seats: Mutex<Vec<Arc<Tasks>>>,
    /// Agents that the platform is starting, and the tasks that were at work then.
    starting: Mutex<BTreeMap<String, Vec<TaskOfCaller>>>,
    /// The folder of the tasks, if they are kept.
    folder: Option<PathBuf>,
    has_anonymous: bool,
    security: Security,
    signer: OnceLock<Signer>,
    web: Option<Client>,
}

impl Http {
    pub(crate) fn new(entry: &CallersEntry, web: Option<Client>, folder: Option<PathBuf>) -> Self {
        Self {
            catalogue: RwLock::default(),
            seats: Mutex::default(),
            starting: Mutex::default(),
            folder,
            has_anonymous: entry.anonymous.is_some(),
            security: Security::new(entry),
            signer: OnceLock::new(),
            web,
        }
    }

    /// The agent of this name, for a caller. One that is away counts for a caller that has tasks of it.
    fn agent(&self, name: &str, caller: Option<&Tasks>) -> Option<Arc<Exposed>> {
        let found = self.catalogue.read().get(name);
        found.or_else(|| {
            let caller = caller.filter(|caller| caller.know(name))?;
            Catalogue::away(name, caller.caller.voice.platform())
        })
    }

    /// The agent that a path names, for a caller, and the rest of the path.
    fn find<'p>(&self, path: &'p str, caller: Option<&Tasks>) -> Option<(Arc<Exposed>, &'p str)> {
        let path = path.strip_prefix(AGENTS)?;
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let name = percent_decode_str(name).decode_utf8().ok()?;
        Some((self.agent(&name, caller)?, rest))
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
        let (status, body) = match known {
            Some(known) if known.as_bytes() == tag.as_bytes() => {
                (StatusCode::NOT_MODIFIED, String::new())
            }
            _ => (StatusCode::OK, body),
        };
        let mut answer = typed_answer(status, "application/json", body);
        let headers = answer.headers_mut();
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

/// The agent is another one of its name: its tasks begin anew.
fn ask_again(agent: &Arc<Exposed>, tasks: Vec<TaskOfCaller>) {
    for (tasks, task) in tasks {
        if !task.state().is_terminal() {
            Work::again(&tasks, &task, agent.clone());
        }
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
    const SPEAKS_HTTP2: bool = true;

    fn seat(&self, caller: Caller) -> Arc<Tasks> {
        let name = caller.voice.name();
        let shelf = self.folder.as_deref().and_then(|folder| {
            let failed = |error| tracing::error!(caller = name, %error, folder = %folder.display(), "tasks are not kept: make the folder writable and start the gateway again");
            Shelf::open(folder, name).map_err(failed).ok()
        });
        let (tasks, webhooks) = Tasks::new(caller, shelf);
        let tasks = Arc::new(tasks);
        for (task, kept) in webhooks {
            if let Some(web) = &self.web {
                webhook::resume(&tasks, &task, kept, web.clone());
            }
        }
        for task in tasks.at_work() {
            Work::wait(&tasks, &task);
        }
        self.seats.lock().push(tasks.clone());
        tasks
    }

    fn began(&self, voice: &Voice) {
        self.signer.get_or_init(|| Signer::new(voice.clone()));
    }

    async fn attend(&self, voice: &Voice) {
        let starting = AmsAgentDescription {
            state: Some(AgentState::Initiated),
            ..AmsAgentDescription::default()
        };
        let subscribe = || voice.ams().subscribe(starting.clone());
        let take = |news| self.starts(news, voice.platform());
        follow_news(subscribe, take).await;
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
        let Some(entries) = news else {
            catalogue.forget();
            return;
        };
        // Requests see these agents afterwards: no new task is taken for one of theirs.
        for agent in catalogue.take(entries, platform) {
            self.starting.lock().remove(&agent.local);
            ask_again(&agent, self.at_work(&agent.local));
        }
    }

    fn public(&self, head: &Parts, base: &str) -> Option<Answer> {
        let path = head.uri.path();
        if path == KEYS && head.method == Method::GET {
            let keys = self.signer.get().map(Signer::keys).unwrap_or_default();
            let mut answer = typed_answer(StatusCode::OK, "application/json", keys.to_string());
            let fresh = HeaderValue::from_static("max-age=60");
            answer.headers_mut().insert(CACHE_CONTROL, fresh);
            return Some(answer);
        }
        if !path.starts_with(AGENTS) && !path.starts_with(grpc::SERVICE) {
            return Some(nothing());
        }
        if path.starts_with(grpc::SERVICE) && !grpc::is_grpc(head.headers.get(CONTENT_TYPE)) {
            return Some(grpc::no_grpc());
        }
        let is_stranger = !self.has_anonymous && !head.headers.contains_key(AUTHORIZATION);
        if !is_stranger || head.method != Method::GET {
            return None;
        }
        let (agent, rest) = self.find(path, None)?;
        let seats = self.seats.lock().clone();
        let mut voices = seats.iter().map(|tasks| &tasks.caller.voice);
        let is_shown = rest == CARD && voices.any(|voice| voice.may_write_to(&agent.aid));
        is_shown.then(|| self.card(&agent, base, &head.headers))
    }

    async fn refusal(
        &self,
        asked: &Uri,
        media_type: Option<&HeaderValue>,
        answer: Answer,
    ) -> Answer {
        // Others do not look for a code of gRPC.
        match asked.path().starts_with(grpc::SERVICE) && grpc::is_grpc(media_type) {
            true => grpc::turned_away(answer).await,
            false => answer,
        }
    }

    async fn answer(&self, seat: &Arc<Tasks>, base: &str, request: Request<Bytes>) -> Answer {
        let active = extensions::activating(&extensions::active(request.headers()));
        let mut answer = self.answered(seat, base, request).await;
        if let Some(active) = active {
            answer.headers_mut().insert(extensions::HEADER, active);
        }
        answer
    }
}

impl Http {
    async fn answered(&self, seat: &Arc<Tasks>, base: &str, request: Request<Bytes>) -> Answer {
        let (head, body) = request.into_parts();
        if let Some(method) = head.uri.path().strip_prefix(grpc::SERVICE) {
            return self.answer_grpc(seat, base, method, &head, &body).await;
        }
        let found = self.find(head.uri.path(), Some(seat));
        let voice = &seat.caller.voice;
        let Some((agent, rest)) = found.filter(|it| voice.may_write_to(&it.0.aid)) else {
            return nothing();
        };
        if rest == CARD && head.method == Method::GET {
            if agent.skills.is_empty() {
                return nothing();
            }
            return self.card(&agent, base, &head.headers);
        }
        let mut checked = version(&head);
        if !body.is_empty() && !is_json(&head.headers) {
            let why = "A request is application/json or application/a2a+json";
            checked = Err(Fault::ContentTypeNotSupported(why.to_owned()));
        }
        let card = || self.signed(&agent, base);
        let desk = self.desk(seat, agent.clone(), &card, &head.headers);
        if !rest.is_empty() {
            let request = rest::Request {
                method: &head.method,
                path: rest,
                query: head.uri.query().unwrap_or_default(),
                body: &body,
            };
            return rest::answer(&desk, request, checked).await;
        }
        if head.method != Method::POST {
            return rpc::refused(&Value::Null, &Fault::NoMethod);
        }
        rpc::answer(&desk, &body, checked).await
    }

    /// Takes news of agents that are being started, or, without a state, no longer are.
    fn starts(&self, news: Option<Vec<AmsAgentDescription>>, platform: &str) {
        let catalogue = self.catalogue.write();
        let mut starting = self.starting.lock();
        let ask_again = |(local, tasks): (String, Vec<TaskOfCaller>)| {
            if let Some(agent) = catalogue.get(&local) {
                ask_again(&agent, tasks);
            }
        };
        let Some(entries) = news else {
            // Requests wait for an agent that is not there yet.
            std::mem::take(&mut *starting)
                .into_iter()
                .for_each(ask_again);
            return;
        };
        for entry in entries {
            let Some(aid) = &entry.name else { continue };
            let local = local_name(&aid.name, platform);
            if entry.state.is_some() {
                starting.insert(local.to_owned(), self.at_work(local));
            } else if let Some(started) = starting.remove_entry(local) {
                ask_again(started);
            }
        }
    }

    /// The tasks at work for an agent.
    fn at_work(&self, local: &str) -> Vec<TaskOfCaller> {
        let seats = self.seats.lock().clone();
        let of_caller = |tasks: Arc<Tasks>| {
            let at_work = tasks.at_work().into_iter();
            let at_work = at_work.filter(|it| it.opening.agent == local);
            at_work
                .map(move |task| (tasks.clone(), task))
                .collect::<Vec<_>>()
        };
        seats.into_iter().flat_map(of_caller).collect()
    }

    fn desk<'a>(
        &self,
        seat: &Arc<Tasks>,
        agent: Arc<Exposed>,
        card: &'a (dyn Fn() -> Value + Sync),
        headers: &HeaderMap,
    ) -> Desk<'a> {
        let after = headers.get("last-event-id");
        Desk {
            tasks: seat.clone(),
            agent,
            card,
            web: self.web.clone(),
            after: after.and_then(|after| after.to_str().ok()?.parse().ok()),
            extensions: extensions::active(headers),
            trace: trace(None, Some(headers)),
        }
    }

    async fn answer_grpc(
        &self,
        seat: &Arc<Tasks>,
        base: &str,
        method: &str,
        head: &Parts,
        body: &[u8],
    ) -> Answer {
        let read = version(head).and_then(|()| grpc::Request::read(method, body));
        let request = match read {
            Ok(request) => request,
            Err(fault) => return grpc::refused(&fault),
        };
        let may_ask = |agent: &Exposed| seat.caller.voice.may_write_to(&agent.aid);
        let agent = match request.agent() {
            Some(name) => self.agent(name, Some(seat)).filter(|it| may_ask(it)),
            None => self.catalogue.read().only(may_ask),
        };
        let Some(agent) = agent else {
            let problem = "it names no agent: use the `tenant` of the agent's card";
            return grpc::refused(&Fault::member("tenant", problem));
        };
        let card = || self.signed(&agent, base);
        let desk = self.desk(seat, agent.clone(), &card, &head.headers);
        request.answer(&desk).await
    }
}
