//! Processes on minimal hosts that certify with a real authority.

mod alone;
mod damaged_logs;
mod kept_events;
mod killable;
mod letters;
mod meshed;
mod moves;
mod sealed;
mod sealed_channels;
mod sealed_shares;
mod sealed_together;
mod sealed_waits;
mod sealed_walk;
mod starts;
mod upkeep;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use sealbus_bus::{AttachError, Provenance, RefusalReason, SendError, TrySendError};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CertificateChain, Identity, IssuingAuthority, ProcessId, RootAuthority, SigningRequest,
    Validity,
};
use sealbus_transparency::{Inclusion, MerkleLog};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::attachment::part_of;
use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};
use sealbus_control::authority::IssuedChain;
use sealbus_control::host::{Command, no_letters, no_logs};
use sealbus_control::post::{LetterOutcome, PostedLetter};
use sealbus_control::{
    AgentLocation, Blob, DirectoryChange, Fault, FaultCode, PlacedState, PlatformDescription,
    ProcessContact, PublishedKey, Rules, Subject, TransportDescription, WaitingProvenance,
};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HOUR: Duration = Duration::from_secs(3600);
/// Far longer than anything takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// The parts that all processes of a platform share: the authority and the directory.
struct World {
    root: Vec<u8>,
    authority: IssuingAuthority,
    deny_list: Mutex<DenyList>,
    directory: Mutex<HashMap<String, AgentLocation>>,
    /// The keys for sealed messages that agents stated.
    keys: Mutex<HashMap<String, Blob>>,
    /// The process that agents move away from.
    source: Mutex<Option<mpsc::Sender<Command>>>,
    processes: Mutex<Vec<mpsc::Sender<Command>>>,
    /// Whether nodes have the agents of processes that end.
    has_frozen: AtomicBool,
    /// The next answers to requests for the whole deny list, the last one first.
    lists: Mutex<Vec<Result<Vec<u8>, Fault>>>,
    /// Whether these answers are held back until this is false.
    keeps_lists: AtomicBool,
}

impl World {
    fn new() -> Arc<World> {
        let platform = PlatformName::new("factory").unwrap();
        let validity = Validity::starting(now(), HOUR);
        let root = RootAuthority::create(&platform, validity).unwrap();
        let authority = root.create_authority("ca-1", validity).unwrap();
        Arc::new(World {
            root: root.certificate().to_vec(),
            deny_list: Mutex::new(DenyList::new(authority.identity().clone())),
            authority,
            directory: Mutex::default(),
            keys: Mutex::default(),
            source: Mutex::default(),
            processes: Mutex::default(),
            has_frozen: AtomicBool::new(false),
            lists: Mutex::default(),
            keeps_lists: AtomicBool::new(false),
        })
    }

    fn platform(&self) -> &PlatformName {
        self.authority.identity().platform()
    }

    /// Issues a certificate and enters it into a log of its own.
    fn issue(
        &self,
        grant: &Grant,
        request: &SigningRequest,
        validity: Validity,
    ) -> CertificateChain {
        let issued = self.authority.issue(grant, request, validity).unwrap();
        let log = MerkleLog::new();
        let (chain, _) = Inclusion::attach(issued, None, &log, &self.authority, now()).unwrap();
        chain
    }

    fn trust(&self) -> Arc<Trust> {
        let roots = [self.root.as_slice().into()];
        Arc::new(Trust::new(self.platform().clone(), &roots, HOUR).unwrap())
    }

    async fn tell(&self, command: impl Fn() -> Command) {
        let processes = self.processes.lock().clone();
        for process in processes {
            // A process that has ended need not be told.
            let _ = process.send(command()).await;
        }
    }

    /// Tells all processes the place of an agent.
    async fn place(&self, agent: &str, location: AgentLocation) {
        self.directory
            .lock()
            .insert(agent.to_owned(), location.clone());
        let change = || DirectoryChange {
            agent: agent.to_owned(),
            location: location.clone(),
        };
        self.tell(|| Command::DirectoryChanged(vec![change()]))
            .await;
    }

    /// Revokes all certificates of an agent, and tells all processes.
    async fn deny(&self, agent: &str) {
        self.revoke(Identity::agent(self.platform(), agent).unwrap())
            .await;
    }

    /// Revokes a process that has ended, and tells all others.
    async fn deny_process(&self, process: &str) {
        let process = process.parse().unwrap();
        self.revoke(Identity::process(self.platform(), "node-1", process).unwrap())
            .await;
    }

    async fn revoke(&self, identity: Identity) {
        let signed = {
            let mut list = self.deny_list.lock();
            let denial = Denial {
                at: now(),
                reason: Reason::ByOperator,
            };
            list.deny_identity(identity, now().plus(HOUR), denial)
                .unwrap();
            list.sign(&self.authority).unwrap().whole()
        };
        self.tell(|| Command::DenyList(Blob(signed.clone()))).await;
    }
}

