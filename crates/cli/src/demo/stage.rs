//! A platform of the demo's own: a Master with its CA service, two nodes and twenty agents, each a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sealbus_bus::milliseconds;
use sealbus_control::admin::{AgentStatus, Page, PlatformStatus, SendMessage, ServiceStatus, ask};
use sealbus_seal::SecurityLevel;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::process::{Child, Command};

use super::conversation::{RECEIVER, SENDER};
use crate::arguments::DemoTransport;
use crate::connection::Connection;
use crate::error::CliError;

/// Agents of each of the four kinds: senders and receivers, in Rust and in Python.
const EACH: u32 = 5;
/// Agents in all.
pub(crate) const AGENTS: u32 = 4 * EACH;
/// Remote Nodes.
pub(crate) const NODES: u32 = 2;

/// The platform's name.
pub(crate) const PLATFORM: &str = "demo";

/// How long anything may take before the demo gives up. On a busy machine a broker needs minutes to start.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A running platform. Its processes end when it is closed or dropped.
pub(crate) struct Stage {
    directory: PathBuf,
    level: SecurityLevel,
    transport: DemoTransport,
    master: Child,
}

impl Stage {
    /// Starts the platform and its agents in a directory of its own.
    pub(crate) async fn open(
        level: SecurityLevel,
        transport: DemoTransport,
        python: &Path,
    ) -> Result<Self, CliError> {
        let directory = sealbus_files::temporary(&format!("sealbus-demo-{level}"))
            .map_err(CliError::file("use", std::env::temp_dir()))?;
        let program = std::env::current_exe().map_err(CliError::file("find", "this program"))?;
        let manifest = directory.join("platform.toml");
        std::fs::write(
            &manifest,
            manifest_text(level, transport, &program, python)?,
        )
        .map_err(CliError::file("write", &manifest))?;
        let log = directory.join("master.log");
        let log_file = std::fs::File::create(&log).map_err(CliError::file("create", &log))?;
        let log_twin = log_file.try_clone().map_err(CliError::file("open", &log))?;
        let master = Command::new(&program)
            .arg("up")
            .arg(&manifest)
            .arg("--state")
            .arg(directory.join("state"))
            .stdin(Stdio::null())
            .stdout(log_file)
            .stderr(log_twin)
            .kill_on_drop(true)
            .spawn()
            .map_err(CliError::file("start", &program))?;
        let mut stage = Self {
            directory,
            level,
            transport,
            master,
        };
        let ready = stage.until(
            "the agents to register with the DF",
            async |stage: &mut Self| {
                let ready =
                    stage.services(SENDER).await?.len() + stage.services(RECEIVER).await?.len();
                Ok((ready == AGENTS as usize).then_some(()))
            },
        );
        if let Err(error) = ready.await {
            stage.abandon().await;
            return Err(error);
        }
        Ok(stage)
    }

    /// The platform's level.
    pub(crate) fn level(&self) -> SecurityLevel {
        self.level
    }

    /// The transport of its messages.
    pub(crate) fn transport(&self) -> DemoTransport {
        self.transport
    }

    /// The address of the platform's broker.
    pub(crate) async fn broker(&self) -> Result<Option<SocketAddr>, CliError> {
        let broker = self.connect().await?.ask(ask::Broker).await?;
        let first = broker.addresses.into_iter().next();
        Ok(first.and_then(|address| address.parse().ok()))
    }

    /// The directory with the platform's state, logs and manifest.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory with the platform's state.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// A new connection to the Master.
    pub(crate) async fn connect(&self) -> Result<Connection, CliError> {
        Connection::to(&self.state()).await
    }

