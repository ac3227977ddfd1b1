//! The platform that a program runs on, embedded or shared.

use std::ffi::OsStr;
use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use sealbus_bus::Bus;
use sealbus_control::host::Host;
use sealbus_gateways::GatewayConfig;
use sealbus_master::embedded::{EmbeddedError, EmbeddedPlatform, Watched, WatchedError};
use sealbus_platform::gateway::{Gateway, GatewayError};
use sealbus_process::attachment::{Attachment, NodeAttachError};
use sealbus_process::{
    AgentHandle, Interceptor, LongLivedKey, LongLivedKeyError, OpenAgentError, OpenError, Process,
    quiet_log,
};
use sealbus_seal::PlatformName;
use tokio::process::{Child, Command};
use tracing_subscriber::EnvFilter;

use crate::clock::Clock;

/// Variable with the address of the node that started the program. The program attaches to this node.
pub const ATTACH_VARIABLE: &str = "SEALBUS_ATTACH";
/// Variable with the ticket that lets the program join.
pub const TICKET_VARIABLE: &str = "SEALBUS_TICKET";
/// Variable with the log level or a filter of `tracing`, such as `sealbus=debug`.
pub const LOG_VARIABLE: &str = "SEALBUS_LOG";

/// Variable with a folder in which an embedded platform keeps persistent messages for later runs of the program.
/// Without it, messages are kept as long as the program runs.
pub const STATE_VARIABLE: &str = "SEALBUS_STATE";

/// The variable that names the URL of the issuer of workload tokens, for an embedded platform.
const ISSUER_VARIABLE: &str = "SEALBUS_WORKLOAD_ISSUER";

/// Variable with the file of the key of the agent's long-lived identity, for a program with one agent.
pub const IDENTITY_VARIABLE: &str = "SEALBUS_IDENTITY";

/// Name of the embedded platform, as in `seller-1@home`.
pub const EMBEDDED_NAME: &str = "home";

/// This process's place on a platform, for programs that drive their agents themselves.
///
/// Most programs leave this to [`run`](crate::run).
///
/// ```no_run
/// use sealbus::{AclMessage, Performative, Platform};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let platform = Platform::embedded().await?;
/// let alice = platform.agent("alice").await?;
/// let mut bob = platform.agent("bob").await?;
/// let hello = AclMessage::new(Performative::Inform).with_receiver(bob.aid().clone()).with_content("hello");
/// alice.send(hello).await?;
/// let received = bob.receive().await.ok_or("bob has left")?;
/// assert_eq!(received.message().content_text().as_deref(), Some("hello"));
/// platform.close().await;
/// # Ok(()) }
/// ```
pub struct Platform {
    process: Process,
    /// The clock of the agents.
    pub(crate) clock: Clock,
    /// In a test, gets the agents' messages first.
    pub(crate) interceptor: Option<Arc<dyn Interceptor>>,
    /// Whether any agent may run here, even if the platform did not place it here.
    takes_any: bool,
    /// The platform's services besides the program's own agents, on an embedded platform.
    embedded: Option<EmbeddedPlatform>,
    /// The process that shows an embedded platform in a window. It ends when its standard input does.
    window: Option<(Child, Watched)>,
    /// The gateway to other platforms, if this process runs it.
    gateway: Option<Gateway>,
}

