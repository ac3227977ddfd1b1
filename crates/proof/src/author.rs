//! The author of messages, believed as of a time.

use std::sync::Arc;

use sealbus_seal::{CertificateChain, Timestamp, Trust, VerifiedIdentity};
use sealbus_transparency::Inclusion;

use crate::error::NotAnAuthor;

/// The author of messages, with the certificates that a verifier elsewhere needs. Clones share them.
#[derive(Clone, Debug)]
pub struct Author(Arc<Believed>);

#[derive(Debug)]
struct Believed {
    verified: VerifiedIdentity,
    chain: CertificateChain,
}

impl Author {
    /// Checks that the owner of a certificate is the author of messages that its key signed at the time `then`: the whole
    /// chain was valid at that time, and its CA proves that the certificate is in the issuance log.
    ///
    /// This asks no deny lists: see [`Trust::verify_as_of`].
    ///
    /// # Errors
    /// [`NotAnAuthor`].
    pub fn verify(
        chain: CertificateChain,
        trust: &Trust,
        then: Timestamp,
    ) -> Result<Self, NotAnAuthor> {
        let verified = trust.verify_as_of(&chain, then)?;
        Inclusion::check_of_verified(&chain, trust)?;
        Ok(Self(Arc::new(Believed { verified, chain })))
    }

    /// The author, as its certificates prove it.
    pub fn verified(&self) -> &VerifiedIdentity {
        &self.0.verified
    }

    /// The author's certificate and its issuers', with the proof that it is in the issuance log.
    pub fn chain(&self) -> &CertificateChain {
        &self.0.chain
    }
}
