//! The node on the bus: its agent, its heartbeat, and the way back after it was given up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_seal::tls::CertificateSource;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::NodeError;
use super::host::NodeHost;
use super::joining::{renewal_due, return_by_enrolment};
use super::shared::{Leave, Presence, Shared};
use sealbus_control::clock::now;
use sealbus_control::correspondence::{Correspondent, Enquiry};
use sealbus_control::enrolment::Joined;
use sealbus_control::host::{Command, Membership};
use sealbus_control::names::MASTER;
use sealbus_control::node::{
    LogText, MasterRequest, NodeAnswer, NodeRequest, WaitingLetters, ask_master,
};
use sealbus_control::turns::{Turn, Turns};
use sealbus_control::{Blob, Fault, FaultCode, ProcessContact};
use sealbus_enrolment::EnrolmentError;
use sealbus_process::{AgentHandle, Process};

/// How often the node reports to the Master.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the Master may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// After this long without an answer on the bus, the node asks the Master by enrolment.
const ESTRANGED: Duration = Duration::from_secs(6);
/// The same, where another Master may lead meanwhile.
const ESTRANGED_FROM_ONE: Duration = Duration::from_secs(2);
/// How long the Master may take to hear that the node has left.
const PARTING: Duration = Duration::from_secs(3);
/// How often the size of logs is checked.
const LOGS: Duration = Duration::from_secs(20);
/// The pause before a failed attempt is repeated.
const PAUSE: Duration = Duration::from_millis(500);
/// Largest piece of a log.
const LOG_PIECE: u32 = 256 * 1024;

/// Lives on the bus until the node leaves.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut joined: Joined,
    source: Arc<CertificateSource>,
    end: watch::Sender<bool>,
) {
    let mut leaving = shared.leaving.subscribe();
    let live = async {
        loop {
            *shared.platform.write() = joined.platform.clone();
            shared.deny_list_changed(joined.deny_list.clone()).await;
            match live(&shared, &joined, &source).await {
                Ok(again) => joined = again,
                Err(why) => {
                    tracing::warn!(%why, "the node is not on the bus; trying again");
                    tokio::time::sleep(PAUSE).await;
                    if let Ok(again) = return_by_enrolment(&shared, &source).await {
                        joined = again;
                    }
                }
            }
        }
    };
    let leave = async {
        let leave = leaving
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|it| *it);
        if let Some(leave) = leave {
            take_leave(&shared, leave).await;
        }
    };
    // The node stays on the bus until the Master knows that it leaves. It never leaves the bus before.
    tokio::select! {
        () = live => {}
        () = leave => {}
    }
    end.send_replace(true);
}

/// Ends all processes and tells the Master, as long as that makes sense.
async fn take_leave(shared: &Arc<Shared>, leave: Leave) {
    if !leave.is_masters {
        shared.report(MasterRequest::Leaving);
    }
    shared.end_all(leave.grace).await;
    if leave.is_masters {
        // The last reports are on their way.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return;
    }
    if shared.presence.borrow().is_none() {
        tracing::warn!("the Master is away: it will find out by itself that this node has left");
        return;
    }
    shared.report(MasterRequest::Left);
    let mut parted = shared.parted.subscribe();
    let told = tokio::time::timeout(PARTING, parted.wait_for(|parted| *parted)).await;
    if told.is_err() {
        tracing::warn!(
            "the Master does not answer: it will find out by itself that this node has left"
        );
    }
}

