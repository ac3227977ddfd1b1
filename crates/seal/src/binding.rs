//! Channel binding: an agent's signature that ties its certificate to one TLS connection.
//!
//! One connection between two processes serves many agents. Each agent proves itself once on the connection. It signs a
//! statement that contains the connection's TLS exporter (RFC 8446 section 7.5, RFC 9266), so the proof is worthless on
//! every other connection.

use rustls::ConnectionCommon;
use thiserror::Error;

use crate::certificate::{CertificateError, Fingerprint};
use crate::chain::{CertificateChain, Credential};
use crate::identity::IdentityKind;
use crate::key::{KeyError, Signature};
use crate::level::SecurityLevel;
use crate::timestamp::Timestamp;
use crate::trust::Trust;
use crate::verified::VerifiedIdentity;
use crate::verify_error::VerifyError;

/// The label under which the exporter is derived.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-sealbus-agent-binding";

/// The first bytes of the signed statement. They distinguish it from every other kind of statement.
const CONTEXT: &[u8] = b"sealbus agent binding v1\0";

/// The end of the connection that a proof is for. A proof for one end is refused from the other, so that it cannot be
/// reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that opened the connection.
    Client,
    /// The end that accepted it.
    Server,
}

impl Role {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One connection, as both ends know it. Every proof on the connection is bound to this value.
#[derive(Clone, PartialEq, Eq)]
pub struct BoundConnection {
    exporter: [u8; 32],
    level: SecurityLevel,
    protocol_version: u16,
}

/// An agent's certificate chain and its signature over the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    chain: CertificateChain,
    signature: Signature,
}

/// Why a proof was not made or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BindingError {
    /// The connection gives no exporter: its handshake is not complete.
    #[error("the TLS exporter is not available: {0}")]
    NoExporter(String),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The bytes are not a chain and a signature.
    #[error("not an agent binding: {0}")]
    Malformed(#[from] CertificateError),
    /// The bytes end before or after the end of the signature.
    #[error("not an agent binding: the signature is not 64 bytes long")]
    SignatureLength,
    /// The certificate is not trusted.
    #[error(transparent)]
    NotVerified(#[from] VerifyError),
    /// The signature was not made by this certificate's key over this connection.
    #[error(
        "the proof of {identity} was not made by its key for this connection: it is forged, replayed from another connection, or made for another security level or protocol version"
    )]
    NotProved {
        /// The identity that the proof claims.
        identity: crate::Identity,
    },
}

impl BoundConnection {
    /// The channel of a TLS connection whose handshake is complete.
    pub fn of<Data>(
        connection: &ConnectionCommon<Data>,
        level: SecurityLevel,
        protocol_version: u16,
    ) -> Result<Self, BindingError> {
        let exporter = connection
            .export_keying_material([0; 32], EXPORTER_LABEL, None)
            .map_err(|error| BindingError::NoExporter(error.to_string()))?;
        Ok(Self {
            exporter,
            level,
            protocol_version,
        })
    }

    /// A channel with a given exporter, for state machines that run without sockets.
    pub fn with_exporter(exporter: [u8; 32], level: SecurityLevel, protocol_version: u16) -> Self {
        Self {
            exporter,
            level,
            protocol_version,
        }
    }

    fn statement(&self, prover: Role, identity: &crate::Identity, leaf: Fingerprint) -> Vec<u8> {
        let identity = identity.to_string();
        let mut statement = Vec::with_capacity(CONTEXT.len() + 70 + identity.len());
        statement.extend_from_slice(CONTEXT);
        statement.extend_from_slice(&self.protocol_version.to_be_bytes());
        statement.push(match prover {
            Role::Client => 0,
            Role::Server => 1,
        });
        statement.push(self.level.code());
        statement.extend_from_slice(&self.exporter);
        statement.extend_from_slice(leaf.as_bytes());
        statement.extend_from_slice(identity.as_bytes());
        statement
    }
}

/// Shows everything but the exporter, which is as secret as the connection.
impl std::fmt::Debug for BoundConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundConnection")
            .field("level", &self.level)
            .field("protocol_version", &self.protocol_version)
            .finish_non_exhaustive()
    }
}

impl Binding {
    /// Proves the owner of `credential`, which is at the `prover` end of `channel`.
    pub fn prove(
        credential: &Credential,
        channel: &BoundConnection,
        prover: Role,
    ) -> Result<Self, BindingError> {
        let identity = credential.certificate()?;
        let leaf = Fingerprint::of(credential.chain().leaf());
        let statement = channel.statement(prover, identity.identity(), leaf);
        Ok(Self {
            chain: credential.chain().clone(),
            signature: credential.key().sign(&statement)?,
        })
    }

    /// Checks the proof of an agent at the `prover` end of `channel`.
    ///
    /// A chain that is seen for the first time costs two signature checks. A known one costs one.
    pub fn verify(
        &self,
        channel: &BoundConnection,
        prover: Role,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, BindingError> {
        let verified = trust.verify(&self.chain, now)?;
        let identity = verified.identity();
        VerifyError::unless_of_kind(identity, &[IdentityKind::Agent])?;
        let statement = channel.statement(prover, identity, verified.fingerprint());
        if !verified.public_key().verifies(&statement, &self.signature) {
            return Err(BindingError::NotProved {
                identity: identity.clone(),
            });
        }
        Ok(verified)
    }

    /// The chain that was shown.
    pub fn chain(&self) -> &CertificateChain {
        &self.chain
    }

    /// Appends the wire form: the chain's wire form, then the 64 bytes of the signature.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.chain.encode(out);
        out.extend_from_slice(self.signature.as_bytes());
    }

    /// Reads a wire form that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Self, BindingError> {
        let (chain, rest) = CertificateChain::decode_prefix(bytes)?;
        let signature = rest.try_into().map_err(|_| BindingError::SignatureLength)?;
        Ok(Self {
            chain,
            signature: Signature::from_bytes(signature),
        })
    }
}
