//! The requests that a caller may make of the platform: MCP's methods, in the name of the caller's agent.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::http::request::Parts;
use parking_lot::Mutex;
use rmcp::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use sealbus::directory::{AmsAgentDescription, DfAgentDescription};
use sealbus_callers::{shown, trace};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::call::{call, failed};
use crate::catalogue::{Catalogue, Offer};
use crate::host::Host;
use crate::own_tools::{call_own, own_tools};
use crate::resources::{AGENT_TEMPLATE, AGENTS, CHANNEL_TEMPLATE, Subject, channel_uri};

/// Tools on one page of a list.
const PAGE: usize = 500;
/// Most resources that one stream follows.
const MOST_FOLLOWED: usize = 32;
/// How long a caller may rely on a list, in milliseconds.
const FRESH: u64 = 5_000;
/// Events of a channel that reading its resource gives.
const EVENTS: usize = 256;

const INSTRUCTIONS: &str = "Agents of a Sealbus platform. Tools named AGENT__TOOL belong to agents. \
    search_agents finds agents, request_agent and send_message speak to any of them, read_mailbox has what they sent, \
    and subscribe, read_channel and publish use channels.";

/// The tools of all agents, shared by all callers.
pub(crate) struct Desk {
    pub(crate) catalogue: parking_lot::RwLock<Catalogue>,
    /// Changes with the catalogue.
    pub(crate) changed: watch::Sender<u64>,
    own: Vec<Tool>,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            catalogue: parking_lot::RwLock::default(),
            changed: watch::channel(0).0,
            own: own_tools(),
        }
    }
}

impl Desk {
    /// Takes news of the DF.
    pub(crate) fn take(&self, news: Option<Vec<DfAgentDescription>>, platform: &str) {
        let mut catalogue = self.catalogue.write();
        match news {
            Some(entries) => catalogue.take(entries, platform),
            None => *catalogue = Catalogue::default(),
        }
        drop(catalogue);
        self.changed.send_modify(|number| *number += 1);
    }
}

/// MCP's methods for one caller. Each session has one of its own.
pub(crate) struct Server {
    desk: Arc<Desk>,
    host: Arc<Host>,
    /// The resources that a session of the older protocol follows.
    followed: Mutex<HashMap<String, Following>>,
}

/// Notices of one resource; they end with this value.
struct Following(AbortHandle);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    pub(crate) fn new(desk: Arc<Desk>, host: Arc<Host>) -> Self {
        Self {
            desk,
            host,
            followed: Mutex::default(),
        }
    }

    /// The tool of this name, if the caller may write to its agent. Other tools do not exist for the caller.
    fn offer(&self, name: &str) -> Option<Arc<Offer>> {
        let offer = self.desk.catalogue.read().get(name)?;
        let may_write = self.host.voice().may_write_to(&offer.tool.agent);
        may_write.then_some(offer)
    }

    fn page(&self, after: Option<&str>) -> ListToolsResult {
        let catalogue = self.desk.catalogue.read();
        let mut tools = Vec::new();
        if after.is_none() {
            tools.extend(self.desk.own.iter().cloned());
        }
        let mut next = None;
        let mut last: Option<&String> = None;
        for (name, offer) in catalogue.after(after) {
            if !self.host.voice().may_write_to(&offer.tool.agent) {
                continue;
            }
            if tools.len() >= PAGE {
                next = last.cloned();
                break;
            }
            tools.push(offer.shown.clone());
            last = Some(name);
        }
        let mut page = ListToolsResult::with_all_items(tools)
            .with_ttl_ms(FRESH)
            .with_cache_scope(CacheScope::Private);
        page.next_cursor = next;
        page
    }

    async fn agents(&self) -> Result<Value, ErrorData> {
        let everybody = AmsAgentDescription::default();
        let agents = self.host.voice().ams().search(everybody).await;
        let agents = agents.map_err(unavailable)?;
        let agents: Vec<Value> = agents
            .iter()
            .filter_map(|agent| {
                let state = agent.state.as_ref().map(ToString::to_string);
                Some(json!({"name": agent.name.as_ref()?.name, "state": state}))
            })
            .collect();
        Ok(json!(agents))
    }

    async fn agent(&self, name: &str) -> Result<Option<Value>, ErrorData> {
        let voice = self.host.voice();
        let Ok(aid) = voice.peer(name) else {
            return Ok(None);
        };
        let Some(agent) = voice.ams().find(&aid).await.map_err(unavailable)? else {
            return Ok(None);
        };
        let entries = voice.df().search(DfAgentDescription::of(aid)).await;
        let services = entries.map_err(unavailable)?;
        let services = services.first().and_then(crate::own_tools::described);
        Ok(Some(json!({
            "name": agent.name.map(|it| it.name),
            "state": agent.state.map(|it| it.to_string()),
            "services": services.map(|it| it["services"].clone()).unwrap_or_default(),
        })))
    }

    /// The events of a channel as they come, as numbers.
    fn latest(&self, uri: &str) -> Result<watch::Receiver<u64>, ErrorData> {
        match Subject::read(uri) {
            Some(Subject::Channel(path)) => {
                Ok(self.host.feed(&path).map_err(unavailable)?.latest())
            }
            _ => Err(ErrorData::invalid_params(
                "only channels can be followed",
                None,
            )),
        }
    }
}

