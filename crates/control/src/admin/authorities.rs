//! The CAs of a platform.

use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// A CA of the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityStatus {
    /// Its name.
    pub name: String,
    /// The serial number of its latest certificate, hexadecimal.
    pub serial: String,
    /// When that certificate ends.
    pub not_after: UnixMillis,
    /// Whether it certifies now: its Master leads.
    pub certifies: bool,
    /// Certificates that it issued and that are valid.
    pub living: u64,
    /// The reason why it was revoked, if it was.
    pub revoked: Option<String>,
}
