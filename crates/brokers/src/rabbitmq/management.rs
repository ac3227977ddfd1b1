//! The broker's management interface over HTTPS. The Master admits and dismisses agents there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use sealbus_seal::PlatformName;
use sealbus_seal::tls::{Connector, ExpectedPeer, explain, server_name};
use sealbus_web::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::names::{self, escape};
use super::notices::Notices;
use crate::config::Login;

/// How long an answer may take. A quorum queue needs its majority.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a queue may fail to be made because its members do not find a leader in time, and the pause before the next
/// attempt.
const FORMING: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(500);
/// The longest answer read.
const LONGEST_ANSWER: usize = 64 << 20;
/// The policy that sends undelivered messages to [`names::DEAD`].
pub(super) const POLICY: &str = "sealbus";

/// The management interface did not carry out a request.
#[derive(Debug, Error)]
pub enum ManagementError {
    /// The interface is not there.
    #[error("the broker's management interface at {address} cannot be reached: {why}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The reason.
        why: String,
    },
    /// The interface refused.
    #[error("the broker did not {what}: {status}: {answer}")]
    Refused {
        /// The request.
        what: String,
        /// The HTTP status.
        status: u16,
        /// The interface's answer.
        answer: String,
    },
    /// The interface's answer cannot be understood.
    #[error("cannot read the broker's answer to the request to {what}: {why}")]
    Nonsense {
        /// The request.
        what: String,
        /// The fault.
        why: String,
    },
}

/// The management interface of one broker, or of any of a cluster.
pub struct Management {
    addresses: Vec<String>,
    pub(super) vhost: String,
    authorization: String,
    pub(super) operator: String,
    pub(super) platform: PlatformName,
    http: Client,
    /// How long a request may take with the attempts to connect.
    patience: Duration,
    /// One request at a time, however many ask.
    turn: Mutex<()>,
    /// The dead letters that are being dealt with.
    pub(super) notices: Mutex<Notices>,
}

impl Management {
    /// Speaks to the first of `addresses` (`HOST:PORT`) that answers, as `operator`, who must be a management
    /// administrator. `tls` checks that the broker belongs to the platform.
    pub fn new(
        addresses: Vec<String>,
        vhost: &str,
        operator: &Login,
        tls: Connector,
        platform: PlatformName,
    ) -> Self {
        let secret = BASE64_STANDARD.encode(format!("{}:{}", operator.user, operator.password));
        let attempts = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let brokers = Arc::new(Brokers {
            addresses: addresses.clone(),
            tls,
            platform: platform.clone(),
        });
        Self {
            addresses,
            vhost: vhost.to_owned(),
            authorization: format!("Basic {secret}"),
            operator: operator.user.clone(),
            platform,
            http: Client::over(move |_| {
                let brokers = brokers.clone();
                async move { brokers.connect().await }
            }),
            patience: PATIENCE.saturating_mul(attempts.saturating_add(1)),
            turn: Mutex::new(()),
            notices: Mutex::default(),
        }
    }

    pub(super) async fn make_queue(
        &self,
        queue: &str,
        arguments: Value,
    ) -> Result<(), ManagementError> {
        let path = format!("queues/{}/{}", escape(&self.vhost), escape(queue));
        let body = json!({"durable": true, "auto_delete": false, "arguments": arguments});
        // The members of a quorum queue have five seconds to agree on a leader. That may be too short on a busy
        // machine. The broker then reports it and removes the queue, and the next attempt finds nothing of it.
        let deadline = Instant::now() + FORMING;
        loop {
            let made = self.put("make a queue", &path, body.clone()).await;
            let was_late = matches!(&made, Err(ManagementError::Refused { answer, .. }) if answer.contains("cluster_not_formed"));
            if !was_late || Instant::now() >= deadline {
                return made;
            }
            sleep(AGAIN).await;
        }
    }

    pub(super) async fn bind(
        &self,
        from: &str,
        queue: &str,
        key: &str,
    ) -> Result<(), ManagementError> {
        let path = format!(
            "bindings/{}/e/{}/q/{}",
            escape(&self.vhost),
            escape(from),
            escape(queue)
        );
        let body = json!({"routing_key": key, "arguments": {}});
        let what = "bind a queue";
        let (status, answer) = self.ask(what, Method::POST, &path, Some(body)).await?;
        done(what, status, &answer)
    }

