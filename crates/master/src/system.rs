//! The system agents `master`, `ca`, `ams`, `df` and `operator`, in the Master's own process.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::certifying::certified;
use super::desk::{Desk, DeskHandle};
use super::desk_shares::{DeskShares, within};
use super::directories::Directories;
use super::foundation::Foundation;
use super::gateways::{self, GatewayRules};
use super::operator::Operator;
use super::own_host::HostedProcess;
use super::state::not_a_member;
use super::{asking, telling};
use sealbus_bus::ReceivedMessage;
use sealbus_control::authority::AuthorityRequest;
use sealbus_control::clock::timestamp;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::names::{AMS, CA, CONTROL_AGENTS, DF, MASTER, OPERATOR, SYSTEM_AGENTS};
use sealbus_control::node::{Current, MOST_REPORTS, MasterAnswer, MasterRequest};
use sealbus_control::turns::{Turn, Turns, length_of};
use sealbus_control::{Blob, Fault, FaultCode, Subject, Term, UnixMillis};
use sealbus_management::LoadError;
use sealbus_process::{AgentHandle, OpenAgentError, Process};
use sealbus_store::Store;

/// Name of the group of the Master's own process.
const SYSTEM_GROUP: &str = "system";
/// The name of the group of the control plane's process, if that is another process.
const CONTROL_GROUP: &str = "control";

