//! `masters`: the Master that leads, and those that stand by.

use sealbus_control::admin::{MasterStatus, ask};
use serde_json::json;

use super::instant;
use crate::arguments::{Masters, MastersCommand};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// `sealbus masters`
pub(crate) async fn masters(
    connection: &mut Connection,
    masters: &Masters,
    output: Output,
) -> Result<(), CliError> {
    match masters.command {
        Some(MastersCommand::HandOver) => {
            connection.ask(ask::HandOver).await?;
            output.show(&json!({ "handed-over": true }), || {
                "another Master leads from now on, and this one stands by".to_owned()
            });
        }
        None => {
            let masters = connection.ask(ask::Masters).await?;
            output.show(&masters, || shown(&masters));
        }
    }
    Ok(())
}

fn shown(masters: &[MasterStatus]) -> String {
    let mut table = table(&[
        "MACHINE",
        "NODES JOIN AT",
        "CA",
        "ROLE",
        "TERM",
        "SINCE",
        "LAG",
    ]);
    for master in masters {
        table.add_row([
            master.host.clone(),
            master.enrolment.to_string(),
            master.authority.clone(),
            master.role.as_str().to_owned(),
            master.term.map(|term| term.to_string()).unwrap_or_default(),
            instant(master.since),
            format!("{} ms", master.lag),
        ]);
    }
    table.trim_fmt()
}
