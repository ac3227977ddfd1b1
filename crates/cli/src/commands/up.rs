//! `up`: a Master in this process, its local nodes as processes of their own, and the manifest's agents.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sealbus_platform::control::Login;
use sealbus_platform::control::Rules;
use sealbus_platform::control::admin::{AdminAnswer, AdminRequest, NodeState};
use sealbus_platform::manifest::{BrokerEntry, Manifest, RabbitEntry, ReadError};
use sealbus_platform::master::{
    BrokerChoice, Master, MasterConfig, MasterError, PlatformSettings, RabbitSettings,
};
use sealbus_seal::{PlatformName, SecurityLevel};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::run::{GRACE, log, told_to_end};
use super::unexpected;
use crate::arguments::{General, Up};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::output::Output;

/// The manifest looked for when none is named.
const MANIFEST: &str = "platform.toml";
/// Name of a platform without a manifest.
const UNNAMED: &str = "local";
/// How long the local nodes may take to join before the agents are started without them.
const JOINING: Duration = Duration::from_secs(30);
/// How long a local node's token may be used, in seconds.
const TOKEN_LIFETIME: u64 = 60;
/// Pause before a local node that ended is started again: the first, and the longest as it doubles.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// `sealbus up MANIFEST`
pub(crate) async fn up(general: &General, up: &Up, output: Output) -> Result<(), CliError> {
    let manifest = manifest(general, up)?;
    let settings = settings(&manifest, up.level)?;
    if up.check {
        let told = json!({ "platform": manifest.platform.name, "agents": manifest.agents.len() });
        output.show(&told, || {
            format!("the manifest of {} is good", manifest.platform.name)
        });
        return Ok(());
    }
    log(output);
    let directory = directory_of(general, &manifest.platform.name)?;
    let level = settings.level;
    let master = Master::start(MasterConfig {
        directory: directory.clone(),
        settings,
        address: manifest.platform.address,
        port: manifest.platform.port,
        enrolment_port: manifest.platform.enrolment_port,
    })
    .await?;
    let mut nodes = JoinSet::new();
    for number in 1..=manifest.platform.nodes {
        nodes.spawn(keep_node(LocalNode::new(number, &directory, &manifest)?));
    }
    let started = tokio::select! {
        started = start_agents(&directory, &manifest) => started,
        told = told_to_end() => {
            end(&master, nodes).await;
            return told;
        }
    };
    if let Err(error) = started {
        end(&master, nodes).await;
        return Err(error);
    }
    let told = json!({
        "platform": manifest.platform.name,
        "level": level,
        "state": directory,
        "enrolment": master.enrolment_address(),
        "address": master.address(),
    });
    output.line(&told, || {
        format!(
            "{} is up at level {level}; its state is in {}\nother machines join at {}: `sealbus token`\n\
             look around with `sealbus ps`, `sealbus ca log`, `sealbus logs AGENT --follow`; Ctrl-C ends it",
            manifest.platform.name,
            directory.display(),
            master.enrolment_address()
        )
    });
    let told = tokio::select! {
        told = told_to_end() => told,
        () = master.ended() => Ok(()),
    };
    end(&master, nodes).await;
    told
}

/// Ends the agents, the nodes and the Master, in this order.
async fn end(master: &Master, mut nodes: JoinSet<()>) {
    // The keepers first, so that they do not start again what is being ended.
    nodes.shutdown().await;
    master.shut_down(GRACE).await;
}

fn manifest(general: &General, up: &Up) -> Result<Manifest, CliError> {
    let default = Path::new(MANIFEST);
    let path = up
        .manifest
        .as_deref()
        .or_else(|| default.exists().then_some(default));
    if let Some(path) = path {
        return Ok(Manifest::read(path)?);
    }
    let name = general.platform.as_deref().unwrap_or(UNNAMED);
    let text = format!("[platform]\nname = {}\n", serde_json::Value::from(name));
    Manifest::parse("the command line", &text, Path::new("."))
        .map_err(|mistakes| CliError::from(ReadError::from(mistakes)))
}

fn settings(
    manifest: &Manifest,
    level: Option<SecurityLevel>,
) -> Result<PlatformSettings, CliError> {
    let usage = |message: String, help: &str| CliError::Failed {
        message,
        help: Some(help.to_owned()),
    };
    let entry = &manifest.platform;
    let name = PlatformName::new(&entry.name)
        .map_err(|error| usage(error.to_string(), "give the platform another name"))?;
    let level = match level {
        Some(level) => level,
        None => entry
            .level
            .parse()
            .map_err(|error| usage(format!("{error}"), "change the manifest"))?,
    };
    if level > SecurityLevel::Auth {
        return Err(usage(
            format!("no transport of this version reaches the level {level}"),
            "choose none, tls or auth",
        ));
    }
    let mut settings = PlatformSettings::new(name);
    settings.level = level;
    settings.certificate_lifetime = Duration::from_secs(entry.certificate_lifetime);
    settings.max_message = entry.max_message;
    settings.rabbitmq = manifest.rabbitmq.as_ref().map(rabbitmq).transpose()?;
    settings.rules = Rules {
        permission: manifest.permission.clone(),
        channels: manifest.channels.clone(),
    };
    Ok(settings)
}

