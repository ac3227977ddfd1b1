//! The binding to gRPC (specification, section 10). A request's `tenant` names the agent.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use sealbus_callers::{Answer, text_answer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tonic::{Code, Status};

use crate::Fault;
use crate::frames::{FrameError, first, framed};
use crate::operations::{Desk, Outcome};
use crate::proto::ServiceMethod;
use crate::rpc;
use crate::stream::StreamForm;

/// Whether a request with a body of this type is one of gRPC.
pub(crate) fn is_grpc(media_type: Option<&HeaderValue>) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    media_type.is_some_and(|it| {
        let (begin, rest) = it.as_bytes().split_at(GRPC.len().min(it.len()));
        let ends = matches!(rest.first(), None | Some(b'+' | b';' | b' '));
        begin.eq_ignore_ascii_case(GRPC) && ends
    })
}

/// The answer to a request that is not a gRPC request.
pub(crate) fn no_grpc() -> Answer {
    let why = "a request here is application/grpc";
    text_answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)
}

/// The path of the service.
pub(crate) const SERVICE: &str = "/lf.a2a.v1.A2AService/";

/// A request.
pub(crate) struct Request {
    operation: ServiceMethod,
    params: Map<String, Value>,
}

impl Request {
    /// Reads a request for a path below the service's.
    pub(crate) fn read(method: &str, body: &[u8]) -> Result<Self, Fault> {
        let operation = ServiceMethod::named(method).ok_or(Fault::NoMethod)?;
        let message = match first(body, usize::MAX) {
            Ok(Some((message, []))) => message,
            Err(FrameError::Compressed) => {
                return Err(Fault::NoRequest("this gateway takes no compressed message"));
            }
            _ => return Err(NO_MESSAGE),
        };
        let params = operation.read(message);
        let params = params.map_err(|error| Fault::member("", error.to_string()))?;
        Ok(Self { operation, params })
    }

    /// The name of the agent, if the request says one.
    pub(crate) fn agent(&self) -> Option<&str> {
        let tenant = self.params.get("tenant")?.as_str()?;
        Some(tenant).filter(|it| !it.is_empty())
    }

    /// Answers it.
    pub(crate) async fn answer(self, desk: &Desk<'_>) -> Answer {
        let Self { operation, params } = self;
        let done = match rpc::operation(operation.name, params.into()) {
            Ok(operation) => desk.run(operation).await,
            Err(fault) => Err(fault),
        };
        let mut answer = match done {
            Ok(Outcome::One(result)) => {
                let form = AsOperation(operation);
                let answer = Full::new(form.event(0, &result));
                let end = form.end().map(Ok);
                Response::new(answer.with_trailers(std::future::ready(end)).boxed())
            }
            Ok(Outcome::Stream(stream)) => stream.answer(AsOperation(operation)),
            Err(fault) => return refused(&fault),
        };
        say_grpc(answer.headers_mut());
        answer
    }
}

const NO_MESSAGE: Fault = Fault::NoRequest("its body is one message of gRPC");

/// Answers in the form of an operation.
struct AsOperation(ServiceMethod);

impl StreamForm for AsOperation {
    fn event(&self, _number: u64, told: &RawValue) -> Bytes {
        let told: Value = serde_json::from_str(told.get()).unwrap_or_default();
        // A task holds some megabytes at most.
        framed(&self.0.write(&told))
    }

    fn end(&self) -> Option<HeaderMap> {
        Some(trailers(&Status::new(Code::Ok, "")))
    }
}

/// Where gRPC says what became of a request.
fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        let unknown = HeaderValue::from_static("2");
        trailers.insert("grpc-status", unknown);
    }
    trailers
}

fn say_grpc(headers: &mut HeaderMap) {
    let grpc = HeaderValue::from_static("application/grpc");
    headers.insert(CONTENT_TYPE, grpc);
}

/// An answer with an error.
pub(crate) fn refused(fault: &Fault) -> Answer {
    let mut answer = text_answer(StatusCode::OK, Bytes::new());
    *answer.headers_mut() = trailers(&fault.to_grpc());
    say_grpc(answer.headers_mut());
    answer
}

/// The door's refusal of a request. Clients find the reason only in the words of gRPC, and some take a body for a broken stream.
pub(crate) async fn turned_away(answer: Answer) -> Answer {
    let code = match answer.status() {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::INTERNAL_SERVER_ERROR => Code::Internal,
        _ => return answer,
    };
    let (mut head, body) = answer.into_parts();
    let why = body.collect().await.unwrap_or_else(|never| match never {});
    let why = String::from_utf8_lossy(&why.to_bytes()).into_owned();
    head.status = StatusCode::OK;
    head.headers.extend(trailers(&Status::new(code, why)));
    say_grpc(&mut head.headers);
    Response::from_parts(head, Full::default().boxed())
}
