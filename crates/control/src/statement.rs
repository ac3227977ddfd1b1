//! A node's signed statement: for the signing request of one of its processes, or for itself when it comes back or does
//! not hear the Master. The node's own key signs it, so it is valid at every security level and over every transport.

use sealbus_seal::{
    CertificateChain, CertificateError, Credential, KeyError, Signature, Timestamp, Trust,
    VerifiedIdentity, VerifyError,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Blob, Fault, FaultCode, NodeDescription, Subject, UnixMillis};

/// How old a statement may be, in milliseconds, in addition to the difference of clocks.
const GOOD_FOR: UnixMillis = 120_000;

/// The statements that a node may make.
pub trait NodeStatement: Serialize + DeserializeOwned {
    /// The first bytes of the signed data, so that no statement passes for one of another kind.
    const CONTEXT: &'static [u8];

    /// The node's clock when it made the statement.
    fn at(&self) -> UnixMillis;
}

/// A process of the node asks for a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouching {
    /// The process that holds the key.
    pub process: String,
    /// The identity to certify.
    pub subject: Subject,
    /// The process's signing request, PKCS#10 DER.
    pub request: Blob,
    /// The chain that the process holds for the same identity, in its wire form, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Blob>,
    /// The node's clock.
    pub at: UnixMillis,
}

/// The node has come back, and wants its own certificate renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returning {
    /// The node's description of itself.
    pub node: NodeDescription,
    /// Signing request of its own key, PKCS#10 DER.
    pub request: Blob,
    /// The node's clock.
    pub at: UnixMillis,
}

/// The node does not hear the leading Master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The node's clock.
    pub at: UnixMillis,
}

impl NodeStatement for Alarm {
    const CONTEXT: &'static [u8] = b"sealbus node alarm v1\0";

    fn at(&self) -> UnixMillis {
        self.at
    }
}

impl NodeStatement for Vouching {
    const CONTEXT: &'static [u8] = b"sealbus node vouching v1\0";

    fn at(&self) -> UnixMillis {
        self.at
    }
}

impl NodeStatement for Returning {
    const CONTEXT: &'static [u8] = b"sealbus node returning v1\0";

    fn at(&self) -> UnixMillis {
        self.at
    }
}

/// A [`NodeStatement`] with the node's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The statement as JSON. These are the signed bytes.
    statement: Blob,
    /// The node's certificate chain in its wire form.
    chain: Blob,
    signature: Blob,
}

/// Why a node's statement is not valid.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The statement cannot be read.
    #[error("the node's statement cannot be read: {0}")]
    Malformed(String),
    /// The node's certificate is not valid.
    #[error("the node is not believed: {0}")]
    Node(#[from] VerifyError),
    /// The signature is not the node's.
    #[error("the statement is not signed by {0}")]
    NotSigned(sealbus_seal::Identity),
    /// The statement is too old, or from the future.
    #[error(
        "the node's clock says {} and the Master's {}, {} s apart: set the one that is wrong",
        Timestamp::from_unix_seconds(node / 1000), Timestamp::from_unix_seconds(here / 1000), node.abs_diff(*here) / 1000
    )]
    Stale {
        /// The node's clock at signing.
        node: UnixMillis,
        /// The reader's clock.
        here: UnixMillis,
    },
}

impl Signed {
    /// Signs with a node's credential.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn sign<S: NodeStatement>(statement: &S, node: &Credential) -> Result<Self, KeyError> {
        let statement = serde_json::to_vec(statement).unwrap_or_default();
        let signature = node.key().sign(&[S::CONTEXT, &statement].concat())?;
        let mut chain = Vec::new();
        node.chain().encode(&mut chain);
        Ok(Self {
            statement: statement.into(),
            chain: chain.into(),
            signature: signature.as_bytes().to_vec().into(),
        })
    }

    /// Checks the statement. Returns the node and its statement.
    ///
    /// # Errors
    /// [`StatementError`].
    pub fn open<S: NodeStatement>(
        &self,
        trust: &Trust,
        now: UnixMillis,
    ) -> Result<(VerifiedIdentity, S), StatementError> {
        let chain = CertificateChain::decode(&self.chain.0)
            .map_err(|error: CertificateError| StatementError::Malformed(error.to_string()))?;
        let node = verify(&chain, trust, Timestamp::from_unix_seconds(now / 1000))?;
        let not_signed = || StatementError::NotSigned(node.identity().clone());
        let signature: [u8; 64] = self
            .signature
            .0
            .as_slice()
            .try_into()
            .map_err(|_| not_signed())?;
        let content = [S::CONTEXT, &self.statement.0].concat();
        if !node
            .public_key()
            .verifies(&content, &Signature::from_bytes(signature))
        {
            return Err(not_signed());
        }
        let statement: S = serde_json::from_slice(&self.statement.0)
            .map_err(|error| StatementError::Malformed(error.to_string()))?;
        if statement.at().abs_diff(now) > GOOD_FOR {
            return Err(StatementError::Stale {
                node: statement.at(),
                here: now,
            });
        }
        Ok((node, statement))
    }
}

/// Verifies a node's chain. A certificate whose validity begins later was issued by a CA with a fast clock, and also
/// proves the node. Otherwise the node could not ask for another one until that time.
fn verify(
    chain: &CertificateChain,
    trust: &Trust,
    now: Timestamp,
) -> Result<VerifiedIdentity, VerifyError> {
    match trust.verify(chain, now) {
        Err(VerifyError::NotYetValid { not_before, .. }) => trust.verify(chain, not_before),
        result => result,
    }
}

impl StatementError {
    /// The fault for the answer. Differing clocks have a fault of their own, which may pass. Every other fault has the
    /// kind `otherwise`.
    pub fn fault(&self, otherwise: FaultCode, advice: &str) -> Fault {
        let is_of_clocks = matches!(
            self,
            Self::Stale { .. }
                | Self::Node(VerifyError::Expired { .. } | VerifyError::NotYetValid { .. })
        );
        if is_of_clocks {
            return Fault::new(FaultCode::ClockSkew, self.to_string())
                .advise("set the clock that is wrong, with NTP for instance");
        }
        Fault::new(otherwise, self.to_string()).advise(advice)
    }
}