struct TestHost {
    world: Arc<World>,
    membership: Membership,
    lifetime: Duration,
    /// The fault that certification returns in place of a certificate.
    fault: Mutex<Option<Fault>>,
    /// How often somebody asked for a certificate.
    asked: AtomicUsize,
    certified: AtomicUsize,
    /// The requests for certificates in progress, and the most that there were at a time.
    certifying: Mutex<(usize, usize)>,
    /// Each of these delays the answer to one of the next requests for certificates.
    held_up: Mutex<Vec<oneshot::Receiver<()>>>,
    /// Told of the next report of refusals, which gets no answer.
    unanswered: Mutex<Option<oneshot::Sender<()>>>,
    inheritance: Vec<FrozenAgent>,
    reports: Mutex<Vec<(String, AgentReport)>>,
    /// The faults with which the next reports are answered, the last one first.
    not_reported: Mutex<Vec<Fault>>,
    /// The faults with which the next statements of keys are answered, the last one first.
    not_stated: Mutex<Vec<Fault>>,
    /// How often somebody asked for an agent's key.
    keys_asked: AtomicUsize,
    /// The notices that the node keeps for agents that have moved.
    notices: Mutex<Vec<PostedLetter>>,
    /// The outcomes of letters.
    settled: Mutex<Vec<(u64, LetterOutcome)>>,
    commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl TestHost {
    /// A host of a process with these agents. It is reachable unless there are none.
    fn new(
        world: &Arc<World>,
        agents: &[&str],
        lifetime: Duration,
        inheritance: Vec<FrozenAgent>,
    ) -> (Arc<TestHost>, mpsc::Sender<Command>) {
        let deny_list = world
            .deny_list
            .lock()
            .sign(&world.authority)
            .unwrap()
            .whole();
        let process = ProcessId::random().unwrap().to_string();
        let (tell, commands) = mpsc::channel(16);
        world.processes.lock().push(tell.clone());
        let membership = Membership {
            platform: PlatformDescription {
                name: world.platform().to_string(),
                level: "auth".to_owned(),
                roots: vec![Blob(world.root.clone())],
                certificate_lifetime: lifetime.as_secs(),
                max_message: 1 << 24,
                master: ProcessContact {
                    node: "master".to_owned(),
                    process: process.clone(),
                    address: SocketAddr::new(ADDRESS, 1),
                },
                control: ProcessContact {
                    node: "master".to_owned(),
                    process: process.clone(),
                    address: SocketAddr::new(ADDRESS, 1),
                },
                transport: TransportDescription::Mesh,
            },
            node: "node-1".to_owned(),
            process,
            agents: agents.iter().map(|agent| (*agent).to_owned()).collect(),
            address: ADDRESS,
            port: 0,
            deny_list: Blob(deny_list),
            processes: Some(Vec::new()),
            rules: Rules::default(),
            inherits: !inheritance.is_empty(),
            all_use_channels: false,
            reachable: !agents.is_empty(),
        };
        let host = TestHost {
            world: world.clone(),
            membership,
            lifetime,
            fault: Mutex::default(),
            asked: AtomicUsize::new(0),
            certified: AtomicUsize::new(0),
            certifying: Mutex::default(),
            held_up: Mutex::default(),
            unanswered: Mutex::default(),
            inheritance,
            reports: Mutex::default(),
            not_reported: Mutex::default(),
            not_stated: Mutex::default(),
            keys_asked: AtomicUsize::new(0),
            notices: Mutex::default(),
            settled: Mutex::default(),
            commands: Mutex::new(Some(commands)),
        };
        (Arc::new(host), tell)
    }

    fn issue(&self, subject: &Subject, request: &[u8]) -> Result<IssuedChain, Fault> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(fault) = &*self.fault.lock() {
            return Err(fault.clone());
        }
        let platform = self.world.platform();
        let identity = match subject {
            Subject::Agent { name } => Identity::agent(platform, name),
            Subject::Process => {
                Identity::process(platform, "node-1", self.membership.process.parse().unwrap())
            }
        };
        let identity =
            identity.map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))?;
        let request = SigningRequest::parse(request).unwrap();
        let validity = Validity::starting(now(), self.lifetime);
        let validity = match self.world.deny_list.lock().denied_before(&identity) {
            Some(floor) => validity.not_before_at_least(floor),
            None => validity,
        };
        let grant = Grant::by_operator(identity, ADDRESS);
        self.certified.fetch_add(1, Ordering::SeqCst);
        let chain = self.world.issue(&grant, &request, validity);
        Ok(IssuedChain::from(&chain))
    }
}

