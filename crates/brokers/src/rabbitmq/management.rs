//! The broker's management interface over HTTPS: where the Master admits agents and dismisses them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use sealbus_seal::tls::{Connector, ExpectedPeer, explain, server_name};
use sealbus_seal::{Identity, PlatformName, ProcessId};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::config::Login;
use super::names::{self, escape, exactly};

/// How long an answer may take: a quorum queue needs its majority.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a queue may fail to be made because its members do not find a leader in time, and the pause before they are asked again.
const FORMING: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(500);
/// The longest answer read.
const LONGEST_ANSWER: usize = 64 << 20;
/// The policy that sends what was not delivered to [`names::DEAD`].
const POLICY: &str = "sealbus";
/// The queues of agents and of processes.
const ALL_QUEUES: &str = "^(Agent-.*-MessageQueue|Process-.*-FrameQueue)$";
/// Dead letters kept; the oldest go first.
pub(super) const DEAD_LETTERS_KEPT: u32 = 10_000;

/// The management interface did not do what was asked.
#[derive(Debug, Error)]
pub enum ManagementError {
    /// It is not there.
    #[error("the broker's management interface at {address} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// It refused.
    #[error("the broker did not {what}: {status}: {answer}")]
    Refused {
        /// What was asked.
        what: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        answer: String,
    },
    /// It answered what cannot be understood.
    #[error("the broker's answer cannot be understood, asked to {what}: {why}")]
    Nonsense {
        /// What was asked.
        what: String,
        /// What is wrong.
        why: String,
    },
}

/// The management interface of one broker, or of any of a cluster.
pub struct Management {
    addresses: Vec<String>,
    pub(super) vhost: String,
    authorization: String,
    pub(super) operator: String,
    tls: Connector,
    platform: PlatformName,
    open: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// How many messages a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// All of them.
    pub messages: u64,
}

impl Management {
    /// Speaks to the first of `addresses` (`HOST:PORT`) that answers, as `operator`, who must be a management
    /// administrator. `tls` checks that it is the platform's broker.
    pub fn new(
        addresses: Vec<String>,
        vhost: &str,
        operator: &Login,
        tls: Connector,
        platform: PlatformName,
    ) -> Self {
        let secret = BASE64_STANDARD.encode(format!("{}:{}", operator.user, operator.password));
        Self {
            addresses,
            vhost: vhost.to_owned(),
            authorization: format!("Basic {secret}"),
            operator: operator.user.clone(),
            tls,
            platform,
            open: Mutex::new(None),
        }
    }

