//! The process's side of the attachment to its node: a [`Host`] over one connection, which is replaced when it breaks.

mod handover;
mod link;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_seal::token::{Purpose, Secret, Token, TokenError};
use tokio::sync::{mpsc, watch};

use sealbus_control::ask::Ask;
use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest, Welcome};
use sealbus_control::host::{Command, Host, Membership};
use sealbus_control::rpc::RpcCaller;
use sealbus_control::{Fault, FaultCode};

pub use handover::part_of;
use link::{Link, Way};

/// The address of the node for a program without unix sockets, which attaches over the loopback interface.
pub const TLS: &str = "tls";

/// How long the node may take to answer; it may have to ask the Master.
const PATIENCE: Duration = Duration::from_secs(15);
/// The number of commands that may wait for the process.
const COMMANDS: usize = 64;

/// The reason why a process could not attach to its node.
#[derive(Debug, thiserror::Error)]
pub enum NodeAttachError {
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
    folder: Option<PathBuf>,
    caller: watch::Receiver<Option<RpcCaller>>,
    commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl Attachment {
    /// Attaches to the node that started this process. `address` and `ticket` come from the environment variables
    /// SEALBUS_ATTACH and SEALBUS_TICKET, and the program's folder from SEALBUS_FOLDER. The address is the path of the
    /// node's socket, or [`TLS`]; in that case the ticket says where the node is, as in [`join`](Self::join).
    ///
    /// # Errors
    /// [`NodeAttachError`].
    pub async fn attach(address: &str, ticket: &str) -> Result<Self, NodeAttachError> {
        let folder = std::env::var_os("SEALBUS_FOLDER").map(PathBuf::from);
        let attached = match address.strip_prefix("unix:") {
            _ if address == TLS => Self::over_network(ticket, folder.clone()).await?,
            Some(path) => Self::open(Way::Local(path.into()), ticket.to_owned()).await?,
            None => return Err(NodeAttachError::NoAddress(address.to_owned())),
        };
        Ok(attached.in_folder(folder))
    }

    /// Gives the program this folder, which is kept for its next start.
    #[must_use]
    pub fn in_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.folder = folder;
        self
    }

    /// Joins with a ticket, as a program that the platform did not start.
    ///
    /// # Errors
    /// [`NodeAttachError`].
    pub async fn join(ticket: &str) -> Result<Self, NodeAttachError> {
        Self::over_network(ticket, None).await
    }

    /// `folder`: the folder of a program that the node started.
    async fn over_network(ticket: &str, folder: Option<PathBuf>) -> Result<Self, NodeAttachError> {
        let token = Token::parse(Purpose::Ticket, ticket)?;
        let way = Way::Remote {
            addresses: token.addresses().to_vec(),
            platform: token.platform().clone(),
            root: token.root(),
            folder,
        };
        Self::open(way, secret_text(token.secret())).await
    }

    async fn open(way: Way, ticket: String) -> Result<Self, NodeAttachError> {
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
            all_use_channels,
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
                all_use_channels,
                reachable: true,
            },
            folder: None,
            caller,
            commands: Mutex::new(Some(received)),
        })
    }

    /// Asks the node.
    ///
    /// # Errors
    /// The node's fault, or [`FaultCode::Unavailable`] while the node is away.
    pub async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, Fault> {
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
    secret.text()
}

fn gone() -> Fault {
    Fault::new(FaultCode::Unavailable, "the node is not there now")
}

impl Host for Attachment {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        async move { self.ask(&request).await }.boxed()
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}

impl NodeAttachError {
    fn unreachable(address: &str, error: &io::Error) -> Self {
        Self::Unreachable {
            address: address.to_owned(),
            why: error.to_string(),
        }
    }
}

/// Shares the attached process as its [`Host`].
impl From<Attachment> for Arc<dyn Host> {
    fn from(attachment: Attachment) -> Self {
        Arc::new(attachment)
    }
}