impl Host for TestHost {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        Box::pin(async move {
            match request {
                AttachmentRequest::Certify { subject, request } => {
                    {
                        let (working, most) = &mut *self.certifying.lock();
                        *working += 1;
                        *most = (*most).max(*working);
                    }
                    tokio::task::yield_now().await;
                    self.certifying.lock().0 -= 1;
                    let issued = self.issue(&subject, &request.0)?;
                    let held_up = self.held_up.lock().pop();
                    if let Some(until) = held_up {
                        let _ = until.await;
                    }
                    return Ok(issued.into());
                }
                AttachmentRequest::Refusals { .. } => {
                    let unanswered = self.unanswered.lock().take();
                    if let Some(comes) = unanswered {
                        comes.send(()).unwrap();
                        std::future::pending::<()>().await;
                    }
                }
                AttachmentRequest::Announce { address } => {
                    for agent in &self.membership.agents {
                        let contact = ProcessContact {
                            node: "node-1".to_owned(),
                            process: self.membership.process.clone(),
                            address,
                        };
                        let location = AgentLocation::Process(contact);
                        self.world.place(agent, location).await;
                    }
                }
                AttachmentRequest::Resolve { agent } => {
                    let location = self.world.directory.lock().get(&agent).cloned();
                    return Ok(location.unwrap_or(AgentLocation::Unknown).into());
                }
                AttachmentRequest::PublishKey { agent, key } => {
                    if let Some(fault) = self.not_stated.lock().pop() {
                        return Err(fault);
                    }
                    self.world.keys.lock().insert(agent, key);
                }
                AttachmentRequest::EncryptionKey { agent } => {
                    self.keys_asked.fetch_add(1, Ordering::SeqCst);
                    let key = self.world.keys.lock().get(&agent).cloned();
                    return Ok(PublishedKey { key }.into());
                }
                AttachmentRequest::DenyList => {
                    let next = self.world.lists.lock().pop();
                    if let Some(next) = next {
                        while self.world.keeps_lists.load(Ordering::SeqCst) {
                            tokio::task::yield_now().await;
                        }
                        return Ok(Blob(next?).into());
                    }
                    let list = self.world.deny_list.lock();
                    let signed = list.sign(&self.world.authority).unwrap();
                    return Ok(Blob(signed.whole()).into());
                }
                AttachmentRequest::Report { agent, report } => {
                    if let Some(fault) = self.not_reported.lock().pop() {
                        return Err(fault);
                    }
                    self.reports.lock().push((agent, report));
                }
                AttachmentRequest::Post { letters } => {
                    let is_notice = |letter: &PostedLetter| {
                        letter.cover.provenance == WaitingProvenance::Platform
                    };
                    let refused = letters.iter().map(|it| (!is_notice(it)).then(no_letters));
                    let refused: Vec<Option<Fault>> = refused.collect();
                    let notices = letters.into_iter().filter(is_notice);
                    self.notices.lock().extend(notices);
                    return Ok(refused.into());
                }
                AttachmentRequest::Letters { outcomes, .. } => self.settled.lock().extend(outcomes),
                AttachmentRequest::ChannelLog { .. } => return Err(no_logs()),
                AttachmentRequest::NotFrozen { .. } => {
                    return Ok(self.world.has_frozen.load(Ordering::SeqCst).into());
                }
                AttachmentRequest::FormerKeys { key } => {
                    let source = self.world.source.lock().clone();
                    let gone = || Fault::new(FaultCode::Unavailable, "it has ended");
                    let source = source.ok_or_else(gone)?;
                    let (answer, keys) = oneshot::channel();
                    let asking = Command::FormerKeys { key, answer };
                    source.send(asking).await.map_err(|_| gone())?;
                    return Ok(keys.await.map_err(|_| gone())??.into());
                }
                AttachmentRequest::Inherit { index } => {
                    let bytes = serde_json::to_vec(&self.inheritance).unwrap();
                    return Ok(part_of(&bytes, index).unwrap().into());
                }
                _ => {}
            }
            Ok(AttachmentAnswer::Done)
        })
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}

fn inform(receiver: &AgentHandle, content: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(receiver.aid().clone())
        .with_content(content)
}

async fn read(agent: &mut AgentHandle) -> String {
    let received = agent.receive().await.unwrap();
    let message = received.message();
    message.content_text().unwrap().into_owned()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn ask_to_freeze(
    tell: &mpsc::Sender<Command>,
) -> oneshot::Receiver<Result<Vec<FrozenAgent>, String>> {
    let (answer, answered) = oneshot::channel();
    tell.send(Command::Freeze { answer }).await.unwrap();
    answered
}

#[test]
fn closing_ends_before_the_node_kills_the_process() {
    for seconds in [1, 3, 5, 8, 10, 60] {
        let grace = Duration::from_secs(seconds);
        let stopping = crate::Stopping {
            grace: Some(grace),
            reason: "a test".to_owned(),
        };
        let (messages, words) = stopping.limits().unwrap();
        assert!(messages + words < grace, "{seconds} s");
        assert!(messages <= crate::LAST_MESSAGES && words <= crate::LAST_WORDS);
    }
}
