//! One connection of a caller: HTTP/1.1 or HTTP/2, with limits for what is not yet a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sealbus_web::HeadLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// An answer to a request.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// An answer with a body as a whole.
pub fn text_answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed());
    *answer.status_mut() = status;
    answer
}

/// As [`text_answer`], with the type of its body.
pub fn typed_answer(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = text_answer(status, body);
    let media_type = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    answer
}

/// The answer, which holds this until its body is written or its caller has gone.
pub(crate) fn holding(answer: Answer, held: impl Send + Sync + 'static) -> Answer {
    let hold = move |never: Infallible| {
        let _ = &held;
        never
    };
    answer.map(|body| body.map_err(hold).boxed())
}

/// The limits of a request's head.
pub(crate) const HEAD: HeadLimits = HeadLimits {
    time: Duration::from_secs(60),
    length: 32 << 10,
    fields: 64,
};
/// Requests of one connection of HTTP/2 at a time, and the bytes of one that lie here unread.
const STREAMS: u32 = 256;
const WINDOW: u32 = 64 << 10;
/// The time after which a silent caller is asked whether it lives, and the time for its answer.
const ALIVE: Duration = Duration::from_secs(20);
/// The time that the first bytes of a connection may take once there are some, and the pause before they are looked at again.
const PREFACE_TIME: Duration = Duration::from_secs(10);
const PEEK_PAUSE: Duration = Duration::from_millis(20);
/// The name of HTTP/2 in TLS.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Whether a caller without TLS speaks HTTP/2; none if it says nothing.
pub(crate) async fn is_http2(stream: &TcpStream) -> Option<bool> {
    /// The first bytes of HTTP/2, and of no request of HTTP/1.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
    let mut pauses = PREFACE_TIME.as_millis() / PEEK_PAUSE.as_millis();
    while pauses > 0 {
        let mut begun = [0; PREFACE.len()];
        let peeked = tokio::time::timeout(HEAD.time, stream.peek(&mut begun)).await;
        let begun = begun.get(..peeked.ok()?.ok()?);
        let begun = begun.filter(|it| !it.is_empty())?;
        if begun == PREFACE || !PREFACE.starts_with(begun) {
            return Some(begun == PREFACE);
        }
        // The same bytes would be there at once.
        tokio::time::sleep(PEEK_PAUSE).await;
        pauses -= 1;
    }
    None
}

/// Answers requests over HTTP/2. A connection on which nothing is asked for a time ends.
pub(crate) async fn http2<C, F>(
    stream: C,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Result<(), hyper::Error>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (asked, mut news) = watch::channel(());
    let asked = Arc::new(asked);
    let service = service_fn(|request| {
        asked.send_replace(());
        let (answer, open) = (answer(request), asked.clone());
        async move { Ok::<_, Infallible>(holding(answer.await, open)) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD.length as u32)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(16 * WINDOW)
        .max_send_buf_size(WINDOW as usize)
        .keep_alive_interval(ALIVE)
        .keep_alive_timeout(ALIVE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    loop {
        tokio::select! {
            ended = served.as_mut() => return ended,
            () = tokio::time::sleep(HEAD.time) => {
                let was_asked = news.has_changed().unwrap_or(false);
                news.mark_unchanged();
                if !was_asked && Arc::strong_count(&asked) == 1 {
                    break;
                }
            }
        }
    }
    served.as_mut().graceful_shutdown();
    let ended = tokio::time::timeout(ALIVE, served).await;
    ended.unwrap_or(Ok(()))
}
