//! Requests of others over HTTP/1.1. A request's head is bounded in bytes, fields and time.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

/// The limits of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// How long a head may take to arrive, and how long a connection may be idle between two requests.
    pub time: Duration,
    /// The bytes of a head: 8 KiB at least.
    pub length: usize,
    /// The number of its fields.
    pub fields: usize,
}

/// Answers the requests on one connection until it ends. Requests that are no HTTP, or exceed a limit, get an error of HTTP.
///
/// # Errors
/// The client broke off, sent no HTTP, or exceeded a limit.
pub async fn answer_http1<S, F, B>(
    stream: S,
    limits: HeadLimits,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<B>>,
    B: Body<Error = Infallible> + 'static,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.time)
        .max_headers(limits.fields)
        .max_buf_size(limits.length)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// An answer without content.
pub fn empty_answer<B: Default>(status: StatusCode) -> Response<B> {
    let mut answer = Response::new(B::default());
    *answer.status_mut() = status;
    answer
}
