//! The binding to HTTP and JSON (specification, section 11).

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use sealbus_callers::{Answer, text_answer};
use serde_json::Value;

use crate::Fault;
use crate::operations::{Desk, Operation, Outcome};
use crate::wire::{ListTasks, OneTask, number, parse};

/// Answers a request for a path below an agent's address.
pub(crate) async fn answer(
    desk: &Desk<'_>,
    request: Request<'_>,
    version: Result<(), Fault>,
) -> Answer {
    let done = match version.and_then(|()| request.operation()) {
        Ok(operation) => desk.run(operation).await,
        Err(fault) => Err(fault),
    };
    match done {
        Ok(Outcome::One(result)) => json_answer(StatusCode::OK, result.get().to_owned()),
        Ok(Outcome::Stream(stream)) => stream.answer(|event| event.get().to_owned()),
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
            "message:send" if is_post => return Ok(Operation::Send(self.json()?)),
            "message:stream" if is_post => return Ok(Operation::SendStreaming(self.json()?)),
            "tasks" if is_get => return Ok(Operation::List(ListTasks::from_query(self.query)?)),
            "extendedAgentCard" if is_get => return Ok(Operation::ExtendedCard),
            _ => {}
        }
        let task = self.path.strip_prefix("tasks/").ok_or(Fault::NoMethod)?;
        if let Some((_, rest)) = task.split_once('/') {
            let is_config = rest.split('/').next() == Some("pushNotificationConfigs");
            return if is_config {
                Ok(Operation::PushNotifications)
            } else {
                Err(Fault::NoMethod)
            };
        }
        let (id, verb) = match task.rsplit_once(':') {
            Some((id, verb)) => (id, Some(verb)),
            None => (task, None),
        };
        let id = percent_decode_str(id).decode_utf8();
        let mut one = OneTask {
            id: id.map_err(|_| Fault::TaskNotFound)?.into_owned(),
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

    fn json(&self) -> Result<Value, Fault> {
        parse(self.body)
    }
}

/// An answer with an error.
pub(crate) fn refused(fault: &Fault) -> Answer {
    let (status, body) = fault.to_rest();
    json_answer(status, body.to_string())
}

fn json_answer(status: StatusCode, body: String) -> Answer {
    let mut answer = text_answer(status, body);
    let json = HeaderValue::from_static("application/a2a+json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