fn unavailable(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::invalid_request(error.to_string(), None)
}

fn not_found(uri: &str) -> ErrorData {
    let uri = shown(uri, 256);
    ErrorData::resource_not_found(format!("there is no resource {uri}"), None)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("sealbus", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        Ok(self.page(cursor.as_deref()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let head = context.extensions.get::<Parts>();
        let trace = trace(Some(&context.meta.0.0), head.map(|it| &it.headers));
        let work = async {
            if let Some(offer) = self.offer(&request.name) {
                return call(self.host.voice(), &offer, arguments, &context).await;
            }
            let own = call_own(&self.host, &request.name, arguments, &context).await;
            own.unwrap_or_else(|| {
                let name = shown(&request.name, 128);
                let why = format!("there is no tool {name}");
                Err(ErrorData::invalid_params(why, None))
            })
        };
        let work = async {
            match trace {
                Some(trace) => trace.carry(work).await,
                None => work.await,
            }
        };
        let result: CallToolResult = tokio::select! {
            biased;
            () = context.ct.cancelled() => failed(&"the call was cancelled"),
            result = work => result?,
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let agents = Resource::new(AGENTS, "agents")
            .with_description("All agents of the platform, and their states.")
            .with_mime_type("application/json");
        let channels = self.host.feeds.channels();
        let channels = channels.iter().map(|path| {
            Resource::new(channel_uri(path), path.clone())
                .with_description("The latest events of a channel.")
                .with_mime_type("application/json")
        });
        let resources = std::iter::once(agents).chain(channels).collect();
        Ok(ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = [
            (
                AGENT_TEMPLATE,
                "agent",
                "An agent: its name, its state, its services.",
            ),
            (
                CHANNEL_TEMPLATE,
                "channel",
                "The latest events of a channel, since it was first read or subscribed to.",
            ),
        ];
        let templates = templates.into_iter().map(|(uri, name, about)| {
            ResourceTemplate::new(uri, name)
                .with_description(about)
                .with_mime_type("application/json")
        });
        Ok(
            ListResourceTemplatesResult::with_all_items(templates.collect())
                .with_ttl_ms(FRESH)
                .with_cache_scope(CacheScope::Private),
        )
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let value = match Subject::read(&request.uri) {
            Some(Subject::Agents) => Some(self.agents().await?),
            Some(Subject::Agent(name)) => self.agent(&name).await?,
            Some(Subject::Channel(path)) => {
                let feed = self.host.feed(&path).map_err(unavailable)?;
                Some(feed.after(0, EVENTS))
            }
            None => None,
        };
        let value = value.ok_or_else(|| not_found(&request.uri))?;
        let contents = ResourceContents::text(value.to_string(), request.uri)
            .with_mime_type("application/json");
        let result = ReadResourceResult::new(vec![contents])
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        Ok(result.into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.retain(|uri| self.latest(uri).is_ok());
            uris.truncate(MOST_FOLLOWED);
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let (news, mut updates) = mpsc::channel(1);
        let mut following = JoinSet::new();
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            let (mut latest, news, uri) = (self.latest(uri)?, news.clone(), uri.clone());
            following.spawn(async move {
                while latest.changed().await.is_ok() && news.send(uri.clone()).await.is_ok() {}
            });
        }
        let mut tools = self.desk.changed.subscribe();
        let hears_of_tools = context.accepted().tools_list_changed == Some(true);
        loop {
            let sent = tokio::select! {
                () = context.cancelled() => return Ok(()),
                Some(uri) = updates.recv() => context.sink().notify_resource_updated(uri).await,
                Ok(()) = tools.changed(), if hears_of_tools => {
                    context.sink().notify_tool_list_changed().await
                }
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }

    // For hosts of the protocol before 2026-07-28.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut latest = self.latest(&request.uri)?;
        let mut followed = self.followed.lock();
        if followed.len() >= MOST_FOLLOWED && !followed.contains_key(&request.uri) {
            return Err(unavailable(
                "a session may follow no more resources: unsubscribe from one",
            ));
        }
        let uri = request.uri.clone();
        let telling = tokio::spawn(async move {
            while latest.changed().await.is_ok() {
                let notice = ResourceUpdatedNotificationParam::new(uri.clone());
                if context.peer.notify_resource_updated(notice).await.is_err() {
                    return;
                }
            }
        });
        followed.insert(request.uri, Following(telling.abort_handle()));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.followed.lock().remove(&request.uri);
        Ok(())
    }
}
