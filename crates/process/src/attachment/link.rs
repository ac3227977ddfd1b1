use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealbus_seal::tls::ExpectedPeer;
use sealbus_seal::token::Secret;
use sealbus_seal::{Fingerprint, PlatformName};
use tokio::fs::OpenOptions;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::{NodeAttachError, PATIENCE, handover};
use sealbus_control::attachment::{AttachmentNotice, MARK, Welcome, ask};
use sealbus_control::clock::now;
use sealbus_control::host::Command;
use sealbus_control::local::Stream;
use sealbus_control::rpc::{self, ConnectionClosed, Incoming, LONGEST_FRAME, RpcCaller};
use sealbus_control::traffic::{ProcessAnswer, ProcessRequest};
use sealbus_control::{Fault, FaultCode};
use sealbus_enrolment::{ATTACHMENT, connect};

/// How long a node may be gone before its processes give up. They must not stay for ever without a node.
const GIVE_UP: Duration = Duration::from_secs(60);
/// The pause between attempts to attach again.
const PAUSE: Duration = Duration::from_millis(250);

/// The way to the node.
pub(super) enum Way {
    /// The node's socket on this machine.
    Local(PathBuf),
    /// TLS, pinned by a ticket.
    Remote {
        addresses: Vec<String>,
        platform: PlatformName,
        root: Fingerprint,
        /// The program's folder, if the node started it.
        folder: Option<PathBuf>,
    },
}

/// Keeps the connection, and passes on the node's notices.
pub(super) struct Link {
    way: Way,
    secret: String,
    open: Open,
    caller: watch::Sender<Option<RpcCaller>>,
    commands: mpsc::Sender<Command>,
    /// The handover of the last freeze, until the node gives that up.
    handover: JoinSet<()>,
}

struct Open {
    caller: RpcCaller,
    incoming: mpsc::Receiver<Incoming>,
    driving: JoinHandle<ConnectionClosed>,
}

impl Link {
    pub(super) async fn open(
        way: Way,
        ticket: String,
        commands: mpsc::Sender<Command>,
    ) -> Result<(Self, Box<Welcome>, watch::Receiver<Option<RpcCaller>>), NodeAttachError> {
        let (open, welcome) = attach(&way, ticket).await?;
        let (caller, receiver) = watch::channel(Some(open.caller.clone()));
        let secret = welcome.reattach.clone();
        Ok((
            Self {
                way,
                secret,
                open,
                caller,
                commands,
                handover: JoinSet::new(),
            },
            welcome,
            receiver,
        ))
    }

    /// Serves the connection until the process or the node is gone for good.
    pub(super) async fn run(mut self) {
        let commands = self.commands.clone();
        loop {
            let closed = tokio::select! {
                closed = self.serve() => closed,
                () = commands.closed() => return,
            };
            tracing::warn!(%closed, "the connection to the node was lost");
            self.caller.send_replace(None);
            match self.attach_again().await {
                Ok(()) => tracing::info!("attached to the node again"),
                Err(why) => {
                    tracing::error!(%why, "the node is gone for good");
                    return;
                }
            }
        }
    }

    async fn serve(&mut self) -> String {
        loop {
            match self.open.incoming.recv().await {
                Some(Incoming::Notice { body }) => match Incoming::parse(&body) {
                    Ok(notice) => self.obey(notice).await,
                    Err(fault) => tracing::warn!(%fault, "a notice of the node"),
                },
                Some(Incoming::Call { body, answer }) => {
                    let asked = Incoming::parse(&body);
                    let commands = self.commands.clone();
                    tokio::spawn(async move {
                        let result = match asked {
                            Ok(request) => answer_node(request, &commands).await,
                            Err(fault) => Err(fault),
                        };
                        answer.send(result).await;
                    });
                }
                None => {
                    return match (&mut self.open.driving).await {
                        Ok(closed) => closed.to_string(),
                        Err(error) => error.to_string(),
                    };
                }
            }
        }
    }