    /// Looks again and again until there is a result, the Master ends, or the time is up.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&mut Self) -> Result<Option<T>, CliError>,
    ) -> Result<T, CliError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match look(self).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) | Err(CliError::NoPlatform { .. } | CliError::StandsBy { .. }) => {}
                Err(error) => return Err(error),
            }
            let ended = self.master.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                let why = match ended {
                    Some(status) => format!("the Master ended ({status})"),
                    None => format!("waited {} s in vain", PATIENCE.as_secs()),
                };
                return Err(CliError::Failed {
                    message: format!("level {}: {why} for {what}", self.level),
                    help: Some(format!("the logs are in {}", self.directory.display())),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The services of a type, found in the DF.
    pub(crate) async fn services(
        &self,
        service_type: &str,
    ) -> Result<Vec<ServiceStatus>, CliError> {
        let request = ask::DfSearch {
            service_type: Some(service_type.to_owned()),
            service_name: None,
            page: Page::default(),
        };
        self.connect().await?.list(request).await
    }

    /// The agents, by name.
    pub(crate) async fn agents(&self) -> Result<Vec<AgentStatus>, CliError> {
        self.connect().await?.list(ask::Agents::default()).await
    }

    /// The platform's status report.
    pub(crate) async fn status(&self) -> Result<PlatformStatus, CliError> {
        self.connect().await?.ask(ask::Status).await
    }

    /// Asks an agent in JSON, and reads the agent's answer.
    pub(crate) async fn converse<Answer: DeserializeOwned>(
        &self,
        agent: &str,
        performative: &str,
        content: &impl Serialize,
    ) -> Result<Answer, CliError> {
        let failed = |message: String| CliError::Failed {
            message,
            help: Some(format!(
                "see what it printed: the logs are in {}",
                self.directory.display()
            )),
        };
        let content = serde_json::to_string(content).map_err(|error| failed(error.to_string()))?;
        let message = SendMessage {
            performative: performative.to_owned(),
            receivers: vec![agent.to_owned()],
            content,
            language: Some("json".to_owned()),
            ontology: Some("sealbus-demo".to_owned()),
            protocol: None,
            wait: milliseconds(PATIENCE),
        };
        let mut master = self.connect().await?;
        let replies = master.ask(ask::Send { message }).await?;
        let reply = replies.first().ok_or_else(|| {
            failed(format!(
                "{agent} did not answer within {} s",
                PATIENCE.as_secs()
            ))
        })?;
        let reply =
            sealbus_fipa::string::decode(reply.as_bytes(), &sealbus_fipa::Limits::default())
                .map_err(|error| {
                    failed(format!("{agent} answered what cannot be read: {error}"))
                })?;
        let text = reply.content_text().unwrap_or_default();
        serde_json::from_str(text).map_err(|error| {
            failed(format!(
                "{agent} answered {text:?} ({}): {error}",
                reply.performative
            ))
        })
    }

    /// Ends the platform after something went wrong. Its directory stays.
    pub(crate) async fn abandon(mut self) {
        // The first error is the one that counts.
        let _ = self.end().await;
    }

    async fn end(&mut self) -> Result<(), CliError> {
        let grace = Duration::from_secs(3);
        let request = ask::Shutdown {
            grace: milliseconds(grace),
        };
        self.connect().await?.ask(request).await?;
        let ended = tokio::time::timeout(PATIENCE, self.master.wait()).await;
        if ended.is_err() {
            return Err(CliError::Failed {
                message: "the Master did not end when told to".to_owned(),
                help: Some(format!("the logs are in {}", self.directory.display())),
            });
        }
        Ok(())
    }

    /// Ends the platform and everything it started, and removes its directory.
    pub(crate) async fn close(mut self) -> Result<(), CliError> {
        self.end().await?;
        // A file that cannot be removed is in the temporary directory anyway.
        let _ = std::fs::remove_dir_all(&self.directory);
        Ok(())
    }
}

/// The manifest: twenty agents, half Python, half Rust, placed by the Master.
fn manifest_text(
    level: SecurityLevel,
    transport: DemoTransport,
    program: &Path,
    python: &Path,
) -> Result<String, CliError> {
    let quoted = |path: &Path| {
        path.to_str()
            .map(|path| serde_json::Value::from(path).to_string())
            .ok_or_else(|| CliError::Usage {
                message: format!("{} is not UTF-8", path.display()),
                help: "put it where the path is".to_owned(),
            })
    };
    let (rust, python) = (quoted(program)?, quoted(python)?);
    let mut text =
        format!("[platform]\nname = \"{PLATFORM}\"\nlevel = \"{level}\"\nnodes = {NODES}\n");
    if transport == DemoTransport::RabbitMq {
        text += "transport = \"rabbitmq\"\n\n[rabbitmq]\nmanaged = true\n";
    }
    for (language, command) in [
        ("rust", format!("{rust}, \"demo-agent\"")),
        (
            "python",
            format!("{python}, \"-m\", \"sealbus.demo_agent\""),
        ),
    ] {
        for role in ["sender", "receiver"] {
            text += &format!(
                "\n[[agent]]\nname = \"{language}-{role}\"\ncommand = [{command}, \"{role}\"]\nreplicas = {EACH}\n"
            );
        }
    }
    Ok(text)
}
