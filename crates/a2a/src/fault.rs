//! The reasons why an operation fails, in the words of each binding (specification, sections 5.4, 9.5, 10.6 and 11.6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::proto::{self, BAD_REQUEST, ERROR_INFO, RPC_STATUS};

/// An error of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The body is no JSON.
    NoJson,
    /// The body is no request of JSON-RPC.
    NoRequest(&'static str),
    /// There is no such method or path.
    NoMethod,
    /// A member of the request is wrong.
    BadMember {
        /// Its place, such as `message.parts`.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// The caller has no such task of this agent.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// Webhooks are not offered.
    PushNotificationNotSupported,
    /// The operation is not offered, or not now.
    UnsupportedOperation(String),
    /// The agent takes no such parts.
    ContentTypeNotSupported(String),
    /// The request is in another version of the protocol.
    VersionNotSupported,
    /// The caller has as many tasks at work, or as many bytes in them, as it may.
    Exhausted(String),
    /// The gateway itself fails.
    Internal,
}

/// A fault's names: JSON-RPC's number, HTTP's status, the status of `google.rpc`, and A2A's reason.
struct Names(i32, StatusCode, &'static str, Option<&'static str>);

impl Fault {
    /// A wrong member.
    pub(crate) fn member(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::BadMember {
            field: field.into(),
            problem: problem.into(),
        }
    }

    fn names(&self) -> Names {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        const STATE: &str = "FAILED_PRECONDITION";
        const ARGUMENT: &str = "INVALID_ARGUMENT";
        match self {
            Self::NoJson => Names(-32700, BAD, ARGUMENT, None),
            Self::NoRequest(_) => Names(-32600, BAD, ARGUMENT, None),
            Self::NoMethod => Names(-32601, StatusCode::NOT_FOUND, "NOT_FOUND", None),
            Self::BadMember { .. } => Names(-32602, BAD, ARGUMENT, None),
            Self::Internal => Names(-32603, StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", None),
            Self::TaskNotFound => {
                let reason = Some("TASK_NOT_FOUND");
                Names(-32001, StatusCode::NOT_FOUND, "NOT_FOUND", reason)
            }
            Self::TaskNotCancelable => Names(-32002, BAD, STATE, Some("TASK_NOT_CANCELABLE")),
            Self::PushNotificationNotSupported => {
                let reason = Some("PUSH_NOTIFICATION_NOT_SUPPORTED");
                Names(-32003, BAD, STATE, reason)
            }
            Self::UnsupportedOperation(_) => {
                Names(-32004, BAD, STATE, Some("UNSUPPORTED_OPERATION"))
            }
            Self::ContentTypeNotSupported(_) => {
                Names(-32005, BAD, ARGUMENT, Some("CONTENT_TYPE_NOT_SUPPORTED"))
            }
            Self::VersionNotSupported => Names(-32009, BAD, STATE, Some("VERSION_NOT_SUPPORTED")),
            // The range that JSON-RPC leaves to servers, outside A2A's own numbers.
            Self::Exhausted(_) => Names(
                -32000,
                StatusCode::TOO_MANY_REQUESTS,
                "RESOURCE_EXHAUSTED",
                None,
            ),
        }
    }

    /// The problem in words.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NoJson => "Invalid JSON payload".to_owned(),
            Self::NoRequest(why) => format!("Request payload validation error: {why}"),
            Self::NoMethod => "Method not found".to_owned(),
            Self::BadMember { field, problem } => {
                format!("Invalid parameters: {field}: {problem}")
            }
            Self::TaskNotFound => "Task not found".to_owned(),
            Self::TaskNotCancelable => "Task cannot be canceled: it has ended".to_owned(),
            Self::PushNotificationNotSupported => "Push notifications are not offered".to_owned(),
            Self::UnsupportedOperation(why)
            | Self::ContentTypeNotSupported(why)
            | Self::Exhausted(why) => why.clone(),
            Self::VersionNotSupported => {
                "Version not supported: send the header A2A-Version: 1.0".to_owned()
            }
            Self::Internal => "Internal error".to_owned(),
        }
    }

    fn details(&self) -> Option<Value> {
        if let Self::BadMember { field, problem } = self {
            return Some(json!([{
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": field, "description": problem}],
            }]));
        }
        let reason = self.names().3?;
        Some(json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": {},
        }]))
    }

    /// The `error` of a JSON-RPC response.
    pub fn to_rpc(&self) -> Value {
        let mut error = json!({"code": self.names().0, "message": self.message()});
        if let Some(details) = self.details() {
            error["data"] = details;
        }
        error
    }

    /// The status of a gRPC answer.
    pub(crate) fn to_grpc(&self) -> Status {
        let code = match (self, self.names().2) {
            (Self::NoMethod, _) => Code::Unimplemented,
            (_, "NOT_FOUND") => Code::NotFound,
            (_, "FAILED_PRECONDITION") => Code::FailedPrecondition,
            (_, "RESOURCE_EXHAUSTED") => Code::ResourceExhausted,
            (_, "INTERNAL") => Code::Internal,
            _ => Code::InvalidArgument,
        };
        let details = self.details().unwrap_or_else(|| json!([]));
        let packed = details.as_array().into_iter().flatten().map(|detail| {
            let fields = match self {
                Self::BadMember { .. } => BAD_REQUEST,
                _ => ERROR_INFO,
            };
            let value = STANDARD.encode(proto::write(fields, detail));
            json!({"@type": detail["@type"], "value": value})
        });
        let packed: Vec<Value> = packed.collect();
        let status = json!({"code": code as i32, "message": self.message(), "details": packed});
        let details = proto::write(RPC_STATUS, &status);
        Status::with_details(code, self.message(), details.into())
    }

    /// The status and the body of a REST answer.
    pub fn to_rest(&self) -> (StatusCode, Value) {
        let Names(_, status, name, _) = self.names();
        let details = self.details().unwrap_or_else(|| json!([]));
        let error = json!({
            "code": status.as_u16(), "status": name, "message": self.message(), "details": details,
        });
        (status, json!({ "error": error }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bindings_say_the_same() {
        for (fault, number, status, reason) in [
            (Fault::TaskNotFound, -32001, 404, "TASK_NOT_FOUND"),
            (Fault::TaskNotCancelable, -32002, 400, "TASK_NOT_CANCELABLE"),
            (
                Fault::PushNotificationNotSupported,
                -32003,
                400,
                "PUSH_NOTIFICATION_NOT_SUPPORTED",
            ),
            (
                Fault::UnsupportedOperation(String::new()),
                -32004,
                400,
                "UNSUPPORTED_OPERATION",
            ),
            (
                Fault::ContentTypeNotSupported(String::new()),
                -32005,
                400,
                "CONTENT_TYPE_NOT_SUPPORTED",
            ),
            (
                Fault::VersionNotSupported,
                -32009,
                400,
                "VERSION_NOT_SUPPORTED",
            ),
        ] {
            let rpc = fault.to_rpc();
            assert_eq!(rpc["code"], number);
            assert_eq!(rpc["data"][0]["reason"], reason);
            let (found, rest) = fault.to_rest();
            assert_eq!(found.as_u16(), status);
            assert_eq!(rest["error"]["code"], status);
            assert_eq!(rest["error"]["details"], rpc["data"]);
            assert_eq!(rest["error"]["message"], rpc["message"]);
            let grpc = fault.to_grpc();
            assert_eq!(grpc.message(), rpc["message"]);
            let name = rest["error"]["status"].as_str().unwrap().replace('_', "");
            assert!(format!("{:?}", grpc.code()).eq_ignore_ascii_case(&name));
            let details = String::from_utf8_lossy(grpc.details()).into_owned();
            assert!(details.contains(reason) && details.contains("a2a-protocol.org"));
        }
        let wrong = Fault::member("message.parts", "it is empty");
        let violation = &wrong.to_rpc()["data"][0]["fieldViolations"][0];
        assert_eq!(violation["field"], "message.parts");
        for (fault, number) in [
            (Fault::NoJson, -32700),
            (Fault::NoRequest(""), -32600),
            (Fault::NoMethod, -32601),
            (Fault::Internal, -32603),
        ] {
            assert_eq!(fault.to_rpc()["code"], number);
        }
    }
}
