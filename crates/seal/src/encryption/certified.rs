//! The statement of an agent that a key for encryption is its own.

use std::time::Duration;

use super::{EncryptionError, EncryptionPublicKey, KEY};
use crate::certificate::{Certificate, Fingerprint};
use crate::chain::{CertificateChain, Credential};
use crate::denylist::Reason;
use crate::identity::{Identity, IdentityKind};
use crate::key::Signature;
use crate::timestamp::Timestamp;
use crate::trust::Trust;
use crate::verified::VerifiedIdentity;
use crate::verify_error::VerifyError;

/// The first bytes of the signed statement. They distinguish it from every other kind of statement.
const CONTEXT: &[u8] = b"sealbus encryption key v1\0";

/// How long ago the certificate of an absent agent may have ended. No message waits longer for its receiver.
pub(super) const LONGEST_ABSENCE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest key package for MLS groups, in bytes.
pub const LONGEST_KEY_PACKAGE: usize = 16 << 10;

/// An agent's key for encryption, signed by the agent's certified key. It is valid as long as the certificate is. A
/// statement under a former certificate proves nothing, unless its agent is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedEncryptionKey {
    chain: CertificateChain,
    key: EncryptionPublicKey,
    signature: Signature,
}

fn statement(identity: &Identity, leaf: Fingerprint, key: &EncryptionPublicKey) -> Vec<u8> {
    let mut statement = CONTEXT.to_vec();
    statement.extend_from_slice(leaf.as_bytes());
    statement.extend_from_slice(key.as_bytes());
    statement.extend_from_slice(identity.to_string().as_bytes());
    statement
}

impl CertifiedEncryptionKey {
    /// States that `key` is the key of the owner of `credential`.
    pub fn sign(
        credential: &Credential,
        key: &EncryptionPublicKey,
    ) -> Result<Self, EncryptionError> {
        let identity = credential.certificate()?;
        let leaf = Fingerprint::of(credential.chain().leaf());
        let statement = statement(identity.identity(), leaf, key);
        Ok(Self {
            chain: credential.chain().clone(),
            key: key.clone(),
            signature: credential.key().sign(&statement)?,
        })
    }

    /// The key, if `agent` itself states it, under a certificate that is valid now and not revoked.
    ///
    /// # Errors
    /// Why the key is not believed.
    pub fn verify(
        &self,
        agent: &Identity,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<&EncryptionPublicKey, EncryptionError> {
        self.stated_by(agent, &trust.verify(&self.chain, now)?)
    }

    /// As [`verify`](Self::verify), for a message that waits until `agent` is there. The certificate of an absent agent
    /// may have ended, at most 30 days ago, or may be denied because the agent left, was killed or moved. A certificate
    /// that an operator revoked is not believed. Also returns the owner of the certificate.
    ///
    /// # Errors
    /// Why the key is not believed.
    pub fn verify_for_waiting(
        &self,
        agent: &Identity,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<(&EncryptionPublicKey, VerifiedIdentity), EncryptionError> {
        let leaf = Certificate::parse(self.chain.leaf()).map_err(VerifyError::from)?;
        let then = now.min(leaf.not_after());
        let verified = trust.verify_as_of(&self.chain, then)?;
        let key = self.stated_by(agent, &verified)?;
        if now.since(then) > LONGEST_ABSENCE {
            return Err(EncryptionError::TooOld {
                identity: agent.clone(),
            });
        }
        match trust.check(&verified, then) {
            Err(VerifyError::Revoked {
                identity, denial, ..
            }) if identity == *agent && denial.reason != Reason::ByOperator => Ok((key, verified)),
            checked => checked.map(|()| (key, verified)).map_err(Into::into),
        }
    }

    /// The key, if the owner of this certificate is `agent` and states it.
    fn stated_by(
        &self,
        agent: &Identity,
        verified: &VerifiedIdentity,
    ) -> Result<&EncryptionPublicKey, EncryptionError> {
        let identity = verified.identity();
        VerifyError::unless_of_kind(identity, &[IdentityKind::Agent])?;
        if identity != agent {
            return Err(EncryptionError::AnotherAgent {
                wanted: agent.clone(),
                found: identity.clone(),
            });
        }
        let statement = statement(identity, verified.fingerprint(), &self.key);
        if !verified.public_key().verifies(&statement, &self.signature) {
            return Err(EncryptionError::NotSigned {
                identity: identity.clone(),
            });
        }
        Ok(&self.key)
    }

    /// The certificates under which the statement was made.
    pub fn chain(&self) -> &CertificateChain {
        &self.chain
    }

    /// Appends the wire form: the chain's wire form, the key, and the 64 bytes of the signature.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.chain.encode(out);
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.signature.as_bytes());
    }

    /// Reads a wire form that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncryptionError> {
        match Self::decode_with_package(bytes)? {
            (stated, []) => Ok(stated),
            _ => Err(EncryptionError::StatementLength),
        }
    }

    /// Reads a statement that may be followed by the agent's key package for MLS groups. The statement does not cover
    /// the package, which has a signature of its own.
    pub fn decode_with_package(bytes: &[u8]) -> Result<(Self, &[u8]), EncryptionError> {
        let (chain, rest) = CertificateChain::decode_prefix(bytes)?;
        let (key, signature) = rest
            .split_at_checked(KEY)
            .ok_or(EncryptionError::StatementLength)?;
        let (signature, rest) = signature
            .split_first_chunk()
            .ok_or(EncryptionError::StatementLength)?;
        let stated = Self {
            chain,
            key: EncryptionPublicKey::from_bytes(key)?,
            signature: Signature::from_bytes(*signature),
        };
        match rest.len() <= LONGEST_KEY_PACKAGE {
            true => Ok((stated, rest)),
            false => Err(EncryptionError::StatementLength),
        }
    }
}