/// Lives as one process of the bus, until the Master says that the node was given up. Returns the facts that the node
/// learned when it came back.
async fn live(
    shared: &Arc<Shared>,
    joined: &Joined,
    source: &Arc<CertificateSource>,
) -> Result<Joined, String> {
    let (commands, received) = mpsc::channel(64);
    let host = Arc::new(NodeHost {
        shared: shared.clone(),
        membership: Membership {
            // The node obeys the orders that come here, so this process belongs to the control plane.
            platform: joined.platform.control_plane(),
            node: shared.name.clone(),
            process: joined.process.clone(),
            agents: vec![shared.name.clone()],
            address: shared.address(),
            port: 0,
            deny_list: shared.deny_list(),
            // The node learns of them when it is on the bus.
            processes: None,
            rules: shared.replica.lock().rules().clone(),
            inherits: false,
            reachable: true,
        },
        announced: Mutex::new(None),
        commands: Mutex::new(Some(received)),
    });
    let process = Process::open(host.clone(), None)
        .await
        .map_err(|error| error.to_string())?;
    let agent = process
        .agent(&shared.name)
        .await
        .map_err(|error| error.to_string())?;
    let address = (*host.announced.lock()).ok_or("the node's own process does not listen")?;
    let correspondent = Correspondent::new(agent.outbox().clone());
    let mut serving = JoinSet::new();
    serving.spawn(serve(agent, correspondent.clone(), shared.clone()));
    let presence = Presence {
        correspondent: correspondent.clone(),
        process: process.clone(),
        commands,
    };
    shared.presence.send_replace(Some(presence.clone()));
    let (processes, rules) = {
        let replica = shared.replica.lock();
        (replica.processes(), replica.rules().clone())
    };
    let processes = processes.map(|processes| shared.reachable(processes, true));
    for known in [
        Command::ProcessesAre(processes),
        Command::Rules(Box::new(rules)),
    ] {
        let _ = presence.commands.send(known).await;
    }

    let contact = ProcessContact {
        node: shared.name.clone(),
        process: joined.process.clone(),
        address,
    };
    let again = keep_in_touch(shared, joined, source, &correspondent, contact).await;
    let former = &joined.platform.control;
    if again.platform.control.process != former.process {
        // Another Master leads. Nothing that waits for the former one keeps this process from closing.
        let ended = Command::ProcessesEnded(vec![former.named()]);
        let _ = presence.commands.send(ended).await;
    }
    shared.presence.send_replace(None);
    serving.shutdown().await;
    process.close().await;
    Ok(again)
}

