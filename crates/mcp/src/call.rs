//! One call of an agent's tool: a `request`, followed to its reply. A call that is dropped sends `cancel`.

use std::time::Duration;

use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, JsonObject, MetaObject, ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer};
use sealbus::body::BodyError;
use sealbus::protocol::ProtocolError;
use sealbus::tool::{Answer, Progress, Step};
use sealbus::{Message, Voice};
use sealbus_callers::said::Said;
use sealbus_callers::schema::{Language, Shape};
use sealbus_callers::tools::AgentTool;
use sealbus_callers::{about, ask, shown};
use serde_json::{Value, json};

use crate::catalogue::{INPUT, Offer, RESULT};

/// A tool that says nothing for this time is given up.
const SILENCE: Duration = Duration::from_secs(300);
/// Most bytes of an answer's parts together.
const LONGEST_ANSWER: usize = 4 << 20;
/// Longest text of a notice of progress, in bytes.
const LONGEST_NOTICE: usize = 4_096;

/// Calls a tool. If the agent refuses or fails, the tool returns an error, which a model may read.
pub(crate) async fn call(
    voice: &Voice,
    offer: &Offer,
    mut arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let input = match offer.takes {
        Shape::Object => Value::Object(arguments),
        Shape::Member => arguments.remove(INPUT).ok_or_else(|| {
            ErrorData::invalid_params(format!("the argument `{INPUT}` is missing"), None)
        })?,
    };
    let AgentTool { agent, service, .. } = &offer.tool;
    let asking = ask(voice, agent, input, offer.tool.language)
        .map_err(|error| ErrorData::invalid_params(format!("`{INPUT}`: {error}"), None))?;
    let asking = asking.tool(service.clone()).timeout(SILENCE);
    let outcome = match asking.stream::<Said>().await {
        Ok(answer) => follow(answer, offer.tool.says, context).await,
        Err(error) => Err(error),
    };
    Ok(match outcome {
        Ok(heard) => result(offer, heard),
        Err(error) => failed(&error),
    })
}

/// All messages of a tool's answer.
pub(crate) struct Heard {
    pub(crate) parts: Vec<Value>,
    pub(crate) reply: Option<Message>,
}

/// Follows an answer to its end, and reports progress to the caller.
pub(crate) async fn follow(
    mut answer: Answer<Said>,
    language: Language,
    context: &RequestContext<RoleServer>,
) -> Result<Heard, ProtocolError> {
    let mut notices = Notices::of(context);
    let mut parts = Vec::new();
    let mut bytes = 0;
    while let Some(step) = answer.step().await? {
        match step {
            Step::Part(part) => {
                let part = part.value(language);
                notices.part(&part).await;
                bytes += part.to_string().len();
                if bytes > LONGEST_ANSWER {
                    return Err(ProtocolError::Body(BodyError::Misfit {
                        place: "$".to_owned(),
                        problem: format!("the answer is longer than {LONGEST_ANSWER} bytes"),
                    }));
                }
                parts.push(part);
            }
            Step::Progress(progress) => notices.progress(&progress).await,
            _ => {}
        }
    }
    let reply = answer.reply().cloned();
    Ok(Heard { parts, reply })
}

/// The notices of progress of one request. MCP wants numbers that grow: the tool's own progress, or the count of its
/// parts.
struct Notices<'a> {
    context: &'a RequestContext<RoleServer>,
    last: f64,
    by_tool: bool,
}

impl<'a> Notices<'a> {
    fn of(context: &'a RequestContext<RoleServer>) -> Self {
        Self {
            context,
            last: 0.0,
            by_tool: false,
        }
    }

    async fn part(&mut self, part: &Value) {
        if !self.by_tool {
            let text = match part {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            self.send(self.last + 1.0, None, &text).await;
        }
    }

    async fn progress(&mut self, progress: &Progress) {
        let fits = (0.0..=1.0).contains(&progress.done) && (self.by_tool || self.last == 0.0);
        if fits && progress.done > self.last {
            self.by_tool = true;
            self.send(progress.done, Some(1.0), &progress.text).await;
        }
    }

    async fn send(&mut self, progress: f64, total: Option<f64>, text: &str) {
        self.last = progress;
        let Some(token) = self.context.meta.get_progress_token() else {
            return;
        };
        let mut notice = ProgressNotificationParam::new(token, progress);
        notice.total = total;
        notice.message = Some(shown(text, LONGEST_NOTICE)).filter(|text| !text.is_empty());
        // A caller that has gone is noticed by the request itself.
        let _ = self.context.peer.notify_progress(notice).await;
    }
}

fn result(offer: &Offer, heard: Heard) -> CallToolResult {
    let value = match &heard.reply {
        _ if offer.tool.streams => Value::Array(heard.parts),
        Some(reply) => Said::in_message(reply).value(offer.tool.says),
        None => Value::Null,
    };
    let mut result = done(match (offer.gives, value) {
        (Some(Shape::Object), value) | (None, value @ Value::Object(_)) => value,
        (Some(Shape::Member) | None, value) => json!({ RESULT: value }),
    });
    result.meta = heard.reply.as_ref().map(|it| MetaObject(about(it)));
    result
}

/// A result with its structure, and the same as text for models that read only text.
pub(crate) fn done(structured: Value) -> CallToolResult {
    let text = match structured.get(RESULT) {
        Some(Value::String(text)) => text.clone(),
        Some(other) if structured.as_object().is_some_and(|it| it.len() == 1) => other.to_string(),
        _ => structured.to_string(),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}

/// An error of a tool.
pub(crate) fn failed(error: &dyn std::fmt::Display) -> CallToolResult {
    let text = shown(&error.to_string(), LONGEST_NOTICE);
    CallToolResult::error(vec![ContentBlock::text(text)])
}
