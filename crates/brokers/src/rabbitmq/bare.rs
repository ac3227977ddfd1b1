//! Bare AMQP connections, made as those of agents are: what the transport adds to them is measured so.

use std::sync::Arc;

use lapin::Connection;
use sealbus_seal::Credential;

use super::config::RabbitConfig;
use super::connect::{Client, Purpose, open};
use super::management::{Management, ManagementError};
use super::names;

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

/// Has what is published under `key` come to the queue of this agent, too: a broadcast of the broker's own, which asks
/// for no rights and knows no filters. Agents' users may not do it.
///
/// # Errors
/// [`ManagementError`].
pub async fn bind(management: &Management, agent: &str, key: &str) -> Result<(), ManagementError> {
    management
        .bind(names::MESSAGES, &names::queue(agent), key)
        .await
}
