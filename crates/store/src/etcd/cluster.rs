//! The connection to the members of an etcd cluster: gRPC over HTTP/2 over mutual TLS. Any member will do, because each
//! hands requests on to the one that leads.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, pending};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::LONGEST_ANSWER;
use super::settings::ClusterMember;
use super::wire::Request;

/// How long a member may take for a connection, and how long for an answer.
const CONNECTING: Duration = Duration::from_secs(5);
const ANSWERING: Duration = Duration::from_secs(3);
/// How long the other members are tried before a failed member is tried again.
const HEAD_START: Duration = Duration::from_millis(300);
/// A connection on which nothing comes back for this long is tested, and then given up.
const QUIET: Duration = Duration::from_secs(2);

/// A request that was not carried out, or not for certain.
#[derive(Debug)]
pub(super) enum CallError {
    /// No answer came. The request may have been carried out, or may be later.
    Away(String),
    /// etcd refused the request.
    Refused(Status),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let is_busy =
            status.code() == Code::ResourceExhausted && status.message().contains("too many");
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Aborted
            | Code::Internal => Self::Away(status.message().to_owned()),
            _ if is_busy => Self::Away(status.message().to_owned()),
            _ => Self::Refused(status),
        }
    }
}

/// The members of a cluster, and the connection to one of them.
pub(super) struct Cluster {
    members: Vec<ClusterMember>,
    tls: TlsConnector,
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The member in use, by its place in the list.
    current: Option<(usize, Grpc<Link>)>,
    /// The member that failed last.
    failed: Option<usize>,
}

/// One connection.
#[derive(Clone)]
struct Link(SendRequest<Body>);

impl Service<hyper::Request<Body>> for Link {
    type Response = hyper::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

impl Cluster {
    pub(super) fn new(members: Vec<ClusterMember>, tls: Arc<ClientConfig>) -> Self {
        Self {
            members,
            tls: TlsConnector::from(tls),
            state: tokio::sync::Mutex::default(),
        }
    }

    /// The members' addresses, for errors.
    pub(super) fn addresses(&self) -> String {
        let addresses = self.members.iter().map(ToString::to_string);
        addresses.collect::<Vec<_>>().join(", ")
    }

    /// Asks one member, once. After a failure the next request goes to another one.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, CallError> {
        self.ask_within(request, ANSWERING).await
    }

    /// Like [`ask`](Self::ask), for a member that must answer within `patience`.
    pub(super) async fn ask_within<R: Request>(
        &self,
        request: &R,
        patience: Duration,
    ) -> Result<R::Answer, CallError> {
        let (place, client) = self.client().await.map_err(CallError::Away)?;
        let result = ask(client, request, patience).await;
        if let Err(CallError::Away(_)) = &result {
            let mut state = self.state.lock().await;
            if state.current.as_ref().is_some_and(|(at, _)| *at == place) {
                state.current = None;
                state.failed = Some(place);
            }
        }
        result.map_err(|error| match error {
            CallError::Away(why) => CallError::Away(format!("{}: {why}", self.members[place])),
            refused => refused,
        })
    }

    /// The answers to a request. One member goes on answering until the stream is dropped.
    pub(super) async fn follow<R: Request>(
        &self,
        request: R,
    ) -> Result<Streaming<R::Answer>, CallError> {
        let (_, mut client) = self.client().await.map_err(CallError::Away)?;
        let following = async {
            let ready = client.ready().await;
            ready.map_err(|error| CallError::Away(error.to_string()))?;
            let path = PathAndQuery::from_static(R::PATH);
            let codec = ProstCodec::<R, R::Answer>::default();
            // The member ends its answers when the questions end.
            let questions = futures_util::stream::iter([request]).chain(pending());
            let questions = tonic::Request::new(questions);
            let answers = client.streaming(questions, path, codec).await?;
            Ok(answers.into_inner())
        };
        let followed = tokio::time::timeout(ANSWERING, following).await;
        followed.unwrap_or_else(|_| Err(CallError::Away(format!("no answer within {ANSWERING:?}"))))
    }

    /// Asks each member on a connection of its own.
    pub(super) async fn ask_each<R: Request>(
        &self,
        request: &R,
    ) -> Vec<(&ClusterMember, Result<R::Answer, CallError>)> {
        let each = self.members.iter().map(async |member| {
            let asked = match self.connect(member).await {
                Ok(client) => ask(client, request, ANSWERING).await,
                Err(why) => Err(CallError::Away(why)),
            };
            (member, asked)
        });
        futures_util::future::join_all(each).await
    }

    async fn client(&self) -> Result<(usize, Grpc<Link>), String> {
        let mut state = self.state.lock().await;
        if let Some((place, client)) = &state.current {
            return Ok((*place, client.clone()));
        }
        // All members at once, because the first one may be away.
        let failed = state.failed;
        let alone = self.members.len() == 1;
        let mut attempts: FuturesUnordered<_> = self
            .members
            .iter()
            .enumerate()
            .map(async |(place, member)| {
                if failed == Some(place) && !alone {
                    tokio::time::sleep(HEAD_START).await;
                }
                let client = self.connect(member).await;
                client
                    .map(|client| (place, client))
                    .map_err(|why| format!("{member}: {why}"))
            })
            .collect();
        let mut failures = Vec::new();
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(connected) => {
                    state.current = Some(connected.clone());
                    return Ok(connected);
                }
                Err(why) => failures.push(why),
            }
        }
        Err(failures.join("; "))
    }

    async fn connect(&self, member: &ClusterMember) -> Result<Grpc<Link>, String> {
        let connecting = async {
            let socket = TcpStream::connect((member.host.as_str(), member.port)).await;
            let socket = socket.map_err(|error| error.to_string())?;
            let _ = socket.set_nodelay(true);
            let stream = self.tls.connect(member.name.clone(), socket).await;
            let stream = stream.map_err(|error| error.to_string())?;
            let (link, connection) = Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(QUIET)
                .keep_alive_timeout(QUIET)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())?;
            // The task ends with the last handle of the link.
            tokio::spawn(connection);
            let client = Grpc::with_origin(Link(link), member.origin.clone());
            Ok(client.max_decoding_message_size(LONGEST_ANSWER))
        };
        let connected = tokio::time::timeout(CONNECTING, connecting).await;
        connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECTING:?}")))
    }
}

async fn ask<R: Request>(
    mut client: Grpc<Link>,
    request: &R,
    patience: Duration,
) -> Result<R::Answer, CallError> {
    let asking = async {
        let ready = client.ready().await;
        ready.map_err(|error| CallError::Away(error.to_string()))?;
        let path = PathAndQuery::from_static(R::PATH);
        let codec = ProstCodec::<R, R::Answer>::default();
        let answer = client
            .unary(tonic::Request::new(request.clone()), path, codec)
            .await?;
        Ok(answer.into_inner())
    };
    let asked = tokio::time::timeout(patience, asking).await;
    asked.unwrap_or_else(|_| Err(CallError::Away(format!("no answer within {patience:?}"))))
}