async fn keep_in_touch(
    shared: &Arc<Shared>,
    joined: &Joined,
    source: &Arc<CertificateSource>,
    correspondent: &Correspondent,
    contact: ProcessContact,
) -> Joined {
    let mut registered = false;
    let mut heard = Instant::now();
    let mut looked = Instant::now();
    let mut looked_at = BTreeSet::new();
    // Another Master leads: the former one is not waited for.
    let mut led_anew = false;
    loop {
        let is_registered = registered;
        let asking = async {
            if is_registered {
                let heartbeat = ask_master::Heartbeat {
                    directory: shared.replica.lock().revision(),
                    deny_list: shared.deny_list_version(),
                    processes: u32::try_from(shared.processes.count()).unwrap_or(u32::MAX),
                };
                correspondent.ask(MASTER, heartbeat, PATIENCE).await
            } else {
                let register = ask_master::Register {
                    node: shared.description.clone(),
                    contact: contact.clone(),
                    attachment: shared.attachment,
                    // The order matters: a process that ends in between is in both lists.
                    processes: shared.processes.running(),
                    ended: shared.processes.ended(),
                };
                correspondent.ask(MASTER, register, PATIENCE).await
            }
        };
        let another = || Fault::new(FaultCode::Unavailable, "another Master leads");
        let asked = match led_anew {
            true => Err(another()),
            false => tokio::select! {
                asked = asking => asked,
                () = shared.leaders.led_anew() => {
                    led_anew = true;
                    Err(another())
                }
            },
        };
        match asked {
            Ok(current) => {
                heard = Instant::now();
                if !registered {
                    tracing::info!(node = %shared.name, "registered with the Master");
                }
                registered = !current.register;
                shared.masters_are_at(&current.masters);
                shared.directory_changed(current.directory).await;
                if let Some(list) = current.deny_list {
                    shared.deny_list_changed(list).await;
                }
                for list in shared.deny_lists_to_hand_back(&mut looked_at) {
                    let denied = ask_master::Denied {
                        list: Blob(list.whole()),
                    };
                    if let Err(fault) = correspondent.ask(MASTER, denied, PATIENCE).await {
                        tracing::warn!(%fault, "the CA did not take a deny list back");
                        if fault.code != FaultCode::BadRequest {
                            // The next heartbeat tries again.
                            looked_at.remove(&(list.authority().clone(), list.version()));
                        }
                    }
                }
                for process in current.stop {
                    shared.stop(&process, PATIENCE, "its agents were placed elsewhere");
                }
                if !registered {
                    continue;
                }
            }
            Err(fault) => {
                let given_up = fault.code == FaultCode::NotPermitted;
                tracing::debug!(%fault, "the Master does not answer");
                let estranged = match shared.leaders.are_several() {
                    true => ESTRANGED_FROM_ONE,
                    false => ESTRANGED,
                };
                let must = std::mem::take(&mut led_anew) || given_up;
                if must || heard.elapsed() > estranged || renewal_due(shared) {
                    match return_by_enrolment(shared, source).await {
                        Ok(again) => {
                            let same = again.process == joined.process
                                && again.platform.control == joined.platform.control;
                            if !same {
                                return again;
                            }
                            // The Master is there, and this is still its node. The bus needs time.
                            shared.deny_list_changed(again.deny_list).await;
                            heard = Instant::now();
                        }
                        Err(NodeError::Enrolment(EnrolmentError::Refused(fault)))
                            if fault.code == FaultCode::ClockSkew =>
                        {
                            tracing::warn!(%fault, "the node cannot come back yet");
                        }
                        Err(error) => tracing::debug!(%error, "nor by enrolment"),
                    }
                }
                led_anew = pause(shared, PAUSE).await;
                continue;
            }
        }
        if renewal_due(shared)
            && let Err(error) = return_by_enrolment(shared, source).await
        {
            tracing::warn!(%error, "the node's certificate could not be renewed yet");
        }
        if looked.elapsed() > LOGS {
            looked = Instant::now();
            shared.rotate_logs();
        }
        led_anew = pause(shared, HEARTBEAT).await;
    }
}

/// Waits this long, or until another Master leads. Returns whether one does.
async fn pause(shared: &Shared, time: Duration) -> bool {
    tokio::time::timeout(time, shared.leaders.led_anew())
        .await
        .is_ok()
}

