//! The receiver's side: proofs checked at a bounded cost.

use std::collections::VecDeque;

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_seal::{
    CLOCK_SKEW, IdentityKind, PlatformName, SecurityLevel, Timestamp, VerifiedIdentity,
};
use sealbus_transparency::Hash;

use crate::error::NotProved;
use crate::proof::Proof;
use crate::statement::BatchStatement;

/// The number of wrong signatures that are checked from one source in a row. After that, one is checked each second.
pub const WRONG_SIGNATURES: u32 = 16;
/// In this time, one wrong signature is forgiven.
const FORGIVEN_AFTER: u64 = 1_000;
/// The batches remembered, so that the messages of one that come one by one cost one signature.
const REMEMBERED: usize = 16;

/// Checks the proofs that come from one source, such as one agent on one connection.
///
/// A source that sends wrong signatures costs [`WRONG_SIGNATURES`] checks, then one each second. Its further proofs are
/// refused without a look, even good ones. So use one verifier for each source, not for several.
#[derive(Clone, Debug)]
pub struct Verifier {
    platform: PlatformName,
    level: SecurityLevel,
    /// Digests of the signed statements, with their signatures, that were found true.
    known: VecDeque<Hash>,
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
            wrong: 0,
            forgiving_since: 0,
        }
    }

    /// The level of the proofs that it believes.
    pub fn level(&self) -> SecurityLevel {
        self.level
    }

    /// Checks that `author` signed these statements, given by their [hashes](crate::Statement::hash) in their order.
    ///
    /// `author` comes from [`Trust::verify`](sealbus_seal::Trust::verify), at the time of the arrival, or for old
    /// messages at the time that the proof states. `now` is the time here in milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// A proof that is shown again is true again. The caller must see to it that a message counts once: by a connection
    /// without replays, or by the messages' numbers.
    ///
    /// # Errors
    /// [`NotProved`]: none of the statements is proved.
    pub fn verify(
        &mut self,
        author: &VerifiedIdentity,
        proof: &Proof,
        statements: &[Hash],
        now: u64,
    ) -> Result<(), NotProved> {
        self.forgive(now);
        let identity = author.identity();
        if self.wrong >= WRONG_SIGNATURES {
            return Err(NotProved::TooManyWrong {
                author: identity.clone(),
            });
        }
        let name = match (identity.kind(), identity.agent_name()) {
            (IdentityKind::Agent, Some(name)) if *identity.platform() == self.platform => name,
            _ => {
                return Err(NotProved::NotAnAuthor {
                    identity: identity.clone(),
                    platform: self.platform.to_string(),
                });
            }
        };
        if proof.serial() != author.serial() {
            return Err(NotProved::OtherCertificate {
                author: identity.clone(),
                wanted: proof.serial(),
                found: author.serial(),
            });
        }
        if proof.level() != self.level {
            return Err(NotProved::OtherLevel {
                author: identity.clone(),
                wanted: self.level,
                found: proof.level(),
            });
        }
        check_time(author, proof, now)?;
        let statement = BatchStatement {
            platform: &self.platform,
            level: self.level,
            author: &name,
            serial: author.serial(),
            certificate: author.fingerprint(),
            time: proof.head.time,
            first: proof.head.first,
            size: proof.head.size,
            root: proof.root(statements)?,
        };
        let signature = &proof.head.signature;
        let mut signed = statement.encode();
        let statement_length = signed.len();
        signed.extend_from_slice(signature.as_bytes());
        let mut known = Hash::default();
        known.copy_from_slice(digest(&SHA256, &signed).as_ref());
        if self.known.contains(&known) {
            return Ok(());
        }
        if !author
            .public_key()
            .verifies(&signed[..statement_length], signature)
        {
            self.wrong += 1;
            return Err(NotProved::WrongSignature {
                author: identity.clone(),
            });
        }
        if self.known.len() == REMEMBERED {
            self.known.pop_front();
        }
        self.known.push_back(known);
        Ok(())
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

/// The certificate must have been valid at the stated time, and that time must not lie ahead, up to the difference
/// between clocks.
fn check_time(author: &VerifiedIdentity, proof: &Proof, now: u64) -> Result<(), NotProved> {
    let time = Timestamp::from_unix_seconds(proof.time() / 1_000);
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
