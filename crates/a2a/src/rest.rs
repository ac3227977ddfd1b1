//! The binding to HTTP and JSON (specification, section 11).

use std::borrow::Cow;

use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use sealbus_callers::{Answer, typed_answer};
use serde_json::{Value, json};

use crate::Fault;
use crate::operations::{Desk, Operation, Outcome};
use crate::rpc;
use crate::wire::{ListTasks, OneTask, number, parse};

/// Answers a request for a path below an agent's address, unless the check of its head failed.
pub(crate) async fn answer(
    desk: &Desk<'_>,
    request: Request<'_>,
    checked: Result<(), Fault>,
) -> Answer {
    let done = match checked.and_then(|()| request.operation()) {
        Ok(operation) => desk.run(operation).await,
        Err(fault) => Err(fault),
    };
    match done {
        Ok(Outcome::One(result)) => json_answer(StatusCode::OK, result.get().to_owned()),
        Ok(Outcome::Stream(stream)) => stream.sse(|event| event.get().to_owned()),
        Err(fault) => refused(&fault),
    }
}

/// A request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Below the agent's address, without a slash at the beginning.
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) body: &'a [u8],
}

impl Request<'_> {
    fn operation(&self) -> Result<Operation, Fault> {
        let (is_get, is_post) = (self.method == Method::GET, self.method == Method::POST);
        match self.path {
            "message:send" if is_post => return rpc::operation("SendMessage", self.json()?),
            "message:stream" if is_post => {
                return rpc::operation("SendStreamingMessage", self.json()?);
            }
            "tasks" if is_get => return Ok(Operation::List(ListTasks::from_query(self.query)?)),
            "extendedAgentCard" if is_get => return Ok(Operation::ExtendedCard),
            _ => {}
        }
        let task = self.path.strip_prefix("tasks/").ok_or(Fault::NoMethod)?;
        if let Some((task, rest)) = task.split_once('/') {
            return self.webhook(task, rest);
        }
        let (id, verb) = match task.rsplit_once(':') {
            Some((id, verb)) => (id, Some(verb)),
            None => (task, None),
        };
        let mut one = OneTask {
            id: decoded(id)?,
            history_length: None,
        };
        match verb {
            None if is_get => {
                for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
                    if name == "historyLength" {
                        one.history_length = Some(number("historyLength", &value)?);
                    }
                }
                Ok(Operation::Get(one))
            }
            Some("cancel") if is_post => Ok(Operation::Cancel(one)),
            // The text of the specification says POST, and its proto GET.
            Some("subscribe") if is_post || is_get => Ok(Operation::Subscribe(one)),
            _ => Err(Fault::NoMethod),
        }
    }

    fn webhook(&self, task: &str, rest: &str) -> Result<Operation, Fault> {
        let rest = rest.strip_prefix("pushNotificationConfigs");
        let mut params = json!({ "taskId": decoded(task)? });
        match rest.ok_or(Fault::NoMethod)? {
            "" if self.method == Method::POST => {
                let mut config = self.json()?;
                let members = config.as_object_mut().ok_or(Fault::NoJson)?;
                members.insert("taskId".to_owned(), params["taskId"].take());
                rpc::operation("CreateTaskPushNotificationConfig", config)
            }
            "" if self.method == Method::GET => Ok(Operation::ListWebhooks(params)),
            one => {
                let id = one.strip_prefix('/').ok_or(Fault::NoMethod)?;
                params["id"] = decoded(id)?.into();
                match *self.method {
                    Method::GET => Ok(Operation::GetWebhook(params)),
                    Method::DELETE => Ok(Operation::DeleteWebhook(params)),
                    _ => Err(Fault::NoMethod),
                }
            }
        }
    }

    fn json(&self) -> Result<Value, Fault> {
        parse(self.body)
    }
}

/// The name of a task or a webhook in a path.
fn decoded(text: &str) -> Result<String, Fault> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| Fault::TaskNotFound)
}

/// An answer with an error.
pub(crate) fn refused(fault: &Fault) -> Answer {
    let (status, body) = fault.to_rest();
    json_answer(status, body.to_string())
}

fn json_answer(status: StatusCode, body: String) -> Answer {
    typed_answer(status, "application/a2a+json", body)
}
