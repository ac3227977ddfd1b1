//! The nodes on the Master's machine. `up` starts them, keeps them running, and ends them.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealbus_control::admin::ask;
use sealbus_control::local::check_socket_path;
use sealbus_files::folder;
use sealbus_manifest::Manifest;
use sealbus_node::{LeftBehind, end_left_behind, log_of, set_aside, socket_of};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::run::GRACE;
use crate::arguments::IsolationArguments;
use crate::connection::Connection;
use crate::error::CliError;

/// How long a local node's token may be used, in seconds.
const TOKEN_LIFETIME: u64 = 60;
/// The first and the longest pause before a local node that ended is started again. The pause doubles each time.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long a node may take to end after it was told to.
const ENDING: Duration = Duration::from_secs(15);
/// How often a process that is not a child is checked for its end.
const LOOK: Duration = Duration::from_millis(20);

/// The state requested of the local nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    /// Run, and start again after an end.
    Run,
    /// Start no more. The Master ends the nodes that it knows.
    Rest,
    /// End.
    End,
}

/// All local nodes.
pub(super) struct LocalNodes {
    keepers: JoinSet<Result<Vec<LeftBehind>, CliError>>,
    wish: watch::Sender<Wish>,
}

impl LocalNodes {
    /// Starts the nodes that the manifest asks for, and restarts them when they end.
    pub(super) fn keep(
        manifest: &Manifest,
        platform: &Path,
        address: IpAddr,
        isolation: &IsolationArguments,
    ) -> Result<Self, CliError> {
        let wish = watch::Sender::new(Wish::Run);
        let mut keepers = JoinSet::new();
        for number in 1..=manifest.platform.nodes {
            let mut node = LocalNode::new(number, platform, address, isolation)?;
            node.metrics = manifest.telemetry.metrics_of_node(number);
            keepers.spawn(node.keep(wish.subscribe()));
        }
        Ok(Self { keepers, wish })
    }

    /// Lets no node be started any more.
    pub(super) fn stop_keeping(&self) {
        self.wish.send_replace(Wish::Rest);
    }

