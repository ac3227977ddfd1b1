//! `up`: a Master in this process, its local nodes as processes of their own, and the manifest's agents.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use sealbus_control::Login;
use sealbus_control::Rules;
use sealbus_control::admin::{NodeState, ask};
use sealbus_manifest::{BrokerEntry, Manifest, RabbitEntry, ReadError, WitnessEntry};
use sealbus_master::{
    BrokerChoice, Master, MasterConfig, MasterError, OutsideWitness, PlatformSettings,
    RabbitSettings,
};
use sealbus_seal::{PlatformName, SecurityLevel};
use serde_json::json;

use super::local_node::LocalNodes;
use super::run::{EndSignals, GRACE, log, log_as_text, log_warnings};
use super::store;
use super::up_attached;
use super::up_detached::{self, Told};
use super::window;
use crate::arguments::{General, Up};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::output::Output;

/// The manifest that is used when none is named.
pub(super) const MANIFEST: &str = "platform.toml";
/// Stands for a manifest that is read from standard input.
const STANDARD_INPUT: &str = "-";
/// Most bytes of a manifest from standard input.
const MANIFEST_LENGTH: u64 = 16 << 20;
/// Name of a platform without a manifest.
const UNNAMED: &str = "local";
/// How long the local nodes may take to join before the agents are started without them.
const JOINING: Duration = Duration::from_secs(30);

/// `sealbus up MANIFEST`
pub(crate) async fn up(general: &General, up: &Up, output: Output) -> Result<(), CliError> {
    let manifest = manifest(general, up.manifest.as_deref())?;
    let settings = settings(&manifest, up.level)?;
    if up.check {
        let told = json!({ "platform": manifest.platform.name, "agents": manifest.agents.len() });
        output.show(&told, || {
            format!("the manifest of {} is good", manifest.platform.name)
        });
        return Ok(());
    }
    let directory = directory_of(general, &manifest.platform.name)?;
    if up.detach {
        if up.manifest.as_deref() == Some(Path::new(STANDARD_INPUT)) {
            return Err(CliError::Usage {
                message: "a detached platform does not read standard input".to_owned(),
                help: "write the manifest to a file: `sealbus up platform.toml --detach`"
                    .to_owned(),
            });
        }
        return up_detached::up(general, up, &directory, output).await;
    }
    let follows = !up.log && !up.detached && !output.is_json() && std::io::stdout().is_terminal();
    if up.detached {
        // Begins a new session, so that the end of the terminal does not concern it. This fails only if the process
        // already leads one.
        let _ = rustix::process::setsid();
        log_as_text(output);
    } else if follows {
        log_warnings(output);
    } else {
        log(output);
    }
    let mut signals = EndSignals::catch()?;
    let level = settings.level;
    let address = up.address.unwrap_or(manifest.platform.address);
    let master = Master::start(MasterConfig {
        directory: directory.clone(),
        settings,
        address,
        port: manifest.platform.port,
        enrolment_port: manifest.platform.enrolment_port,
        metrics: manifest.telemetry.metrics,
        accept_clock: up.accept_clock,
    })
    .await?;
    let nodes = LocalNodes::keep(&manifest, &directory, address, &up.isolation)?;
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
    let told = Told {
        platform: manifest.platform.name.clone(),
        level,
        state: directory,
        enrolment: master.enrolment_address(),
        address: master.address(),
    };
    told.show(output, "Ctrl-C ends it");
    let state = told.state;
    let started = up.window.then(|| window::start(&state, output)).transpose();
    let _window = started.unwrap_or_else(|error| {
        tracing::warn!("there is no window: {error}");
        None
    });
    let following = async {
        if follows && let Err(error) = up_attached::follow(&state).await {
            tracing::warn!("what agents print is not shown any more: {error}");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = signals.told() => {}
        () = master.ended() => {}
        () = following => {}
        over = master.superseded() => {
            // The agents belong to the Master that leads now. Only the processes that run here end.
            nodes.stop_keeping();
            master.abandon().await;
            nodes.end().await?;
            return Err(over.into());
        }
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

pub(super) fn manifest(general: &General, path: Option<&Path>) -> Result<Manifest, CliError> {
    let default = Path::new(MANIFEST);
    let path = path.or_else(|| default.exists().then_some(default));
    if path == Some(Path::new(STANDARD_INPUT)) {
        let mut text = String::new();
        let read = std::io::stdin()
            .take(MANIFEST_LENGTH)
            .read_to_string(&mut text);
        read.map_err(CliError::file("read", "standard input"))?;
        let parsed = Manifest::parse("standard input", &text, Path::new("."));
        return parsed.map_err(CliError::Manifest);
    }
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
    let (highest, transport) = match manifest.rabbitmq {
        Some(_) => (SecurityLevel::Auth, "RabbitMQ"),
        None => (SecurityLevel::Signed, "the mesh"),
    };
    if level > highest {
        return Err(usage(
            format!("{transport} does not reach the level {level}: its highest is {highest}"),
            "choose a lower level, or another transport",
        ));
    }
    let mut settings = PlatformSettings::new(name);
    settings.level = level;
    settings.certificate_lifetime = Duration::from_secs(entry.certificate_lifetime);
    settings.max_message = entry.max_message;
    settings.rabbitmq = manifest.rabbitmq.as_ref().map(rabbitmq).transpose()?;
    settings.etcd = store::etcd(manifest);
    let witnesses = manifest.witnesses.iter().map(witness);
    settings.witnesses = witnesses.collect::<Result<_, _>>()?;
    settings.rules = Rules {
        permission: manifest.permission.clone(),
        channels: manifest.channels.clone(),
    };
    Ok(settings)
}

fn witness(entry: &WitnessEntry) -> Result<OutsideWitness, CliError> {
    Ok(OutsideWitness {
        host: entry.host.clone(),
        path: entry.path.clone(),
        key: entry.key.parse().map_err(|error| CliError::Failed {
            message: format!("the witness {}: {error}", entry.host),
            help: Some("change the manifest".to_owned()),
        })?,
    })
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
            let password = std::fs::read_to_string(password_file)
                .map_err(CliError::file("read", password_file))?;
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
    let request = ask::Apply {
        wanted: Box::new(manifest.clone()),
        agreed: None,
        grace: 0,
    };
    connection.ask(request).await
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
            help: Some("`sealbus doctor` examines this machine".to_owned()),
        }
    }
}
