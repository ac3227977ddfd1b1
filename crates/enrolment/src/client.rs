//! The requests of a node to the Master over TLS.

use std::time::Duration;

use sealbus_seal::tls::ExpectedPeer;
use sealbus_seal::{Fingerprint, Identity, PlatformName};
use serde::{Deserialize, Serialize};

use super::{ENROLMENT, connect};
use sealbus_control::Fault;
use sealbus_control::ask::Ask;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::rpc::{self, LONGEST_FRAME};

/// How long the Master may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Master that a newcomer joins, and its root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    /// The platform's name.
    pub platform: PlatformName,
    /// The addresses of the Masters as `host:port`, tried at once.
    pub addresses: Vec<String>,
    /// Fingerprint of the platform's root.
    pub root: Fingerprint,
}

/// The reason why a node could not join.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// The Master cannot be reached, or is not the one the token names.
    #[error("the Master of {platform} cannot be reached ({why})")]
    Unreachable {
        /// The platform.
        platform: PlatformName,
        /// The attempts and their errors.
        why: String,
    },
    /// The Master refused.
    #[error(transparent)]
    Refused(#[from] Fault),
}

impl Enrolment {
    /// Asks one question.
    pub async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, EnrolmentError> {
        let unreachable = |why: String| EnrolmentError::Unreachable {
            platform: self.platform.clone(),
            why,
        };
        // The server receives the token's secret and states the node's security level, so it must be the Master. The
        // certificate of another node does not suffice: that node may be hostile, or revoked long ago.
        let master = Identity::node(&self.platform, MASTER_NODE)
            .map(ExpectedPeer::Exactly)
            .map_err(|error| unreachable(error.to_string()))?;
        let stream = connect(
            &self.addresses,
            &self.platform,
            self.root,
            master,
            ENROLMENT,
        )
        .await
        .map_err(unreachable)?;
        let (caller, _incoming, drive) = rpc::open(stream, LONGEST_FRAME);
        let driving = tokio::spawn(drive);
        let answer = caller.ask(ask, PATIENCE).await;
        driving.abort();
        Ok(answer?)
    }
}