/// The reason why a program did not get its place on a platform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// The embedded platform could not be started.
    #[error("the embedded platform did not start: {0}")]
    Embedded(#[from] EmbeddedError),
    /// The program could not attach to the node.
    #[error("the program did not get its place on the platform: {0}")]
    Attach(#[from] NodeAttachError),
    /// The environment names a node, but holds no ticket for it.
    #[error(
        "{ATTACH_VARIABLE} is set and {TICKET_VARIABLE} is not: both are set by the node that starts a program; unset \
         {ATTACH_VARIABLE} to run it by itself"
    )]
    NoTicket,
    /// A variable holds something other than text.
    #[error("the environment variable {0} is not readable text")]
    Variable(&'static str),
    /// The long-lived identity cannot be used.
    #[error(transparent)]
    Identity(#[from] LongLivedKeyError),
    /// The environment names a long-lived identity, and the platform did not place one agent here.
    #[error(
        "{IDENTITY_VARIABLE} is for a program in which a platform has placed one agent: give each agent its identity in the program"
    )]
    OneIdentity,
    /// The process could not take its place.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The reason why a window could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Nobody can be admitted to watch.
    #[error(transparent)]
    Watched(#[from] WatchedError),
    /// The program that shows the window could not be started.
    #[error("the window needs the program {program}, which cannot be started: {error}")]
    Program {
        /// The program.
        program: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// A variable of the environment. An empty variable counts as not set.
fn variable(name: &'static str) -> Result<Option<String>, PlatformError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(PlatformError::Variable(name)),
    }
}

impl Platform {
    /// Starts a platform inside this process: Master, CA, AMS and DF, with nothing to install and no open socket. It is
    /// named `home`. With a folder in `SEALBUS_STATE` it keeps persistent messages there, and with a URL in
    /// `SEALBUS_WORKLOAD_ISSUER` it issues [workload tokens](crate::Voice::workload_token) in its name.
    ///
    /// # Errors
    /// If there is no randomness for its keys.
    pub async fn embedded() -> Result<Platform, PlatformError> {
        Platform::embedded_as(EMBEDDED_NAME).await
    }

    /// Like [`embedded`](Self::embedded), with a name for the platform, by which other platforms know it.
    ///
    /// # Errors
    /// If the name is not valid, or there is no randomness for its keys.
    pub async fn embedded_as(name: &str) -> Result<Platform, PlatformError> {
        let name =
            PlatformName::new(name).map_err(|error| OpenError::Description(error.to_string()))?;
        let folder = variable(STATE_VARIABLE)?.map(PathBuf::from);
        let embedded = EmbeddedPlatform::start_in(name, folder).await?;
        if let Some(issuer) = variable(ISSUER_VARIABLE)? {
            embedded.issue_workload_tokens(issuer).await?;
        }
        let mut platform = Platform::open(embedded.host(), Some(embedded.bus())).await?;
        platform.embedded = Some(embedded);
        Ok(platform)
    }

    /// Opens the gateway to other FIPA platforms in this process, on an embedded platform. Returns the addresses at
    /// which other platforms reach the gateway. Under `sealbus up` the manifest places the gateway.
    ///
    /// ```no_run
    /// use sealbus::Platform;
    /// use sealbus::gateway::{GatewayRule, GatewayConfig};
    ///
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut platform = Platform::embedded_as("factory").await?;
    /// let config = GatewayConfig {
    ///     listen: "127.0.0.1:7779".parse()?,
    ///     allow: vec![GatewayRule::new("plat1", ["*"])],
    ///     ..GatewayConfig::default()
    /// };
    /// println!("reached at {:?}", platform.open_gateway(config).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the configuration is not valid, the address is in use, or there is a gateway already.
    pub async fn open_gateway(
        &mut self,
        config: GatewayConfig,
    ) -> Result<Vec<String>, GatewayError> {
        let gateway = Gateway::open(&self.process, config).await?;
        let addresses = gateway.addresses().to_vec();
        self.gateway = Some(gateway);
        Ok(addresses)
    }

    /// Shows an embedded platform in a browser: starts `program`, which is `sealbus`, as a process of its own. It prints
    /// a link to standard error, only reads, and ends with this program. Returns the folder that `sealbus top`, `ps` and
    /// `sniff` take with `--state` to watch this platform. On a platform that this program only joined,
    /// this does nothing: run `sealbus window` there.
    ///
    /// ```no_run
    /// use sealbus::{Platform, agent};
    /// # struct Seller;
    /// # impl sealbus::Agent for Seller {}
    ///
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut platform = Platform::join().await?;
    /// platform.open_window("sealbus")?;
    /// platform.run([agent("seller", Seller)]).await?;
    /// platform.close().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`WindowError`] if no socket can be made, or the program is not there.
    pub fn open_window(
        &mut self,
        program: impl AsRef<OsStr>,
    ) -> Result<Option<&Path>, WindowError> {
        let Some(embedded) = &self.embedded else {
            return Ok(None);
        };
        let watched = embedded.let_watch()?;
        let mut command = Command::new(&program);
        command.args(["window", "--until-input-ends", "--state"]);
        command.arg(watched.directory()).stdin(Stdio::piped());
        // Standard output belongs to the program.
        let window =
            command
                .stdout(std::io::stderr())
                .spawn()
                .map_err(|error| WindowError::Program {
                    program: program.as_ref().display().to_string(),
                    error,
                })?;
        let (_, watched) = self.window.insert((window, watched));
        Ok(Some(watched.directory()))
    }

    /// Takes the place that the environment names. With `SEALBUS_ATTACH`, the program attaches to the node that started
    /// it. With `SEALBUS_TICKET`, it joins with the ticket. Without either, it starts an embedded platform. `SEALBUS_IDENTITY`
    /// names the file with the key of the [long-lived identity](Self::identify) of the one agent that is placed here.
    ///
    /// # Errors
    /// [`PlatformError`] names the failed attempt and the remedy.
    pub async fn join() -> Result<Platform, PlatformError> {
        Platform::join_or_embed(EMBEDDED_NAME).await
    }

    /// Like [`join`](Self::join), with this name for an embedded platform.
    ///
    /// # Errors
    /// As [`join`](Self::join), and if the name is not valid.
    pub async fn join_or_embed(name: &str) -> Result<Platform, PlatformError> {
        let identity = variable(IDENTITY_VARIABLE)?.map(PathBuf::from);
        let identity = identity.as_deref().map(LongLivedKey::read).transpose()?;
        let platform = match (variable(ATTACH_VARIABLE)?, variable(TICKET_VARIABLE)?) {
            (Some(address), Some(ticket)) => {
                let attachment = Attachment::attach(&address, &ticket).await?;
                Platform::open(Arc::new(attachment), None).await?
            }
            (Some(_), None) => return Err(PlatformError::NoTicket),
            (None, Some(ticket)) => Platform::with_ticket(&ticket).await?,
            (None, None) => Platform::embedded_as(name).await?,
        };
        match (platform.placed(), identity) {
            (Some([agent]), Some(key)) => platform.identify(agent, key),
            (_, Some(_)) => {
                platform.close().await;
                return Err(PlatformError::OneIdentity);
            }
            (_, None) => {}
        }
        Ok(platform)
    }

    /// Joins a platform from outside, with a ticket printed by `sealbus ticket NAME`.
    ///
    /// # Errors
    /// If the ticket was used before or has expired, or nobody answers.
    pub async fn with_ticket(ticket: &str) -> Result<Platform, PlatformError> {
        let attachment = Attachment::join(ticket.trim()).await?;
        Platform::open(Arc::new(attachment), None).await
    }

    /// Takes a place on the platform that `host` stands for. `bus` is the bus of an embedded platform, with its agents
    /// on it.
    ///
    /// # Errors
    /// If the process is not certified or cannot listen.
    pub async fn open(host: Arc<dyn Host>, bus: Option<Bus>) -> Result<Platform, PlatformError> {
        let takes_any = bus.is_some();
        let process = Process::open(host, bus).await?;
        Ok(Platform {
            process,
            clock: Clock::default(),
            interceptor: None,
            takes_any,
            embedded: None,
            window: None,
            gateway: None,
        })
    }

    /// This process on the platform.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The local names of the agents that the platform placed in this process. `None` on an embedded platform, which
    /// takes any agent.
    pub fn placed(&self) -> Option<&[String]> {
        (!self.takes_any).then(|| self.process.membership().agents.as_slice())
    }

    /// Gives the agent with this local name a long-lived identity, whenever it is started from now on. All its certificates
    /// name the identity, so that anybody sees that they belong to one agent. The key is used only in this process.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use sealbus::process::LongLivedKey;
    /// use sealbus::{Platform, agent};
    /// # struct Seller;
    /// # impl sealbus::Agent for Seller {}
    ///
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let platform = Platform::join().await?;
    /// platform.identify("seller", LongLivedKey::read(Path::new("seller.key"))?);
    /// platform.run([agent("seller", Seller)]).await?;
    /// platform.close().await;
    /// # Ok(()) }
    /// ```
    pub fn identify(&self, name: &str, key: LongLivedKey) {
        self.process.identify(name, key);
    }

    /// Puts an agent on the platform. The caller drives it.
    pub async fn agent(&self, name: &str) -> Result<AgentHandle, OpenAgentError> {
        self.process.agent(name).await
    }

    /// Leaves the platform. Ends an embedded platform.
    pub async fn close(self) {
        if let Some(gateway) = self.gateway {
            gateway.close().await;
        }
        self.process.close().await;
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform")
            .field("process", &self.process)
            .field("takes_any", &self.takes_any)
            .finish()
    }
}

/// Writes logs to standard error, unless the program has set up its own. A program that runs by itself logs warnings; a
/// program that a node started logs as much as the node's log shows. `SEALBUS_LOG` changes this. The reports of brokers'
/// libraries are left out, because the transport itself reports broken connections.
pub fn log_to_stderr() {
    let default = if std::env::var_os(ATTACH_VARIABLE).is_some() {
        "info"
    } else {
        "warn"
    };
    let filter = EnvFilter::try_from_env(LOG_VARIABLE)
        .unwrap_or_else(|_| EnvFilter::new(quiet_log(default)));
    // An error means that the program already has its own subscriber.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // On a full disk, the subscriber would report to the place where it cannot write, and panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}