/// The broker of the manifest, with the operator's password.
fn rabbitmq(entry: &RabbitEntry) -> Result<RabbitSettings, CliError> {
    let broker = match &entry.broker {
        BrokerEntry::Managed => BrokerChoice::Managed,
        BrokerEntry::Existing {
            addresses,
            management,
            operator,
            password_file,
        } => {
            let password =
                std::fs::read_to_string(password_file).map_err(|source| CliError::File {
                    action: "read",
                    path: password_file.into(),
                    source,
                })?;
            BrokerChoice::Existing {
                addresses: addresses.clone(),
                management: management.clone(),
                operator: Login {
                    user: operator.clone(),
                    password: password.trim_end().to_owned(),
                },
            }
        }
    };
    Ok(RabbitSettings {
        broker,
        message_life: entry.message_life.map(Duration::from_secs),
    })
}

/// Waits for the local nodes, so that the agents are spread over all of them, and starts what the manifest names.
async fn start_agents(directory: &Path, manifest: &Manifest) -> Result<(), CliError> {
    let mut connection = Connection::to(directory).await?;
    let deadline = Instant::now() + JOINING;
    loop {
        let AdminAnswer::Nodes { nodes } = connection.ask(AdminRequest::Nodes).await? else {
            return Err(unexpected());
        };
        let alive = nodes
            .iter()
            .filter(|node| node.state == NodeState::Alive)
            .count();
        if alive >= manifest.platform.nodes as usize {
            break;
        }
        if Instant::now() > deadline {
            tracing::warn!(
                alive,
                wanted = manifest.platform.nodes,
                "not all local nodes are there yet"
            );
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut agents = manifest.agents.clone();
    if let Some(gateway) = &manifest.gateway {
        let program = std::env::current_exe().map_err(|source| CliError::File {
            action: "find",
            path: "this program".into(),
            source,
        })?;
        agents.insert(0, gateway.agent(&program.display().to_string()));
    }
    connection.ask(AdminRequest::Start { agents }).await?;
    Ok(())
}

/// A node on the Master's machine: a process of its own, which outlives a Master that is killed.
struct LocalNode {
    program: PathBuf,
    name: String,
    address: String,
    platform: PathBuf,
    directory: PathBuf,
}

impl LocalNode {
    fn new(number: u32, platform: &Path, manifest: &Manifest) -> Result<Self, CliError> {
        let failed = |source| CliError::File {
            action: "find",
            path: "this program".into(),
            source,
        };
        let name = format!("node-{number}");
        Ok(Self {
            program: std::env::current_exe().map_err(failed)?,
            directory: platform.join(&name),
            name,
            address: manifest.platform.address.to_string(),
            platform: platform.to_owned(),
        })
    }

    /// Whether it runs already, as after the end of a Master before this one.
    async fn is_running(&self) -> bool {
        UnixStream::connect(self.directory.join("node.sock"))
            .await
            .is_ok()
    }

    async fn start(&self) -> Result<Child, CliError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| CliError::File {
                action,
                path,
                source,
            }
        };
        let request = AdminRequest::Token {
            node: Some(self.name.clone()),
            lifetime: TOKEN_LIFETIME,
        };
        let token = match Connection::to(&self.platform).await?.ask(request).await? {
            AdminAnswer::Secret { token, .. } => token,
            _ => return Err(unexpected()),
        };
        std::fs::create_dir_all(&self.directory).map_err(failed("create", &self.directory))?;
        let path = self.directory.join("node.log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        let log = log.map_err(failed("open", &path))?;
        let twin = log.try_clone().map_err(failed("open", &path))?;
        Command::new(&self.program)
            .args([
                "node",
                "--name",
                &self.name,
                "--address",
                &self.address,
                "--state",
            ])
            .arg(&self.directory)
            .env("SEALBUS_TOKEN", token)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(twin)
            // Ctrl-C is for the Master, which ends its nodes when their agents have left.
            .process_group(0)
            .spawn()
            .map_err(failed("start", &self.program))
    }
}

/// Starts a local node, and again when it has ended.
async fn keep_node(node: LocalNode) {
    let mut pause = AGAIN.0;
    loop {
        if node.is_running().await {
            tokio::time::sleep(AGAIN.0).await;
            continue;
        }
        match node.start().await {
            Ok(mut child) => {
                let began = Instant::now();
                let ended = child.wait().await;
                tracing::warn!(
                    node = node.name,
                    ?ended,
                    "a local node ended; its log is in {}",
                    node.directory.display()
                );
                if began.elapsed() > AGAIN.1 {
                    pause = AGAIN.0;
                }
            }
            Err(error) => {
                tracing::warn!(node = node.name, %error, "a local node cannot be started")
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        Self::Located(Box::new(error))
    }
}

impl From<MasterError> for CliError {
    fn from(error: MasterError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: None,
        }
    }
}
