//! The operations of A2A (specification, section 3.1), for every binding.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use sealbus::Delegation;
use sealbus::trace::TraceContext;
use sealbus_web::Client;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Fault;
use crate::acl::ACL;
use crate::catalogue::Exposed;
use crate::extensions::{DELEGATION, read_chain};
use crate::input::{Input, choose};
use crate::log::{State, TaskFacts, View};
use crate::push::PushConfig;
use crate::record::Opening;
use crate::stream::Stream;
use crate::tasks::{Task, Tasks, new_id, now};
use crate::wire::{
    Configuration, ListTasks, OneConfig, OneTask, SendMessageRequest, history, read,
};
use crate::work::{Wish, Work};
use crate::{acl, lines, talk, webhook};

/// An operation, with its parameters.
pub(crate) enum Operation {
    Send(Value),
    SendStreaming(Value),
    Get(OneTask),
    List(ListTasks),
    Cancel(OneTask),
    Subscribe(OneTask),
    CreateWebhook(Value),
    GetWebhook(Value),
    ListWebhooks(Value),
    DeleteWebhook(Value),
    ExtendedCard,
}

/// The result of an operation.
pub(crate) enum Outcome {
    One(Box<RawValue>),
    Stream(Stream),
}

/// A caller and the agent that it asks.
pub(crate) struct Desk<'a> {
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) agent: Arc<Exposed>,
    /// Makes the agent's card for this caller.
    pub(crate) card: &'a (dyn Fn() -> Value + Sync),
    /// Posts to webhooks, if there are any.
    pub(crate) web: Option<Client>,
    /// The event after which a stream continues.
    pub(crate) after: Option<u64>,
    /// The extensions that the request activates, of those known here.
    pub(crate) extensions: Vec<&'static str>,
    /// The trace that the request belongs to.
    pub(crate) trace: Option<TraceContext>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tasks: Vec<Box<RawValue>>,
    next_page_token: String,
    page_size: usize,
    total_size: usize,
}

