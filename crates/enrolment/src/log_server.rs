//! Serves the files of issuance logs to strangers (C2SP tlog-tiles).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use sealbus_transparency::{Folder, LogError, LogFile};
use sealbus_web::{HeadLimits, answer_http1, empty_answer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::pace::Pace;

/// The limits of a request's head.
const HEAD: HeadLimits = HeadLimits {
    time: Duration::from_secs(10),
    length: 8 << 10,
    fields: 64,
};
/// Files that are read and sent at the same time. Each has at most 2 MiB, the certificates of many witnesses aside.
const AT_ONCE: usize = 16;

/// The address of the names of all logs, one a line.
pub(crate) const LOGS: &str = "/logs";
/// Most logs that a platform may have.
pub const MOST_LOGS: usize = 256;
/// Longest name of a log.
pub(crate) const NAME_LENGTH: usize = 64;

/// Whether this may be the name of a log, which is that of its CA.
pub fn is_log_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= NAME_LENGTH && name.bytes().all(is_plain)
}

/// The logs of a platform, for strangers. Each log has the address `/log/NAME/`, with the name of its CA; `/logs` has the
/// names of all, that of the CA that certifies now first.
#[derive(Clone)]
pub struct LogServer {
    state: Arc<State>,
}

struct State {
    logs: Vec<(String, Folder)>,
    pace: Mutex<Pace>,
    at_once: Arc<Semaphore>,
}

impl LogServer {
    /// Serves these logs, each by the name of its CA.
    pub fn new(logs: Vec<(String, Folder)>) -> Self {
        Self {
            state: Arc::new(State {
                logs,
                pace: Mutex::default(),
                at_once: Arc::new(Semaphore::new(AT_ONCE)),
            }),
        }
    }

    /// Serves one connection until it ends. The caller bounds how long that takes.
    pub async fn serve<S>(&self, stream: S, peer: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answer = async |request| self.state.answer(&request, peer).await;
        if let Err(error) = answer_http1(stream, HEAD, answer).await {
            tracing::debug!(%peer, %error, "a reader of the issuance log is gone");
        }
    }
}

impl State {
    async fn answer<B>(&self, request: &Request<B>, peer: IpAddr) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return empty_answer(StatusCode::METHOD_NOT_ALLOWED);
        }
        let wait = self.pace.lock().next(peer, Instant::now());
        match wait {
            None => return empty_answer(StatusCode::TOO_MANY_REQUESTS),
            Some(wait) => tokio::time::sleep(wait).await,
        }
        if request.uri().path() == LOGS {
            let names = self.logs.iter().map(|(name, _)| format!("{name}\n"));
            return text(names.collect::<String>().into_bytes());
        }
        let Some((folder, file)) = self.find(request.uri().path()) else {
            return empty_answer(StatusCode::NOT_FOUND);
        };
        let Ok(_permit) = self.at_once.acquire().await else {
            return empty_answer(StatusCode::SERVICE_UNAVAILABLE);
        };
        let reading = tokio::task::spawn_blocking(move || folder.read(file));
        match reading.await {
            Ok(Ok(bytes)) => found(file, bytes),
            Ok(Err(LogError::Unreadable { .. })) => empty_answer(StatusCode::NOT_FOUND),
            _ => empty_answer(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    fn find(&self, path: &str) -> Option<(Folder, LogFile)> {
        let (name, file) = path.strip_prefix("/log/")?.split_once('/')?;
        let (_, folder) = self.logs.iter().find(|(log, _)| log == name)?;
        Some((folder.clone(), file.parse().ok()?))
    }
}

fn found(file: LogFile, bytes: Vec<u8>) -> Response<Full<Bytes>> {
    let kind = match file {
        LogFile::Tile { .. } | LogFile::Entries { .. } => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    };
    let caching = match file {
        LogFile::Tile { .. } | LogFile::Entries { .. } => "public, max-age=604800, immutable",
        _ => "no-cache",
    };
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static(caching),
    );
    response
}

fn text(bytes: Vec<u8>) -> Response<Full<Bytes>> {
    found(LogFile::Checkpoint, bytes)
}