    /// Ends the nodes that still run, including one that has only just started, and the agents of nodes that were
    /// killed. Returns when all have ended.
    pub(super) async fn end(mut self) -> Result<(), CliError> {
        self.wish.send_replace(Wish::End);
        let mut still_run = Vec::new();
        let mut failed = None;
        while let Some(ended) = self.keepers.join_next().await {
            let ended = ended.unwrap_or_else(|error| {
                Err(CliError::Failed {
                    message: format!("a local node could not be ended: {error}"),
                    help: None,
                })
            });
            match ended {
                Ok(left_behind) => still_run.extend(left_behind),
                Err(error) => failed = Some(error),
            }
        }
        still_run.retain(|program| program.still_runs);
        if !still_run.is_empty() {
            let names = still_run.iter();
            let names = names.map(|program| format!("{} (pid {})", program.group, program.pid));
            let names: Vec<String> = names.collect();
            return Err(CliError::Failed {
                message: format!("these programs could not be ended: {}", names.join(", ")),
                help: Some("end them by hand: kill -9".to_owned()),
            });
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A node on the Master's machine. It is a process of its own, and outlives a Master that is killed.
struct LocalNode {
    program: PathBuf,
    name: String,
    address: String,
    platform: PathBuf,
    directory: PathBuf,
    isolation: IsolationArguments,
    metrics: Option<SocketAddr>,
}

impl LocalNode {
    fn new(
        number: u32,
        platform: &Path,
        address: IpAddr,
        isolation: &IsolationArguments,
    ) -> Result<Self, CliError> {
        let failed = CliError::file("find", "this program");
        let name = format!("node-{number}");
        let directory = platform.join(&name);
        let socket = socket_of(&directory);
        check_socket_path(&socket).map_err(CliError::file("listen on", socket))?;
        Ok(Self {
            program: std::env::current_exe().map_err(failed)?,
            directory,
            name,
            address: address.to_string(),
            platform: platform.to_owned(),
            isolation: isolation.clone(),
            metrics: None,
        })
    }

    /// The process that already runs this node, for example after the end of an earlier Master.
    async fn running(&self) -> Option<Pid> {
        let stream = UnixStream::connect(socket_of(&self.directory)).await;
        Pid::from_raw(stream.ok()?.peer_cred().ok()?.pid()?)
    }

    async fn start(&self) -> Result<Child, CliError> {
        let request = ask::Token {
            node: Some(self.name.clone()),
            lifetime: TOKEN_LIFETIME,
            master: false,
        };
        let issued = Connection::to(&self.platform).await?.ask(request).await?;
        folder(&self.directory).map_err(CliError::file("create", &self.directory))?;
        let path = log_of(&self.directory);
        // The node does the same while it runs.
        if let Err(error) = set_aside(&path) {
            tracing::warn!(node = self.name, %error, "its log cannot be set aside");
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        let log = log.map_err(CliError::file("open", &path))?;
        let twin = log.try_clone().map_err(CliError::file("open", &path))?;
        let mut command = Command::new(&self.program);
        command
            .args([
                "node",
                "--name",
                &self.name,
                "--address",
                &self.address,
                "--state",
            ])
            .arg(&self.directory)
            .arg("--hide")
            .arg(&self.platform)
            .args(["--uids", &self.isolation.uids.to_string()]);
        if let Some(mode) = self.isolation.isolation {
            command.args(["--isolation", mode.as_str()]);
        }
        if let Some(metrics) = self.metrics {
            command.args(["--metrics", &metrics.to_string()]);
        }
        command
            .env("SEALBUS_TOKEN", issued.token)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(twin)
            // Ctrl-C is for the Master, which ends its nodes after their agents have left.
            .process_group(0)
            .spawn()
            .map_err(CliError::file("start", &self.program))
    }

    /// Keeps the node running until it must end, and ends it then. If the node was killed, the programs it left behind
    /// are returned.
    async fn keep(self, wish: watch::Receiver<Wish>) -> Result<Vec<LeftBehind>, CliError> {
        self.run(wish).await;
        let ended = end_left_behind(&self.directory, GRACE).await;
        let ended = ended.map_err(|error| CliError::Failed {
            message: error.to_string(),
            help: Some(format!(
                "see with `ps` whether programs of {} still run",
                self.name
            )),
        })?;
        for program in &ended {
            tracing::warn!(
                node = self.name,
                program = program.group,
                pid = program.pid,
                "had lost its node, and was ended"
            );
        }
        Ok(ended)
    }

    async fn run(&self, mut wish: watch::Receiver<Wish>) {
        let mut pause = AGAIN.0;
        loop {
            if *wish.borrow() >= Wish::Rest {
                end(&mut wish).await;
                return self.end_running().await;
            }
            if self.running().await.is_some() {
                wait(AGAIN.0, &mut wish).await;
                continue;
            }
            // The child process appears at the very end of starting, so none is lost if starting is given up.
            let started = tokio::select! {
                started = self.start() => started,
                () = end(&mut wish) => continue,
            };
            match started {
                Ok(mut child) => {
                    let began = Instant::now();
                    let ended = tokio::select! {
                        ended = child.wait() => Some(ended),
                        () = end(&mut wish) => None,
                    };
                    let Some(ended) = ended else {
                        return self.end_child(child).await;
                    };
                    if *wish.borrow() == Wish::Run {
                        tracing::warn!(
                            node = self.name,
                            ?ended,
                            "a local node ended; its log is in {}",
                            self.directory.display()
                        );
                    }
                    if began.elapsed() > AGAIN.1 {
                        pause = AGAIN.0;
                    }
                }
                Err(error) => {
                    tracing::warn!(node = self.name, %error, "a local node cannot be started")
                }
            }
            wait(pause, &mut wish).await;
            pause = (pause * 2).min(AGAIN.1);
        }
    }

    async fn end_child(&self, mut child: Child) {
        if let Some(pid) = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(GRACE + ENDING, child.wait())
            .await
            .is_err()
        {
            tracing::warn!(node = self.name, "did not end, and is ended by force");
            let _ = child.kill().await;
        }
    }

    /// Ends the node if it is not a child of this process.
    async fn end_running(&self) {
        let until = Instant::now() + GRACE + ENDING;
        let mut told = None;
        while let Some(pid) = self.running().await {
            let signal = match told {
                Some(known) if known == pid && Instant::now() < until => None,
                Some(known) if known == pid => Some(Signal::KILL),
                _ => Some(Signal::TERM),
            };
            if let Some(signal) = signal {
                let _ = kill_process(pid, signal);
                told = Some(pid);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits until the nodes must end. An error would mean that nobody is left to end them.
async fn end(wish: &mut watch::Receiver<Wish>) {
    let _ = wish.wait_for(|wish| *wish == Wish::End).await;
}

/// Waits for the pause, or until something other than running is requested.
async fn wait(pause: Duration, wish: &mut watch::Receiver<Wish>) {
    let _ = tokio::time::timeout(pause, wish.wait_for(|wish| *wish != Wish::Run)).await;
}
