//! The gateway's process: its own agent, which follows the DF and serves, and the agents that callers are.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use sealbus::directory::{
    DfAgentDescription, DirectoryError, ServiceDescription, Subscription, Template,
};
use sealbus::process::OpenAgentError;
use sealbus::{
    Agent, AgentEnd, AgentResult, Context, NamedAgents, Platform, RunError, Running, Voice, agent,
};
use sealbus_control::correspondence::Correspondent;
use sealbus_control::mcp::{McpAnswer, McpRequest};
use sealbus_control::names::OPERATOR;
use sealbus_control::{Fault, FaultCode};
use sealbus_manifest::callers::{CallerEntry, CallersEntry};
use sealbus_seal::SecurityLevel;
use sealbus_web::Client;
use sealbus_web::reach::NoNetwork;
use sealbus_web::tls::{self, TlsSetupError};
use sealbus_web::trust::{self, CertificateFileError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::caller::{Caller, CallerAgent};
use crate::connection::HTTP2;
use crate::door::{Door, Entrance, Service};
use crate::issuer::Issuer;
use crate::keys::Keys;
use crate::resource::Resource;

/// Pause before the DF is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The reason why callers are not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// Callers cannot come with certificates, because there are none.
    #[error(
        "callers cannot come with certificates: at the level {0} agents have none; give them keys"
    )]
    Level(SecurityLevel),
    /// The file of `trust` cannot be used.
    #[error(transparent)]
    Trust(CertificateFileError),
    /// A network of the configuration is none.
    #[error(transparent)]
    Reach(NoNetwork),
    /// The issuer of tokens is to be reached over TLS, and nothing says whom to believe.
    #[error("{0} needs certificates to check it against: name a file as `trust`")]
    NoTrust(String),
    /// The entry contradicts itself.
    #[error("{0}")]
    Entry(String),
    /// The agents did not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An agent could not be started.
    #[error(transparent)]
    Open(#[from] OpenAgentError),
    /// The gateway's own agent ended before it served.
    #[error("the gateway did not open: it {0}")]
    Ended(AgentEnd),
}

/// Serves callers over HTTP until the program is told to stop. The platform must have placed the agents of
/// [`CallersEntry::agents`] and the agent `name` in this process, or be an embedded one.
///
/// # Errors
/// [`ServeError`]. After an error nothing is open.
pub async fn serve<S: Service>(
    platform: &Platform,
    entry: CallersEntry,
    name: &str,
    service: S,
) -> Result<(), ServeError> {
    let (callers, gateway) = agents(platform, entry, service, None)?;
    let named = |(name, caller): (String, CallerAgent)| agent(name, caller).unless_revoked();
    let mut agents: Vec<NamedAgents> = callers.into_iter().map(named).collect();
    agents.push(agent(name, gateway));
    Ok(platform.run(agents).await?)
}

/// A gateway beside the agents of a program. It serves as long as the program has its place on the platform.
#[derive(Debug)]
pub struct OpenedGateway {
    base: String,
    agents: Vec<Running>,
}

impl OpenedGateway {
    /// The beginning of URLs by which callers reach the gateway, such as `http://127.0.0.1:7781`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Waits until the gateway has left, after [`Process::stop`](sealbus::process::Process::stop).
    pub async fn left(self) {
        for agent in self.agents {
            agent.wait().await;
        }
    }
}

/// Serves callers over HTTP beside the program's own agents, on an embedded platform.
///
/// # Errors
/// [`ServeError`]. After an error nothing is open.
pub async fn open<S: Service>(
    platform: &Platform,
    entry: CallersEntry,
    name: &str,
    service: S,
) -> Result<OpenedGateway, ServeError> {
    let (opened, base) = oneshot::channel();
    let (callers, gateway) = agents(platform, entry, service, Some(opened))?;
    let mut agents = Vec::new();
    for (name, caller) in callers {
        agents.push(platform.start(&name, caller).await?);
    }
    let gateway = platform.start(name, gateway).await?;
    match base.await {
        Ok(base) => {
            agents.push(gateway);
            Ok(OpenedGateway { base, agents })
        }
        Err(_) => Err(ServeError::Ended(gateway.wait().await)),
    }
}

