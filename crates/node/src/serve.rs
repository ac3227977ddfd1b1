//! The node's side of attachment: processes with a ticket are let in and served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealbus_seal::Name;
use sealbus_seal::encryption::CertifiedEncryptionKey;
use sealbus_seal::token::{Secret, TokenError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::channel_log::waits;
use super::peer::Peer;
use super::processes::{RequestPlace, Turn};
use super::shared::Shared;
use sealbus_control::attachment::{
    AgentReport, AttachmentAnswer, AttachmentRequest, FrozenPart, Welcome,
};
use sealbus_control::channel_log::LogRequest;
use sealbus_control::clock::now;
use sealbus_control::directory::Slices;
use sealbus_control::node::{Inheritance, MasterRequest, ask_node};
use sealbus_control::rpc::{
    self, Answer, ConnectionClosed, Incoming, LONGEST_FRAME, LONGEST_FRAME_UNKNOWN, RpcCaller,
};
use sealbus_control::text::excerpt;
use sealbus_control::{AgentLocation, Blob, Fault, FaultCode, RefusalRecord, Subject};
use sealbus_enrolment::{WaitingStranger, most_strangers};
use sealbus_mesh::{Stranger, Strangers};
use sealbus_process::attachment::secret_text;
use sealbus_web::accept_each;

/// How long a newcomer may take to show its ticket.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most refusals in one report.
const MOST_RECORDS: usize = 1024;
/// The most characters of a name in a report.
const LONGEST_NAME: usize = 256;
/// The most characters of a reason that a process gives.
const LONGEST_REASON: usize = 1024;
/// How long another node may take to hand over a part.
const FETCHING: Duration = Duration::from_secs(10);

/// Accepts processes of this machine for ever.
pub(crate) async fn accept_local(listener: UnixListener, shared: Arc<Shared>) {
    let strangers = Strangers::new(most_strangers());
    accept_each(&listener, |stream, _, _| {
        Some(serve_local(stream, strangers.clone(), shared.clone()))
    })
    .await;
}

async fn serve_local(stream: UnixStream, strangers: Strangers<Option<u32>>, shared: Arc<Shared>) {
    let peer = match Peer::of(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            let why = format!("it is not let in: the system does not say who it is: {error}");
            return shared.log_refusal("a process", &why);
        }
    };
    let ours = rustix::process::getuid().as_raw();
    let is_known = |uid: u32| uid == ours || shared.processes.is_slot(uid);
    if !peer.uid.is_some_and(is_known) {
        shared.log_refusal(&peer.user(), "it is not the node's, and no program's");
        return;
    }
    let place = strangers.came(peer.pid);
    serve(stream, Newcomer::Local { place, peer }, shared).await;
}

/// A connection that must show its ticket, and its place among others that have not shown theirs yet.
pub(crate) enum Newcomer {
    /// A process of this machine.
    Local {
        place: Stranger<Option<u32>>,
        peer: Peer,
    },
    /// A program that came over the network.
    Remote(Arc<WaitingStranger>),
}

impl Newcomer {
    fn peer(&self) -> Peer {
        match self {
            Self::Local { peer, .. } => peer.clone(),
            Self::Remote(_) => Peer::default(),
        }
    }

    fn let_in(&self) {
        match self {
            Self::Local { place, .. } => place.let_in(),
            Self::Remote(waiting) => waiting.let_in(),
        }
    }

    fn refused(&self, fault: &Fault, shared: &Shared) {
        match self {
            Self::Local { peer, .. } => {
                let pid = peer.pid.unwrap_or_default();
                let why = format!("the process {pid} was not let in: {fault}");
                shared.log_refusal(&peer.user(), &why);
            }
            Self::Remote(waiting) => waiting.refused(&fault.to_string()),
        }
    }

    /// Waits until the connection must end, to make room for another.
    async fn must_go(&self) {
        match self {
            Self::Local { place, .. } => place.must_go().await,
            // The entrance itself ends this connection.
            Self::Remote(_) => std::future::pending().await,
        }
    }
}

