//! The node on the bus: its agent, its heartbeat, and how it comes back after it was given up.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_seal::tls::CertificateSource;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::NodeError;
use super::host::NodeHost;
use super::joining::{renewal_due, return_by_enrolment};
use super::orders::serve;
use super::reports::next_reports;
use super::shared::{Leave, Presence, Shared};
use sealbus_control::correspondence::Correspondent;
use sealbus_control::enrolment::Joined;
use sealbus_control::host::{Command, Membership};
use sealbus_control::names::{CONTROL_AGENTS, MASTER};
use sealbus_control::node::{MasterRequest, ask_master};
use sealbus_control::{
    AgentLocation, Blob, DirectoryChange, Fault, FaultCode, PlatformDescription, ProcessContact,
};
use sealbus_enrolment::EnrolmentError;
use sealbus_process::Process;

/// How often the node reports to the Master.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the node collects its wishes for the directory before it reports early.
const GATHERING: Duration = Duration::from_millis(20);
/// How long the Master may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// If the Master has not answered on the bus for this long, the node asks it by enrolment.
const ESTRANGED: Duration = Duration::from_secs(6);
/// As [`ESTRANGED`], if another Master may lead in the meantime.
const ESTRANGED_FROM_ONE: Duration = Duration::from_secs(2);
/// How long the Master may take to learn that the node has left.
const PARTING: Duration = Duration::from_secs(3);
/// The pause before a failed attempt is repeated.
const PAUSE: Duration = Duration::from_millis(500);

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
                    match return_by_enrolment(&shared, &source).await {
                        Ok(again) => joined = again,
                        Err(error) => tracing::warn!(%error, "the node cannot come back yet"),
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
    // The node stays on the bus until the Master knows that it leaves, and never leaves it before.
    tokio::select! {
        () = live => {}
        () = leave => {}
    }
    end.send_replace(true);
}

