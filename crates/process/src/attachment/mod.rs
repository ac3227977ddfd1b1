//! An agent process and its node, as the process sees them: a [`Host`] over one connection, which is made anew when it
//! breaks.

mod freezing;
mod link;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_seal::token::{Purpose, Secret, Token, TokenError};
use tokio::sync::{mpsc, watch};

use sealbus_control::ask::Ask;
use sealbus_control::attachment::{AgentReport, Welcome, ask};
use sealbus_control::channel_log::{LogAnswer, LogRequest};
use sealbus_control::host::{Command, Host, Membership};
use sealbus_control::post::{LetterOutcome, PostedLetter};
use sealbus_control::rpc::Caller;
use sealbus_control::{AgentLocation, Blob, Fault, FaultCode, FrozenAgent, RefusalRecord, Subject};

pub use freezing::part_of;
use link::{Link, Way};

/// The address of a node that a program without unix sockets attaches to over the loopback interface.
pub const TLS: &str = "tls";

/// How long the node may take to answer; it may have to ask the Master.
const PATIENCE: Duration = Duration::from_secs(15);
/// Commands that wait for the process.
const COMMANDS: usize = 64;

/// The reason why a process could not attach to its node.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The address is not the address of a node.
    #[error("`{0}` is not a node's address: set SEALBUS_ATTACH to unix:/path/to/socket or {TLS}")]
    NoAddress(String),
    /// The ticket cannot be read.
    #[error(transparent)]
    Ticket(#[from] TokenError),
    /// The node cannot be reached.
    #[error("the node at {address} cannot be reached: {why}")]
    Unreachable {
        /// The address that was tried.
        address: String,
        /// The reason.
        why: String,
    },
    /// The node refused.
    #[error(transparent)]
    Refused(#[from] Fault),
}

/// The platform as an attached process sees it.
pub struct Attachment {
    membership: Membership,
    caller: watch::Receiver<Option<Caller>>,
    commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl Attachment {
    /// Attaches to the node that started this process. `address` and `ticket` come from the environment variables
    /// SEALBUS_ATTACH and SEALBUS_TICKET. The address is the path of the node's socket, or [`TLS`]: then the ticket says
    /// where the node is, as in [`join`](Self::join).
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn attach(address: &str, ticket: &str) -> Result<Self, AttachError> {
        if address == TLS {
            return Self::join(ticket).await;
        }
        let path = address
            .strip_prefix("unix:")
            .ok_or_else(|| AttachError::NoAddress(address.to_owned()))?;
        Self::open(Way::Local(path.into()), ticket.to_owned()).await
    }

    /// Joins with a ticket, as a program that the platform did not start.
    ///
    /// # Errors
    /// [`AttachError`].
    pub async fn join(ticket: &str) -> Result<Self, AttachError> {
        let token = Token::parse(Purpose::Ticket, ticket)?;
        let way = Way::Remote {
            addresses: token.addresses().to_vec(),
            platform: token.platform().clone(),
            root: token.root(),
        };
        Self::open(way, secret_text(token.secret())).await
    }

    async fn open(way: Way, ticket: String) -> Result<Self, AttachError> {
        let (commands, received) = mpsc::channel(COMMANDS);
        let (link, welcome, caller) = Link::open(way, ticket, commands).await?;
        tokio::spawn(link.run());
        let Welcome {
            platform,
            node,
            process,
            agents,
            address,
            deny_list,
            processes,
            rules,
            inherits,
            ..
        } = *welcome;
        Ok(Self {
            membership: Membership {
                platform,
                node,
                process,
                agents,
                address,
                port: 0,
                deny_list,
                processes,
                rules,
                inherits,
                reachable: true,
            },
            caller,
            commands: Mutex::new(Some(received)),
        })
    }

    async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, Fault> {
        let mut caller = self.caller.clone();
        let asking = async {
            let present = caller.wait_for(Option::is_some).await;
            let Some(caller) = present.ok().and_then(|caller| caller.clone()) else {
                return Err(gone());
            };
            caller.ask(ask, PATIENCE).await
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(gone()))
    }
}

/// The text form of a secret: base64url.
pub fn secret_text(secret: &Secret) -> String {
    URL_SAFE_NO_PAD.encode(secret.as_bytes())
}

fn gone() -> Fault {
    Fault::new(FaultCode::Unavailable, "the node is not there now")
}

impl Host for Attachment {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn certify(
        &self,
        subject: Subject,
        request: Vec<u8>,
    ) -> BoxFuture<'_, Result<Vec<Vec<u8>>, Fault>> {
        async move {
            let request = Blob(request);
            let chain = self.ask(ask::Certify { subject, request }).await?;
            Ok(chain.into_iter().map(|der| der.0).collect())
        }
        .boxed()
    }

    fn announce(&self, address: SocketAddr) -> BoxFuture<'_, Result<(), Fault>> {
        self.ask(ask::Announce { address }).boxed()
    }

    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<AgentLocation, Fault>> {
        let agent = agent.to_owned();
        self.ask(ask::Resolve { agent }).boxed()
    }

    fn report<'a>(
        &'a self,
        agent: &'a str,
        report: AgentReport,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let agent = agent.to_owned();
        self.ask(ask::Report { agent, report }).boxed()
    }

    fn refused(&self, records: Vec<RefusalRecord>) -> BoxFuture<'_, Result<(), Fault>> {
        self.ask(ask::Refusals { records }).boxed()
    }

    fn post(&self, letters: Vec<PostedLetter>) -> BoxFuture<'_, Result<Vec<Option<Fault>>, Fault>> {
        self.ask(ask::Post { letters }).boxed()
    }

    fn settle_letters<'a>(
        &'a self,
        agent: &'a str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let agent = agent.to_owned();
        self.ask(ask::Letters { agent, outcomes }).boxed()
    }

    fn channel_log<'a>(
        &'a self,
        node: &'a str,
        request: LogRequest,
    ) -> BoxFuture<'a, Result<LogAnswer, Fault>> {
        let node = node.to_owned();
        self.ask(ask::ChannelLog { node, request }).boxed()
    }

    fn inherit(&self) -> BoxFuture<'_, Result<Vec<FrozenAgent>, Fault>> {
        async move {
            let mut bytes = Vec::new();
            let mut index = 0;
            loop {
                let part = self.ask(ask::Inherit { index }).await?;
                if part.index != index {
                    return Err(Fault::other_answer());
                }
                bytes.extend_from_slice(&part.bytes.0);
                index += 1;
                if !part.more {
                    break;
                }
            }
            serde_json::from_slice(&bytes)
                .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))
        }
        .boxed()
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}

impl AttachError {
    fn unreachable(address: &str, error: &io::Error) -> Self {
        Self::Unreachable {
            address: address.to_owned(),
            why: error.to_string(),
        }
    }
}

/// The attached process, shared as its [`Host`].
impl From<Attachment> for Arc<dyn Host> {
    fn from(attachment: Attachment) -> Self {
        Arc::new(attachment)
    }
}
