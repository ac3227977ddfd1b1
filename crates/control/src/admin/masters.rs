//! The Masters of a platform.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// The role of a Master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MasterRole {
    /// It leads.
    Leads,
    /// It stands by, to lead when the present leader fails.
    StandsBy,
}

impl MasterRole {
    /// The role's name, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leads => "leads",
            Self::StandsBy => "stands by",
        }
    }
}

/// A Master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStatus {
    /// The name of its machine.
    pub host: String,
    /// The address at which nodes join while it leads.
    pub enrolment: SocketAddr,
    /// The name of its CA.
    pub authority: String,
    /// Its role.
    pub role: MasterRole,
    /// The number of its term, if it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The time since which it has had its role.
    pub since: UnixMillis,
    /// Milliseconds since it last gave a sign of life.
    pub lag: u64,
}
