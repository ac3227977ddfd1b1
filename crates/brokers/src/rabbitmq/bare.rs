//! Bare AMQP connections, made as agents make them. They serve to measure the cost of the transport.

use std::sync::Arc;

use lapin::Connection;
use sealbus_seal::Credential;

use super::access::RabbitClient;
use super::connect::{Purpose, open};
use super::management::{Management, ManagementError};
use super::names;
use super::socket::CutOnDrop;
use crate::client::Owner;
use crate::envelope::{Queue, Receiver};

/// A connection in the name of an agent. It ends when this is dropped.
pub struct BareConnection {
    /// The connection.
    pub connection: Connection,
    /// The user that logged in.
    pub user: String,
    _cut: CutOnDrop,
}

/// Connects to the broker at `address` as the agent of this whole name.
///
/// # Errors
/// The reason, in words.
pub async fn connect(
    client: &RabbitClient,
    address: &str,
    agent: &str,
    credential: Option<Arc<Credential>>,
) -> Result<BareConnection, String> {
    let owner = Owner {
        name: agent.into(),
        queue: Receiver::Agent(agent.into()),
        credential,
    };
    let opened = open(client, address, &owner, Purpose::Sending)
        .await
        .map_err(|error| error.to_string())?;
    Ok(BareConnection {
        connection: opened.connection,
        user: opened.user,
        _cut: opened.cut,
    })
}

/// Makes messages published under `key` come to this queue as well. This is the broker's own broadcast,
/// which checks no rights and knows no filters. Agents' users do not have the right to do this.
///
/// # Errors
/// [`ManagementError`].
pub async fn bind(
    management: &Management,
    queue: &Queue,
    key: &str,
) -> Result<(), ManagementError> {
    let queue = names::queue(queue);
    management.bind(names::MESSAGES, &queue, key).await
}
