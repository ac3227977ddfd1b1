//! HTTP/1.1 requests with bounded answers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection for requests.
pub(crate) struct Http {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// Ends with this value.
    _driving: JoinSet<()>,
}

impl Http {
    /// Begins on a stream to `host`.
    pub(crate) async fn open<S>(stream: S, host: &str) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(64 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // The request in hand reports the error.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            host: host.to_owned(),
            _driving: driving,
        })
    }

    /// One request. Returns the status and the answer, of `most` bytes at most.
    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        most: usize,
    ) -> Result<(StatusCode, Bytes), String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(
                header::USER_AGENT,
                concat!("sealbus/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let asking = async {
            self.sender
                .ready()
                .await
                .map_err(|error| error.to_string())?;
            let sent = self.sender.send_request(request).await;
            let answer = sent.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), most).collect().await;
            let body = body.map_err(|error| error.to_string())?;
            Ok((status, body.to_bytes()))
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
    }
}

/// Posts `body` to `path` at `host:port` over plain HTTP. Returns the status and the answer, of `most` bytes at most.
///
/// # Errors
/// A text for people.
pub async fn post(
    host: &str,
    path: &str,
    body: Vec<u8>,
    most: usize,
) -> Result<(u16, Bytes), String> {
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(host)).await;
    let stream = connecting
        .map_err(|_| format!("no answer within {PATIENCE:?}"))?
        .map_err(|error| error.to_string())?;
    let mut http = Http::open(stream, host).await?;
    let (status, body) = http.request(Method::POST, path, body, most).await?;
    Ok((status.as_u16(), body))
}
