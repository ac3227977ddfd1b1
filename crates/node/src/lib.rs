//! The Remote Node. It starts agent processes, vouches for them, and keeps them in touch with the platform while the
//! Master is away.

mod alarm;
mod channel_log;
mod child;
mod control_groups;
mod descendants;
mod directory;
mod disk;
mod ending;
mod freezing;
mod held;
mod host;
mod isolation;
mod issued;
mod joining;
mod leaders;
mod left_behind;
mod log;
mod log_times;
mod memory;
mod metrics;
mod neighbours;
mod notes;
mod orders;
mod ownership;
mod peer;
mod post;
mod processes;
mod refused;
mod renewal;
mod reports;
mod room;
mod serve;
mod session;
mod shared;
mod slots;
mod starting;
mod supervisor;
#[cfg(test)]
mod testing;
mod traffic;
mod witness;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealbus_journal::JournalError;
use sealbus_seal::tls::{Acceptor, CertificateSource, TlsError};
use sealbus_seal::token::Token;
use sealbus_seal::{
    CLOCK_SKEW, CertificateError, Credential, Fingerprint, KeyError, Trust, TrustError,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use sealbus_control::NodeDescription;
use sealbus_control::enrolment::Joined;
use sealbus_control::local::{forbid_inspection, is_listening};
use sealbus_enrolment::{ATTACHMENT, Enrolment, EnrolmentError, accept, bind};
use sealbus_keeping::node_journal::NodeJournal;
use sealbus_launcher::NotIsolated;
use sealbus_manifest::isolation::Isolation;

pub use control_groups::{ControlGroups, settle};
use isolation::ProgramIsolation;
pub use isolation::{IsolationConfig, SLOTS, try_isolation};
use joining::{come_back_patiently, join, while_coming_back};
use leaders::Leaders;
pub use left_behind::{LeftBehind, end_left_behind};
use log::Logs;
pub use log::{log_of, set_aside};
use memory::Memory;
pub use memory::MemoryError;
use reports::Reports;
use serve::Newcomer;
use shared::{Leave, NodeParts, Shared};

/// The socket to which processes attach, in the node's state directory. Its folder contains nothing else, so that
/// programs can be let into it.
const SOCKET: &str = "run/node.sock";

/// The socket of the node with this state directory.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// The folder with the messages and events that the node keeps.
const JOURNAL: &str = "journal";

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The directory for its key, its logs and its socket.
    pub directory: PathBuf,
    /// The token for joining. A node that has joined before needs none.
    pub token: Option<Token>,
    /// The Master's address, for a node that has joined before and has no token.
    pub join: Option<String>,
    /// The name that the node asks for.
    pub name: Option<String>,
    /// The node's address, in its agents' certificates and for their links.
    pub address: IpAddr,
    /// The isolation of its programs.
    pub isolation: IsolationConfig,
    /// The address at which Prometheus gets the node's metrics, if any.
    pub metrics: Option<SocketAddr>,
}

/// The addresses of the Masters, as the node with this state directory last knew them; empty if it never joined.
///
/// # Errors
/// [`NodeError::Memory`].
pub fn masters_of(directory: &Path) -> Result<Vec<String>, NodeError> {
    let known = Memory::open(directory)?.known()?;
    Ok(known.map_or_else(Vec::new, |known| known.enrolment.addresses))
}

