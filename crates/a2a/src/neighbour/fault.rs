//! Errors of an agent of others, in each binding (specification, sections 9.5, 10.6 and 11.6). Free of I/O.

use hyper::HeaderMap;
use sealbus_callers::shown;
use serde_json::{Map, Value};
use tonic::{Code, Status};

use crate::proto::reason;
use crate::wire::{self, LONGEST_TEXT};

/// An error that an agent of others answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it answered error {code}: {text}")]
pub struct RemoteFault {
    /// The code of JSON-RPC, or the status of HTTP or gRPC.
    pub code: i64,
    /// Whether it does not understand the content.
    pub is_about_content: bool,
    /// A2A's reason, such as `TASK_NOT_FOUND`, if it says one.
    pub reason: String,
    /// The text; harmless to show.
    pub text: String,
}

impl RemoteFault {
    pub(super) fn read(error: &Value, code: i64) -> Self {
        let details = error.get("data").or_else(|| error.get("details"));
        let details = details.and_then(Value::as_array).into_iter().flatten();
        let mut reasons = details.filter_map(|detail| detail.get("reason")?.as_str());
        let reason = reasons.next().unwrap_or_default();
        let text = error.get("message").and_then(Value::as_str);
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(code);
        let status = error.get("status").and_then(Value::as_str);
        Self {
            code,
            // Its parameters, and its content.
            is_about_content: matches!(code, -32_602 | -32_005)
                || status == Some("INVALID_ARGUMENT"),
            reason: shown(reason, 256),
            text: shown(text.unwrap_or("no reason given"), LONGEST_TEXT),
        }
    }
}

/// The error in an answer of this status over REST.
pub fn rest_fault(status: u16, body: &[u8]) -> RemoteFault {
    let told = wire::parse(body).unwrap_or_default();
    let error = told.get("error").cloned();
    RemoteFault::read(&error.unwrap_or(Value::Object(Map::new())), status.into())
}

/// The outcome of a request over gRPC, as the fields after its answer say, or those before it if there is none. None: they say
/// nothing.
pub(crate) fn grpc_outcome(fields: &HeaderMap) -> Option<Result<(), RemoteFault>> {
    let status = Status::from_header_map(fields)?;
    if status.code() == Code::Ok {
        return Some(Ok(()));
    }
    let text = Some(status.message()).filter(|text| !text.is_empty());
    let fault = RemoteFault {
        code: i32::from(status.code()).into(),
        is_about_content: status.code() == Code::InvalidArgument,
        reason: shown(&reason(status.details()).unwrap_or_default(), 256),
        text: shown(text.unwrap_or("no reason given"), LONGEST_TEXT),
    };
    Some(Err(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_over_rest_says_what_was_wrong() {
        assert_eq!(rest_fault(404, b"<html>").code, 404);
        let content = br#"{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}"#;
        assert!(rest_fault(400, content).is_about_content);
    }

    #[test]
    fn the_end_over_grpc_says_what_became_of_a_request() {
        let told = |status: Status| {
            let mut fields = HeaderMap::new();
            status.add_header(&mut fields).unwrap();
            grpc_outcome(&fields).unwrap()
        };
        assert_eq!(told(Status::new(Code::Ok, "")), Ok(()));
        let fault = told(crate::Fault::TaskNotFound.to_grpc()).unwrap_err();
        assert_eq!((fault.code, fault.reason.as_str()), (5, "TASK_NOT_FOUND"));
        assert!(!fault.is_about_content);
        let fault = told(crate::Fault::member("message", "no\u{1b}").to_grpc()).unwrap_err();
        assert!(fault.is_about_content && !fault.text.contains('\u{1b}'));
        assert!(grpc_outcome(&HeaderMap::new()).is_none());
    }
}
