//! The interface of an agent process to its platform.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sealbus_channels::ChannelPath;
use sealbus_journal::Retention;
use tokio::sync::{mpsc, oneshot};

use crate::ask::Ask;
use crate::attachment::{AttachmentAnswer, AttachmentRequest, MOST_FROZEN, ask};
use crate::post::DeliveredLetter;
use crate::traffic::{ProcessTraffic, Watch};
use crate::{
    Blob, DirectoryChange, EndedProcess, Fault, FaultCode, FrozenAgent, PlatformDescription,
    ProcessContact, Rules, SealedKeys,
};

/// The facts that a process learned when it joined its platform.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The platform.
    pub platform: PlatformDescription,
    /// The node that vouches for this process.
    pub node: String,
    /// This process's name, as certified.
    pub process: String,
    /// Local names of the agents that it may run, in the manifest's order.
    pub agents: Vec<String>,
    /// The address in its certificates. The process must also listen there.
    pub address: IpAddr,
    /// The port to listen on. With 0 the system chooses.
    pub port: u16,
    /// The whole signed deny list at that time. Newer ones come as [`Command::DenyList`].
    pub deny_list: Blob,
    /// Whether agents moved here. [`dyn Host::inherit`] returns their state and mailboxes.
    pub inherits: bool,
    /// Whether the process says at once that its agents use channels, as on a small platform.
    pub all_use_channels: bool,
    /// The other processes whose agents use channels, as [`Command::ProcessesAre`]. This process may be among them.
    pub processes: Option<Vec<ProcessContact>>,
    /// The rules for all processes at that time. Changes come as [`Command::Rules`].
    pub rules: Rules,
    /// Whether this process and others can reach each other. False on an embedded platform, which needs no mesh
    /// endpoint.
    pub reachable: bool,
}

/// A notice of the platform to a process.
#[derive(Debug)]
pub enum Command {
    /// End all agents and leave.
    Stop {
        /// Time until the process is ended by force.
        grace: Duration,
        /// The reason.
        reason: String,
    },
    /// Stop delivering, let every agent save its state, and answer with one entry for each agent: its state and its
    /// unread messages. From then on, refuse incoming messages as `in transit`, so that their senders hold them. If
    /// `answer` is dropped, the process cannot be moved.
    Freeze {
        /// The channel for the answer.
        answer: oneshot::Sender<Result<Vec<FrozenAgent>, String>>,
    },
    /// The move failed. Go on as if there had been no [`Command::Freeze`].
    Thaw,
    /// Seal the frozen agents' keys for sealed messages to the process that restores them.
    FormerKeys {
        /// The stated key of one of these agents in that process.
        key: Blob,
        /// The channel for the answer.
        answer: oneshot::Sender<Result<SealedKeys, Fault>>,
    },
    /// The process has attached again, perhaps to a node that was started anew and knows none of its agents: report them.
    AttachedAgain,
    /// A newer signed deny list, which must be verified and obeyed at once: its changes since the last one, or the whole
    /// list.
    DenyList(Blob),
    /// Messages that were kept for an agent of this process, in order.
    Letters {
        /// The agent's local name.
        agent: String,
        /// The messages.
        letters: Vec<DeliveredLetter>,
    },
    /// Agents that this process has asked for have moved.
    DirectoryChanged(Vec<DirectoryChange>),
    /// Processes whose agents use channels and that can be reached now, or at another address.
    ProcessesJoined(Vec<ProcessContact>),
    /// All present processes whose agents use channels. Other known processes have ended. `None`: the platform does not
    /// know them at present. If agents of this process use channels, it must then [say
    /// so](AttachmentRequest::UseChannels) again.
    ProcessesAre(Option<Vec<ProcessContact>>),
    /// Confirm that all earlier commands were obeyed.
    Heard {
        /// The channel for the confirmation.
        answer: oneshot::Sender<()>,
    },
    /// Report the traffic through the process, and watch it for a while if asked to.
    Observe {
        /// The watch.
        watch: Option<Watch>,
        /// The channel for the answer.
        answer: oneshot::Sender<ProcessTraffic>,
    },
    /// The rules for all processes from now on.
    Rules(Box<Rules>),
    /// Processes that have ended. Links to them must be given up.
    ProcessesEnded(Vec<EndedProcess>),
    /// Another Master leads, or the same one at another place.
    MasterMoved {
        /// The process in which the Master was. Nothing waits for it any more.
        former: EndedProcess,
        /// The Master's agents, at their new place.
        agents: Vec<DirectoryChange>,
        /// The channel to confirm that the process now looks for them there.
        done: oneshot::Sender<()>,
    },
}

