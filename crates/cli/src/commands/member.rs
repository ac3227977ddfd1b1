//! A certified agent of a command's own, for as long as the command runs.

use std::sync::Arc;
use std::time::Duration;

use sealbus::Platform;
use sealbus_bus::Outbox;
use sealbus_channels::{Channels, UndeliveredEvents};
use sealbus_control::admin::ask;
use sealbus_process::AgentHandle;

use crate::connection::Connection;
use crate::error::CliError;

/// How long the command's own ticket may be used, in seconds.
const TICKET_LIFETIME: u64 = 60;
/// How long the other processes may take to report their subscriptions.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// A command's agent and its place on the platform.
pub(super) struct Member {
    platform: Platform,
    agent: AgentHandle,
}

impl Member {
    /// Joins with a ticket of the command's own.
    pub(super) async fn join(connection: &mut Connection, command: &str) -> Result<Self, CliError> {
        let name = format!("{command}-{}", std::process::id());
        let request = ask::Ticket {
            agent: name.clone(),
            others: Vec::new(),
            node: None,
            lifetime: TICKET_LIFETIME,
        };
        let ticket = connection.ask(request).await?;
        let platform = Platform::with_ticket(&ticket.token).await.map_err(failed)?;
        let agent = platform.agent(&name).await.map_err(failed)?;
        let channels = Channels::of(agent.outbox().bus());
        if !channels.ready(INTRODUCTION).await {
            anstream::eprintln!(
                "warning: not every process has said what it subscribes to; some may be missing"
            );
        }
        Ok(Self { platform, agent })
    }

    /// The agent's name.
    pub(super) fn name(&self) -> String {
        self.agent.outbox().agent().name().to_string()
    }

    /// The name of another agent, `seller-1` or `seller-1@factory`, with its platform.
    pub(super) fn full_name(&self, agent: &str) -> String {
        if agent.contains('@') {
            return agent.to_owned();
        }
        format!("{agent}@{}", self.platform.process().platform())
    }

    /// The platform's name.
    pub(super) fn platform(&self) -> &str {
        self.platform.process().platform()
    }

    /// The way out for the agent's messages.
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        self.agent.outbox()
    }

    /// Waits until the published events have arrived, for `limit` at most. Returns the events that have not.
    pub(super) async fn until_delivered(&self, limit: Duration) -> Vec<UndeliveredEvents> {
        self.agent.until_delivered(limit).await
    }

    /// Does the command's work, and then leaves, even if the work failed.
    pub(super) async fn during<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let result = work(&self).await;
        drop(self.agent);
        self.platform.close().await;
        result
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed {
        message: error.to_string(),
        help: Some("see whether the platform's nodes are up: `sealbus nodes`".to_owned()),
    }
}
