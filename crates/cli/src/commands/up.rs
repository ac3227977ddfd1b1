//! `up`: a Master in this process, its local nodes as processes of their own, and the manifest's agents.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use sealbus_control::Rules;
use sealbus_control::admin::{NodeState, ask};
use sealbus_manifest::{Manifest, WitnessEntry};
use sealbus_master::{
    Elected, Master, MasterConfig, MasterError, OutsideWitness, PlatformSettings,
};
use sealbus_seal::{PlatformName, SecurityLevel};
use serde_json::json;

use super::local_node::LocalNodes;
use super::manifest::manifest;
use super::run::{EndSignals, GRACE, log, log_as_text, log_warnings};
use super::store;
use super::up_attached;
use super::up_detached::{self, PlatformUp, StandsBy};
use super::up_join;
use super::window;
use crate::arguments::{General, Up};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// How long the local nodes may take to join before the agents are started without them.
const JOINING: Duration = Duration::from_secs(30);
/// The pause before a store that cannot be reached is tried again.
const AWAY: Duration = Duration::from_secs(1);

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
    if let Some(invitation) = &up.join {
        up_join::join(&directory, &manifest.platform, invitation, output).await?;
    }
    if up.detach {
        if up.manifest.as_deref().is_some_and(input::is_standard) {
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
    let config = MasterConfig {
        directory: directory.clone(),
        settings,
        address,
        port: manifest.platform.port,
        enrolment_port: manifest.platform.enrolment_port,
        metrics: manifest.telemetry.metrics,
        accept_clock: up.accept_clock,
    };
    let mut nodes = None;
    let mut before = Before::Nothing;
    loop {
        let waits = |leader: &str| {
            let stands_by = StandsBy {
                platform: manifest.platform.name.clone(),
                state: directory.clone(),
                stands_by: true,
                leader: leader.to_owned(),
            };
            stands_by.show(output);
        };
        let elected = tokio::select! {
            elected = elect(&config, before, waits) => elected,
            () = signals.told() => Err(MasterError::Over),
        };
        let elected = match elected {
            Ok(elected) => elected,
            Err(error) => {
                end_nodes(nodes).await?;
                return match error {
                    MasterError::Over => Ok(()),
                    error => Err(error.into()),
                };
            }
        };
        // A Master that has led before goes on with the platform as it is now, even if nobody led in between.
        let taken_over = before != Before::Nothing || elected.has_waited();
        let master = Master::lead(config.clone(), elected).await?;
        let kept = match nodes.take() {
            Some(nodes) => nodes,
            None => {
                // Moves this process out of the control group that the nodes want to divide. If that fails, they do
                // without controllers.
                let _ = sealbus_node::settle();
                LocalNodes::keep(&manifest, &directory, address, &up.isolation)?
            }
        };
        let started = tokio::select! {
            started = start_agents(&directory, &manifest, taken_over, up.detached) => started,
            // The Master that leads now starts the rest.
            _ = master.superseded() => Ok(()),
            () = signals.told() => {
                return end(master, kept).await;
            }
        };
        if let Err(error) = started {
            if let Err(also) = end(master, kept).await {
                tracing::error!("{also}");
            }
            return Err(error);
        }
        let told = PlatformUp {
            platform: manifest.platform.name.clone(),
            level,
            state: directory.clone(),
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
        before = tokio::select! {
            () = signals.told() => return end(master, kept).await,
            () = master.ended() => return end(master, kept).await,
            () = following => return end(master, kept).await,
            over = master.superseded() => {
                tracing::warn!("{over}; this Master stands by");
                // The agents belong to the Master that leads now, and so do the nodes.
                master.abandon().await;
                Before::Deposed
            }
            () = master.handing_over() => {
                tracing::info!("this Master hands over, and stands by");
                master.hand_over().await;
                Before::HandedOver
            }
        };
        nodes = Some(kept);
    }
}

/// How the leadership before ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There was no leadership before.
    Nothing,
    /// Another Master took over.
    Deposed,
    /// This Master handed over.
    HandedOver,
}

/// Waits until this Master may lead. A Master that has led does not give up when the store cannot be reached.
async fn elect(
    config: &MasterConfig,
    before: Before,
    mut waits: impl FnMut(&str),
) -> Result<Elected, MasterError> {
    loop {
        let yields = before == Before::HandedOver;
        match Master::stand_by(config, yields, &mut waits).await {
            Err(error) if before != Before::Nothing && error.is_away() => {
                tracing::warn!("{error}");
                tokio::time::sleep(AWAY).await;
            }
            result => return result,
        }
    }
}

async fn end_nodes(nodes: Option<LocalNodes>) -> Result<(), CliError> {
    match nodes {
        Some(nodes) => nodes.end().await,
        None => Ok(()),
    }
}

/// Ends the agents, the nodes and the Master, in this order. If another Master stands by, it leads from now on, and the
/// platform goes on.
async fn end(master: Master, nodes: LocalNodes) -> Result<(), CliError> {
    // No node is started any more.
    nodes.stop_keeping();
    if !master.is_ended() && master.has_standby() {
        tracing::info!("another Master stands by, and leads from now on");
        master.hand_over().await;
    } else {
        master.shut_down(GRACE).await;
    }
    // This includes nodes that the Master does not know yet.
    nodes.end().await
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
    let mut settings = PlatformSettings::new(name);
    settings.level = level;
    settings.signatures = entry.signatures;
    settings.certificate_lifetime = Duration::from_secs(entry.certificate_lifetime);
    settings.workload_issuer = entry.workload_issuer.clone();
    settings.max_message = entry.max_message;
    let broker = manifest.broker.as_ref().map(|broker| broker.settings());
    settings.broker = broker
        .transpose()
        .map_err(|unread| CliError::file("read", unread.file)(unread.error))?;
    settings.etcd = store::etcd(manifest);
    let witnesses = manifest.witnesses.iter().map(witness);
    settings.witnesses = witnesses.collect::<Result<_, _>>()?;
    settings.rules = Rules {
        permission: manifest.permission.clone(),
        channels: manifest.channels.clone(),
        evidence: manifest.evidence.clone(),
        tap: manifest.tap.clone(),
        ..Rules::default()
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

/// Waits for the local nodes, so that the agents are spread over all of them, and starts the manifest's agents. If nodes are
/// missing, it fails if `detached`, because nobody would notice.
async fn start_agents(
    directory: &Path,
    manifest: &Manifest,
    taken_over: bool,
    detached: bool,
) -> Result<(), CliError> {
    let mut connection = Connection::to(directory).await?;
    let deadline = Instant::now() + JOINING;
    loop {
        let nodes = connection.list(ask::Nodes::default()).await?;
        let alive = nodes
            .iter()
            .filter(|node| node.state == NodeState::Alive)
            .count();
        let wanted = manifest.platform.nodes as usize;
        if alive >= wanted {
            break;
        }
        if Instant::now() > deadline {
            if detached && !taken_over {
                return Err(CliError::Failed {
                    message: format!("{alive} of {wanted} local nodes are there"),
                    help: Some(
                        "the others' logs are in the state directory: node-1/node.log".to_owned(),
                    ),
                });
            }
            tracing::warn!(alive, wanted, "not all local nodes are there yet");
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let request = ask::Apply {
        wanted: Box::new(manifest.clone()),
        agreed: None,
        grace: 0,
        taken_over,
    };
    connection.ask(request).await
}