/// The agents that callers are, and the gateway's own, which listens already.
#[expect(clippy::type_complexity, reason = "it has one reader")]
fn agents<S: Service>(
    platform: &Platform,
    entry: CallersEntry,
    service: S,
    opened: Option<oneshot::Sender<String>>,
) -> Result<(Vec<(String, CallerAgent)>, Gateway<S>), ServeError> {
    let refused = |source| ServeError::Listen {
        address: entry.listen,
        source,
    };
    let entrance = entrance(&entry, platform, S::SPEAKS_HTTP2)?;
    let listener = TcpListener::bind(entry.listen).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let mut agents = Vec::new();
    let mut open = |name: &str| {
        let (caller, known) = CallerAgent::new();
        agents.push((name.to_owned(), caller));
        known
    };
    let known = entry.callers.iter();
    let callers = known.map(|it| open(&it.name)).collect();
    let anonymous = entry.anonymous.as_deref().map(&mut open);
    let gateway = Gateway {
        entry,
        start: Some(Start {
            listener,
            callers,
            anonymous,
            entrance,
            service,
            opened,
        }),
    };
    Ok((agents, gateway))
}

/// The entrance, as the configuration describes TLS and tokens.
fn entrance(
    entry: &CallersEntry,
    platform: &Platform,
    has_http2: bool,
) -> Result<Entrance, ServeError> {
    if entry.tls.is_none() && entry.oauth.is_none() {
        return Ok(Entrance::default());
    }
    let process = platform.process();
    let trust = match entry.callers.iter().any(|it| it.certificate) {
        true if !process.level().authenticates() => {
            return Err(ServeError::Level(process.level()));
        }
        true => Some(process.trust().clone()),
        false => None,
    };
    let client = trust::client(entry.trust.as_deref()).map_err(ServeError::Trust)?;
    if let Some(oauth) = &entry.oauth
        && oauth.keys.starts_with("https:")
        && client.is_none()
    {
        return Err(ServeError::NoTrust(oauth.keys.clone()));
    }
    let protocols: &[&[u8]] = match has_http2 {
        true => &[HTTP2, b"http/1.1"],
        false => &[b"http/1.1"],
    };
    let tls = match &entry.tls {
        Some(config) => Some(tls::server(config, trust.as_ref(), protocols)?.into()),
        None => None,
    };
    let oauth = entry.oauth.clone().map(|oauth| {
        let resource = Resource::new(entry, &oauth);
        // The operator named its address.
        let web = Client::new(client, Arc::new(|_| Ok(())));
        (Arc::new(Issuer::new(oauth, web)), resource)
    });
    Ok(Entrance { tls, trust, oauth })
}

type Known = oneshot::Receiver<Caller>;

struct Gateway<S> {
    entry: CallersEntry,
    start: Option<Start<S>>,
}

struct Start<S> {
    listener: TcpListener,
    callers: Vec<Known>,
    anonymous: Option<Known>,
    entrance: Entrance,
    service: S,
    /// Learns how callers reach the gateway.
    opened: Option<oneshot::Sender<String>>,
}

impl<S: Service> Agent for Gateway<S> {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let Some(start) = self.start.take() else {
            return Ok(());
        };
        let wishes = context.handle().wishes();
        let voice = context.voice();
        let serving = async {
            let (entries, callers) = on_the_bus(&self.entry.callers, start.callers).await;
            let anonymous = match start.anonymous {
                Some(known) => known.await.ok(),
                None => None,
            };
            let keys = Keys::new(&entries, callers, anonymous);
            let service = Arc::new(start.service);
            let listener = tokio::net::TcpListener::from_std(start.listener)?;
            let address = listener.local_addr()?;
            let entrance = start.entrance;
            let door = Door::new(
                &self.entry,
                address,
                entrance,
                service.clone(),
                keys,
                voice.clone(),
            )?;
            service.began(&voice);
            let reached = service.opened(door.base());
            if let Some(opened) = start.opened {
                // Nobody may wait for it any more.
                let _ = opened.send(door.base().to_owned());
            }
            let news = |news| service.news(news, voice.platform());
            let status =
                |McpRequest::Status| async { McpAnswer::from(door.status(reached.clone()).await) };
            tokio::select! {
                () = door.clone().accept(listener) => {}
                () = follow(&voice, service.wanted(), news) => {}
                () = service.attend(&voice) => {}
                () = tell(context, status) => {}
            }
            AgentResult::Ok(())
        };
        tokio::select! {
            biased;
            () = wishes.stop_wished() => Ok(()),
            served = serving => served,
        }
    }
}

