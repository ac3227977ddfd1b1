//! The client of HTTP servers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::ClientConfig;

use crate::connect::{Connector, Link, MayReach, Others, Socket};
use crate::error::{WebError, cause};

/// Connections that wait for further requests: how long, and how many to one server.
const IDLE: Duration = Duration::from_secs(60);
const MOST_IDLE: usize = 16;
/// Longest head of an answer, in bytes, and most of its headers.
const LONGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 64;

/// Asks HTTP servers. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: Http,
    /// Opens a connection for each request.
    fresh: Http,
}

type Http = legacy::Client<Connector, Full<Bytes>>;

impl Client {
    /// A client of servers of others. It proves them with `tls` ([`trust::client`](crate::trust::client)), and connects where
    /// `may_reach` lets it.
    pub fn new(tls: Option<Arc<ClientConfig>>, may_reach: MayReach) -> Self {
        Self::to_others(false, Others { tls, may_reach })
    }

    /// As [`new`](Self::new), in HTTP/2, which gRPC needs. Without TLS, servers are expected to know that.
    pub fn http2(tls: Option<Arc<ClientConfig>>, may_reach: MayReach) -> Self {
        let tls = tls.map(|tls| {
            let mut tls = (*tls).clone();
            tls.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(tls)
        });
        Self::to_others(true, Others { tls, may_reach })
    }

    fn to_others(is_http2: bool, others: Others) -> Self {
        let connector = Connector::new(move |uri| others.clone().open(uri));
        Self::connecting(is_http2, connector)
    }

    /// A client of servers that `open` reaches and proves: it returns a connection to the server of a URL, or why there is
    /// none. It has to bound its own time. URLs begin with `http`.
    pub fn over<S, F>(open: impl Fn(Uri) -> F + Send + Sync + 'static) -> Self
    where
        S: Socket + 'static,
        F: Future<Output = Result<S, String>> + Send + 'static,
    {
        let connector = Connector::new(move |uri| {
            let opening = open(uri);
            async move {
                let stream = opening.await.map_err(WebError::Unreachable)?;
                Ok(Link::new(stream, None))
            }
        });
        Self::connecting(false, connector)
    }

    fn connecting(is_http2: bool, connector: Connector) -> Self {
        let http = |most_idle| {
            legacy::Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(most_idle)
                .pool_timer(TokioTimer::new())
                .http1_max_buf_size(LONGEST_HEAD)
                .http1_max_headers(MOST_HEADERS)
                .http2_only(is_http2)
                .http2_max_header_list_size(LONGEST_HEAD as u32)
                .build(connector.clone())
        };
        Self {
            http: http(MOST_IDLE),
            fresh: http(0),
        }
    }

    /// Sends a request, and returns the head of the answer with a body to read. A redirection is an answer like any other. The
    /// answer's extensions hold the [`Server`](crate::Server) of others that gave it.
    ///
    /// # Errors
    /// [`WebError`]; also if the head does not come within `time`.
    pub async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        time: Duration,
    ) -> Result<Response<Incoming>, WebError> {
        ask(&self.http, request, time).await
    }

    /// Sends a request, and returns the whole answer, with a body of `most` bytes at most. Head and body have `time` each.
    ///
    /// If the connection breaks, the request is sent once more, over a new one: a server may end one that waits. So use this
    /// only for requests that may come twice.
    ///
    /// # Errors
    /// As [`Self::ask`] and [`whole`].
    pub async fn fetch(
        &self,
        request: Request<impl Into<Bytes>>,
        most: usize,
        time: Duration,
    ) -> Result<Response<Bytes>, WebError> {
        let request = request.map(|body| Full::new(body.into()));
        match exchange(&self.http, request.clone(), most, time).await {
            Err(WebError::Broken(_)) => exchange(&self.fresh, request, most, time).await,
            done => done,
        }
    }

    /// As [`Self::fetch`], for a request that may not come twice.
    ///
    /// # Errors
    /// As [`Self::ask`] and [`whole`]. The server may have carried out the request all the same.
    pub async fn fetch_once(
        &self,
        request: Request<impl Into<Bytes>>,
        most: usize,
        time: Duration,
    ) -> Result<Response<Bytes>, WebError> {
        let request = request.map(|body| Full::new(body.into()));
        exchange(&self.http, request, most, time).await
    }
}

async fn exchange(
    http: &Http,
    request: Request<Full<Bytes>>,
    most: usize,
    time: Duration,
) -> Result<Response<Bytes>, WebError> {
    let (head, body) = ask(http, request, time).await?.into_parts();
    let body = whole(body, most, time).await?;
    Ok(Response::from_parts(head, body))
}

async fn ask(
    http: &Http,
    mut request: Request<Full<Bytes>>,
    time: Duration,
) -> Result<Response<Incoming>, WebError> {
    let agent = concat!("sealbus/", env!("CARGO_PKG_VERSION"));
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    let asking = tokio::time::timeout(time, http.request(request)).await;
    let answer = asking.map_err(|_| WebError::Slow(time))?;
    answer.map_err(|error| cause(&error))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// The whole body of an answer, of `most` bytes at most, within `time`.
///
/// # Errors
/// [`WebError::TooLong`], [`WebError::Slow`], or [`WebError::Broken`].
pub async fn whole<B>(body: B, most: usize, time: Duration) -> Result<Bytes, WebError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let reading = Limited::new(body, most).collect();
    let read = tokio::time::timeout(time, reading).await;
    match read.map_err(|_| WebError::Slow(time))? {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(WebError::TooLong(most)),
        Err(error) => Err(WebError::Broken(error.to_string())),
    }
}
