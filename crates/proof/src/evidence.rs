//! A proof that was checked, with everything needed to check it again.

use std::sync::Arc;

use sealbus_seal::{
    CertificateChain, MAX_CHAIN_BYTES, SecurityLevel, Timestamp, Trust, VerifiedIdentity,
};
use sealbus_transparency::{Hash, Inclusion};

use crate::error::{NotAnAuthor, NotEvident, SignError};
use crate::proof::{MAX_PROOF_LENGTH, Proof};
use crate::verifier::Verifier;

/// Bytes of the longest evidence in its encoded form.
pub const MAX_EVIDENCE_LENGTH: usize = MAX_CHAIN_BYTES + MAX_PROOF_LENGTH;

/// The author of messages, with the certificates that a verifier elsewhere needs.
#[derive(Clone, Debug)]
pub struct Author {
    verified: VerifiedIdentity,
    chain: CertificateChain,
}

impl Author {
    /// Believes the owner of a certificate to be the author of what its key signed at the time `then`: the whole chain was
    /// valid at that time, and its CA proves that the certificate is in the issuance log.
    ///
    /// Deny lists are not asked: see [`Trust::verify_as_of`].
    ///
    /// # Errors
    /// [`NotAnAuthor`].
    pub fn verify(
        chain: CertificateChain,
        trust: &Trust,
        then: Timestamp,
    ) -> Result<Self, NotAnAuthor> {
        let verified = trust.verify_as_of(&chain, then)?;
        Inclusion::check_of(&chain, trust)?;
        Ok(Self { verified, chain })
    }

    /// The author, as its certificates prove it.
    pub fn verified(&self) -> &VerifiedIdentity {
        &self.verified
    }

    /// The author's certificate and its issuers', with the proof that it is in the issuance log.
    pub fn chain(&self) -> &CertificateChain {
        &self.chain
    }
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

    /// Appends the form in which evidence is kept and sent on: the author's certificates, then the proof of this
    /// message alone. docs/evidence.md describes it.
    ///
    /// # Errors
    /// As [`proof`](Self::proof).
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), SignError> {
        let proof = self.proof()?;
        self.chain().encode(out);
        proof.encode(out);
        Ok(())
    }

    /// Reads evidence, and checks that it proves the message with this statement, given by its
    /// [hash](crate::Statement::hash): certificates and proof as of the time that the proof states. `now` is the time
    /// here in milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// Deny lists are not asked: see [`Trust::verify_as_of`].
    ///
    /// # Errors
    /// [`NotEvident`].
    pub fn decode(
        bytes: &[u8],
        statement: Hash,
        level: SecurityLevel,
        trust: &Trust,
        now: u64,
    ) -> Result<Self, NotEvident> {
        let (chain, rest) = CertificateChain::decode_prefix(bytes)?;
        let proof = Proof::decode(rest)?;
        let then = Timestamp::from_unix_seconds(proof.time() / 1_000);
        let author = Author::verify(chain, trust, then)?;
        let statements = vec![statement];
        Verifier::new(trust.platform().clone(), level).verify(
            &author.verified,
            &proof,
            &statements,
            now,
        )?;
        Ok(Self {
            proved: Arc::new(Proved {
                author,
                proof,
                statements,
            }),
            place: 0,
        })
    }
}