/// The callers whose agents are on the bus, with their entries. Only callers that an operator revoked are not.
async fn on_the_bus(entries: &[CallerEntry], known: Vec<Known>) -> (Vec<CallerEntry>, Vec<Caller>) {
    let (mut present, mut callers) = (Vec::new(), Vec::new());
    for (entry, known) in entries.iter().zip(known) {
        if let Ok(caller) = known.await {
            present.push(entry.clone());
            callers.push(caller);
        }
    }
    (present, callers)
}

/// Answers the platform's operators, and nobody else, until the agent's mailbox is closed.
pub async fn tell<Q, F>(context: &mut Context, answer: impl Fn(Q) -> F)
where
    Q: DeserializeOwned,
    F: Future<Output: Serialize>,
{
    let agent = context.handle();
    let asking = Correspondent::new(agent.outbox().clone());
    while let Some(received) = agent.receive().await {
        let Some(enquiry) = asking.receive(received) else {
            continue;
        };
        let (from, request, reply) = enquiry.open::<Q>();
        let told = match request {
            Ok(request) if from == OPERATOR => Ok(answer(request).await),
            Ok(_) => Err(Fault::new(
                FaultCode::NotPermitted,
                "the gateway answers the platform's operators only",
            )),
            Err(fault) => Err(fault),
        };
        reply.send(told).await;
    }
}

/// Hands on the DF's news about such services, for ever. Each entry is an agent's whole entry now; without services, it
/// is gone. None: earlier news no longer count.
pub async fn follow(
    voice: &Voice,
    wanted: ServiceDescription,
    take: impl FnMut(Option<Vec<DfAgentDescription>>),
) {
    let template = Template::from(wanted);
    follow_news(|| voice.df().subscribe(template.clone()), take).await;
}

/// Hands on the news of a directory, for ever. None: earlier news no longer count.
pub async fn follow_news<T, F>(subscribe: impl Fn() -> F, mut take: impl FnMut(Option<Vec<T>>))
where
    F: Future<Output = Result<Subscription<T>, DirectoryError>>,
{
    loop {
        let subscription = subscribe().await;
        take(None);
        let lost = match subscription {
            Ok(subscription) => loop {
                match subscription.next().await {
                    Ok(entries) => take(Some(entries)),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        tracing::warn!(error = %lost, "a directory tells nothing now; it is asked again");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Shown, Unknown, new_key};

    /// A caller's entry, and the header with its key.
    fn entry(name: &str) -> (CallerEntry, String) {
        let (key, hash) = new_key().unwrap();
        let entry = CallerEntry {
            name: name.to_owned(),
            key: Some(hash),
            certificate: false,
            subject: None,
            scopes: Vec::new(),
        };
        (entry, format!("Bearer {key}"))
    }

    #[tokio::test]
    async fn the_key_of_a_caller_that_was_not_started_opens_nothing() {
        let platform = Platform::embedded().await.unwrap();
        let (buyer, present) = CallerAgent::new();
        platform.start("buyer", buyer).await.unwrap();
        let (revoked, absent) = CallerAgent::new();
        drop(revoked);
        let ((auditor, of_auditor), (buyer, of_buyer)) = (entry("auditor"), entry("buyer"));
        let (entries, callers) = on_the_bus(&[auditor, buyer], vec![absent, present]).await;
        let keys = Keys::new(&entries, callers, None);
        let ask = |header: &str| match keys.caller([header.as_bytes()].into_iter()) {
            Ok(Shown::Caller(_)) => Ok(()),
            Ok(Shown::Token(token)) => panic!("{token} is no token"),
            Err(unknown) => Err(unknown),
        };
        assert_eq!(ask(&of_auditor), Err(Unknown::WrongKey));
        assert_eq!(ask(&of_buyer), Ok(()));
    }
}
