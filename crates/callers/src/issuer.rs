//! The issuer of tokens: its published keys, fetched when they are needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::ACCEPT;
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use sealbus_manifest::callers::OauthEntry;
use sealbus_web::{Client, WebError, whole};
use tokio::sync::OwnedMutexGuard;

use crate::token::{Expected, KeySet, KeySetError, NotGranted, TokenRights};

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
pub(crate) enum IssuerRefusal {
    #[error(transparent)]
    Token(#[from] NotGranted),
    /// Nobody can check it now.
    #[error("the issuer's keys are not known: {0}")]
    NoKeys(String),
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Web(#[from] WebError),
    #[error("its answer is {0}, and redirects are not followed")]
    Status(StatusCode),
    #[error(transparent)]
    Keys(#[from] KeySetError),
}

/// The issuer.
pub(crate) struct Issuer {
    entry: OauthEntry,
    web: Client,
    known: Mutex<Option<(Arc<KeySet>, Instant)>>,
    tried: Arc<tokio::sync::Mutex<Tried>>,
}

/// When a fetch last ended, and its trouble.
type Tried = Option<(Instant, String)>;

impl Issuer {
    pub(crate) fn new(entry: OauthEntry, web: Client) -> Self {
        Self {
            entry,
            web,
            known: Mutex::default(),
            tried: Arc::default(),
        }
    }

    /// Checks a token. `certificate` is what the caller proved, as [`Expected`] has it.
    pub(crate) async fn check(
        self: &Arc<Self>,
        token: &str,
        certificate: Option<&str>,
    ) -> Result<TokenRights, IssuerRefusal> {
        let expected = Expected {
            issuer: &self.entry.issuer,
            resource: &self.entry.resource,
            certificate,
        };
        if let Some(keys) = self.keys(FRESH) {
            match keys.check(token, &expected) {
                Err(NotGranted::UnknownKey) => {}
                done => return Ok(done?),
            }
        }
        let trouble = self.fetch().await;
        let keys = self.keys(OLDEST).ok_or(IssuerRefusal::NoKeys(trouble))?;
        Ok(keys.check(token, &expected)?)
    }

    fn keys(&self, oldest: Duration) -> Option<Arc<KeySet>> {
        let known = self.known.lock();
        let (keys, at) = known.as_ref()?;
        (at.elapsed() < oldest).then(|| keys.clone())
    }

    /// Fetches the keys, unless that was tried just now. Returns the latest trouble.
    async fn fetch(self: &Arc<Self>) -> String {
        let tried = self.tried.clone().lock_owned().await;
        if let Some((at, trouble)) = tried.as_ref()
            && at.elapsed() < PAUSE
        {
            return trouble.clone();
        }
        // It ends although those that wait for it leave: the next one must not begin another.
        let fetching = tokio::spawn(self.clone().fetch_now(tried));
        fetching.await.unwrap_or_else(|error| error.to_string())
    }

    async fn fetch_now(self: Arc<Self>, mut tried: OwnedMutexGuard<Tried>) -> String {
        let trouble = match self.read().await {
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
        let request = Request::get(&self.entry.keys).header(ACCEPT, "application/json");
        let request = request.body(Full::new(Bytes::new()));
        let request = request.map_err(|_| WebError::Address)?;
        let answer = self.web.ask(request, FETCH_TIME).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let keys = whole(answer.into_body(), LARGEST, FETCH_TIME).await?;
        Ok(KeySet::read(&keys)?)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_fetch_ends_although_nobody_waits_for_it_and_others_begin_none() {
        let login = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let entry = OauthEntry {
            issuer: "https://login.example".to_owned(),
            keys: format!("http://{}/keys", login.local_addr().unwrap()),
            resource: "https://door.example".to_owned(),
        };
        let web = Client::new(None, Arc::new(|_| Ok(())));
        let issuer = Arc::new(Issuer::new(entry, web));
        let leave_early = || {
            let checking = pin!(issuer.check("one.two.three", None));
            let mut waiting = Context::from_waker(Waker::noop());
            assert!(checking.poll(&mut waiting).is_pending());
        };
        leave_early();
        let came = tokio::time::timeout(PATIENCE, login.accept()).await;
        let (mut asked, _) = came.unwrap().unwrap();
        let mut head = [0; 4_096];
        assert!(asked.read(&mut head).await.unwrap() > 0);
        leave_early();
        leave_early();
        let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"first","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let length = keys.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{keys}"
        );
        asked.write_all(answer.as_bytes()).await.unwrap();
        let checked = tokio::time::timeout(PATIENCE, issuer.check("one.two.three", None)).await;
        assert!(matches!(checked.unwrap(), Err(IssuerRefusal::Token(_))));
        assert!(issuer.keys(FRESH).is_some());
        // Another call of the issuer would have come before this one.
        let own = TcpStream::connect(login.local_addr().unwrap())
            .await
            .unwrap();
        let came = tokio::time::timeout(PATIENCE, login.accept()).await;
        let (_, from) = came.unwrap().unwrap();
        let own = own.local_addr().unwrap();
        assert_eq!(from, own, "the issuer was called again");
    }
}
