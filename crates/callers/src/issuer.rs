//! The issuer of tokens: its published keys, fetched when they are needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::http::Uri;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use sealbus_manifest::callers::OauthEntry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::token::{Expected, Grant, KeySet, KeySetError, TokenError};

/// How long keys count without a look at the issuer's, so that a withdrawn key opens nothing for longer.
const FRESH: Duration = Duration::from_secs(300);
/// How long they count while the issuer does not answer.
const OLDEST: Duration = Duration::from_secs(3_600);
/// Pause between two fetches: tokens with invented keys must not make this gateway call its issuer all the time.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a fetch may take.
const FETCH_TIME: Duration = Duration::from_secs(10);
/// Largest set of keys in bytes.
const LARGEST: usize = 256 << 10;

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nobody can check it now.
    #[error("the issuer's keys are not known: {0}")]
    NoKeys(String),
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("its answer is {0}, and redirects are not followed")]
    Status(StatusCode),
    #[error("its answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Keys(#[from] KeySetError),
    #[error("it took longer than {FETCH_TIME:?}")]
    Slow,
    #[error("its URL cannot be used")]
    Url,
}

/// The issuer.
pub(crate) struct Issuer {
    entry: OauthEntry,
    tls: Option<Arc<ClientConfig>>,
    known: Mutex<Option<(Arc<KeySet>, Instant)>>,
    /// When a fetch last ended, and its trouble.
    tried: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl Issuer {
    pub(crate) fn new(entry: OauthEntry, tls: Option<Arc<ClientConfig>>) -> Self {
        Self {
            entry,
            tls,
            known: Mutex::default(),
            tried: tokio::sync::Mutex::default(),
        }
    }

    /// Checks a token. `certificate` is what the caller proved, as [`Expected`] has it.
    pub(crate) async fn check(
        &self,
        token: &str,
        certificate: Option<&str>,
    ) -> Result<Grant, Refusal> {
        let expected = Expected {
            issuer: &self.entry.issuer,
            resource: &self.entry.resource,
            certificate,
        };
        if let Some(keys) = self.keys(FRESH) {
            match keys.check(token, &expected) {
                Err(TokenError::UnknownKey) => {}
                done => return Ok(done?),
            }
        }
        let trouble = self.fetch().await;
        let keys = self.keys(OLDEST).ok_or(Refusal::NoKeys(trouble))?;
        Ok(keys.check(token, &expected)?)
    }

    fn keys(&self, oldest: Duration) -> Option<Arc<KeySet>> {
        let known = self.known.lock();
        let (keys, at) = known.as_ref()?;
        (at.elapsed() < oldest).then(|| keys.clone())
    }

    /// Fetches the keys, unless that was tried just now. Returns the latest trouble.
    async fn fetch(&self) -> String {
        let mut tried = self.tried.lock().await;
        if let Some((at, trouble)) = tried.as_ref()
            && at.elapsed() < PAUSE
        {
            return trouble.clone();
        }
        let fetched = tokio::time::timeout(FETCH_TIME, self.read());
        let trouble = match fetched.await.unwrap_or(Err(FetchError::Slow)) {
            Ok(keys) => {
                *self.known.lock() = Some((Arc::new(keys), Instant::now()));
                String::new()
            }
            Err(error) => {
                let trouble = format!("{}: {error}", self.entry.keys);
                tracing::warn!(
                    "the keys of the issuer of tokens could not be fetched from {trouble}"
                );
                trouble
            }
        };
        *tried = Some((Instant::now(), trouble.clone()));
        trouble
    }

    async fn read(&self) -> Result<KeySet, FetchError> {
        let url: Uri = self.entry.keys.parse().map_err(|_| FetchError::Url)?;
        let host = url.host().ok_or(FetchError::Url)?;
        let bare = host.trim_matches(['[', ']']);
        let is_tls = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((bare, port)).await?;
        let body = if is_tls {
            let tls = self.tls.clone().ok_or(FetchError::Url)?;
            let name = ServerName::try_from(bare.to_owned()).map_err(|_| FetchError::Url)?;
            let stream = TlsConnector::from(tls).connect(name, stream).await?;
            get(stream, &url).await?
        } else {
            get(stream, &url).await?
        };
        Ok(KeySet::read(&body)?)
    }
}

async fn get<S>(stream: S, url: &Uri) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let path = url.path_and_query().map_or("/", |it| it.as_str());
    let host = url.authority().map_or("", |it| it.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Url)?;
    let asked = async {
        let answer = sender.send_request(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        Ok(body.map_err(FetchError::Body)?.to_bytes())
    };
    tokio::pin!(asked);
    tokio::select! {
        biased;
        done = &mut asked => done,
        // The connection may end with the answer, which is then read already.
        ended = connection => {
            ended?;
            asked.await
        }
    }
}
