//! Bare AMQP connections, made as those of agents are: what the transport adds to them is measured so.

use std::sync::Arc;

use lapin::Connection;
use sealbus_seal::Credential;

use super::config::RabbitConfig;
use super::connect::{Client, Purpose, open};

/// Connects to the first broker of `config` as the agent of this whole name; the connection, and the user that logged in.
///
/// # Errors
/// Why not, in words.
pub async fn connect(
    config: &RabbitConfig,
    agent: &str,
    credential: Option<Arc<Credential>>,
) -> Result<(Connection, String), String> {
    let client = Client {
        name: agent.into(),
        credential,
    };
    let address = config.addresses.first().ok_or("no broker is named")?;
    let opened = open(config, address, &client, Purpose::Sending)
        .await
        .map_err(|error| error.to_string())?;
    Ok((opened.connection, opened.user))
}
