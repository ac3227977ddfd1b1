//! `ps`, `start`, `stop`, `restart`, `kill`, `move`, `ticket`: the agents and their processes.

use std::time::{Duration, Instant};

use sealbus_bus::{Lifetime, milliseconds};
use sealbus_control::admin::{AgentStatus, IssuedSecret, ask};
use serde_json::json;

use super::{cell, instant, is_agent};
use crate::arguments::{Kill, Move, Ps, Restart, Start, Stop, Ticket};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// The pause between two questions for a name that is taken.
const PAUSE: Duration = Duration::from_millis(200);

/// `sealbus ps`
pub(crate) async fn ps(
    connection: &mut Connection,
    ps: &Ps,
    output: Output,
) -> Result<(), CliError> {
    if ps.refused {
        return refused(connection, output).await;
    }
    let agents = connection.list(ask::Agents::default()).await?;
    output.show(&agents, || list(&agents));
    Ok(())
}

pub(super) fn list(agents: &[AgentStatus]) -> String {
    let mut table = table(&[
        "AGENT",
        "NODE",
        "STATE",
        "PID",
        "ADDRESS",
        "RESTARTS",
        "CERTIFIED UNTIL",
        "NOTE",
    ]);
    for agent in agents {
        table.add_row([
            agent.name.clone(),
            cell(agent.node.as_ref()),
            agent
                .state
                .map_or_else(|| "ended".to_owned(), |state| state.to_string()),
            cell(agent.pid.as_ref()),
            cell(agent.address.as_ref()),
            agent.restarts.to_string(),
            agent.expires.map_or_else(|| "-".to_owned(), instant),
            agent.note.clone().unwrap_or_default(),
        ]);
    }
    table.trim_fmt()
}

async fn refused(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let records = connection.ask(ask::Refusals).await?;
    output.show(&records, || {
        let mut table = table(&["LAST", "COUNT", "SAYS", "WHO", "PROVED", "TO", "REASON"]);
        for record in &records {
            table.add_row([
                instant(record.at),
                record.count.to_string(),
                cell(record.by.as_ref()),
                record.who.clone(),
                cell(record.proved.as_ref()),
                cell(record.receiver.as_ref()),
                record.reason.clone(),
            ]);
        }
        table.trim_fmt()
    });
    Ok(())
}

/// `sealbus start AGENT`
pub(crate) async fn start(
    connection: &mut Connection,
    start: &Start,
    output: Output,
) -> Result<(), CliError> {
    let node = start_again(connection, &start.agent, start.timeout.0, None, output).await?;
    output.show(&json!({ "started": start.agent, "node": node }), || {
        started(&start.agent, node.as_deref())
    });
    Ok(())
}

/// Starts an agent of the manifest, and returns its node. If there is a `grace`, an agent that runs is ended first, and may
/// take that long.
async fn start_again(
    connection: &mut Connection,
    agent: &str,
    timeout: Duration,
    grace: Option<Duration>,
    output: Output,
) -> Result<Option<String>, CliError> {
    let waiting = output.waiting(&format!("starting {agent}"));
    let request = ask::StartAgain {
        agent: agent.to_owned(),
        timeout: milliseconds(timeout),
        grace: grace.map(milliseconds),
    };
    let started = connection.ask(request).await;
    waiting.finish_and_clear();
    let started = started?.agents;
    let agent = started.iter().find(|known| is_agent(&known.name, agent));
    Ok(agent.and_then(|agent| agent.node.clone()))
}

fn started(agent: &str, node: Option<&str>) -> String {
    match node {
        Some(node) => format!("{agent} is started on {node}"),
        None => format!("{agent} is started as soon as a node can take it: see `sealbus ps`"),
    }
}

/// `sealbus stop AGENT`
pub(crate) async fn stop(
    connection: &mut Connection,
    stop: &Stop,
    output: Output,
) -> Result<(), CliError> {
    end(connection, &stop.agent, stop.timeout.0, output).await?;
    output.show(&json!({ "stopped": stop.agent }), || {
        format!("{} has ended and its certificate is revoked", stop.agent)
    });
    Ok(())
}

/// `sealbus restart AGENT`
pub(crate) async fn restart(
    connection: &mut Connection,
    restart: &Restart,
    output: Output,
) -> Result<(), CliError> {
    let Stop { agent, timeout } = &restart.stop;
    let (start_timeout, grace) = (restart.start_timeout.0, Some(timeout.0));
    let node = start_again(connection, agent, start_timeout, grace, output).await?;
    output.show(&json!({ "restarted": agent, "node": node }), || {
        started(agent, node.as_deref())
    });
    Ok(())
}

/// Ends an agent, which may leave by itself for as long as `grace`.
async fn end(
    connection: &mut Connection,
    agent: &str,
    grace: Duration,
    output: Output,
) -> Result<(), CliError> {
    let waiting = output.waiting(&format!("ending {agent}"));
    let request = ask::Kill {
        agent: agent.to_owned(),
        grace: milliseconds(grace),
    };
    connection.ask(request).await?;
    waiting.finish_and_clear();
    Ok(())
}

/// `sealbus kill AGENT`
pub(crate) async fn kill(
    connection: &mut Connection,
    kill: &Kill,
    output: Output,
) -> Result<(), CliError> {
    end(connection, &kill.agent, Duration::ZERO, output).await?;
    output.show(&json!({ "killed": kill.agent }), || {
        format!("{} has ended and its certificate is revoked", kill.agent)
    });
    Ok(())
}

/// `sealbus move AGENT NODE`
pub(crate) async fn relocate(
    connection: &mut Connection,
    to: &Move,
    output: Output,
) -> Result<(), CliError> {
    let waiting = output.waiting(&format!("moving {} to {}", to.agent, to.node));
    let request = ask::Move {
        agent: to.agent.clone(),
        node: to.node.clone(),
    };
    let moved = connection.ask(request).await?;
    waiting.finish_and_clear();
    output.show(&moved, || {
        format!("{} now on {}", moved.agents.join(", "), moved.node)
    });
    Ok(())
}

/// `sealbus ticket NAME`
pub(crate) async fn ticket(
    connection: &mut Connection,
    ticket: &Ticket,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::Ticket {
        agent: ticket.agent.clone(),
        others: ticket.others.clone(),
        node: ticket.node.clone(),
        lifetime: ticket.lifetime.0.as_secs().max(1),
    };
    let IssuedSecret { token, expires } = ticket_of(connection, request, ticket.timeout.0).await?;
    output.show(
        &json!({ "agent": ticket.agent, "ticket": token, "expires": expires }),
        || token.clone(),
    );
    Ok(())
}

/// A ticket. While another agent has its name, such as one that is still leaving, the command asks again.
pub(super) async fn ticket_of(
    connection: &mut Connection,
    request: ask::Ticket,
    patience: Duration,
) -> Result<IssuedSecret, CliError> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        let taken = match connection.ask(request.clone()).await {
            Err(taken @ CliError::NameTaken { .. }) => taken,
            answer => return answer,
        };
        if began.elapsed() >= patience {
            return Err(taken);
        }
        if !std::mem::replace(&mut is_told, true) {
            anstream::eprintln!("{taken}: waiting {} for it", Lifetime(patience));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
