//! Issued certificates, and their revocation.

use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SPIFFE identity.
    pub identity: String,
    /// The address it is bound to.
    pub address: String,
    /// The node that vouched for it.
    pub node: Option<String>,
    /// When its validity begins.
    pub not_before: UnixMillis,
    /// When its validity ends.
    pub not_after: UnixMillis,
    /// The CA whose Merkle log has the certificate.
    pub log: String,
    /// The certificate's place in that log.
    pub index: u64,
    /// Why it was revoked, if it was.
    pub revoked: Option<String>,
}

/// A revocation that an operator ordered. It is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The certificates, as far as they are known.
    pub certificates: Vec<CertificateStatus>,
    /// Whether it is in the platform's state. If not, it is on the Master's machine until the store accepts it.
    pub is_stored: bool,
}
