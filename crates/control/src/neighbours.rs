//! The conversation of the agent `operator` with the gateway to agents of others.

use serde::{Deserialize, Serialize};

use crate::ask::conversation;

conversation! {
    /// The requests of the agent `operator` to the gateway to agents of others.
    pub enum NeighboursRequest in ask_neighbours ("ask") {
        /// The gateway's state.
        Status -> NeighboursStatus;
    }
    /// The gateway's answers.
    pub enum NeighboursAnswer ("answer") {
        Status(NeighboursStatus);
    }
}

/// The state of the gateway to agents of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighboursStatus {
    /// The neighbours of the manifest.
    pub neighbours: Vec<NeighbourStatus>,
}

/// An agent outside the platform, for which an agent of the platform stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourStatus {
    /// Local name of the agent that stands for it.
    pub agent: String,
    /// Its address in the manifest.
    pub url: String,
    /// The name and the version in its card; empty while the card is not known.
    pub card: String,
    /// The server that gave the card, and what proves its identity.
    pub proof: String,
    /// The number of skills in its card.
    pub skills: u64,
    /// The number of conversations that agents have begun with it.
    pub asked: u64,
    /// The number of open conversations.
    pub open: u64,
    /// The number of conversations that it refused, or that failed.
    pub failed: u64,
    /// Why it cannot be asked now.
    pub trouble: Option<String>,
}
