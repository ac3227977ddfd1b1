//! The receiver's side: proofs checked at a bounded cost.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use sealbus_seal::{
    CLOCK_SKEW, CertificateChain, IdentityKind, PlatformName, SecurityLevel, Timestamp, Trust,
    VerifiedIdentity,
};
use sealbus_transparency::Hash;

use crate::author::Author;
use crate::batch::SignedBatch;
use crate::delegation::BatchKeyDelegation;
use crate::error::{NotEvident, NotProved};
use crate::proof::Proof;
use crate::statement::{Certified, delegation, sha256};

/// The number of wrong signatures that are checked from one source in a row. After that, one is checked each second.
pub const WRONG_SIGNATURES: u32 = 16;
/// In this time, one wrong signature is forgiven.
const FORGIVEN_AFTER: u64 = 1_000;
/// The signatures remembered, so that the messages of a batch that come one by one cost one signature.
const REMEMBERED: usize = 64;
/// The authors remembered, so that the certificates that come with each of their messages are not checked each time.
const AUTHORS: usize = 32;

/// Checks the proofs that come from one source, such as one process on one connection.
///
/// A source that sends wrong signatures costs [`WRONG_SIGNATURES`] checks, then one each second. Its further proofs are
/// refused without a look, even good ones. So use one verifier for each source, not for several.
#[derive(Clone, Debug)]
pub struct Verifier {
    platform: PlatformName,
    level: SecurityLevel,
    /// Digests of the signed statements, with their signatures, that were found true.
    known: VecDeque<Hash>,
    /// Digests of certificates, their owners, and the times from the first to the last for which they were believed.
    authors: VecDeque<(Hash, Author, RangeInclusive<Timestamp>)>,
    wrong: u32,
    /// Since when wrong signatures are forgiven, in milliseconds since 1970.
    forgiving_since: u64,
}

impl Verifier {
    /// A verifier for messages of agents of `platform` at `level`.
    pub fn new(platform: PlatformName, level: SecurityLevel) -> Self {
        Self {
            platform,
            level,
            known: VecDeque::new(),
            authors: VecDeque::new(),
            wrong: 0,
            forgiving_since: 0,
        }
    }

    /// The platform of the agents that it believes.
    pub fn platform(&self) -> &PlatformName {
        &self.platform
    }

    /// The level of the proofs that it believes.
    pub fn level(&self) -> SecurityLevel {
        self.level
    }

    /// Checks that `author` delegated to a batch key, with the certificate at hand. `now` is the time here in milliseconds
    /// since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// [`NotProved`]: the key signs nothing for the author.
    pub fn delegated(
        &mut self,
        author: &VerifiedIdentity,
        word: &BatchKeyDelegation,
        now: u64,
    ) -> Result<(), NotProved> {
        let identity = author.identity();
        let name = match (identity.kind(), identity.agent_name()) {
            (IdentityKind::Agent, Some(name)) if *identity.platform() == self.platform => name,
            _ => {
                return Err(NotProved::NotAnAuthor {
                    identity: identity.clone(),
                    platform: self.platform.to_string(),
                });
            }
        };
        let certified = Certified {
            platform: &self.platform,
            author: &name,
            serial: author.serial(),
            certificate: author.fingerprint(),
        };
        let signed = delegation(&certified, &word.key);
        let signature = &word.signature;
        // An identity without such a key proves nothing, and both keys are of one algorithm: that of the platform.
        let own = author.proof_key();
        let own = own.filter(|own| own.algorithm() == word.key.algorithm());
        let is_true = |signed: &[u8]| own.is_some_and(|own| own.verifies(signed, signature));
        self.check(signed, signature, now, is_true, || {
            NotProved::NotDelegated {
                author: identity.clone(),
            }
        })
    }

    /// Checks that a batch's key signed the batch.
    ///
    /// # Errors
    /// [`NotProved`]: none of its messages is proved.
    pub fn signed(&mut self, batch: &SignedBatch, now: u64) -> Result<(), NotProved> {
        self.check_level(batch.level)?;
        let is_true = |signed: &[u8]| batch.key.verifies(signed, &batch.signature);
        let signed = batch.statement(&self.platform);
        self.check(signed, &batch.signature, now, is_true, || {
            NotProved::WrongSignature
        })
    }

    /// Checks that `author` made this statement, given by its [hash](crate::Statement::hash).
    ///
    /// `author` comes from [`Trust::verify`](sealbus_seal::Trust::verify), at the time of the arrival, or for old
    /// messages at the time that the proof states. `now` is the time here in milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// A proof that is shown again is true again. The caller must see to it that a message counts once: by a connection
    /// without replays, or by the messages' numbers.
    ///
    /// # Errors
    /// [`NotProved`].
    pub fn verify(
        &mut self,
        author: &VerifiedIdentity,
        proof: &Proof,
        statement: &Hash,
        now: u64,
    ) -> Result<(), NotProved> {
        self.check_facts(author, proof, now)?;
        self.delegated(author, &proof.delegation, now)?;
        self.proved(author, proof, statement, now)
    }

