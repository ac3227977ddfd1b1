//! Workload tokens, as they travel from the CA to the agents for which they are made.

use sealbus_seal::workload::JsonWebKey;
use serde::{Deserialize, Serialize};

use crate::UnixMillis;

/// A workload token: a signed JWT (RFC 7519) that says to its audience which agent its bearer is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadToken {
    /// The token. Whoever has it is believed to be the agent, so it belongs in an `Authorization` header over TLS and in no
    /// log.
    pub token: String,
    /// When it ends.
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

/// The issuer of workload tokens, for those who check them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadIssuer {
    /// The URL by which tokens name it (`iss`).
    pub issuer: String,
    /// Its public keys, also those whose last token is still good.
    pub keys: Vec<JsonWebKey>,
}
