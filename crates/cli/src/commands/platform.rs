//! `status` and `down`: the platform as a whole.

use std::time::{Duration, Instant};

use sealbus_bus::milliseconds;
use sealbus_control::PlacedState;
use sealbus_control::admin::{AgentStatus, PlatformStatus, ask};
use serde::Serialize;
use serde_json::json;

use super::{instant, is_agent};
use crate::arguments::{Down, Status};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// How long the Master and its nodes may take to end, after the agents' time is over.
const ENDING: Duration = Duration::from_secs(60);
/// How often `down` looks whether the Master's process has ended.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    platform: PlatformStatus,
    /// The problems that the probe found.
    missing: Vec<String>,
}

/// `sealbus status`
pub(crate) async fn status(
    connection: &mut Connection,
    status: &Status,
    output: Output,
) -> Result<(), CliError> {
    let platform = connection.ask(ask::Status).await?;
    let mut missing = Vec::new();
    if platform.nodes < status.nodes {
        missing.push(format!(
            "{} of {} nodes are alive: see `sealbus nodes`",
            platform.nodes, status.nodes
        ));
    }
    if !status.agent.is_empty() {
        let agents = connection.list(ask::Agents::default()).await?;
        let absent = status
            .agent
            .iter()
            .filter_map(|name| absence(name, &agents));
        missing.extend(absent);
    }
    missing.extend(platform.alarms.iter().cloned());
    let whole = Whole { platform, missing };
    output.show(&whole, || text(&whole.platform));
    if whole.missing.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed {
        message: whole.missing.join("; "),
        help: None,
    })
}

/// Why an agent is not active, if it is not.
fn absence(name: &str, agents: &[AgentStatus]) -> Option<String> {
    let Some(agent) = agents.iter().find(|agent| is_agent(&agent.name, name)) else {
        return Some(format!("there is no agent {name}: see `sealbus ps`"));
    };
    match agent.state {
        Some(PlacedState::Active) => None,
        Some(state) => Some(format!(
            "{name} is {state}: see `sealbus describe agent {name}`"
        )),
        None => Some(format!("{name} has ended: see `sealbus logs {name}`")),
    }
}

fn text(platform: &PlatformStatus) -> String {
    let mut table = table(&["PLATFORM", &platform.name]);
    table.add_row(["level", &platform.level]);
    table.add_row(["version", &platform.version]);
    table.add_row(["up since", &instant(platform.since)]);
    table.add_row([
        "Master",
        &format!("pid {}, {}", platform.pid, platform.address),
    ]);
    table.add_row(["nodes join at", &platform.enrolment.to_string()]);
    table.add_row(["nodes alive", &platform.nodes.to_string()]);
    table.add_row(["agents alive", &platform.agents.to_string()]);
    table.add_row(["certificates issued", &platform.certificates.to_string()]);
    table.add_row(["attempts refused", &platform.refusals.to_string()]);
    for alarm in &platform.log_alarms {
        table.add_row(["ISSUANCE LOG", alarm]);
    }
    table.add_row(["CA certified until", &instant(platform.ca_ends)]);
    for warning in platform.warnings.iter().chain(&platform.alarms) {
        table.add_row(["WARNING", warning]);
    }
    table.trim_fmt()
}

/// `sealbus down`
pub(crate) async fn down(
    connection: &mut Connection,
    down: &Down,
    output: Output,
) -> Result<(), CliError> {
    let PlatformStatus { name, pid, .. } = connection.ask(ask::Status).await?;
    let waiting = output.waiting(&format!("ending {name}"));
    let grace = milliseconds(down.timeout.0);
    connection.ask(ask::Shutdown { grace }).await?;
    // The Master's process ends after its nodes.
    let deadline = Instant::now() + down.timeout.0 + ENDING;
    while runs(pid) {
        if Instant::now() > deadline {
            return Err(CliError::Failed {
                message: format!("the Master of {name} (pid {pid}) still runs"),
                help: Some(format!("see its log; `kill -9 {pid}` ends it by force")),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
    waiting.finish_and_clear();
    output.show(&json!({ "platform": name }), || format!("{name} has ended"));
    Ok(())
}

/// Whether a process runs. A process that has ended and waits for its parent does not run.
fn runs(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name of the program before it may contain anything.
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
    !matches!(state, Some([b'Z' | b'X', ..]))
}