    async fn obey(&mut self, notice: AttachmentNotice) {
        let command = match notice {
            AttachmentNotice::Stop { grace, reason } => Command::Stop {
                grace: Duration::from_millis(grace),
                reason,
            },
            AttachmentNotice::Freeze { freeze } => {
                self.handover.shutdown().await;
                let (commands, node) = (self.commands.clone(), self.caller.subscribe());
                let handover = handover::freeze_and_hand_over(freeze, commands, node);
                self.handover.spawn(handover);
                return;
            }
            AttachmentNotice::Thaw => {
                // Otherwise this handover might thaw the agents of a later freeze.
                self.handover.shutdown().await;
                Command::Thaw
            }
            AttachmentNotice::DenyList { list } => Command::DenyList(list),
            AttachmentNotice::Letters { agent, letters } => Command::Letters { agent, letters },
            AttachmentNotice::DirectoryChanged { changes } => Command::DirectoryChanged(changes),
            AttachmentNotice::ProcessesAre { processes } => Command::ProcessesAre(Some(processes)),
            AttachmentNotice::ProcessesEnded { processes } => Command::ProcessesEnded(processes),
            AttachmentNotice::ProcessesJoined { processes } => Command::ProcessesJoined(processes),
            AttachmentNotice::Rules { rules } => Command::Rules(Box::new(rules)),
        };
        // If nobody listens any more, the process is leaving.
        let _ = self.commands.send(command).await;
    }

    async fn attach_again(&mut self) -> Result<(), String> {
        let mut since = Instant::now();
        loop {
            tokio::time::sleep(PAUSE).await;
            match attach(&self.way, self.secret.clone()).await {
                Ok((open, welcome)) => {
                    self.secret = welcome.reattach;
                    self.caller.send_replace(Some(open.caller.clone()));
                    self.open = open;
                    // Passes on the events missed in between.
                    for missed in [
                        Command::AttachedAgain,
                        Command::DenyList(welcome.deny_list),
                        Command::ProcessesAre(welcome.processes),
                        Command::Rules(Box::new(welcome.rules)),
                    ] {
                        let _ = self.commands.send(missed).await;
                    }
                    return Ok(());
                }
                Err(error) => since = goes_on(&error, since, Instant::now())?,
            }
        }
    }
}

/// Whether a process tries to attach again after an attempt that failed now. `since`: when its node was there last, or
/// was lost. Returns the time from which the next attempt counts.
///
/// # Errors
/// The reason for giving up.
fn goes_on(error: &NodeAttachError, since: Instant, now: Instant) -> Result<Instant, String> {
    match error {
        // The node is there but answers late. It may be starting on a slow disk.
        NodeAttachError::Refused(fault) if fault.code == FaultCode::Unavailable => Ok(now),
        // The node refuses this process for good.
        NodeAttachError::Refused(fault) => Err(fault.to_string()),
        _ if now.duration_since(since) > GIVE_UP => Err(error.to_string()),
        _ => Ok(since),
    }
}

/// Lets the process answer its node.
async fn answer_node(
    request: ProcessRequest,
    commands: &mpsc::Sender<Command>,
) -> Result<ProcessAnswer, Fault> {
    let leaving = || Fault::new(FaultCode::Unavailable, "the process is leaving");
    match request {
        ProcessRequest::Observe { watch } => {
            let (answer, seen) = oneshot::channel();
            let told = commands.send(Command::Observe { watch, answer }).await;
            told.map_err(|_| leaving())?;
            Ok(seen.await.map_err(|_| leaving())?.into())
        }
        ProcessRequest::FormerKeys { key } => {
            let (answer, sealed) = oneshot::channel();
            let told = commands.send(Command::FormerKeys { key, answer }).await;
            told.map_err(|_| leaving())?;
            Ok(sealed.await.map_err(|_| leaving())??.into())
        }
        ProcessRequest::Heard => {
            let (answer, heard) = oneshot::channel();
            let told = commands.send(Command::Heard { answer }).await;
            told.map_err(|_| leaving())?;
            Ok(heard.await.map_err(|_| leaving())?.into())
        }
    }
}

async fn attach(way: &Way, ticket: String) -> Result<(Open, Box<Welcome>), NodeAttachError> {
    match way {
        Way::Local(path) => {
            let stream = Stream::connect(path).await.map_err(|error| {
                NodeAttachError::unreachable(&path.display().to_string(), &error)
            })?;
            introduce(stream, ticket, None).await
        }
        Way::Remote {
            addresses,
            platform,
            root,
            folder,
        } => {
            let unreachable = |why| NodeAttachError::Unreachable {
                address: addresses.join(", "),
                why,
            };
            let stream = connect(addresses, platform, *root, ExpectedPeer::NODE, ATTACHMENT)
                .await
                .map_err(unreachable)?;
            let mark = match folder {
                Some(folder) => {
                    let marked = leave_mark(&folder.join(MARK)).await;
                    Some(marked.map_err(|error| {
                        unreachable(format!("no mark in {}: {error}", folder.display()))
                    })?)
                }
                None => None,
            };
            introduce(stream, ticket, mark).await
        }
    }
}

