//! `ps`, `start`, `kill`, `move`, `logs`, `ticket`: the agents and their processes.

use std::io::Write;
use std::time::Duration;

use sealbus_control::admin::{AgentStatus, IssuedSecret, ask};
use sealbus_control::node::{LogPosition, LogText};
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
    let agents = connection.ask(ask::Agents).await?;
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
    let records = connection.ask(ask::Refusals).await?;
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
    let request = ask::StartAgain {
        agent: start.agent.clone(),
    };
    let agents = connection.ask(request).await?;
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
    let request = ask::Kill {
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
        node: ticket.node.clone(),
        lifetime: ticket.lifetime.0.as_secs().max(1),
    };
    let IssuedSecret { token, expires } = connection.ask(request).await?;
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
        let request = ask::Log {
            agent: logs.agent.clone(),
            from,
        };
        let LogText { text, next } = connection.ask(request).await?;
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
