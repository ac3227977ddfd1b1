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
    /// Whether it certifies now, which it does if its Master leads.
    pub certifies: bool,
    /// The number of valid certificates that it has issued.
    pub living: u64,
    /// Why it was revoked, if it was.
    pub revoked: Option<String>,
}