/// A running node. If it is dropped, its processes go on running, and the node takes them over again when it is
/// restarted. [`Node::leave`] ends them.
pub struct Node {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    ended: watch::Receiver<bool>,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The node has no token and has never joined.
    #[error("{} belongs to no node yet: join with a token (sealbus node --token TOKEN)", .0.display())]
    NoToken(PathBuf),
    /// The token belongs to another platform than the state directory.
    #[error(
        "{} belongs to the node {name} of the platform {known}, and the token is of {other}: choose another state directory",
        directory.display()
    )]
    AnotherPlatform {
        /// The state directory.
        directory: PathBuf,
        /// The node's name.
        name: String,
        /// The node's platform.
        known: String,
        /// The token's platform.
        other: String,
    },
    /// Another node runs with the state directory. It would lose its socket, and its programs would lose it.
    #[error("another node runs with {}: end it first, or choose another state directory", .0.display())]
    InUse(PathBuf),
    /// The node's state directory cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The node could not join.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    /// The node's key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate from the Master cannot be used.
    #[error("the Master sent an unusable certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// The platform's root certificate is not valid.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The Master's root certificate is not the one that the token names.
    #[error("the Master's root certificate is not the one the token names")]
    AnotherRoot,
    /// The node's own TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The journal of kept messages cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The only allowed isolation does not work on this machine.
    #[error(
        "programs cannot be isolated by {mode} here: a program is not started, because {error}"
    )]
    Isolation {
        /// The isolation.
        mode: Isolation,
        /// The step that failed.
        error: NotIsolated,
    },
    /// A socket or directory could not be made.
    #[error("the node cannot {what}: {error}")]
    System {
        /// The attempted action.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl Node {
    /// Joins the platform, or comes back to it, and begins to work.
    ///
    /// # Errors
    /// [`NodeError`]. It is no error if the Master is away and the node has joined before: the node keeps trying, and
    /// looks after its processes in the meantime.
    pub async fn start(config: NodeConfig) -> Result<Self, NodeError> {
        // The Master could not tell a second node with this state from the one that runs.
        check_free(&config.directory)?;
        forbid_inspection();
        descendants::adopt();
        let memory = Memory::open(&config.directory)?;
        let sealing = ProgramIsolation::open(config.isolation.clone(), &config.directory).await?;
        let description = describe(config.address);
        let (joined, enrolment, credential) = match (memory.known()?, &config.token) {
            (None, None) => return Err(NodeError::NoToken(config.directory)),
            (Some(known), Some(token)) if known.enrolment.platform != *token.platform() => {
                return Err(NodeError::AnotherPlatform {
                    directory: config.directory,
                    name: known.name,
                    known: known.enrolment.platform.to_string(),
                    other: token.platform().to_string(),
                });
            }
            (Some(known), token) => {
                let mut enrolment = known.enrolment;
                if let Some(token) = token {
                    enrolment.addresses = token.addresses().to_vec();
                } else if let Some(address) = &config.join {
                    enrolment.addresses = vec![address.clone()];
                }
                let (joined, credential) = come_back_patiently(
                    &enrolment,
                    &description,
                    &known.credential,
                    memory.term()?,
                )
                .await?;
                (joined, enrolment, credential)
            }
            (None, Some(token)) => {
                let enrolment = Enrolment {
                    platform: token.platform().clone(),
                    addresses: token.addresses().to_vec(),
                    root: token.root(),
                };
                let (joined, credential) = join(&enrolment, &config, token, &description).await?;
                (joined, enrolment, credential)
            }
        };
        memory.keep_identity(&joined.name, &enrolment, &credential)?;
        Self::run(config, memory, sealing, joined, enrolment, credential).await
    }

    async fn run(
        config: NodeConfig,
        memory: Memory,
        sealing: ProgramIsolation,
        joined: Joined,
        enrolment: Enrolment,
        credential: Credential,
    ) -> Result<Self, NodeError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| NodeError::System { what, error }
        };
        let description = NodeDescription {
            isolation: sealing.at_level(&joined.platform.level),
            ..describe(config.address)
        };
        let root = root_of(&joined, enrolment.root)?;
        let trust = Trust::new(
            enrolment.platform.clone(),
            &[root.clone().into()],
            CLOCK_SKEW,
        )?;
        let trust = Arc::new(trust);
        // Another node may have begun while this one waited for the Master.
        check_free(memory.directory())?;
        let path = socket_of(memory.directory());
        let listener = sealing
            .listen(&path)
            .map_err(system(&format!("listen on {}", path.display())))?;
        let server = listen_for_tickets(config.address, memory.port()?)
            .await
            .map_err(system("listen for programs with tickets"))?;
        let attachment = server.local_addr().ok();
        if let Some(address) = attachment {
            memory.keep_port(address.port())?;
        }
        let metrics = match config.metrics {
            None => None,
            Some(address) => {
                let listener = sealbus_metrics::listen(address).await;
                Some(listener.map_err(system(&format!("listen for Prometheus on {address}")))?)
            }
        };
        let logs = Logs::open(memory.directory()).map_err(system("keep logs"))?;
        let opened = {
            let folder = memory.directory().join(JOURNAL);
            let (name, platform) = (joined.name.clone(), enrolment.platform.clone());
            let longest = joined.platform.max_message;
            let opening = move || NodeJournal::open(&folder, &name, &platform, longest);
            let opened = tokio::task::spawn_blocking(opening);
            let opened = while_coming_back(opened, &enrolment, &description, &credential).await;
            opened.map_err(|error| system("open its journal")(error.into()))??
        };
        let remembered = memory.processes()?;
        let leaders = Leaders::new(enrolment, memory.clone())?;
        leaders.obey(joined.term).map_err(EnrolmentError::Refused)?;
        if leaders.are_at(&joined.masters) {
            memory.keep_identity(&joined.name, &leaders.enrolment(), &credential)?;
        }
        let (reports, queue) = Reports::new();
        let source = CertificateSource::with_root(&credential, &root.into())?;
        let shared = Shared::new(NodeParts {
            name: joined.name.clone(),
            description,
            platform: joined.platform.clone(),
            credential,
            leaders,
            trust,
            journal: opened,
            logs,
            memory,
            reports,
            sealing,
            attachment,
        });
        shared.deny_list_changed(joined.deny_list.clone()).await;
        shared.take_over(remembered);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::accept_local(listener, shared.clone()));
        let acceptor = Acceptor::for_enrolment(source.clone(), &[ATTACHMENT]);
        let serving = shared.clone();
        tasks.spawn(accept(server, acceptor, move |stream, waiting| {
            serve::serve(stream, Newcomer::Remote(waiting), serving.clone())
        }));
        let ways = Arc::new(post::NodeWays(shared.clone()));
        tasks.spawn(sealbus_keeping::post::run(shared.post.clone(), ways));
        tasks.spawn(shared.channel_logs.clone().tidy());
        tasks.spawn(supervisor::tend_logs(shared.clone()));
        tasks.spawn(disk::watch(shared.clone()));
        tasks.spawn(session::report(shared.clone(), queue));
        tasks.spawn(alarm::run(shared.clone()));
        let (end, ended) = watch::channel(false);
        tasks.spawn(session::run(shared.clone(), joined, source, end));
        if let Some(listener) = metrics {
            tasks.spawn(metrics::serve(listener, shared.clone()));
        }
        tracing::info!(node = %shared.name, address = %shared.address(), "the node is there");
        Ok(Self {
            shared,
            tasks,
            ended,
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The number of agents in the node's copy of the directory.
    pub fn known_agents(&self) -> usize {
        self.shared.replica.lock().agents()
    }

    /// Ends all its processes, and the node. The Master places its agents elsewhere.
    pub fn leave(&self, grace: Duration) {
        self.shared.leave(Leave {
            grace,
            is_masters: false,
        });
    }

    /// Waits until the node has left, after [`Node::leave`] or because the Master ended it.
    pub async fn left(&self) {
        let mut ended = self.ended.clone();
        // An error means that the task is gone, and the node with it.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Ends the node's tasks and waits for them. Its processes go on running.
    pub async fn abandon(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The journal is closed here, because the node may be restarted and open it before the tasks of this one have
        // ended.
        self.shared.journal.close();
    }
}

/// Checks that no node runs with this state directory.
fn check_free(directory: &Path) -> Result<(), NodeError> {
    match is_listening(&socket_of(directory)) {
        true => Err(NodeError::InUse(directory.to_owned())),
        false => Ok(()),
    }
}

/// Listens on the same port as before, so that programs find their node again; or on another one, if that port is taken.
async fn listen_for_tickets(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    match bind(SocketAddr::new(address, port)).await {
        Err(error) if port != 0 && error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(%error, "programs that came with tickets cannot come back");
            bind(SocketAddr::new(address, 0)).await
        }
        other => other,
    }
}

fn describe(address: IpAddr) -> NodeDescription {
    let system = rustix::system::uname();
    NodeDescription {
        address,
        host: system.nodename().to_string_lossy().into_owned(),
        processors: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        isolation: None,
    }
}

fn root_of(joined: &Joined, fingerprint: Fingerprint) -> Result<Vec<u8>, NodeError> {
    let roots = joined.platform.roots.iter();
    let mut fitting = roots.filter(|root| Fingerprint::of(&root.0) == fingerprint);
    fitting
        .next()
        .map(|root| root.0.clone())
        .ok_or(NodeError::AnotherRoot)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_second_node_does_not_ask_the_master_for_the_place_of_one_that_runs() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_owned();
        let master = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (credential, root) = testing::certified();
        let enrolment = Enrolment {
            platform: "factory".parse().unwrap(),
            addresses: vec![master.local_addr().unwrap().to_string()],
            root: Fingerprint::of(&root),
        };
        let memory = Memory::open(&directory).unwrap();
        memory
            .keep_identity("node-1", &enrolment, &credential)
            .unwrap();
        let socket = socket_of(&directory);
        std::fs::create_dir(socket.parent().unwrap()).unwrap();
        let _running = UnixListener::bind(&socket).unwrap();
        let second = Node::start(NodeConfig {
            directory: directory.clone(),
            token: None,
            join: None,
            name: None,
            address: [127, 0, 0, 1].into(),
            isolation: testing::no_isolation(),
            metrics: None,
        });
        tokio::select! {
            started = second => match started.err() {
                Some(NodeError::InUse(named)) => assert_eq!(named, directory),
                other => panic!("{other:?}"),
            },
            _ = master.accept() => panic!("the Master was asked"),
        }
    }
}
