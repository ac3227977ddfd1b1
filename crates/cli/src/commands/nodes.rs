//! `nodes`, `token`: the machines of the platform.

use sealbus_control::admin::ask;
use sealbus_manifest::isolation::Isolation;

use super::instant;
use crate::arguments::Token;
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// `sealbus nodes`
pub(crate) async fn nodes(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let nodes = connection.list(ask::Nodes::default()).await?;
    output.show(&nodes, || {
        let mut table = table(&[
            "NODE",
            "STATE",
            "ADDRESS",
            "MACHINE",
            "PROCESSORS",
            "ISOLATION",
            "PROCESSES",
            "AGENTS",
            "HEARD",
        ]);
        for node in &nodes {
            table.add_row([
                node.name.clone(),
                node.state.as_str().to_owned(),
                node.address.clone(),
                node.host.clone(),
                node.processors.to_string(),
                node.isolation
                    .map_or("impossible", Isolation::as_str)
                    .to_owned(),
                node.processes.to_string(),
                node.agents.to_string(),
                instant(node.heard),
            ]);
        }
        table.trim_fmt()
    });
    Ok(())
}

/// `sealbus token`
pub(crate) async fn token(
    connection: &mut Connection,
    token: &Token,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::Token {
        node: token.name.clone(),
        lifetime: token.lifetime.0.as_secs().max(1),
        master: token.master,
    };
    let issued = connection.ask(request).await?;
    output.show(&issued, || issued.token.clone());
    Ok(())
}