/// Overwrites the former mark with a fresh one. This takes no room, so that a full disk keeps no program from its node.
async fn leave_mark(path: &Path) -> io::Result<String> {
    let secret = Secret::random().map_err(|error| io::Error::other(error.to_string()))?;
    let mark = secret.text();
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let mut file = options.open(path).await?;
    file.write_all(mark.as_bytes()).await?;
    file.flush().await?;
    Ok(mark)
}

async fn introduce<S>(
    stream: S,
    ticket: String,
    mark: Option<String>,
) -> Result<(Open, Box<Welcome>), NodeAttachError>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (caller, incoming, drive) = rpc::open(stream, LONGEST_FRAME);
    let driving = tokio::spawn(drive);
    let now = now();
    let attaching = ask::Attach { ticket, now, mark };
    let welcome = caller.ask(attaching, PATIENCE).await?;
    let open = Open {
        caller,
        incoming,
        driving,
    };
    Ok((open, welcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealbus_control::Blob;
    use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};

    #[test]
    fn a_process_waits_for_a_node_that_answers_late_and_gives_up_one_that_is_gone() {
        let began = Instant::now();
        let late = NodeAttachError::from(Fault::new(FaultCode::Unavailable, "no answer"));
        let gone = NodeAttachError::Unreachable {
            address: "/node.sock".to_owned(),
            why: "nobody listens".to_owned(),
        };
        let mut since = began;
        // A node that opens a long journal listens, and answers nobody meanwhile.
        for minute in 1..=10 {
            let now = began + GIVE_UP * minute;
            since = goes_on(&late, since, now).unwrap();
            assert_eq!(since, now);
        }
        let lost = since;
        since = goes_on(&gone, since, lost + GIVE_UP).unwrap();
        assert_eq!(since, lost);
        let given_up = goes_on(&gone, since, lost + GIVE_UP + PAUSE).unwrap_err();
        assert!(given_up.contains("nobody listens"), "{given_up}");
        let refused = NodeAttachError::from(Fault::new(FaultCode::InvalidSecret, "another one"));
        let refused = goes_on(&refused, began, began).unwrap_err();
        assert!(refused.contains("another one"), "{refused}");
    }

    /// The node's answer to a part of the first freeze comes late.
    #[tokio::test]
    async fn the_handover_of_a_freeze_that_was_given_up_has_no_part_in_the_next_one() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (caller, incoming, drive) = rpc::open(ours, LONGEST_FRAME);
        let open = Open {
            caller: caller.clone(),
            incoming,
            driving: tokio::spawn(drive),
        };
        let (commands, mut told) = mpsc::channel(8);
        let link = Link {
            way: Way::Local(PathBuf::new()),
            secret: String::new(),
            open,
            caller: watch::Sender::new(Some(caller)),
            commands,
            handover: JoinSet::new(),
        };
        tokio::spawn(link.run());
        let (node, mut asked, drive) = rpc::open(theirs, LONGEST_FRAME);
        tokio::spawn(drive);
        let mut answers = Vec::new();
        for number in [1, 2] {
            let freezing = AttachmentNotice::Freeze { freeze: number };
            node.try_notify(&freezing).unwrap();
            let Some(Command::Freeze { answer }) = told.recv().await else {
                panic!("the process is frozen");
            };
            answer.send(Ok(Vec::new())).unwrap();
            let Some(Incoming::Call { body, answer }) = asked.recv().await else {
                panic!("a part comes");
            };
            match Incoming::parse(&body).unwrap() {
                AttachmentRequest::Frozen { freeze, .. } => assert_eq!(freeze, number),
                other => panic!("{other:?}"),
            }
            answers.push(answer);
            if number == 1 {
                node.try_notify(&AttachmentNotice::Thaw).unwrap();
                assert!(matches!(told.recv().await, Some(Command::Thaw)));
            }
        }
        let (second, first) = (answers.remove(1), answers.remove(0));
        let given_up = Fault::new(FaultCode::BadRequest, "the move was given up");
        first.send(Err::<AttachmentAnswer, _>(given_up)).await;
        second.send(Ok(AttachmentAnswer::Done)).await;
        let list = Blob::default();
        node.try_notify(&AttachmentNotice::DenyList { list })
            .unwrap();
        let next = told.recv().await;
        assert!(matches!(next, Some(Command::DenyList(_))), "{next:?}");
    }
}
