//! The platform, for the Master's own process. The desk is in the same process, so requests need no socket. An embedded
//! platform's agents see the platform in the same way.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_channels::ChannelPath;
use sealbus_journal::Retention;
use sealbus_seal::{Identity, Name};
use tokio::sync::{mpsc, oneshot, watch};

use super::desk::{Desk, DeskHandle, News};
use sealbus_control::attachment::{AgentReport, AttachmentAnswer, AttachmentRequest};
use sealbus_control::authority::IssuedChain;
use sealbus_control::clock::timestamp;
use sealbus_control::directory::{DirectoryStep, DirectoryUpdate, MOST_FOLLOWED, RecentNames};
use sealbus_control::host::{Command, Host, Membership, no_letters, no_logs, not_attached};
use sealbus_control::names::{CONTROL_AGENTS, MASTER_NODE};
use sealbus_control::{
    AgentLocation, Blob, DirectoryChange, Fault, FaultCode, ProcessContact, Subject,
};
use sealbus_keeping::post::{OwnPost, PostPlace};

/// Commands that wait for the process.
const COMMANDS: usize = 64;

/// [`Host`] of a process that shares its memory with the Master.
pub(crate) struct OwnHost {
    desk: DeskHandle,
    membership: Membership,
    /// Whether agents that were not named beforehand may run, as on an embedded platform.
    open: bool,
    /// Keeps messages for absent agents; none if the platform has nodes, which keep them.
    post: Option<OwnPost>,
    /// Agents that the process asked for.
    asked: Arc<Mutex<RecentNames>>,
    commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

/// A process to host.
pub(crate) struct HostedProcess {
    /// Name of its group.
    pub(crate) group: String,
    /// Its agents, to begin with.
    pub(crate) agents: Vec<String>,
    /// Whether the process takes in other agents.
    pub(crate) open: bool,
    /// The address on which its mesh endpoint listens; none without an endpoint.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether it belongs to the control plane, which is at level `auth` on every platform.
    pub(crate) controls: bool,
    /// The place where messages for absent agents are kept, on an embedded platform.
    pub(crate) post: Option<PostPlace>,
}

impl OwnHost {
    /// Adopts a process and hosts it.
    ///
    /// # Errors
    /// If the desk refuses the process.
    pub(crate) async fn adopt(
        desk: DeskHandle,
        place: HostedProcess,
        news: watch::Receiver<News>,
    ) -> Result<(Arc<Self>, mpsc::Sender<Command>), Fault> {
        let HostedProcess {
            group,
            agents,
            open,
            listen,
            controls,
            post,
        } = place;
        let names = agents.clone();
        let has_control = names.iter().any(|name| CONTROL_AGENTS.contains(&&**name));
        let (process, platform, name, deny_list, known, processes, rules) = desk
            .run(move |desk, now| {
                let pid = Some(std::process::id());
                let process = desk.state.adopt(&group, agents, pid, now)?;
                let deny_list = desk.ca.deny_list_since(0);
                let directory = desk.state.directory();
                let known = News {
                    directory: directory.revision(),
                    deny_list: desk.ca.deny_list_version(),
                };
                let rules = directory.rules().clone();
                let processes = directory.processes();
                let platform = match controls {
                    true => desk.platform.control_plane(),
                    false if has_control => desk.platform.clone().for_control(),
                    false => desk.platform.clone(),
                };
                let name = desk.name.clone();
                Ok((process, platform, name, deny_list, known, processes, rules))
            })
            .await?;
        let (sender, commands) = mpsc::channel(COMMANDS);
        let asked = Arc::new(Mutex::new(RecentNames::new(MOST_FOLLOWED)));
        let watching = watch_news(desk.clone(), news, known, asked.clone(), sender.clone());
        tokio::spawn(watching);
        let post =
            post.map(|place| OwnPost::new(place, name, platform.max_message, sender.clone()));
        let host = Self {
            desk,
            membership: Membership {
                address: listen.map_or(platform.master.address.ip(), |listen| listen.ip()),
                port: listen.map_or(0, |listen| listen.port()),
                platform,
                node: MASTER_NODE.to_owned(),
                process,
                agents: names,
                deny_list: Blob(deny_list),
                processes: Some(processes),
                rules,
                inherits: false,
                all_use_channels: false,
                reachable: listen.is_some(),
            },
            open,
            post,
            asked,
            commands: Mutex::new(Some(commands)),
        };
        Ok((Arc::new(host), sender))
    }
}

/// Passes on deny lists and changes of the directory, until the process or the Master is gone.
async fn watch_news(
    desk: DeskHandle,
    mut news: watch::Receiver<News>,
    mut known: News,
    asked: Arc<Mutex<RecentNames>>,
    commands: mpsc::Sender<Command>,
) {
    loop {
        let (directory, held) = (known.directory, known.deny_list);
        let told = desk
            .run(move |desk, _| {
                let version = desk.ca.deny_list_version();
                let list = (version != held).then(|| Blob(desk.ca.deny_list_since(held)));
                Ok((version, list, desk.update(directory)))
            })
            .await;
        let Ok((deny_list, list, update)) = told else {
            return;
        };
        if let Some(list) = list
            && commands.send(Command::DenyList(list)).await.is_err()
        {
            return;
        }
        known = News {
            directory: update.to,
            deny_list,
        };
        for command in commands_of(update, &asked) {
            if commands.send(command).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            () = commands.closed() => return,
        }
    }
}

/// The commands that tell a process the directory's news. It gets news of an agent only if it asked for the agent.
fn commands_of(update: DirectoryUpdate, asked: &Mutex<RecentNames>) -> Vec<Command> {
    let mut agents = Vec::new();
    let mut joined = Vec::new();
    let mut rules = None;
    let mut ended = Vec::new();
    for step in update.changes {
        match step {
            DirectoryStep::Agent(change) if asked.lock().contains(&change.agent) => {
                agents.push(change);
            }
            DirectoryStep::Agent(_) => {}
            DirectoryStep::Together { agents: names, at } => {
                let asked = asked.lock();
                let wanted = names.into_iter().filter(|name| asked.contains(name));
                agents.extend(wanted.map(|agent| DirectoryChange {
                    agent,
                    location: at.clone(),
                }));
            }
            DirectoryStep::Joined { joined: process } => joined.push(process),
            DirectoryStep::Ended { ended: process } => {
                joined.retain(|joined: &ProcessContact| joined.named() != process);
                ended.push(process);
            }
            DirectoryStep::Rules { rules: newer } => rules = Some(newer),
        }
    }
    let mut to_tell = Vec::new();
    if update.from == 0 {
        to_tell.push(Command::ProcessesAre(Some(joined)));
    } else if !joined.is_empty() {
        to_tell.push(Command::ProcessesJoined(joined));
    }
    to_tell.extend(rules.map(Box::new).map(Command::Rules));
    if !agents.is_empty() {
        to_tell.push(Command::DirectoryChanged(agents));
    }
    if !ended.is_empty() {
        to_tell.push(Command::ProcessesEnded(ended));
    }
    to_tell
}

impl OwnHost {
    async fn certify(&self, subject: Subject, request: Blob) -> Result<IssuedChain, Fault> {
        let process = self.membership.process.clone();
        let address = self.membership.address;
        let open = self.open;
        let work = move |desk: &mut Desk, now| {
            let identity = match &subject {
                Subject::Agent { name } => {
                    if open {
                        desk.state.take_in(&process, name)?;
                    }
                    desk.agent(name)?
                }
                Subject::Process => own_process(desk, &process)?,
            };
            if let Subject::Agent { name } = &subject {
                check_own_agent(desk, &process, name)?;
            }
            let lifetime = std::time::Duration::from_secs(desk.platform.certificate_lifetime);
            if desk.away {
                desk.check_level()?;
            }
            let (ca, request, now) = (&mut desk.ca, &request.0, timestamp(now));
            let (chain, act) = if desk.away {
                let (chain, act) = ca.renew_own(identity, address, &process, request, now)?;
                (chain, Some(act))
            } else {
                let process = Some(process.as_str());
                let chain = ca.certify_own(identity, address, process, request, lifetime, now)?;
                (chain, None)
            };
            Ok(((IssuedChain::from(&chain), desk.broker.clone()), act))
        };
        let ((chain, broker), _) = self.desk.run_or_keep(work).await?;
        if let Some(broker) = broker {
            broker.admit_certified(&chain.chain).await?;
        }
        Ok(chain)
    }