/// Ends all processes and tells the Master, as long as this is useful.
async fn take_leave(shared: &Arc<Shared>, leave: Leave) {
    if !leave.is_masters {
        shared.report(MasterRequest::Leaving);
    }
    shared.end_all(leave.grace).await;
    if leave.is_masters {
        // The last reports are under way.
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

/// Lives as one process on the bus, until the Master says that the node was given up. Returns what the node learned
/// when it came back.
async fn live(
    shared: &Arc<Shared>,
    joined: &Joined,
    source: &Arc<CertificateSource>,
) -> Result<Joined, String> {
    let (commands, received) = mpsc::channel(64);
    let host = Arc::new(NodeHost {
        shared: shared.clone(),
        membership: Membership {
            // The node obeys orders that come here, so this process belongs to the control plane.
            platform: joined.platform.control_plane(),
            node: shared.name.clone(),
            process: joined.process.clone(),
            agents: vec![shared.name.clone()],
            address: shared.address(),
            port: 0,
            deny_list: shared.deny_list(),
            // The node's own agent uses no channels.
            processes: None,
            rules: shared.replica.lock().rules().clone(),
            inherits: false,
            all_use_channels: false,
            reachable: true,
        },
        announced: Mutex::new(None),
        commands: Mutex::new(Some(received)),
    });
    let process = Process::open(host.clone(), None)
        .await
        .map_err(|error| error.to_string())?;
    let opening = async {
        let agent = process.agent(&shared.name).await;
        let agent = agent.map_err(|error| error.to_string())?;
        let address = (*host.announced.lock()).ok_or("the node's own process does not listen")?;
        Ok::<_, String>((agent, address))
    };
    let (agent, address) = match opening.await {
        Ok(opened) => opened,
        Err(why) => {
            // The process listens until it is closed, and each further attempt opens another one.
            process.close().await;
            return Err(why);
        }
    };
    let correspondent = Correspondent::new(agent.outbox().clone());
    let mut serving = JoinSet::new();
    serving.spawn(serve(agent, correspondent.clone(), shared.clone()));
    let presence = Presence {
        correspondent: correspondent.clone(),
        process: process.clone(),
        commands,
    };
    shared.presence.send_replace(Some(presence.clone()));
    // The rules may have changed in the meantime.
    let rules = Box::new(shared.replica.lock().rules().clone());
    let _ = presence.commands.send(Command::Rules(rules)).await;

    let contact = ProcessContact {
        node: shared.name.clone(),
        process: joined.process.clone(),
        address,
    };
    let again = keep_in_touch(shared, joined.clone(), source, &presence, contact).await;
    shared.presence.send_replace(None);
    serving.shutdown().await;
    process.close().await;
    Ok(again)
}

/// Whether the same process can go on with what its node has learned now: it must be the same node of the same
/// platform. Only the Master may be another one, or at another place.
fn goes_on(shared: &Shared, joined: &Joined, again: &Joined) -> bool {
    let followed = PlatformDescription {
        master: again.platform.master.clone(),
        control: again.platform.control.clone(),
        ..joined.platform.clone()
    };
    again.process == joined.process
        && again.platform == followed
        && (again.platform == joined.platform || shared.turns_at_once())
}

/// Turns to the Master that leads now: finds its process again, and no longer waits for the former one.
async fn turn_to(shared: &Arc<Shared>, presence: &Presence, former: &Joined, now: &Joined) {
    *shared.platform.write() = now.platform.clone();
    shared.leaders.heard();
    let control = &now.platform.control;
    let agents = CONTROL_AGENTS.map(|agent| DirectoryChange {
        agent: agent.to_owned(),
        location: AgentLocation::Process(control.clone()),
    });
    let (done, is_done) = oneshot::channel();
    let moved = Command::MasterMoved {
        former: former.platform.control.named(),
        agents: agents.to_vec(),
        done,
    };
    // An error means that the process ends.
    let _ = presence.commands.send(moved).await;
    let _ = is_done.await;
    tracing::info!(master = %control.address, "turns to the Master that leads now");
}

async fn keep_in_touch(
    shared: &Arc<Shared>,
    mut joined: Joined,
    source: &Arc<CertificateSource>,
    presence: &Presence,
    contact: ProcessContact,
) -> Joined {
    let correspondent = &presence.correspondent;
    let mut registered = false;
    let mut heard = Instant::now();
    let mut looked_at = BTreeSet::new();
    // Another Master leads, so the former one is not waited for.
    let mut led_anew = false;
    // The CA of a former Master certified this node. If that CA is revoked, a node without another certificate is lost.
    let mut lacks_certificate = false;
    loop {
        if let Some(at) = shared.leaders.moved_to() {
            let mut again = joined.clone();
            again.platform.control = at.control;
            again.platform.master = at.services;
            turn_to(shared, presence, &joined, &again).await;
            joined = again;
            heard = Instant::now();
            (registered, led_anew, lacks_certificate) = (false, false, true);
        }
        let is_registered = registered;
        let asking = async {
            let directory = shared.standing();
            if is_registered {
                let heartbeat = ask_master::Heartbeat {
                    directory,
                    deny_list: shared.deny_list_version(),
                    processes: u32::try_from(shared.processes.count()).unwrap_or(u32::MAX),
                };
                correspondent.ask(MASTER, heartbeat, PATIENCE).await
            } else {
                let register = ask_master::Register {
                    node: shared.description.clone(),
                    contact: contact.clone(),
                    attachment: shared.attachment,
                    // The order matters: a process that ends in between is then in both lists.
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
                    continue;
                }
            },
        };
        if asked.is_err() {
            shared.replica.lock().unanswered();
        }
        match asked {
            Ok(current) => {
                heard = Instant::now();
                shared.leaders.heard();
                if !registered {
                    tracing::info!(node = %shared.name, "registered with the Master");
                }
                registered = !current.register;
                shared.masters_are_at(&current.masters);
                shared.leaders.store_is(current.away);
                shared.directory_answered(current.directory).await;
                if let Some(list) = current.deny_list {
                    shared.deny_list_changed(list).await;
                }
                for list in shared.deny_lists_to_hand_back(&mut looked_at) {
                    let denied = ask_master::Denied {
                        list: Blob(list.whole()),
                    };
                    if let Err(fault) = correspondent.ask(MASTER, denied, PATIENCE).await {
                        tracing::warn!(%fault, "the CA did not take a deny list back");
                        let looked = (list.authority().clone(), list.version());
                        match fault.code {
                            FaultCode::BadRequest => looked_at.insert(looked),
                            // The next heartbeat tries again.
                            _ => looked_at.remove(&looked),
                        };
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
                    let returned = tokio::select! {
                        returned = return_by_enrolment(shared, source) => returned,
                        // The attempt may be going to the former one, which does not answer.
                        () = shared.leaders.led_anew() => {
                            led_anew = true;
                            continue;
                        }
                    };
                    match returned {
                        Ok(again) => {
                            if !goes_on(shared, &joined, &again) {
                                return again;
                            }
                            if again.platform.control != joined.platform.control {
                                turn_to(shared, presence, &joined, &again).await;
                                registered = false;
                            }
                            // The Master is there, and this is still its node. The bus needs time.
                            shared.deny_list_changed(again.deny_list.clone()).await;
                            heard = Instant::now();
                            joined = again;
                            if !registered {
                                continue;
                            }
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
        if lacks_certificate || renewal_due(shared) {
            let renewed = tokio::select! {
                renewed = return_by_enrolment(shared, source) => renewed,
                () = shared.leaders.led_anew() => {
                    led_anew = true;
                    continue;
                }
            };
            match renewed {
                Ok(_) => lacks_certificate = false,
                Err(error) => {
                    tracing::warn!(%error, "the node's certificate could not be renewed yet");
                }
            }
        }
        led_anew = tokio::select! {
            led_anew = pause(shared, HEARTBEAT) => led_anew,
            // More may come in the meantime, and goes along.
            () = shared.wants() => pause(shared, GATHERING).await,
        };
    }
}

/// Waits this long, or until another Master leads. Returns whether one does.
async fn pause(shared: &Shared, time: Duration) -> bool {
    tokio::time::timeout(time, shared.leaders.led_anew())
        .await
        .is_ok()
}

/// Reports events to the Master, in order, however long the Master is away. Events that wait together are sent
/// together, so that the Master writes them at once.
pub(super) async fn report(shared: Arc<Shared>, mut queue: mpsc::UnboundedReceiver<MasterRequest>) {
    let mut presence = shared.presence.subscribe();
    while let Some(reports) = next_reports(&mut queue).await {
        let refused = match told(&mut presence, &reports).await {
            // One of them may be the cause.
            Some(Err(_)) if reports.len() > 1 => {
                let mut all = Vec::new();
                for report in &reports {
                    match told(&mut presence, slice::from_ref(report)).await {
                        Some(Ok(refused)) => all.extend(refused),
                        Some(Err(fault)) => all.push(Some(fault)),
                        None => return,
                    }
                }
                all
            }
            Some(Err(fault)) => vec![Some(fault)],
            Some(Ok(refused)) => refused,
            None => return,
        };
        for fault in refused.into_iter().flatten() {
            tracing::error!(%fault, "a report is lost: the Master never takes it");
        }
        for report in reports {
            shared.reports.is_told(&report);
            match report {
                MasterRequest::Exited { process, .. } => shared.end_is_known(&process),
                MasterRequest::Left => {
                    shared.parted.send_replace(true);
                }
                _ => {}
            }
        }
    }
}

/// Tells the Master these reports, and returns its answer: a fault if it can never accept them. `None`: the node ends.
async fn told(
    presence: &mut watch::Receiver<Option<Presence>>,
    reports: &[MasterRequest],
) -> Option<Result<Vec<Option<Fault>>, Fault>> {
    loop {
        let present = presence.wait_for(Option::is_some).await.ok()?.clone();
        let Some(present) = present else { continue };
        let telling = ask_master::Reports {
            reports: reports.to_vec(),
        };
        match present.correspondent.ask(MASTER, telling, PATIENCE).await {
            // The Master is away, or could not write the reports down and must get them again. A node that was given up
            // comes back and registers all its processes.
            Err(fault) if fault.may_pass() || fault.code == FaultCode::NotPermitted => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return Some(answer),
        }
    }
}
