//! The conversations of nodes and agents with the CA service: the JSON content of ACL messages to `ca@hap`, like those
//! with the Master ([`node`](super::node)).

use sealbus_seal::{CertificateChain, CertificateError};
use serde::{Deserialize, Serialize};

use crate::Blob;
use crate::ask::conversation;
use crate::statement::Signed;
use crate::workload::{WorkloadIssuer, WorkloadToken};

conversation! {
    /// The requests of a node, or of an agent, to `ca@hap`.
    pub enum AuthorityRequest in ask_ca ("ask") {
        /// A certificate for a process of the node or one of its agents.
        Certify {
            /// The node's signed request, a [`Vouching`](crate::statement::Vouching).
            voucher: Signed,
        } -> IssuedChain;
        /// A workload token for the asking agent.
        WorkloadToken {
            /// The audience of the token.
            audience: String,
            /// The local name of the agent that asks, if the requester stands for a neighbour and asks for that agent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            asker: Option<String>,
        } -> WorkloadToken;
        /// The keys with which workload tokens are checked.
        WorkloadIssuer -> WorkloadIssuer;
    }
    /// The answers of `ca@hap`.
    pub enum AuthorityAnswer ("answer") {
        Certified(IssuedChain);
        WorkloadToken(WorkloadToken);
        WorkloadIssuer(WorkloadIssuer);
    }
}

/// A certificate that the CA issued, for its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedChain {
    /// The certificate chain (DER, leaf first).
    pub chain: Vec<Blob>,
    /// The proof that the certificate is in the issuance log, for verifiers that require it
    /// ([`Inclusion`](sealbus_proof::Inclusion)).
    pub inclusion: Option<Blob>,
}

/// A part of the certificate chains that a node keeps for one of its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatePage {
    /// The chains, in their wire form. The first chain of the first part is the process's own.
    pub chains: Vec<Blob>,
    /// The agent after which the next part begins; `None` in the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<&CertificateChain> for IssuedChain {
    fn from(chain: &CertificateChain) -> Self {
        let certificates = chain.to_certificates().into_iter();
        Self {
            chain: certificates.map(|der| Blob(der.to_vec())).collect(),
            inclusion: chain.inclusion().map(|proof| Blob(proof.to_vec())),
        }
    }
}

impl TryFrom<IssuedChain> for CertificateChain {
    type Error = CertificateError;

    fn try_from(issued: IssuedChain) -> Result<Self, CertificateError> {
        let certificates = issued.chain.into_iter();
        let chain = Self::new(certificates.map(|der| der.0.into()).collect())?;
        match issued.inclusion {
            Some(proof) => chain.with_inclusion(proof.0),
            None => Ok(chain),
        }
    }
}
