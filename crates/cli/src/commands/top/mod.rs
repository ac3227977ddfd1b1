//! `top`: agents, channels and processes, sorted by rate, waiting messages or errors.

mod board;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use sealbus_control::admin::ask;
use sealbus_window::{Board, Look};
use serde_json::json;

use self::board::{Shown, rows, summary};
use crate::arguments::Top;
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

async fn look(connection: &mut Connection) -> Result<Look, CliError> {
    Ok(Look {
        traffic: connection.ask(ask::Observe { watch: None }).await?,
        refused: connection.ask(ask::Refusals).await?,
    })
}

/// `sealbus top`
pub(crate) async fn top(
    connection: &mut Connection,
    top: &Top,
    output: Output,
) -> Result<(), CliError> {
    connection.ask(ask::Narrow { bodies: false }).await?;
    let status = connection.ask(ask::Status).await?;
    let interval = top.interval.0.max(SHORTEST);
    let shown = Shown {
        list: top.list,
        sort: top.sort,
        filter: top.filter.clone(),
    };
    if !top.once && !output.is_json() && std::io::stdout().is_terminal() {
        return screen::run(connection, &status.name, interval, shown).await;
    }
    let before = look(connection).await?;
    tokio::time::sleep(interval).await;
    let board = Board::between(&before, &look(connection).await?);
    let told = json!({
        "platform": status.name,
        "agents": board.agents,
        "channels": board.channels,
        "processes": board.processes,
        "left_out": board.left_out,
        "silent": board.silent,
    });
    output.show(&told, || {
        let (head, rows) = rows(&board, &shown);
        let mut table = table(head);
        for row in rows {
            table.add_row(row);
        }
        table.align_numbers();
        format!("{}\n\n{}", summary(&board, &status.name), table.trim_fmt())
    });
    Ok(())
}