/// Reports events to the Master, one after another, however long the Master is away.
pub(super) async fn report(
    shared: Arc<Shared>,
    mut reports: mpsc::UnboundedReceiver<MasterRequest>,
) {
    let mut presence = shared.presence.subscribe();
    while let Some(request) = reports.recv().await {
        let mut is_first = true;
        loop {
            let present = match presence.wait_for(Option::is_some).await {
                Ok(present) => present.clone(),
                Err(_) => return,
            };
            let Some(present) = present else { continue };
            match present.correspondent.ask(MASTER, &request, PATIENCE).await {
                // The Master is away, or could not write the report down and must get it again. A node that was given
                // up comes back and registers all its processes.
                Err(fault)
                    if matches!(
                        fault.code,
                        FaultCode::Unavailable | FaultCode::Storage | FaultCode::NotPermitted
                    ) =>
                {
                    if std::mem::take(&mut is_first) {
                        shared.keep_ends();
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the Master did not take a report");
                    break;
                }
                Ok(_) => break,
            }
        }
        shared.reports.is_told();
        match request {
            MasterRequest::Exited { process, .. } => shared.end_is_known(&process),
            MasterRequest::Left => {
                shared.parted.send_replace(true);
            }
            _ => {}
        }
    }
}

async fn serve(mut agent: AgentHandle, correspondent: Correspondent, shared: Arc<Shared>) {
    let turns = Turns::default();
    while let Some(received) = agent.receive().await {
        if let Some((enquiry, turn)) = correspondent.receive_in_turn(received, &turns) {
            tokio::spawn(answer(shared.clone(), enquiry, turn));
        }
    }
}

async fn answer(shared: Arc<Shared>, enquiry: Enquiry, turn: Turn) {
    let term = enquiry.term;
    let (from, request, reply) = enquiry.open::<NodeRequest>();
    let mut request = request;
    if from == MASTER {
        turn.is_members();
        request = request.and_then(|request| {
            if shared.leaders.obey(term)? {
                shared.leaders.another_leads();
            }
            Ok(request)
        });
    }
    let result = match request {
        Ok(request) => carry_out(&shared, &from, request).await,
        Err(fault) => Err(fault),
    };
    if result.is_ok() {
        turn.is_members();
    }
    reply.send(result).await;
}

/// Carries out a request. Only the Master may make most of them.
async fn carry_out(
    shared: &Arc<Shared>,
    from: &str,
    request: NodeRequest,
) -> Result<NodeAnswer, Fault> {
    match request {
        NodeRequest::FetchFrozen { process, index } => {
            return Ok(shared.processes.fetch(from, &process, index)?.into());
        }
        NodeRequest::FormerKeys { process, key } => {
            return Ok(shared.former_keys(from, &process, key).await?.into());
        }
        NodeRequest::Post { letters } => {
            return Ok(shared.carried_here(from, letters).await?.into());
        }
        NodeRequest::Trail { receiver, letters } => {
            let trail = shared.trail_of(from, &receiver, &letters).await?;
            return Ok(trail.into());
        }
        NodeRequest::ChannelLog { request } => {
            return Ok(shared.channel_log_for(from, request).await?.into());
        }
        _ if from != MASTER => {
            tracing::warn!(%from, "asks a node to do what only the Master may");
            let message = "only the Master may ask that";
            return Err(Fault::new(FaultCode::NotPermitted, message));
        }
        NodeRequest::Start { launch } => return Ok(shared.start(launch).await?.into()),
        NodeRequest::Expect {
            launch,
            ticket,
            expires,
        } => shared.expect(launch, ticket, expires).await,
        NodeRequest::Stop {
            process,
            grace,
            reason,
        } => shared.stop(&process, Duration::from_millis(grace), &reason),
        NodeRequest::Freeze {
            process,
            destination,
        } => return Ok(shared.freeze_process(&process, &destination).await?.into()),
        NodeRequest::Certificates { process } => {
            return Ok(shared.processes.certificates(&process)?.into());
        }
        NodeRequest::Observe { watch } => return Ok(shared.observe(watch).await.into()),
        NodeRequest::Mailbox { agent } => {
            let (letters, total) = shared.post.list(&agent);
            return Ok(WaitingLetters { letters, total }.into());
        }
        NodeRequest::Cosign { request, authority } => {
            let (trust, credential) = (shared.trust.clone(), shared.credential.load_full());
            let judging = shared.witness.cosign(trust, credential, request, authority);
            return Ok(judging.await?.into());
        }
        NodeRequest::Thaw { process } => shared.thaw(&process).await?,
        NodeRequest::DenyList { list } => shared.deny_list_changed(list).await,
        NodeRequest::Masters { addresses } => shared.masters_are_at(&addresses),
        NodeRequest::Directory { update } => shared.directory_changed(update).await,
        NodeRequest::Leave { grace } => {
            let grace = Duration::from_millis(grace);
            let is_masters = true;
            shared.leave(Leave { grace, is_masters });
        }
        NodeRequest::Log { log, from, limit } => {
            let limit = limit.min(LOG_PIECE);
            let read = shared.logs.read(&log, from, limit, now());
            let (text, next) = read.map_err(|error| {
                let message = format!("the log of {log} cannot be read: {error}");
                Fault::new(FaultCode::Storage, message)
            })?;
            return Ok(LogText { text, next }.into());
        }
    }
    Ok(NodeAnswer::Done)
}