    async fn report(&self, agent: String, report: AgentReport) -> Result<(), Fault> {
        let process = self.membership.process.clone();
        let is_active = matches!(report, AgentReport::State { .. });
        let name = agent.clone();
        // The AMS is itself a system agent, and the system agents cannot wait for it.
        let (told, followed) = self.open.then(oneshot::channel).unzip();
        let work = move |desk: &mut Desk, now| {
            desk.state.reported(&process, &name, report, now);
            desk.followers.extend(told);
            Ok(())
        };
        self.desk.run(work).await?;
        if let Some(followed) = followed {
            // An error means that the Master is ending.
            let _ = followed.await;
        }
        if let Some(post) = &self.post
            && let Err(fault) = post.is_active(&agent, is_active).await
        {
            tracing::error!(agent, %fault, "messages kept for an agent cannot be read");
        }
        Ok(())
    }

    async fn carry_out(&self, request: AttachmentRequest) -> Result<AttachmentAnswer, Fault> {
        Ok(match (request, &self.post) {
            (AttachmentRequest::Certify { subject, request }, _) => {
                self.certify(subject, request).await?.into()
            }
            (AttachmentRequest::PublishKey { agent, key }, _) => {
                let process = self.membership.process.clone();
                let work = move |desk: &mut Desk, _| {
                    check_own_agent(desk, &process, &agent)?;
                    desk.keys.put(&agent, key, &desk.name)
                };
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::EncryptionKey { agent }, _) => {
                let work = move |desk: &mut Desk, _| Ok(desk.keys.of(&agent));
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::Announce { address }, _) => {
                let process = self.membership.process.clone();
                let work = move |desk: &mut Desk, now| {
                    desk.state.announced(&process, address, now);
                    Ok(())
                };
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::UseChannels, _) => {
                let process = self.membership.process.clone();
                let work = move |desk: &mut Desk, now| {
                    desk.state.uses_channels(&process, now);
                    Ok(())
                };
                self.desk.run(work).await?.into()
            }
            // This process reads the logs of no nodes.
            (AttachmentRequest::Nodes, _) => Vec::<String>::new().into(),
            (AttachmentRequest::Resolve { agent }, _) => {
                // Requested names are remembered. No agent has such a name, so this one is not.
                if Name::new("agent", &agent).is_err() {
                    return Ok(AgentLocation::Unknown.into());
                }
                self.asked.lock().note(&agent);
                let work = move |desk: &mut Desk, _| Ok(desk.state.directory().locate(&agent));
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::DenyList, _) => {
                let work = |desk: &mut Desk, _| Ok(Blob(desk.ca.deny_list_since(0)));
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::Report { agent, report }, _) => {
                self.report(agent, report).await?.into()
            }
            (AttachmentRequest::Refusals { records }, _) => {
                let work = move |desk: &mut Desk, _| {
                    desk.refusals.note(MASTER_NODE, records);
                    Ok(())
                };
                self.desk.run(work).await?.into()
            }
            (AttachmentRequest::Post { letters }, Some(post)) => post.post(letters).await?.into(),
            (AttachmentRequest::Post { letters }, None) => {
                vec![Some(no_letters()); letters.len()].into()
            }
            (AttachmentRequest::Letters { agent, outcomes }, Some(post)) => {
                post.settle(&agent, outcomes).await?.into()
            }
            (AttachmentRequest::Letters { .. }, None) => AttachmentAnswer::Done,
            (AttachmentRequest::ChannelLog { request, .. }, Some(post)) => {
                post.channel_log(request).await?.into()
            }
            (AttachmentRequest::ChannelLog { .. }, None) => return Err(no_logs()),
            (
                AttachmentRequest::Attach { .. }
                | AttachmentRequest::Frozen { .. }
                | AttachmentRequest::NotFrozen { .. }
                | AttachmentRequest::FormerKeys { .. }
                | AttachmentRequest::Inherit { .. },
                _,
            ) => return Err(not_attached()),
        })
    }
}

impl Host for OwnHost {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        self.carry_out(request).boxed()
    }

    fn keeps_letters(&self) -> bool {
        self.post.is_some()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        match &self.post {
            Some(post) => post.close().boxed(),
            None => std::future::ready(()).boxed(),
        }
    }

    fn retain<'a>(
        &'a self,
        channel: &'a ChannelPath,
        retention: Retention,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        match &self.post {
            Some(post) => post.retain(channel, retention).boxed(),
            None => std::future::ready(Err(no_logs())).boxed(),
        }
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}

fn own_process(desk: &Desk, process: &str) -> Result<Identity, Fault> {
    let fault =
        |error: sealbus_seal::IdentityError| Fault::new(FaultCode::Internal, error.to_string());
    Ok(Identity::Process {
        platform: desk.name.clone(),
        node: Name::new("node", MASTER_NODE).map_err(fault)?,
        process: process.parse().map_err(fault)?,
    })
}

fn check_own_agent(desk: &Desk, process: &str, agent: &str) -> Result<(), Fault> {
    let placed = desk
        .state
        .process(process)
        .is_some_and(|(_, p)| p.agents.contains_key(agent));
    if placed {
        return Ok(());
    }
    Err(Fault::new(
        FaultCode::NotPlaced,
        format!("{agent} is not placed in this process"),
    ))
}
