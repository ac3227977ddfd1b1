//! Workload tokens, as they travel from the CA to the agents for which they are made.

use sealbus_seal::workload::JsonWebKey;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// A workload token: a signed JWT (RFC 7519) that tells its audience which agent its bearer is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadToken {
    /// The token. Whoever has it is taken for the agent, so it belongs in an `Authorization` header over TLS and in
    /// no log.
    pub token: String,
    /// When the token expires.
    pub expires: UnixMillis,
}

/// The token itself is not shown.
impl std::fmt::Debug for WorkloadToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkloadToken")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The issuer of workload tokens, for their verifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadIssuer {
    /// The URL by which tokens name the issuer (`iss`).
    pub issuer: String,
    /// The issuer's public keys, including those whose last token is still valid.
    pub keys: Vec<JsonWebKey>,
}