impl Desk<'_> {
    pub(crate) async fn run(&self, operation: Operation) -> Result<Outcome, Fault> {
        match operation {
            Operation::Send(params) => {
                // The request is dropped before the task is awaited.
                let (task, configuration) = self.send(params)?;
                if configuration.return_immediately != Some(true) {
                    task.until(State::is_still).await;
                }
                let view = View::whole(history(configuration.history_length)?);
                Ok(Outcome::One(task.read(|log| log.answer(view))))
            }
            Operation::SendStreaming(params) => {
                let (task, configuration) = self.send(params)?;
                let view = View::whole(history(configuration.history_length)?);
                Ok(Outcome::Stream(Stream::new(task, view, None)))
            }
            Operation::Get(one) => {
                let view = View::whole(history(one.history_length)?);
                let task = self.tasks.get(&self.agent.local, &one.id)?;
                Ok(Outcome::One(task.read(|log| log.shown(view))))
            }
            Operation::List(list) => Ok(Outcome::One(self.list(&list)?)),
            Operation::Cancel(one) => {
                let task = self.tasks.get(&self.agent.local, &one.id)?;
                if !self.tasks.enter(&task, State::Canceled, None) {
                    return Err(Fault::TaskNotCancelable);
                }
                Ok(Outcome::One(task.read(|log| log.shown(View::whole(None)))))
            }
            Operation::Subscribe(one) => {
                let task = self.tasks.get(&self.agent.local, &one.id)?;
                // A caller that comes back for the rest gets it, even after the end.
                if task.state().is_terminal() && self.after.is_none() {
                    let why = "The task has ended: get it instead";
                    return Err(Fault::UnsupportedOperation(why.to_owned()));
                }
                let view = View::whole(None);
                Ok(Outcome::Stream(Stream::new(task, view, self.after)))
            }
            Operation::CreateWebhook(params) => {
                self.web()?;
                let config: PushConfig = read(params)?;
                config.check("")?;
                let task = self.tasks.get(&self.agent.local, &config.task_id)?;
                let (config, _) = self.add_webhook(&task, config)?;
                Ok(Outcome::One(raw(&json!(config))?))
            }
            Operation::GetWebhook(params) => {
                let (task, OneConfig { id, .. }) = self.webhook(params)?;
                let mut webhooks = task.webhooks().into_iter();
                let found = webhooks.find(|it| it.id == id).ok_or(Fault::TaskNotFound)?;
                Ok(Outcome::One(raw(&json!(found))?))
            }
            Operation::ListWebhooks(params) => {
                let (task, _) = self.webhook(params)?;
                let page = json!({ "configs": task.webhooks(), "nextPageToken": "" });
                Ok(Outcome::One(raw(&page)?))
            }
            Operation::DeleteWebhook(params) => {
                let (task, OneConfig { id, .. }) = self.webhook(params)?;
                // It is gone either way: a client that heard no answer may ask again.
                webhook::remove(&self.tasks, &task, &id);
                Ok(Outcome::One(raw(&json!({}))?))
            }
            // Each card is made for its caller.
            Operation::ExtendedCard => Ok(Outcome::One(raw(&(self.card)())?)),
        }
    }

    fn web(&self) -> Result<Client, Fault> {
        self.web.clone().ok_or(Fault::PushNotificationNotSupported)
    }

    /// The task of a request about webhooks.
    fn webhook(&self, params: Value) -> Result<(Arc<Task>, OneConfig), Fault> {
        self.web()?;
        let one: OneConfig = read(params)?;
        let task = self.tasks.get(&self.agent.local, &one.task_id)?;
        Ok((task, one))
    }

    /// Adds a webhook. Returns it as the task has it, and whether its id is new.
    fn add_webhook(
        &self,
        task: &Arc<Task>,
        mut config: PushConfig,
    ) -> Result<(PushConfig, bool), Fault> {
        let web = self.web()?;
        config.task_id.clone_from(&task.opening.head.id);
        if config.id.is_empty() {
            config.id = new_id()?;
        }
        let is_new = webhook::add(&self.tasks, task, config.clone(), web)?;
        Ok((config, is_new))
    }

    /// Adds the webhook of a message. All messages of a task that give it no id name the same one. Returns a new one's id.
    fn add_told(
        &self,
        task: &Arc<Task>,
        told: Option<PushConfig>,
    ) -> Result<Option<String>, Fault> {
        let Some(mut told) = told else {
            return Ok(None);
        };
        if told.id.is_empty() {
            told.id.clone_from(&task.opening.head.id);
        }
        let (config, is_new) = self.add_webhook(task, told)?;
        Ok(is_new.then_some(config.id))
    }

    /// Begins a task, or continues one.
    fn send(&self, params: Value) -> Result<(Arc<Task>, Configuration), Fault> {
        let hash = digest(&SHA256, params.to_string().as_bytes());
        let mut said = params.get("message").cloned().unwrap_or_default();
        let request: SendMessageRequest = read(params)?;
        request.check()?;
        let configuration = request.configuration.clone().unwrap_or_default();
        let told = configuration.task_push_notification_config.clone();
        if told.is_some() {
            self.web()?;
        }
        if let Some(id) = request
            .message
            .task_id
            .as_deref()
            .filter(|id| !id.is_empty())
        {
            let task = self.tasks.get(&self.agent.local, id)?;
            let (context, state) = (task.opening.head.context.clone(), task.state());
            let other = request.message.context_id.as_deref();
            if other.is_some_and(|other| !other.is_empty() && other != context) {
                let problem = "it is another than the task's";
                return Err(Fault::member("message.contextId", problem));
            }
            said["contextId"] = context.into();
            let message = raw(&said)?;
            // A caller that heard no answer may send it again, also after the end.
            if task.read(|log| log.has(&message)) {
                return Ok((task, configuration));
            }
            if state.is_terminal() {
                let why = "The task has ended: send a message without taskId";
                return Err(Fault::UnsupportedOperation(why.to_owned()));
            }
            let text = match task.opening.is_talk {
                true => talk::said(&request.message).map(|_| said.to_string())?,
                false => match Input::of(&request.message.parts)?.body {
                    Value::String(text) => text,
                    other => other.to_string(),
                },
            };
            // Before the answer: then it is told of all that becomes of it.
            let added = self.add_told(&task, told)?;
            let answered = self.tasks.answer(&task, message, text);
            if let (Err(_), Some(id)) = (&answered, &added) {
                webhook::remove(&self.tasks, &task, id);
            }
            return answered.map(|()| (task, configuration));
        }
        if self.agent.skills.is_empty() {
            let why = "The agent is away: send the message again later";
            return Err(Fault::UnsupportedOperation(why.to_owned()));
        }
        let wish = self.wish(&request)?;
        let chain = self.chain(&request)?;
        let id = new_id()?;
        let context = request.message.context_id.clone();
        let context = context.filter(|it| !it.is_empty());
        let context = context.map_or_else(new_id, Ok)?;
        said["taskId"] = id.as_str().into();
        said["contextId"] = context.as_str().into();
        let mut opening = Opening {
            agent: self.agent.local.clone(),
            head: Arc::new(TaskFacts {
                id,
                context,
                result: match &wish {
                    Wish::Skill(skill, _) => skill.name.clone(),
                    Wish::Talk(opening, _) => opening.performative.to_string(),
                },
            }),
            at: now(),
            name: request.message.message_id.clone(),
            hash: [0; 32],
            message: raw(&said)?,
            metadata: request.metadata.clone(),
            is_talk: matches!(wish, Wish::Talk(..)),
            extensions: self.extensions.iter().map(|it| (*it).to_owned()).collect(),
        };
        opening.hash.copy_from_slice(hash.as_ref());
        let (task, is_new) = self.tasks.open(opening)?;
        // Before the work: then it is told of all of it. The work begins even if it is refused, because the task is there.
        let added = self.add_told(&task, told);
        if is_new {
            if !chain.is_empty() {
                let (caller, id) = (self.tasks.caller.voice.name(), &task.opening.head.id);
                let agent = &self.agent.local;
                if let Some(left_out) = lines::admit(caller) {
                    tracing::info!(caller, agent, task = id, on_behalf_of = %chain, left_out, "a caller asks on behalf of others");
                }
            }
            let (agent, trace) = (self.agent.clone(), self.trace.clone());
            Work::begin(&self.tasks, &task, agent, wish, trace);
        }
        added.map(|_| (task, configuration))
    }

    /// The wish of a first message.
    fn wish(&self, request: &SendMessageRequest) -> Result<Wish, Fault> {
        let metadata = request.message.metadata.as_ref();
        if self.extensions.contains(&ACL) && metadata.is_some_and(|it| it.contains_key(ACL)) {
            let opening = talk::said(&request.message)?;
            let is_whole =
                acl::read(metadata).is_ok_and(|it| it.is_some_and(|it| it.whole.is_some()));
            return Ok(Wish::Talk(Box::new(opening), is_whole));
        }
        let (skill, input) = choose(&self.agent, request)?;
        Ok(Wish::Skill(skill.clone(), input))
    }

    /// On whose behalf the caller says to ask.
    fn chain(&self, request: &SendMessageRequest) -> Result<Delegation, Fault> {
        if !self.extensions.contains(&DELEGATION) {
            return Ok(Delegation::default());
        }
        let metadata = request.message.metadata.as_ref();
        let platform = self.tasks.caller.voice.platform();
        read_chain(metadata, platform).map_err(|error| {
            Fault::member(
                format!("message.metadata[\"{DELEGATION}\"]"),
                error.to_string(),
            )
        })
    }

    fn list(&self, list: &ListTasks) -> Result<Box<RawValue>, Fault> {
        let (page, token, after) = (list.page()?, list.token()?, list.after()?);
        let wanted = list.status.as_deref();
        let wanted = wanted.filter(|it| !it.is_empty() && *it != "TASK_STATE_UNSPECIFIED");
        // No task of this gateway waits for an authorization.
        let is_state = |it: &str| State::read(it).is_some() || it == "TASK_STATE_AUTH_REQUIRED";
        if wanted.is_some_and(|it| !is_state(it)) {
            return Err(Fault::member("status", "it is a state of tasks"));
        }
        let context = list.context_id.as_deref().filter(|it| !it.is_empty());
        let view = View {
            history: history(list.history_length)?,
            artifacts: list.include_artifacts.unwrap_or_default(),
        };
        let mut found = self.tasks.list(&self.agent.local);
        found.retain(|(_, task)| {
            task.read(|log| {
                let at = OffsetDateTime::parse(log.timestamp(), &Rfc3339);
                wanted.is_none_or(|state| log.state().as_str() == state)
                    && context.is_none_or(|context| task.opening.head.context == context)
                    && after.is_none_or(|after| at.is_ok_and(|at| at >= after))
            })
        });
        let total = found.len();
        found.retain(|(change, _)| token.is_none_or(|token| *change < token));
        let is_more = found.len() > page;
        found.truncate(page);
        let last = found.last().filter(|_| is_more);
        let page = Page {
            next_page_token: last
                .map(|(change, _)| change.to_string())
                .unwrap_or_default(),
            page_size: page,
            total_size: total,
            tasks: found
                .iter()
                .map(|(_, task)| task.read(|log| log.shown(view)))
                .collect(),
        };
        to_raw_value(&page).map_err(|_| Fault::Internal)
    }
}

fn raw(value: &Value) -> Result<Box<RawValue>, Fault> {
    to_raw_value(value).map_err(|_| Fault::Internal)
}