    /// Makes what all agents share: the virtual host, the exchanges, the queue of dead letters.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn prepare(&self, operator: &str) -> Result<(), ManagementError> {
        let vhost = escape(&self.vhost);
        self.put(
            "make the virtual host",
            &format!("vhosts/{vhost}"),
            json!({}),
        )
        .await?;
        let own = format!("permissions/{vhost}/{}", escape(operator));
        let everything = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.put("let the operator in", &own, everything).await?;
        for (exchange, kind) in [
            (names::MESSAGES, "direct"),
            (names::CHANNELS, "topic"),
            (names::DEAD, "fanout"),
        ] {
            let path = format!("exchanges/{vhost}/{}", escape(exchange));
            let body = json!({"type": kind, "durable": true});
            self.put("make an exchange", &path, body).await?;
        }
        let dead = names::DEAD_LETTERS;
        let arguments = json!({"x-queue-type": "quorum", "x-max-length": DEAD_LETTERS_KEPT, "x-overflow": "drop-head"});
        self.make_queue(dead, arguments).await?;
        self.bind(names::DEAD, dead, dead).await?;
        self.prepare_notices().await?;
        let policy = json!({
            "pattern": ALL_QUEUES,
            "definition": {"dead-letter-exchange": names::DEAD},
            "apply-to": "queues",
        });
        self.put(
            "make the policy",
            &format!("policies/{vhost}/{POLICY}"),
            policy,
        )
        .await
    }

    /// Makes the user that all agents share at the levels where they do not prove who they are.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn admit_all(&self, login: &Login) -> Result<(), ManagementError> {
        let user = escape(&login.user);
        let body = json!({"password": login.password, "tags": ""});
        self.put("make the shared user", &format!("users/{user}"), body)
            .await?;
        let body = json!({
            "configure": ALL_QUEUES,
            "write": exactly([names::MESSAGES, names::CHANNELS]),
            "read": ALL_QUEUES,
        });
        let path = format!("permissions/{}/{user}", escape(&self.vhost));
        self.put("set the shared user's permissions", &path, body)
            .await
    }

    /// Makes the queue of an agent (by its whole name), where messages wait for it from now on.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn open_queue(&self, agent: &str) -> Result<(), ManagementError> {
        let queue = names::queue(agent);
        let arguments = json!({"x-queue-type": "quorum"});
        self.make_queue(&queue, arguments).await?;
        self.bind(names::MESSAGES, &queue, agent).await
    }

    /// Makes the user an agent of this local name logs in as from `address`: it may declare and read its own queue,
    /// and write to all through the exchange.
    ///
    /// It may not read the exchange, so it cannot bind its queue to receive another's messages.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn admit(&self, local_name: &str, address: IpAddr) -> Result<(), ManagementError> {
        let user = names::user(local_name, address);
        let queue = names::queue(&format!("{local_name}@{}", self.platform));
        self.make_user(&user, &queue, names::MESSAGES).await
    }

    /// Makes the queue of what other processes say to `process`.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn open_process_queue(&self, process: &ProcessId) -> Result<(), ManagementError> {
        let queue = names::process_queue(process);
        self.make_queue(&queue, json!({"x-queue-type": "quorum"}))
            .await?;
        let key = names::key_of_process(&process.to_string());
        self.bind(names::CHANNELS, &queue, &key).await
    }

    /// Makes the user that the process `identity` logs in as from `address`: it may read its own queue, and write to the
    /// exchange of the channels, from which it may not read. Who is no process is not admitted.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn admit_process(
        &self,
        identity: &Identity,
        address: IpAddr,
    ) -> Result<(), ManagementError> {
        let (Identity::Process { process, .. }, Some(user)) =
            (identity, names::user_of(identity, address))
        else {
            return Ok(());
        };
        let queue = names::process_queue(process);
        self.make_user(&user, &queue, names::CHANNELS).await
    }

    /// Makes a user that logs in with its certificate alone, declares and reads `queue`, and writes to `exchange`.
    async fn make_user(
        &self,
        user: &str,
        queue: &str,
        exchange: &str,
    ) -> Result<(), ManagementError> {
        let user = escape(user);
        // An empty hash is no password: there is no way in but the certificate.
        let body = json!({"password_hash": "", "tags": ""});
        self.put("make a user", &format!("users/{user}"), body)
            .await?;
        let body = json!({
            "configure": exactly([queue]),
            "write": exactly([exchange]),
            "read": exactly([queue]),
        });
        let path = format!("permissions/{}/{user}", escape(&self.vhost));
        self.put("set a user's permissions", &path, body).await
    }

    /// Removes a user; the broker closes its connections.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn dismiss(&self, user: &str) -> Result<(), ManagementError> {
        self.delete("remove a user", &format!("users/{}", escape(user)))
            .await
    }

    /// The users there are.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn users(&self) -> Result<Vec<String>, ManagementError> {
        self.names("list the users", "users").await
    }

    /// The queues there are, by name.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn queues(&self) -> Result<Vec<String>, ManagementError> {
        let path = format!("queues/{}?columns=name", escape(&self.vhost));
        self.names("list the queues", &path).await
    }

    /// How many messages wait in a queue; `None` if there is none of that name. The broker counts every few seconds.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn depth(&self, queue: &str) -> Result<Option<Depth>, ManagementError> {
        let path = format!("queues/{}/{}", escape(&self.vhost), escape(queue));
        let what = "say how many messages wait";
        let (status, answer) = self.ask(what, Method::GET, &path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let value: Value = read(what, status, &answer)?;
        Ok(Some(Depth {
            messages: value["messages"].as_u64().unwrap_or_default(),
        }))
    }

    /// Whether somebody reads a queue: what was handed to a reader that has died is in the queue again once the broker has
    /// found that out, and no sooner.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn is_read(&self, queue: &str) -> Result<bool, ManagementError> {
        let path = format!("queues/{}/{}", escape(&self.vhost), escape(queue));
        let what = "say who reads a queue";
        let (status, answer) = self.ask(what, Method::GET, &path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let value: Value = read(what, status, &answer)?;
        Ok(value["consumer_details"]
            .as_array()
            .is_some_and(|readers| !readers.is_empty()))
    }

    /// Removes a queue, with what is in it.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn remove_queue(&self, queue: &str) -> Result<(), ManagementError> {
        let path = format!("queues/{}/{}", escape(&self.vhost), escape(queue));
        self.delete("remove a queue", &path).await
    }

    pub(super) async fn make_queue(
        &self,
        queue: &str,
        arguments: Value,
    ) -> Result<(), ManagementError> {
        let path = format!("queues/{}/{}", escape(&self.vhost), escape(queue));
        let body = json!({"durable": true, "auto_delete": false, "arguments": arguments});
        // The members of a quorum queue have five seconds to agree on a leader. On a busy machine that may be too short: the
        // broker says so and removes the queue, and the next attempt finds nothing of it.
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

    async fn put(&self, what: &str, path: &str, body: Value) -> Result<(), ManagementError> {
        let (status, answer) = self.ask(what, Method::PUT, path, Some(body)).await?;
        done(what, status, &answer)
    }

    /// What is gone already is no error.
    async fn delete(&self, what: &str, path: &str) -> Result<(), ManagementError> {
        let (status, answer) = self.ask(what, Method::DELETE, path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        done(what, status, &answer)
    }

    async fn names(&self, what: &str, path: &str) -> Result<Vec<String>, ManagementError> {
        let (status, answer) = self.ask(what, Method::GET, path, None).await?;
        let values: Vec<Value> = read(what, status, &answer)?;
        Ok(values
            .iter()
            .filter_map(|value| value["name"].as_str())
            .map(str::to_owned)
            .collect())
    }

    /// Asks, on the connection that is open or on a new one.
    pub(super) async fn ask(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Bytes), ManagementError> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let mut open = self.open.lock().await;
        if let Some(mut connection) = open.take()
            && let Ok(answer) = self.exchange(&mut connection, &method, path, &body).await
        {
            *open = Some(connection);
            return Ok(answer);
        }
        // All that is asked may be asked twice, should the broker have closed the connection meanwhile.
        let mut connection = self.connect().await?;
        let answer = self
            .exchange(&mut connection, &method, path, &body)
            .await
            .map_err(|why| ManagementError::Unreachable {
                address: self.addresses.join(", "),
                why: format!("asked to {what}: {why}"),
            })?;
        *open = Some(connection);
        Ok(answer)
    }

    async fn exchange(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        method: &Method,
        path: &str,
        body: &str,
    ) -> Result<(StatusCode, Bytes), String> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/{path}"))
            .header(HOST, "broker")
            .header(AUTHORIZATION, &self.authorization)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(|error| error.to_string())?;
        let work = async {
            connection
                .ready()
                .await
                .map_err(|error| error.to_string())?;
            let response = connection
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST_ANSWER);
            let body = body.collect().await.map_err(|error| error.to_string())?;
            Ok((status, body.to_bytes()))
        };
        timeout(PATIENCE, work)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ManagementError> {
        let mut last = None;
        for address in &self.addresses {
            let connecting = timeout(PATIENCE, self.connect_to(address)).await;
            let why = match connecting {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
            };
            last = Some(ManagementError::Unreachable {
                address: address.clone(),
                why,
            });
        }
        Err(last.unwrap_or_else(|| ManagementError::Unreachable {
            address: "none".to_owned(),
            why: "no address is given".to_owned(),
        }))
    }

    async fn connect_to(&self, address: &str) -> Result<SendRequest<Full<Bytes>>, String> {
        let broker = names::broker_identity(&self.platform).ok_or("the platform has no name")?;
        let (config, refusal) = self
            .tls
            .connect(ExpectedPeer::Exactly(broker))
            .map_err(|error| error.to_string())?;
        let tcp = TcpStream::connect(address)
            .await
            .map_err(|error| error.to_string())?;
        let _ = tcp.set_nodelay(true);
        let stream = TlsConnector::from(config)
            .connect(server_name(), tcp)
            .await
            .map_err(|error| {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                inner.map_or_else(|| error.to_string(), |inner| explain(inner, &refusal))
            })?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the broker's management interface ended");
            }
        });
        Ok(sender)
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