/// Serves one connection.
pub(crate) async fn serve<S>(stream: S, newcomer: Newcomer, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let (caller, mut incoming, drive) = rpc::open(stream, LONGEST_FRAME_UNKNOWN);
    let mut driving = JoinSet::new();
    driving.spawn(drive);
    let first = tokio::select! {
        first = tokio::time::timeout(PATIENCE, incoming.recv()) => first,
        () = newcomer.must_go() => return,
    };
    let Ok(Some(Incoming::Call { body, answer })) = first else {
        return;
    };
    let admitted = match Incoming::parse(&body) {
        Ok(AttachmentRequest::Attach { ticket, mark, .. }) => {
            let secret = (ticket, mark);
            admit(&shared, secret, &caller, connection, &newcomer).await
        }
        Ok(_) => Err(Fault::new(FaultCode::NotPermitted, "attach first")),
        Err(fault) => Err(fault),
    };
    let (process, turn) = match admitted {
        Ok((process, turn, welcome)) => {
            caller.allow_frames(LONGEST_FRAME);
            let agents = welcome.agents.clone();
            answer
                .send(Ok(AttachmentAnswer::Welcome(Box::new(welcome))))
                .await;
            shared.tell_denials_beside(&process, &caller);
            for agent in agents {
                shared.post.wake(&agent);
            }
            (process, turn)
        }
        Err(fault) => {
            newcomer.refused(&fault, &shared);
            answer.send(Err::<(), _>(fault)).await;
            drop((caller, incoming));
            let _ = tokio::time::timeout(PATIENCE, driving.join_next()).await;
            return;
        }
    };
    let mut reads_nothing = false;
    let mut telling = std::pin::pin!(shared.tell_lacking_denials(&caller, &turn));
    loop {
        // A process that asks faster than it is answered, or does not read the answers, must wait.
        let next = async {
            let place = turn.place().await?;
            Some((place, incoming.recv().await))
        };
        let next = tokio::select! {
            next = next => next,
            () = turn.is_over() => break,
            () = &mut telling => break,
        };
        let Some((place, next)) = next else { break };
        let (body, answer) = match next {
            Some(Incoming::Call { body, answer }) => (body, answer),
            Some(Incoming::Notice { .. }) => break,
            None => {
                let closed = driving.join_next().await;
                reads_nothing = matches!(closed, Some(Ok(ConnectionClosed::ReadsNothing)));
                break;
            }
        };
        let (shared, process) = (shared.clone(), process.clone());
        let bytes = body.get().len();
        // The text of the request is dropped here, and its contents may wait.
        let request = Incoming::read::<AttachmentRequest>(body).await;
        tokio::spawn(async move {
            let attending = shared.attend_to(&process, request, bytes, place, answer);
            attending.await;
        });
    }
    drop(driving);
    let present = shared.processes.connection(&process);
    let is_present = present.is_some_and(|(number, _)| number == connection);
    if reads_nothing && is_present {
        shared.end_unreading(&process);
    }
    shared.disconnected(&process, connection, newcomer.peer());
}

async fn admit(
    shared: &Arc<Shared>,
    (ticket, mark): (String, Option<String>),
    caller: &RpcCaller,
    connection: u64,
    newcomer: &Newcomer,
) -> Result<(String, Turn, Welcome), Fault> {
    let invalid = |error: TokenError| Fault::new(FaultCode::InvalidSecret, error.to_string());
    let secret: Secret = ticket.parse().map_err(invalid)?;
    let next =
        Secret::random().map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
    let folder = shared.processes.folder_of(&secret);
    let peer = newcomer.peer().marked(mark, folder).await;
    let (launch, first) = shared.processes.admit(&secret, &next, &peer)?;
    // The ticket is used now, so nobody may take the newcomer's place any more.
    newcomer.let_in();
    // The process may show its new secret after a restart of the node, so the secret is on disk first. No notice may
    // come before the welcome, so the connection counts only from here on.
    let processes = &shared.processes;
    processes.note(&launch.process, &shared.memory).await;
    let turn = processes.connect(&launch.process, caller, connection)?;
    if first && launch.command.is_empty() {
        shared.report(MasterRequest::Started {
            process: launch.process.clone(),
            pid: peer.pid,
        });
    }
    // This is read after the connection is known, so that later changes go over the connection.
    let is_told = shared.processes.is_told_of_others(&launch.process);
    let (processes, rules) = {
        let replica = shared.replica.lock();
        let processes = replica.processes().filter(|_| is_told);
        (processes, replica.rules().clone())
    };
    if is_told {
        shared.came_back(&launch.process, processes.is_some());
    }
    let welcome = Welcome {
        platform: shared.platform.read().clone(),
        node: shared.name.clone(),
        process: launch.process.clone(),
        agents: launch.agents,
        address: shared.address(),
        deny_list: shared.deny_list(),
        processes,
        rules,
        reattach: secret_text(&next),
        inherits: launch.inherits.is_some(),
        all_use_channels: shared.replica.lock().held() == Slices::ALL,
    };
    Ok((launch.process, turn, welcome))
}

