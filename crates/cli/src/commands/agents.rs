//! `ps`, `start`, `kill`, `move`, `logs`, `ticket`: the agents and their processes.

use std::io::Write;
use std::time::Duration;

use sealbus_control::admin::{AdminRequest, AgentStatus};
use sealbus_control::node::LogPosition;
use serde_json::json;

use super::{cell, instant};
use crate::arguments::{Kill, Logs, Move, Ps, Start, Ticket};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{self, Output, shown, table};

/// Time that an agent has to leave by itself before its process is ended.
const GRACE: Duration = Duration::from_secs(5);
/// How often `logs --follow` asks for more.
const FOLLOW: Duration = Duration::from_millis(200);

/// `sealbus ps`
pub(crate) async fn ps(
    connection: &mut Connection,
    ps: &Ps,
    output: Output,
) -> Result<(), CliError> {
    if ps.refused {
        return refused(connection, output).await;
    }
    let agents = connection.ask(AdminRequest::Agents).await?.agents()?;
    output.show(&agents, || list(&agents));
    Ok(())
}

fn list(agents: &[AgentStatus]) -> String {
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
    let records = connection.ask(AdminRequest::Refusals).await?.refusals()?;
    output.show(&records, || {
        let mut table = table(&["LAST", "COUNT", "SAYS", "WHO", "TO", "REASON"]);
        for record in &records {
            table.add_row([
                instant(record.at),
                record.count.to_string(),
                cell(record.by.as_ref()),
                record.who.clone(),
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
    let request = AdminRequest::StartAgain {
        agent: start.agent.clone(),
    };
    let agents = connection.ask(request).await?.agents()?;
    let is_it = |name: &str| name == start.agent || name.split('@').next() == Some(&start.agent);
    let agent = agents.iter().find(|agent| is_it(&agent.name));
    let node = agent.and_then(|agent| agent.node.clone());
    output.show(
        &json!({ "started": start.agent, "node": node }),
        || match &node {
            Some(node) => format!("{} is started on {node}", start.agent),
            None => format!(
                "{} is started as soon as a node can take it: see `sealbus ps`",
                start.agent
            ),
        },
    );
    Ok(())
}

/// `sealbus kill AGENT`
pub(crate) async fn kill(
    connection: &mut Connection,
    kill: &Kill,
    output: Output,
) -> Result<(), CliError> {
    let waiting = output.waiting(&format!("ending {}", kill.agent));
    let request = AdminRequest::Kill {
        agent: kill.agent.clone(),
        grace: milliseconds(GRACE),
    };
    connection.ask(request).await?;
    waiting.finish_and_clear();
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
    let request = AdminRequest::Move {
        agent: to.agent.clone(),
        node: to.node.clone(),
    };
    let (agents, node) = connection.ask(request).await?.moved()?;
    waiting.finish_and_clear();
    output.show(&json!({ "agents": agents, "node": node }), || {
        format!("{} now on {node}", agents.join(", "))
    });
    Ok(())
}

/// `sealbus ticket NAME`
pub(crate) async fn ticket(
    connection: &mut Connection,
    ticket: &Ticket,
    output: Output,
) -> Result<(), CliError> {
    let request = AdminRequest::Ticket {
        agent: ticket.agent.clone(),
        node: ticket.node.clone(),
        lifetime: ticket.lifetime.0.as_secs().max(1),
    };
    let (token, expires) = connection.ask(request).await?.secret()?;
    output.show(
        &json!({ "agent": ticket.agent, "ticket": token, "expires": expires }),
        || token.clone(),
    );
    Ok(())
}

/// `sealbus logs AGENT`
pub(crate) async fn logs(
    connection: &mut Connection,
    logs: &Logs,
    output: Output,
) -> Result<(), CliError> {
    let mut from = LogPosition::LastLines { lines: logs.lines };
    loop {
        let request = AdminRequest::Log {
            agent: logs.agent.clone(),
            from,
        };
        let (text, next) = connection.ask(request).await?.log()?;
        let caught_up = text.is_empty();
        if output.is_json() {
            for line in text.lines() {
                output.line(&json!({ "agent": logs.agent, "line": line }), String::new);
            }
        } else {
            let mut out = anstream::stdout().lock();
            // A closed pipe (`| head`) means that the reader has seen enough.
            if out
                .write_all(shown(&text).as_bytes())
                .and_then(|()| out.flush())
                .is_err()
            {
                return Ok(());
            }
        }
        from = LogPosition::Offset { offset: next };
        if caught_up {
            if !logs.follow {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW) => {}
                () = output::unread() => return Ok(()),
            }
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
