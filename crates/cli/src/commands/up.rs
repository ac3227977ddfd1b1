//! `up`: a Master in this process, its local nodes as processes of their own, and the manifest's agents.

use std::path::Path;
use std::time::{Duration, Instant};

use sealbus_control::Login;
use sealbus_control::Rules;
use sealbus_control::admin::{NodeState, ask};
use sealbus_manifest::{BrokerEntry, Manifest, RabbitEntry, ReadError};
use sealbus_master::{
    BrokerChoice, Master, MasterConfig, MasterError, PlatformSettings, RabbitSettings,
};
use sealbus_seal::{PlatformName, SecurityLevel};
use serde_json::json;

use super::local_node::LocalNodes;
use super::run::{EndSignals, GRACE, log};
use crate::arguments::{General, Up};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::output::Output;

/// The manifest that is used when none is named.
const MANIFEST: &str = "platform.toml";
/// Name of a platform without a manifest.
const UNNAMED: &str = "local";
/// How long the local nodes may take to join before the agents are started without them.
const JOINING: Duration = Duration::from_secs(30);

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
    let mut signals = EndSignals::catch()?;
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
    let address = manifest.platform.address;
    let nodes = LocalNodes::keep(manifest.platform.nodes, &directory, address, &up.isolation)?;
    let started = tokio::select! {
        started = start_agents(&directory, &manifest) => started,
        () = signals.told() => {
            return end(&master, nodes).await;
        }
    };
    if let Err(error) = started {
        if let Err(also) = end(&master, nodes).await {
            tracing::error!("{also}");
        }
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
    tokio::select! {
        () = signals.told() => {}
        () = master.ended() => {}
    }
    end(&master, nodes).await
}

/// Ends the agents, the nodes and the Master, in this order.
async fn end(master: &Master, nodes: LocalNodes) -> Result<(), CliError> {
    // No node is started any more.
    nodes.stop_keeping();
    master.shut_down(GRACE).await;
    // This includes nodes that the Master does not know yet.
    nodes.end().await
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
    Manifest::parse("the command line", &text, Path::new(".")).map_err(CliError::Manifest)
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

/// The settings of the manifest's broker, with the operator's password.
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

/// Waits for the local nodes, so that the agents are spread over all of them, and starts the manifest's agents.
async fn start_agents(directory: &Path, manifest: &Manifest) -> Result<(), CliError> {
    let mut connection = Connection::to(directory).await?;
    let deadline = Instant::now() + JOINING;
    loop {
        let nodes = connection.ask(ask::Nodes).await?;
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
    connection.ask(ask::Start { agents }).await?;
    Ok(())
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unreadable { .. } => Self::Failed {
                message: error.to_string(),
                help: Some("name the file: sealbus up platform.toml".to_owned()),
            },
            ReadError::Mistakes(mistakes) => Self::Manifest(mistakes),
        }
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