/// A process's refusals in the form that its node passes on: with the process's own name, and with texts that are
/// limited and cannot control a terminal.
fn reported_by(by: &str, records: Vec<RefusalRecord>) -> Result<Vec<RefusalRecord>, Fault> {
    if records.len() > MOST_RECORDS {
        let message = format!("at most {MOST_RECORDS} refusals are reported at once");
        return Err(Fault::new(FaultCode::BadRequest, message));
    }
    let passed_on = |record: RefusalRecord| RefusalRecord {
        at: record.at.min(now()),
        by: Some(by.to_owned()),
        ..record.bounded()
    };
    Ok(records.into_iter().map(passed_on).collect())
}

/// Checks that a process states a key, before the bytes are passed on.
fn check_key(key: &Blob) -> Result<(), Fault> {
    CertifiedEncryptionKey::decode_with_package(&key.0)
        .map(|_| ())
        .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))
}

impl Shared {
    /// Checks that a process listens where it was told to. Others connect to the address that it announces.
    fn check_address(&self, announced: SocketAddr) -> Result<(), Fault> {
        let own = self.address();
        match announced.ip() == own {
            true => Ok(()),
            false => Err(Fault::new(
                FaultCode::NotPermitted,
                format!(
                    "the processes of {} listen at {own}, and not at {announced}",
                    self.name
                ),
            )),
        }
    }

    /// Answers a process's request of this many bytes.
    async fn attend_to(
        self: &Arc<Self>,
        process: &str,
        request: Result<AttachmentRequest, Fault>,
        bytes: usize,
        mut place: RequestPlace,
        mut answer: Answer,
    ) {
        let result = match request {
            Ok(AttachmentRequest::ChannelLog {
                node,
                request: LogRequest::Read { question },
            }) if waits(&question) => {
                let (place, answer) = (&mut place, &mut answer);
                let log = self.await_events(process, &node, question, bytes, place, answer);
                log.await.map(AttachmentAnswer::from)
            }
            Ok(request) => self.attend(process, request).await,
            Err(fault) => Err(fault),
        };
        answer.send(result).await;
        drop(place);
    }

