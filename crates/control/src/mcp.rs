//! The conversation of the agent `operator` with the gateway for hosts of language models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ask::conversation;

conversation! {
    /// The requests of the agent `operator` to the gateway for hosts of language models.
    pub enum McpRequest in ask_mcp ("ask") {
        /// The gateway's state.
        Status -> McpStatus;
    }
    /// The gateway's answers.
    pub enum McpAnswer ("answer") {
        Status(McpStatus);
    }
}

/// The state of the gateway for hosts of language models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpStatus {
    /// The address at which hosts reach it, such as `http://127.0.0.1:7780/mcp`.
    pub address: String,
    /// The tools of agents that it knows.
    pub tools: u64,
    /// The callers in its configuration.
    pub callers: Vec<McpCallerStatus>,
    /// The number of refused requests by reason. Reasons that did not occur are omitted.
    pub refused: BTreeMap<String, u64>,
}

/// A caller of the gateway for hosts of language models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpCallerStatus {
    /// Local name of the agent that stands for it.
    pub agent: String,
    /// Whether it needs no key.
    pub anonymous: bool,
    /// Requests that were served, or are being served.
    pub requests: u64,
    /// Requests that are being served now, including open streams.
    pub open: u64,
    /// Open sessions, in the protocol before 2026-07-28.
    pub sessions: u64,
}