    /// Takes away what binds a queue. A queue that is not there has no bindings.
    pub(super) async fn unbind(&self, from: &str, queue: &str) -> Result<(), ManagementError> {
        let what = "unbind a queue";
        let bindings = format!(
            "bindings/{}/e/{}/q/{}",
            escape(&self.vhost),
            escape(from),
            escape(queue)
        );
        let (status, answer) = self.ask(what, Method::GET, &bindings, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        let bound: Vec<Value> = read(what, status, &answer)?;
        for binding in bound {
            let name = binding["properties_key"].as_str().unwrap_or_default();
            let path = format!("{bindings}/{}", escape(name));
            self.delete(what, &path).await?;
        }
        Ok(())
    }

    pub(super) async fn put(
        &self,
        what: &str,
        path: &str,
        body: Value,
    ) -> Result<(), ManagementError> {
        let (status, answer) = self.ask(what, Method::PUT, path, Some(body)).await?;
        done(what, status, &answer)
    }

    /// Deletes a thing. A thing that is not there is not an error.
    pub(super) async fn delete(&self, what: &str, path: &str) -> Result<(), ManagementError> {
        let (status, answer) = self.ask(what, Method::DELETE, path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        done(what, status, &answer)
    }

    pub(super) async fn names(
        &self,
        what: &str,
        path: &str,
    ) -> Result<Vec<String>, ManagementError> {
        let (status, answer) = self.ask(what, Method::GET, path, None).await?;
        let values: Vec<Value> = read(what, status, &answer)?;
        Ok(values
            .iter()
            .filter_map(|value| value["name"].as_str())
            .map(str::to_owned)
            .collect())
    }

    /// Makes a request. It may come twice if the broker has ended its connection meanwhile.
    pub(super) async fn ask(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Bytes), ManagementError> {
        self.exchange(what, method, path, body, false).await
    }

    /// As [`Self::ask`]. With `is_once`, the request does not come twice.
    pub(super) async fn exchange(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
        is_once: bool,
    ) -> Result<(StatusCode, Bytes), ManagementError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://broker/api/{path}"))
            .header(AUTHORIZATION, &self.authorization)
            .header(CONTENT_TYPE, "application/json")
            .body(body.map(|body| body.to_string()).unwrap_or_default())
            .map_err(|error| self.unreachable(what, &error))?;
        let _turn = self.turn.lock().await;
        let (http, most, time) = (&self.http, LONGEST_ANSWER, self.patience);
        let asked = match is_once {
            true => http.fetch_once(request, most, time).await,
            false => http.fetch(request, most, time).await,
        };
        let answer = asked.map_err(|error| self.unreachable(what, &error))?;
        Ok((answer.status(), answer.into_body()))
    }

    fn unreachable(&self, what: &str, why: &dyn std::fmt::Display) -> ManagementError {
        ManagementError::Unreachable {
            address: self.addresses.join(", "),
            why: format!("asked to {what}: {why}"),
        }
    }
}

/// The way to the first broker that lets itself be reached.
struct Brokers {
    addresses: Vec<String>,
    tls: Connector,
    platform: PlatformName,
}

impl Brokers {
    async fn connect(&self) -> Result<TlsStream<TcpStream>, String> {
        let mut last = "no address is given".to_owned();
        for address in &self.addresses {
            let connecting = timeout(PATIENCE, self.connect_to(address)).await;
            let why = match connecting {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {PATIENCE:?}"),
            };
            last = format!("{address}: {why}");
        }
        Err(last)
    }

    async fn connect_to(&self, address: &str) -> Result<TlsStream<TcpStream>, String> {
        let broker = names::broker_identity(&self.platform).ok_or("the platform has no name")?;
        let (config, refusal) = self
            .tls
            .connect(ExpectedPeer::Exactly(broker))
            .map_err(|error| error.to_string())?;
        let tcp = TcpStream::connect(address)
            .await
            .map_err(|error| error.to_string())?;
        let _ = tcp.set_nodelay(true);
        let connected = TlsConnector::from(config).connect(server_name(), tcp).await;
        connected.map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            inner.map_or_else(|| error.to_string(), |inner| explain(inner, &refusal))
        })
    }
}

fn done(what: &str, status: StatusCode, answer: &[u8]) -> Result<(), ManagementError> {
    if status.is_success() {
        return Ok(());
    }
    Err(ManagementError::Refused {
        what: what.to_owned(),
        status: status.as_u16(),
        answer: String::from_utf8_lossy(answer).chars().take(300).collect(),
    })
}

pub(super) fn read<T: for<'de> Deserialize<'de>>(
    what: &str,
    status: StatusCode,
    answer: &[u8],
) -> Result<T, ManagementError> {
    done(what, status, answer)?;
    serde_json::from_slice(answer).map_err(|error| ManagementError::Nonsense {
        what: what.to_owned(),
        why: error.to_string(),
    })
}