/// The platform, as an agent process sees it: through an attachment to a node, or embedded.
///
/// Requests may be made from several tasks at once. Requests that need the Master fail with [`FaultCode::Unavailable`]
/// while it is away, and may be repeated later.
pub trait Host: Send + Sync + 'static {
    /// The facts learned on joining.
    fn membership(&self) -> &Membership;

    /// Carries out a request of this process. [`dyn Host::ask`] gives each request its own type of answer.
    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>>;

    /// The program's own folder, which is kept for its next start; `None` if it has none.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Whether messages of this process's agents are kept for their receivers.
    fn keeps_letters(&self) -> bool {
        true
    }

    /// Sets the retention of a persistent channel on an embedded platform, which has no manifest.
    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        _retention: Retention,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let message = format!("how much is kept of {channel} is said in the platform's manifest");
        let fault = Fault::new(FaultCode::NotPermitted, message)
            .advise("see `retention` of [[channel]] there");
        Box::pin(std::future::ready(Err(fault)))
    }

    /// Ends the host's work for a process that has left the platform. Messages that were kept only for this run are
    /// removed.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The platform's commands; `None` after the first call. When the channel ends, the platform is gone for good, and
    /// the process must leave.
    fn commands(&self) -> Option<mpsc::Receiver<Command>>;
}

impl dyn Host {
    /// Asks the platform.
    ///
    /// # Errors
    /// The reason why the platform did not carry out the request.
    pub async fn ask<A>(&self, ask: A) -> Result<A::Answer, Fault>
    where
        A: Ask<Requests = AttachmentRequest, Answers = AttachmentAnswer>,
    {
        A::take(self.answer(ask.into()).await?)
    }

    /// Returns the state and mailboxes of agents that moved here. Restore them before the process announces its
    /// address.
    ///
    /// # Errors
    /// If they are not available.
    pub async fn inherit(&self) -> Result<Vec<FrozenAgent>, Fault> {
        let mut bytes = Vec::new();
        for index in 0.. {
            let part = self.ask(ask::Inherit { index }).await?;
            if part.index != index {
                return Err(Fault::other_answer());
            }
            if bytes.len() + part.bytes.0.len() > MOST_FROZEN {
                let message = format!(
                    "the former node hands over more than the {MOST_FROZEN} bytes that may move"
                );
                return Err(Fault::new(FaultCode::TooLarge, message));
            }
            bytes.extend_from_slice(&part.bytes.0);
            if !part.more {
                break;
            }
        }
        serde_json::from_slice(&bytes).map_err(Fault::internal)
    }
}

/// The error for a request that only a process attached to a node may make.
pub fn not_attached() -> Fault {
    Fault::new(
        FaultCode::BadRequest,
        "this process is not attached to a node",
    )
}

/// The error for the platform's own agents that ask for a log.
pub fn no_logs() -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        "the platform's own agents use no persistent channels",
    )
}

/// The error for the platform's own agents that want a message kept.
pub fn no_letters() -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        "the platform's own agents send no persistent messages",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;
    use crate::attachment::FrozenPart;

    /// Hands over twice as much as may be moved.
    struct Flood;

    const PART: usize = MOST_FROZEN / 8;

    impl Host for Flood {
        fn membership(&self) -> &Membership {
            unreachable!("nobody asks for it")
        }

        fn answer(
            &self,
            request: AttachmentRequest,
        ) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
            let AttachmentRequest::Inherit { index } = request else {
                panic!("{request:?}");
            };
            let answer = AttachmentAnswer::from(FrozenPart {
                index,
                more: index < 15,
                bytes: Blob(vec![0; PART]),
            });
            Box::pin(std::future::ready(Ok(answer)))
        }

        fn commands(&self) -> Option<mpsc::Receiver<Command>> {
            None
        }
    }

    #[test]
    fn no_more_is_inherited_than_may_move() {
        let host: Arc<dyn Host> = Arc::new(Flood);
        let refused = host.inherit().now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code, FaultCode::TooLarge);
    }
}