/// The system agents. They exist as long as this value.
pub(crate) struct SystemAgents {
    /// Sends requests to nodes in the Master's name.
    pub(crate) master: Correspondent,
    /// Sends in the operators' name.
    pub(crate) operator: Operator,
    /// Direct access to AMS and DF.
    pub(crate) directories: Directories,
    /// The rights that operators give other platforms.
    pub(crate) gateway: Arc<GatewayRules>,
    /// The process of `master` and `ca`.
    pub(crate) control: Process,
    /// The process of the other system agents. It is the same process if agents' messages also travel at level `auth`.
    pub(crate) process: Process,
    /// Sends in the name of the AMS.
    pub(crate) ams: Arc<sealbus_bus::Outbox>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

/// The reason why a system agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// An agent could not be opened.
    #[error(transparent)]
    Agent(#[from] OpenAgentError),
    /// AMS or DF could not read their stored rows.
    #[error(transparent)]
    Directories(#[from] LoadError),
}

impl HostedProcess {
    /// The place of all system agents.
    pub(crate) fn system(listen: Option<SocketAddr>) -> Self {
        Self {
            group: SYSTEM_GROUP.to_owned(),
            agents: SYSTEM_AGENTS.map(str::to_owned).to_vec(),
            open: false,
            listen,
            controls: false,
            post: None,
        }
    }

    /// The place of the system agents that speak with other agents, at the platform's level.
    pub(crate) fn services(listen: SocketAddr) -> Self {
        let is_service = |agent: &&str| !CONTROL_AGENTS.contains(agent);
        let services = SYSTEM_AGENTS.iter().copied().filter(is_service);
        Self {
            agents: services.map(str::to_owned).collect(),
            ..Self::system(Some(listen))
        }
    }

    /// The place of the control plane's agents.
    pub(crate) fn control(listen: SocketAddr) -> Self {
        Self {
            group: CONTROL_GROUP.to_owned(),
            agents: CONTROL_AGENTS.map(str::to_owned).to_vec(),
            controls: true,
            ..Self::system(Some(listen))
        }
    }
}

impl SystemAgents {
    /// Starts `master` and `ca` in `control`, and the others in `process`, which may be the same.
    ///
    /// # Errors
    /// [`SystemError`].
    pub(crate) async fn start(
        control: Process,
        process: Process,
        foundation: Foundation,
        store: Arc<dyn Store>,
        term: Option<Term>,
    ) -> Result<Self, SystemError> {
        let Foundation {
            desk,
            outward,
            news,
            ..
        } = foundation;
        let mut tasks = JoinSet::new();
        let trust_claims = !process.level().authenticates();
        // Each agent waits for its certificate, and all certificates wait for the same write. Messages wait until
        // somebody serves them.
        let (ams, df, master, ca, agent) = tokio::try_join!(
            process.agent(AMS),
            process.agent(DF),
            control.agent(MASTER),
            control.agent(CA),
            process.agent(OPERATOR),
        )?;
        let gateway = Arc::new(GatewayRules::load(store.clone()).await?);
        // An error means that the Master is ending.
        let _ = gateway.put_in_force(&desk).await;
        let ams_outbox = ams.outbox().clone();
        let (directories, known) =
            Directories::start(ams, df, store, trust_claims, &mut tasks).await?;
        let (life_changes, changes) = mpsc::unbounded_channel();
        tasks.spawn(directories.clone().follow(desk.clone(), known, changes));
        let asking = Correspondent::new(master.outbox().clone()).in_term(term);
        let turns = Turns::default();
        let serving = serve_master(master, asking.clone(), desk.clone(), turns.clone());
        tasks.spawn(serving);
        tasks.spawn(serve_ca(ca, desk.clone(), turns));
        let operator = Operator::new(&agent, directories.clone());
        tasks.spawn(operator.clone().serve(agent));
        tasks.spawn(asking::carry_out(
            outward,
            asking.clone(),
            desk.clone(),
            life_changes,
        ));
        tasks.spawn(telling::tell(asking.clone(), desk, news));
        Ok(Self {
            master: asking,
            operator,
            directories,
            gateway,
            control,
            process,
            ams: ams_outbox,
            tasks: tokio::sync::Mutex::new(tasks),
        })
    }
}

impl SystemAgents {
    /// Whether nodes' messages come from the broker; none if there is no broker.
    pub(crate) fn receives(&self) -> Option<tokio::sync::watch::Receiver<bool>> {
        self.control.receives(MASTER)
    }

    /// Tells the system agents that they are about to end.
    pub(crate) fn stop(&self, why: &str) {
        self.process.stop(why);
        self.control.stop(why);
    }

    /// Ends the system agents, and takes their process off the bus.
    pub(crate) async fn end(&self) {
        self.directories.finish().await;
        self.tasks.lock().await.shutdown().await;
        self.process.close().await;
        if self.control.membership().process != self.process.membership().process {
            self.control.close().await;
        }
    }
}

async fn serve_master(
    mut agent: AgentHandle,
    correspondent: Correspondent,
    desk: DeskHandle,
    turns: Turns,
) {
    let mut shares = DeskShares::default();
    while let Some(received) = agent.receive().await {
        let Some((enquiry, turn)) = correspondent.receive_in_turn(received, &turns) else {
            continue;
        };
        let (desk, share) = (desk.clone(), shares.of(&enquiry.from));
        // Each request has its own task, because an answer may wait for the store, or for room on the way.
        tokio::spawn(async move {
            let (node, request, reply) = enquiry.open::<MasterRequest>();
            if matches!(request, Ok(MasterRequest::Heartbeat { .. })) {
                desk.heard(&node);
            }
            let turn = Arc::new(turn);
            let result = match request {
                Ok(request) => {
                    let turn = turn.clone();
                    let hearing = move |desk: &mut Desk, now| {
                        let answer = hear(desk, &node, request, now)?;
                        turn.is_members();
                        // Other answers like this one are made before this one is sent.
                        turn.holds(length(&answer))?;
                        Ok(answer)
                    };
                    within(share, desk.run(hearing)).await
                }
                Err(fault) => Err(fault),
            };
            judge(&turn, &result);
            reply.send_in(&turn, result).await;
        });
    }
}

/// Lets members have more turns than others.
fn judge<A>(turn: &Turn, result: &Result<A, Fault>) {
    match result {
        Ok(_) => turn.is_members(),
        Err(fault) if fault.code == FaultCode::NotPermitted => turn.is_no_members(),
        Err(_) => {}
    }
}

/// The approximate length of an answer on its way. A deny list may be long, so it is not written out for this.
fn length(answer: &MasterAnswer) -> usize {
    let MasterAnswer::Current(current) = answer else {
        return length_of(answer);
    };
    let list = current.deny_list.as_ref().map_or(0, |list| list.0.len());
    list / 3 * 4 + length_of(&(&current.directory, &current.stop))
}

/// Handles reports in their order. The desk writes all their changes at once.
fn hear_all(
    desk: &mut Desk,
    node: &str,
    reports: Vec<MasterRequest>,
    now: UnixMillis,
) -> Result<MasterAnswer, Fault> {
    let is_nested = |report: &MasterRequest| matches!(report, MasterRequest::Reports { .. });
    if reports.len() > MOST_REPORTS || reports.iter().any(is_nested) {
        let message = format!("at most {MOST_REPORTS} reports are heard together");
        return Err(Fault::new(FaultCode::BadRequest, message));
    }
    let heard = reports
        .into_iter()
        .map(|it| hear(desk, node, it, now).err());
    Ok(heard.collect::<Vec<_>>().into())
}

/// Handles a node's requests and reports.
pub(crate) fn hear(
    desk: &mut Desk,
    node: &str,
    request: MasterRequest,
    now: UnixMillis,
) -> Result<MasterAnswer, Fault> {
    if !desk.state.nodes().contains_key(node) {
        return Err(not_a_member(node));
    }
    // A node reports about its own processes only.
    let own = |desk: &Desk, process: &str| {
        desk.state
            .process(process)
            .is_some_and(|(_, process)| process.node == node)
    };
    match request {
        MasterRequest::Register {
            node: description,
            contact,
            attachment,
            processes,
            ended,
        } => {
            if contact.node != node {
                return Err(not_a_member(node));
            }
            desk.state.ended_meanwhile(node, &ended, now);
            let current =
                desk.state
                    .register(node, description, contact, attachment, &processes, now)?;
            return Ok(with_news(current, desk, 0).into());
        }
        MasterRequest::Heartbeat {
            directory,
            deny_list,
            ..
        } => {
            let current = desk.state.heartbeat(node, &directory, now);
            return Ok(with_news(current, desk, deny_list).into());
        }
        MasterRequest::Reports { reports } => return hear_all(desk, node, reports, now),
        MasterRequest::Leaving => {
            // A node may register again, and leave again, without end.
            if desk.state.leaving(node)
                && let Some(left_out) = desk.log.admit(node.to_owned())
            {
                tracing::info!(%node, left_out, "is leaving; its agents are placed elsewhere");
            }
        }
        MasterRequest::Left => desk.state.left(node, now),
        MasterRequest::Resolve { agent } => {
            return Ok(desk.state.directory().locate(&agent).into());
        }
        MasterRequest::Refusals { records } => desk.refusals.note(node, records),
        MasterRequest::Denied { list } => desk.take_back(&list.0, now)?,
        MasterRequest::Started { process, pid } if own(desk, &process) => {
            desk.state.started(&process, pid);
        }
        MasterRequest::Announced { process, address } if own(desk, &process) => {
            desk.state.announced(&process, address, now);
        }
        MasterRequest::UsesChannels { process } => {
            if !own(desk, &process) {
                let message = format!("the process {process} was given up");
                return Err(Fault::new(FaultCode::NotPlaced, message));
            }
            return Ok(desk.state.uses_channels(&process, now).into());
        }
        MasterRequest::Delivered { process, subject } if own(desk, &process) => {
            let subject = match subject {
                Subject::Agent { name } if !has_agent(desk, &process, &name) => {
                    return Ok(MasterAnswer::Done);
                }
                Subject::Agent { name } => name,
                Subject::Process => format!("process {process}"),
            };
            desk.ca.came_back(&process, &subject, node, timestamp(now));
        }
        MasterRequest::EncryptionKey { agent } => return Ok(desk.keys.of(&agent).into()),
        MasterRequest::KeyPublished {
            process,
            agent,
            key,
        } if own(desk, &process) && has_agent(desk, &process, &agent) => {
            desk.keys.put(&agent, key, &desk.name)?;
        }
        MasterRequest::Reported {
            process,
            agent,
            report,
        } if own(desk, &process) => {
            desk.state.reported(&process, &agent, report, now);
        }
        MasterRequest::Exited { process, exit } if own(desk, &process) => {
            desk.state.exited(&process, &exit, now);
        }
        // The process was given up, so there is nothing more to note.
        _ => {}
    }
    Ok(MasterAnswer::Done)
}

fn has_agent(desk: &Desk, process: &str, agent: &str) -> bool {
    let process = desk.state.process(process);
    process.is_some_and(|(_, process)| process.agents.contains_key(agent))
}

fn with_news(current: Current, desk: &Desk, known: u64) -> Current {
    let is_newer = desk.ca.deny_list_version() != known;
    Current {
        deny_list: is_newer.then(|| Blob(desk.ca.deny_list_since(known))),
        masters: desk.masters.clone(),
        away: desk.away,
        ..current
    }
}

async fn serve_ca(mut agent: AgentHandle, desk: DeskHandle, turns: Turns) {
    let correspondent = Correspondent::new(agent.outbox().clone());
    // A node's requests for certificates hold up none of its reports to the Master, which have shares of their own.
    let mut shares = DeskShares::default();
    while let Some(received) = agent.receive().await {
        hear_ca(received, &correspondent, &desk, &turns, &mut shares);
    }
}

/// Takes a message to the CA. A request has a task of its own, and goes to the desk within its sender's share.
pub(crate) fn hear_ca(
    received: ReceivedMessage,
    correspondent: &Correspondent,
    desk: &DeskHandle,
    turns: &Turns,
    shares: &mut DeskShares,
) {
    let Some((enquiry, turn)) = correspondent.receive_in_turn(received, turns) else {
        return;
    };
    let (desk, share) = (desk.clone(), shares.of(&enquiry.from));
    tokio::spawn(async move {
        let (from, request, reply) = enquiry.open::<AuthorityRequest>();
        let result = match request {
            Ok(AuthorityRequest::Certify { voucher }) => {
                certified(&desk, &turn, share, from, voucher).await
            }
            Ok(AuthorityRequest::WorkloadToken { audience, asker }) => {
                // The bus has proved the asker's name: this process always speaks at level auth, or above.
                let making = move |desk: &mut Desk, now| {
                    let (agent, actor) = match &asker {
                        None => (&from, None),
                        Some(asker) => {
                            gateways::check_stand_in(desk, &from, &audience)?;
                            (asker, Some(from.as_str()))
                        }
                    };
                    let now = timestamp(now);
                    let token = desk.ca.workload_token(agent, actor, &audience, now)?;
                    Ok(token.into())
                };
                within(share, desk.run(making)).await
            }
            Ok(AuthorityRequest::WorkloadIssuer) => {
                let telling =
                    |desk: &mut Desk, now| Ok(desk.ca.workload_issuer(timestamp(now))?.into());
                within(share, desk.run(telling)).await
            }
            Err(fault) => Err(fault),
        };
        // An asker that does not read its answers gets no more turns meanwhile.
        reply.send_in(&turn, result).await;
    });
}

#[cfg(test)]
mod tests {
    use sealbus_control::directory::DirectoryUpdate;
    use sealbus_control::rpc::LONGEST_FRAME;
    use sealbus_seal::denylist::LONGEST_SIGNED;

    use super::*;

    #[test]
    fn the_longest_deny_list_fits_into_an_answer_beside_other_news() {
        let current = Current {
            directory: DirectoryUpdate::default(),
            deny_list: Some(Blob(vec![0; LONGEST_SIGNED])),
            stop: Vec::new(),
            register: false,
            masters: Vec::new(),
            away: false,
        };
        // Messages of the control plane have up to 1 MiB more than frames.
        let length = length(&MasterAnswer::Current(current));
        assert!(length + (2 << 20) < LONGEST_FRAME, "{length} bytes");
    }

    #[test]
    fn an_answer_counts_for_its_length_on_the_way() {
        let mut current = Current {
            directory: DirectoryUpdate::default(),
            deny_list: None,
            stop: vec!["p".repeat(1000); 1000],
            register: false,
            masters: Vec::new(),
            away: false,
        };
        for bytes in [0, 1 << 20] {
            current.deny_list = Some(Blob(vec![7; bytes]));
            let answer = MasterAnswer::Current(current.clone());
            let exact = serde_json::to_string(&answer).unwrap().len();
            let found = length(&answer);
            assert!(found.abs_diff(exact) < 300, "{found} and not {exact}");
        }
    }
}
