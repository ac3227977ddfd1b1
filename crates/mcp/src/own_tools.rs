//! The tools of the platform itself: to search, to write, to ask, to publish, to listen.

use std::time::Duration;

use rmcp::model::{CallToolResult, ErrorData, JsonObject, MetaObject, Tool, ToolAnnotations};
use rmcp::service::{RequestContext, RoleServer};
use schemars::JsonSchema;
use sealbus::directory::{DfAgentDescription, SearchConstraints, ServiceDescription, Template};
use sealbus::{AclMessage, Aid, Delivery, Message, Performative, new_conversation_id};
use sealbus_callers::about;
use sealbus_callers::said::Said;
use sealbus_callers::schema::Language;
use serde::Deserialize;
use serde_json::{Value, from_value, json};

use crate::call::{done, failed, follow};
use crate::host::Host;
use crate::resources::channel_uri;

/// How long sending and publishing wait for room.
const SENDING: Duration = Duration::from_secs(30);
/// How long a request waits for a word of the agent, by default and at most.
const ANSWER: f64 = 60.0;
const LONGEST_ANSWER_TIME: f64 = 3_600.0;
/// Most entries of one answer.
const MOST: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The type of service; all services if it is left out
    service: Option<String>,
    /// Most agents to return
    #[serde(default = "twenty")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Send {
    /// The agent, such as seller-1
    to: String,
    /// The content of the message
    content: String,
    /// The FIPA performative, such as inform, request or query-ref
    #[serde(default = "inform")]
    performative: String,
    /// The conversation that the message belongs to; a new one if it is left out
    conversation_id: Option<String>,
    /// Keeps the message on disk for an agent that is away
    #[serde(default)]
    keep: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The agent, such as seller-1
    to: String,
    /// The task for the agent
    content: String,
    /// Seconds that the agent may be silent
    #[serde(default = "answer_time")]
    timeout_s: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadMailbox {
    /// Most messages to take
    #[serde(default = "twenty")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Publish {
    /// The channel, such as /prices/tea
    channel: String,
    /// The content of the event
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneChannel {
    /// The channel, such as /prices/tea
    channel: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadChannel {
    /// The channel, such as /prices/tea
    channel: String,
    /// The number of the last event that is known already
    #[serde(default)]
    after: u64,
    /// Most events to return
    #[serde(default = "twenty")]
    limit: usize,
}

fn twenty() -> usize {
    20
}

fn inform() -> String {
    "inform".to_owned()
}

fn answer_time() -> f64 {
    ANSWER
}

/// The platform's own tools.
pub(crate) fn own_tools() -> Vec<Tool> {
    fn tool<T: JsonSchema + 'static>(name: &'static str, about: &'static str, reads: bool) -> Tool {
        Tool::new(name, about, JsonObject::new())
            .with_input_schema::<T>()
            .with_annotations(ToolAnnotations::new().read_only(reads).open_world(false))
    }
    vec![
        tool::<Publish>(
            "publish",
            "Publish an event to all agents that listen to a channel.",
            false,
        ),
        tool::<ReadChannel>(
            "read_channel",
            "Read the events of a channel since it was subscribed to.",
            true,
        ),
        tool::<ReadMailbox>(
            "read_mailbox",
            "Take the messages that other agents have sent here.",
            false,
        ),
        tool::<Request>(
            "request_agent",
            "Ask an agent to do something, and wait for its answer.",
            false,
        ),
        tool::<Search>(
            "search_agents",
            "Find agents by the services that they offer.",
            true,
        ),
        tool::<Send>(
            "send_message",
            "Send a message to an agent, without waiting for an answer.",
            false,
        ),
        tool::<OneChannel>(
            "subscribe",
            "Listen to a channel; read_channel and the resource returned give its events.",
            false,
        ),
        tool::<OneChannel>("unsubscribe", "Stop listening to a channel.", false),
    ]
}

/// A call of one of the platform's own tools.
enum OwnCall {
    Publish(Publish),
    ReadChannel(ReadChannel),
    ReadMailbox(ReadMailbox),
    Request(Request),
    Search(Search),
    Send(Send),
    Subscribe(OneChannel),
    Unsubscribe(OneChannel),
}

impl OwnCall {
    /// Reads a call. `None` if no tool has this name.
    fn read(name: &str, arguments: JsonObject) -> Option<serde_json::Result<Self>> {
        let arguments = Value::Object(arguments);
        Some(match name {
            "publish" => from_value(arguments).map(Self::Publish),
            "read_channel" => from_value(arguments).map(Self::ReadChannel),
            "read_mailbox" => from_value(arguments).map(Self::ReadMailbox),
            "request_agent" => from_value(arguments).map(Self::Request),
            "search_agents" => from_value(arguments).map(Self::Search),
            "send_message" => from_value(arguments).map(Self::Send),
            "subscribe" => from_value(arguments).map(Self::Subscribe),
            "unsubscribe" => from_value(arguments).map(Self::Unsubscribe),
            _ => return None,
        })
    }
}

/// Whether one of the platform's own tools has this name and takes these arguments.
pub(crate) fn takes(name: &str, arguments: JsonObject) -> bool {
    matches!(OwnCall::read(name, arguments), Some(Ok(_)))
}

/// Calls one of the platform's own tools. `None` if no tool has this name. Wrong arguments are a fault of the request.
pub(crate) async fn call_own(
    host: &Host,
    name: &str,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CallToolResult, ErrorData>> {
    let call = match OwnCall::read(name, arguments)? {
        Ok(call) => call,
        Err(error) => return Some(Err(ErrorData::invalid_params(error.to_string(), None))),
    };
    Some(Ok(match call {
        OwnCall::Publish(it) => publish(host, it).await,
        OwnCall::ReadChannel(it) => {
            let feed = host.feed(&it.channel);
            outcome(feed.map(|feed| feed.after(it.after, it.limit.min(MOST))))
        }
        OwnCall::ReadMailbox(it) => read_mailbox(host, it).await,
        OwnCall::Request(it) => request(host, it, context).await,
        OwnCall::Search(it) => search(host, it).await,
        OwnCall::Send(it) => send(host, it).await,
        OwnCall::Subscribe(it) => {
            let feed = host.feed(&it.channel);
            outcome(feed.map(|_| json!({ "uri": channel_uri(&it.channel) })))
        }
        OwnCall::Unsubscribe(it) => done(json!({ "subscribed": host.feeds.close(&it.channel) })),
    }))
}

fn outcome<E: std::fmt::Display>(outcome: Result<Value, E>) -> CallToolResult {
    match outcome {
        Ok(value) => done(value),
        Err(error) => failed(&error),
    }
}

async fn search(host: &Host, search: Search) -> CallToolResult {
    let service = search.service.map(ServiceDescription::of_type);
    let service = service.unwrap_or_default();
    let most = search.limit.clamp(1, MOST);
    let constraints = SearchConstraints {
        max_results: i64::try_from(most).ok(),
        ..SearchConstraints::all()
    };
    let template = Template(DfAgentDescription::default().with_service(service));
    let found = host.voice().df().search_with(template, constraints);
    outcome(found.await.map(|entries| {
        let agents: Vec<Value> = entries.iter().take(most).filter_map(described).collect();
        json!({ "agents": agents })
    }))
}

/// An entry of the DF. The list of tools contains the schemas of tools.
pub(crate) fn described(entry: &DfAgentDescription) -> Option<Value> {
    let services: Vec<Value> = entry
        .services
        .iter()
        .map(|it| json!({"name": it.name, "type": it.service_type, "protocols": it.protocols}))
        .collect();
    Some(json!({"name": entry.name.as_ref()?.name, "services": services}))
}

async fn send(host: &Host, send: Send) -> CallToolResult {
    let to = match host.voice().peer(&send.to) {
        Ok(to) => to,
        Err(error) => return failed(&error),
    };
    let Some(performative) = Performative::standard(send.performative.as_bytes()) else {
        return failed(&format!("{} is no performative of FIPA", send.performative));
    };
    let conversation = send.conversation_id.unwrap_or_else(new_conversation_id);
    let message = AclMessage::new(performative)
        .with_receiver(to)
        .with_conversation_id(conversation.as_str())
        .with_content(send.content);
    let (delivery, word) = if send.keep {
        (Delivery::persistent(), "kept")
    } else {
        (Delivery::default(), "taken")
    };
    let sent = tokio::time::timeout(SENDING, host.voice().send_with(message, delivery)).await;
    match sent {
        Ok(Ok(())) => done(json!({"conversation_id": conversation, "acknowledged": word})),
        Ok(Err(error)) => failed(&error),
        Err(_) => failed(&format!(
            "{} has no room for messages now: try again later",
            send.to
        )),
    }
}

async fn request(
    host: &Host,
    request: Request,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let to: Aid = match host.voice().peer(&request.to) {
        Ok(to) => to,
        Err(error) => return failed(&error),
    };
    let silence = Duration::from_secs_f64(request.timeout_s.clamp(0.001, LONGEST_ANSWER_TIME));
    let asking = match host.voice().ask(to, &request.content) {
        Ok(asking) => asking.timeout(silence),
        Err(error) => return failed(&error),
    };
    let heard = match asking.stream::<Said>().await {
        Ok(answer) => follow(answer, Language::Json, context).await,
        Err(error) => Err(error),
    };
    let heard = match heard {
        Ok(heard) => heard,
        Err(error) => return failed(&error),
    };
    let Some(reply) = heard.reply else {
        return failed(&"the agent gave no reply");
    };
    let mut value = read(&reply);
    if !heard.parts.is_empty() {
        value["content"] = heard.parts.into();
    }
    let mut result = done(value);
    result.meta = Some(MetaObject(about(&reply)));
    result
}

async fn read_mailbox(host: &Host, read_mailbox: ReadMailbox) -> CallToolResult {
    match host.caller.take_mail(read_mailbox.limit.min(MOST)).await {
        Some(messages) => {
            let messages: Vec<Value> = messages.iter().map(read).collect();
            done(json!({ "messages": messages }))
        }
        None => failed(&"the caller's agent has left the platform"),
    }
}

/// A message as a caller reads it.
fn read(message: &Message) -> Value {
    json!({
        "sender": message.sender_name(),
        "performative": message.performative.as_str(),
        "conversation_id": message.conversation_id.as_ref().and_then(|it| it.as_str()),
        "content": Said::value_in(message),
        "provenance": message.provenance().as_str(),
    })
}

async fn publish(host: &Host, publish: Publish) -> CallToolResult {
    let channel = match host.voice().channel(&publish.channel) {
        Ok(channel) => channel,
        Err(error) => return failed(&error),
    };
    let event = AclMessage::new(Performative::Inform).with_content(publish.content);
    match tokio::time::timeout(SENDING, channel.publish(event)).await {
        Ok(Ok(_)) => done(json!({ "published": publish.channel })),
        Ok(Err(error)) => failed(&error),
        Err(_) => {
            failed(&"a subscriber of the channel has no room for events now: try again later")
        }
    }
}
