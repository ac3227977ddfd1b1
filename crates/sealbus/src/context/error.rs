//! The reasons why an agent gets no message or no reply.

use std::time::Duration;

use sealbus_bus::SendError;

/// The reason why no message came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The agent is being stopped. Let the hook end: `teardown` comes next.
    #[error("{agent} is being stopped")]
    Stopping {
        /// The agent.
        agent: String,
    },
    /// No message that the filter takes came in time.
    #[error("{agent} waited {} s for {filter} and nothing came", within.as_secs_f64())]
    Timeout {
        /// The agent.
        agent: String,
        /// The messages that it waited for.
        filter: String,
        /// How long it waited.
        within: Duration,
    },
    /// The agent's mailbox was closed because its process left the platform.
    #[error("{agent} is no longer on the platform: its mailbox is closed")]
    Closed {
        /// The agent.
        agent: String,
    },
}

/// The reason why a request got no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request could not be sent.
    #[error("{agent} could not send its request to {receiver}: {source}")]
    Send {
        /// The agent that asks.
        agent: String,
        /// The agent that was asked.
        receiver: String,
        /// Why the request could not be sent.
        source: Box<SendError>,
    },
    /// The platform reports that the request was not delivered.
    #[error("the request of {agent} was not delivered to {receiver}: {reason}")]
    Undeliverable {
        /// The agent that asks.
        agent: String,
        /// The agent that was asked.
        receiver: String,
        /// Why the agent did not get the request.
        reason: String,
    },
    /// The request was delivered, and no reply came in time.
    #[error("{receiver} did not reply to {agent} within {} s", within.as_secs_f64())]
    Timeout {
        /// The agent that asks.
        agent: String,
        /// The agent that was asked.
        receiver: String,
        /// How long the asking agent waited.
        within: Duration,
    },
    /// The agent that asks is ending.
    #[error(transparent)]
    Receive(ReceiveError),
}