    /// Carries out a process's request.
    async fn attend(
        self: &Arc<Self>,
        process: &str,
        request: AttachmentRequest,
    ) -> Result<AttachmentAnswer, Fault> {
        match request {
            AttachmentRequest::Attach { .. } => {
                return Err(Fault::new(FaultCode::BadRequest, "it is attached already"));
            }
            AttachmentRequest::Certify { subject, request } => {
                if let Subject::Agent { name } = &subject {
                    self.check_place(process, name)?;
                }
                let chain = self
                    .request_certificate(process, subject.clone(), request.0)
                    .await?;
                self.processes.certified(process, &subject, chain.clone());
                let process = process.to_owned();
                self.report(MasterRequest::Delivered { process, subject });
                return Ok(chain.into());
            }
            AttachmentRequest::PublishKey { agent, key } => {
                self.check_place(process, &agent)?;
                check_key(&key)?;
                self.reports.put_of_process(MasterRequest::KeyPublished {
                    process: process.to_owned(),
                    agent,
                    key,
                })?;
            }
            AttachmentRequest::EncryptionKey { agent } => {
                return Ok(self.encryption_key(agent).await?.into());
            }
            AttachmentRequest::Announce { address } => {
                self.check_address(address)?;
                self.processes.announced(process, address);
                self.reports.put_of_process(MasterRequest::Announced {
                    process: process.to_owned(),
                    address,
                })?;
            }
            AttachmentRequest::UseChannels => self.use_channels(process).await?,
            AttachmentRequest::Nodes => {
                let nodes: Vec<String> = self.replica.lock().nodes().cloned().collect();
                return Ok(nodes.into());
            }
            AttachmentRequest::Resolve { agent } => {
                // Requested names are remembered, and an agent cannot have this one.
                if Name::new("agent", &agent).is_err() {
                    return Ok(AgentLocation::Unknown.into());
                }
                let forgotten = self.processes.asked(process, &agent)?;
                self.unfollow(&forgotten);
                self.follow(&agent);
                return Ok(self.locate(&agent).await?.into());
            }
            AttachmentRequest::Report { agent, report } => {
                self.check_place(process, &agent)?;
                let state = match &report {
                    AgentReport::State { state } => Some(*state),
                    AgentReport::Ended | AgentReport::Failed { .. } => None,
                };
                self.reports.put_of_process(MasterRequest::Reported {
                    process: process.to_owned(),
                    agent: agent.clone(),
                    report: report.bounded(),
                })?;
                self.processes.reported(process, &agent, state);
            }
            AttachmentRequest::DenyList => return Ok(self.deny_list().into()),
            AttachmentRequest::Refusals { records } => {
                self.processes.brings_refusals(process)?;
                let by = self.processes.placement(process)?;
                let records = reported_by(&by.group, records)?;
                self.reports
                    .put_of_process(MasterRequest::Refusals { records })?;
            }
            AttachmentRequest::Post { letters } => {
                return Ok(self.post_of(process, letters).await?.into());
            }
            AttachmentRequest::Letters { agent, outcomes } => {
                self.letters_settled(process, &agent, outcomes).await?;
            }
            AttachmentRequest::ChannelLog { node, request } => {
                let log = self.channel_log_of(process, &node, request).await?;
                return Ok(log.into());
            }
            AttachmentRequest::Frozen { freeze, part } => {
                self.take_frozen_part(process, freeze, &part).await?;
            }
            AttachmentRequest::NotFrozen { reason } => {
                let reason = excerpt(&reason, LONGEST_REASON);
                return Ok(self.processes.not_frozen(process, &reason).into());
            }
            AttachmentRequest::Inherit { index } => {
                return Ok(self.inherit(process, index).await?.into());
            }
            AttachmentRequest::FormerKeys { key } => {
                let source = self.source_of(process)?;
                let process = source.process;
                let asking = ask_node::FormerKeys { process, key };
                let correspondent = self.correspondent()?;
                let keys = correspondent.ask(&source.node, asking, FETCHING).await?;
                return Ok(keys.into());
            }
        }
        Ok(AttachmentAnswer::Done)
    }

    /// Checks that an agent is placed in a process.
    fn check_place(&self, process: &str, agent: &str) -> Result<(), Fault> {
        let placement = self.processes.placement(process)?;
        if placement.has(agent) {
            return Ok(());
        }
        let agent = excerpt(agent, LONGEST_NAME);
        let message = format!("{agent} is not placed in the process {}", placement.group);
        Err(Fault::new(FaultCode::NotPlaced, message).advise(format!(
            "its agents are {}: see `agents` in the manifest",
            placement.listed()
        )))
    }

    /// The process whose agents this one restores.
    fn source_of(&self, process: &str) -> Result<Inheritance, Fault> {
        let nothing = || Fault::new(FaultCode::BadRequest, "nothing moved to this process");
        self.processes.inherits(process)?.ok_or_else(nothing)
    }

    async fn inherit(&self, process: &str, index: u32) -> Result<FrozenPart, Fault> {
        let source = self.source_of(process)?;
        let process = source.process;
        let fetching = ask_node::FetchFrozen { process, index };
        let correspondent = self.correspondent()?;
        correspondent.ask(&source.node, fetching, FETCHING).await
    }
}

#[cfg(test)]
mod tests;
