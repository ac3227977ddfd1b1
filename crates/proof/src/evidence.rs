//! A proof that was checked, with everything needed to check it again.

use std::sync::Arc;

use sealbus_seal::{CertificateChain, SecurityLevel, VerifiedIdentity};
use sealbus_transparency::Hash;

use crate::error::SignError;
use crate::proof::Proof;

/// The author of messages, with the certificates that a verifier elsewhere needs.
#[derive(Clone, Debug)]
pub struct Author {
    /// The author, as its certificates prove it.
    pub verified: VerifiedIdentity,
    /// The author's certificate and its issuers'.
    pub chain: CertificateChain,
}

/// The facts that a receiver keeps about messages that were proved together.
#[derive(Debug)]
struct Proved {
    author: Author,
    proof: Proof,
    statements: Vec<Hash>,
}

/// The evidence that an author wrote a message. The evidence of messages that came together is shared.
#[derive(Clone, Debug)]
pub struct Evidence {
    proved: Arc<Proved>,
    place: u16,
}

impl Evidence {
    /// The evidence for each of the messages that `proof` is for, in their order. A [`Verifier`](crate::Verifier) has
    /// found the proof true for the author and these [hashes](crate::Statement::hash).
    pub fn of_each(
        author: Author,
        proof: Proof,
        statements: Vec<Hash>,
    ) -> impl Iterator<Item = Self> {
        let places = 0..proof.count;
        let proved = Arc::new(Proved {
            author,
            proof,
            statements,
        });
        places.map(move |place| Self {
            proved: proved.clone(),
            place,
        })
    }

    /// The author.
    pub fn author(&self) -> &VerifiedIdentity {
        &self.proved.author.verified
    }

    /// The author's certificate and its issuers'.
    pub fn chain(&self) -> &CertificateChain {
        &self.proved.author.chain
    }

    /// The level that the message was signed for.
    pub fn level(&self) -> SecurityLevel {
        self.proved.proof.level()
    }

    /// The hash of the message's statement.
    pub fn statement(&self) -> Option<&Hash> {
        self.proved.statements.get(usize::from(self.place))
    }

    /// The proof of this message alone.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if the hashes do not belong to the proof. A verified proof has no such error.
    pub fn proof(&self) -> Result<Proof, SignError> {
        let Proved {
            proof, statements, ..
        } = &*self.proved;
        proof.of_one(statements, usize::from(self.place))
    }
}
