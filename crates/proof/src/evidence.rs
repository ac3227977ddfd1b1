//! A proof that was checked, with everything needed to check it again.

use std::sync::Arc;

use sealbus_seal::{
    CertificateChain, LONGEST_CHAIN, SecurityLevel, Timestamp, Trust, VerifiedIdentity,
};
use sealbus_transparency::{Hash, LogError};

use crate::author::Author;
use crate::batch::SignedBatch;
use crate::delegation::BatchKeyDelegation;
use crate::error::{NotEvident, SignError};
use crate::proof::{LONGEST_PROOF, Proof};
use crate::statement::AuthorEntry;
use crate::verifier::Verifier;

/// Bytes of the longest evidence in its encoded form.
pub const LONGEST_EVIDENCE: usize = LONGEST_CHAIN + LONGEST_PROOF;

/// A batch whose signature a [`Verifier`](crate::Verifier) has found true, with the messages of its believed authors.
#[derive(Debug)]
pub struct ProvedBatch {
    batch: SignedBatch,
    /// The hashes of all statements, those of each author together.
    statements: Vec<Hash>,
    authors: Vec<ProvedAuthor>,
}

/// An author of a proved batch, which delegated to its key.
#[derive(Debug)]
pub struct ProvedAuthor {
    /// The author.
    pub author: Author,
    /// The author's delegation.
    pub delegation: BatchKeyDelegation,
    /// The author's entry.
    pub entry: AuthorEntry,
    /// The place of the entry in the batch.
    pub place: usize,
    /// The place of the author's first statement among all statements.
    pub start: usize,
}

impl ProvedBatch {
    /// A batch with its believed authors.
    pub fn new(batch: SignedBatch, statements: Vec<Hash>, authors: Vec<ProvedAuthor>) -> Arc<Self> {
        Arc::new(Self {
            batch,
            statements,
            authors,
        })
    }

    /// The evidence of one message. `author` is the place of its author among the believed ones, and `place` is its own
    /// place among the author's messages.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if there is no such message.
    pub fn evidence(self: &Arc<Self>, author: usize, place: usize) -> Result<Evidence, SignError> {
        let missing = || {
            SignError::NotInBatch(LogError::Beyond {
                wanted: place as u64,
                size: self.statements.len() as u64,
            })
        };
        let of = self.authors.get(author).ok_or_else(missing)?;
        let count = usize::from(of.entry.count);
        if place >= count || of.start + count > self.statements.len() {
            return Err(missing());
        }
        Ok(Evidence(Source::Batch {
            batch: self.clone(),
            author,
            place,
        }))
    }
}

/// The evidence that an author wrote a message. The evidence of messages that came together is shared.
#[derive(Clone, Debug)]
pub struct Evidence(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The message came with a batch. Its proof is made when somebody asks for it.
    Batch {
        batch: Arc<ProvedBatch>,
        author: usize,
        place: usize,
    },
    /// The message came with a proof of its own.
    Alone(Arc<Alone>),
}

#[derive(Debug)]
struct Alone {
    author: Author,
    proof: Proof,
    statement: Hash,
}

impl Evidence {
    fn whole_author(&self) -> &Author {
        match &self.0 {
            Source::Batch { batch, author, .. } => &batch.authors[*author].author,
            Source::Alone(alone) => &alone.author,
        }
    }

    /// The author.
    pub fn author(&self) -> &VerifiedIdentity {
        self.whole_author().verified()
    }

    /// The author's certificate and its issuers'.
    pub fn chain(&self) -> &CertificateChain {
        self.whole_author().chain()
    }

    /// The level that the message was signed for.
    pub fn level(&self) -> SecurityLevel {
        match &self.0 {
            Source::Batch { batch, .. } => batch.batch.level,
            Source::Alone(alone) => alone.proof.level,
        }
    }

    /// The hash of the message's statement.
    pub fn statement(&self) -> &Hash {
        match &self.0 {
            Source::Batch {
                batch,
                author,
                place,
            } => &batch.statements[batch.authors[*author].start + place],
            Source::Alone(alone) => &alone.statement,
        }
    }

    /// The number of the message. The author's certificate and the number identify a message.
    pub fn number(&self) -> u64 {
        match &self.0 {
            Source::Batch {
                batch,
                author,
                place,
            } => batch.authors[*author].entry.first + *place as u64,
            Source::Alone(alone) => alone.proof.number(),
        }
    }

    /// When the author's process says it signed, in milliseconds since 1970-01-01T00:00:00Z.
    pub fn time(&self) -> u64 {
        match &self.0 {
            Source::Batch { batch, .. } => batch.batch.time,
            Source::Alone(alone) => alone.proof.time(),
        }
    }

    /// The proof of this message.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if an author has no place in the batch. A verified batch has no such author.
    pub fn proof(&self) -> Result<Proof, SignError> {
        match &self.0 {
            Source::Batch {
                batch,
                author,
                place,
            } => {
                let of = &batch.authors[*author];
                let statements =
                    &batch.statements[of.start..of.start + usize::from(of.entry.count)];
                batch
                    .batch
                    .proof(&of.delegation, &of.entry, of.place, statements, *place)
            }
            Source::Alone(alone) => Ok(alone.proof.clone()),
        }
    }

    /// Appends the form in which evidence is kept and sent on: the author's certificates, then the proof of this
    /// message. docs/evidence.md describes it.
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
    /// This asks no deny lists: see [`Trust::verify_as_of`].
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
        let mut verifier = Verifier::new(trust.platform().clone(), level);
        Self::decode_with(&mut verifier, bytes, statement, trust, now)
    }

    /// As [`decode`](Self::decode), for evidence that comes from one source: at a bounded cost, and with what the verifier
    /// remembers of the source.
    ///
    /// Evidence that is shown again is true again. The caller must see to it that a message counts once, by its
    /// [number](Self::number).
    ///
    /// # Errors
    /// [`NotEvident`].
    pub fn decode_with(
        verifier: &mut Verifier,
        bytes: &[u8],
        statement: Hash,
        trust: &Trust,
        now: u64,
    ) -> Result<Self, NotEvident> {
        let (chain, rest) = CertificateChain::decode_prefix(bytes)?;
        let proof = Proof::decode(rest)?;
        let shown = bytes.strip_suffix(rest).unwrap_or(bytes);
        let then = Timestamp::from_unix_seconds(proof.time() / 1_000);
        let author = verifier.author(shown, chain, trust, then, now)?;
        verifier.verify(author.verified(), &proof, &statement, now)?;
        Ok(Self(Source::Alone(Arc::new(Alone {
            author,
            proof,
            statement,
        }))))
    }
}