    fn check_facts(
        &self,
        author: &VerifiedIdentity,
        proof: &Proof,
        now: u64,
    ) -> Result<(), NotProved> {
        if proof.serial != author.serial() {
            return Err(NotProved::OtherCertificate {
                author: author.identity().clone(),
                wanted: proof.serial,
                found: author.serial(),
            });
        }
        self.check_level(proof.level)?;
        check_time(author, proof.time, now)
    }

    /// As [`verify`](Self::verify), for an author whose delegation to the key of the proof was found true.
    pub(crate) fn verify_delegated(
        &mut self,
        author: &VerifiedIdentity,
        proof: &Proof,
        statement: &Hash,
        now: u64,
    ) -> Result<(), NotProved> {
        self.check_facts(author, proof, now)?;
        self.proved(author, proof, statement, now)
    }

    fn proved(
        &mut self,
        author: &VerifiedIdentity,
        proof: &Proof,
        statement: &Hash,
        now: u64,
    ) -> Result<(), NotProved> {
        let signed = proof.signed(&self.platform, author.fingerprint(), statement)?;
        let is_true = |signed: &[u8]| proof.delegation.key.verifies(signed, &proof.signature);
        self.check(signed, &proof.signature, now, is_true, || {
            NotProved::WrongSignature
        })
    }

    fn check_level(&self, found: SecurityLevel) -> Result<(), NotProved> {
        match found == self.level {
            true => Ok(()),
            false => Err(NotProved::OtherLevel {
                wanted: self.level,
                found,
            }),
        }
    }

    /// Checks a signature, unless it was found true before or too many were wrong.
    fn check(
        &mut self,
        mut signed: Vec<u8>,
        signature: &[u8],
        now: u64,
        is_true: impl FnOnce(&[u8]) -> bool,
        wrong: impl FnOnce() -> NotProved,
    ) -> Result<(), NotProved> {
        self.bound(now)?;
        let length = signed.len();
        signed.extend_from_slice(signature);
        let known = sha256(&signed);
        if self.known.contains(&known) {
            return Ok(());
        }
        if !is_true(&signed[..length]) {
            self.wrong += 1;
            return Err(wrong());
        }
        if self.known.len() == REMEMBERED {
            self.known.pop_front();
        }
        self.known.push_back(known);
        Ok(())
    }

    /// The author with these certificates, as of the time `then`. `shown` is the encoded form of the `chain`.
    pub(crate) fn author(
        &mut self,
        shown: &[u8],
        chain: CertificateChain,
        trust: &Trust,
        then: Timestamp,
        now: u64,
    ) -> Result<Author, NotEvident> {
        self.bound(now)?;
        let shown = sha256(shown);
        let place = self.authors.iter().position(|(known, ..)| *known == shown);
        let mut times = then..=then;
        if let Some((_, author, known)) = place.and_then(|place| self.authors.get(place)) {
            if known.contains(&then) {
                return Ok(author.clone());
            }
            // Certificates that are good at two times are good between them.
            times = then.min(*known.start())..=then.max(*known.end());
        }
        let author = Author::verify(chain, trust, then).inspect_err(|_| self.wrong += 1)?;
        match place {
            Some(place) => drop(self.authors.remove(place)),
            None if self.authors.len() == AUTHORS => drop(self.authors.pop_front()),
            None => {}
        }
        self.authors.push_back((shown, author.clone(), times));
        Ok(author)
    }

    /// Refuses to look at more while too many signatures were wrong.
    fn bound(&mut self, now: u64) -> Result<(), NotProved> {
        self.forgive(now);
        match self.wrong >= WRONG_SIGNATURES {
            true => Err(NotProved::TooManyWrong),
            false => Ok(()),
        }
    }

    fn forgive(&mut self, now: u64) {
        if self.wrong == 0 {
            self.forgiving_since = now;
            return;
        }
        let forgiven = now.saturating_sub(self.forgiving_since) / FORGIVEN_AFTER;
        self.wrong = self
            .wrong
            .saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        self.forgiving_since += forgiven * FORGIVEN_AFTER;
    }
}

/// Checks the `time` that a batch states: the author's certificate must have been valid then, and the time must not lie
/// ahead, up to the difference between clocks. Times are in milliseconds since 1970-01-01T00:00:00Z.
///
/// # Errors
/// [`NotProved::NotThen`].
pub fn check_time(author: &VerifiedIdentity, time: u64, now: u64) -> Result<(), NotProved> {
    let time = Timestamp::from_unix_seconds(time / 1_000);
    let now = Timestamp::from_unix_seconds(now / 1_000);
    let (not_before, not_after) = (author.not_before(), author.not_after());
    match not_before <= time.plus(CLOCK_SKEW)
        && time <= not_after.plus(CLOCK_SKEW)
        && time <= now.plus(CLOCK_SKEW)
    {
        true => Ok(()),
        false => Err(NotProved::NotThen {
            author: author.identity().clone(),
            time,
            not_before,
            not_after,
            now,
        }),
    }
}
