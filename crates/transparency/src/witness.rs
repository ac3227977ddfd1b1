//! A witness (C2SP tlog-witness): it remembers the latest checkpoint of a log, and accepts only one that continues it.

use std::fmt;

use base64::Engine as _;
use thiserror::Error;

use crate::base64;
use crate::checkpoint::{Checkpoint, LONGEST_CHECKPOINT};
use crate::error::LogError;
use crate::note::{Note, NoteKey};
use crate::tree::{Hash, verify_consistency};

/// Most hashes of a consistency proof.
const MOST_HASHES: usize = 63;

/// The body of `add-checkpoint`: a checkpoint, and the proof that it continues an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// The size of the older tree; 0 if the witness knows none.
    pub old: u64,
    /// The consistency proof.
    pub proof: Vec<Hash>,
    /// The checkpoint with the log's signature.
    pub note: Note,
}

/// A witness of one log.
#[derive(Clone, Debug)]
pub struct Witness {
    log: NoteKey,
    latest: Option<Checkpoint>,
}

/// Why a witness does not cosign.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WitnessRefusal {
    /// The request is not valid.
    #[error("the request to a witness is not valid: {0}")]
    Invalid(LogError),
    /// The log has not signed the checkpoint.
    #[error("{0}")]
    NotSigned(LogError),
    /// The proof must begin at another size, the one that the witness saw last.
    #[error("the witness saw this log last with {0} entries")]
    Seen(u64),
    /// The log has signed fewer entries than the witness saw before.
    #[error("the log {origin} was cut off: it signed {seen} entries before, and {shown} now")]
    Truncated {
        /// The log.
        origin: String,
        /// The entries it had.
        seen: u64,
        /// The entries it shows.
        shown: u64,
    },
    /// The log has signed two trees that do not continue each other.
    #[error(
        "the log {origin} has two views: the tree of {shown} entries does not continue the one of {seen} that it signed before"
    )]
    Forked {
        /// The log.
        origin: String,
        /// The entries of the tree it signed before.
        seen: u64,
        /// The entries of the tree it shows.
        shown: u64,
    },
}

impl WitnessRefusal {
    /// Whether the log has lost or rewritten entries that it signed. It is dishonest, or was restored from a backup.
    pub fn is_alarm(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Forked { .. })
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::NotSigned(_) => 403,
            Self::Seen(_) | Self::Truncated { .. } => 409,
            Self::Forked { .. } => 422,
        }
    }
}

impl AddCheckpoint {
    /// Reads a request.
    ///
    /// # Errors
    /// [`LogError::Malformed`].
    pub fn parse(body: &str) -> Result<Self, LogError> {
        let malformed = LogError::Malformed;
        if body.len() > LONGEST_CHECKPOINT {
            return Err(malformed("it is too long"));
        }
        let (head, note) = body
            .split_once("\n\n")
            .ok_or(malformed("it has no checkpoint"))?;
        let mut lines = head.split('\n');
        let old = lines
            .next()
            .and_then(|line| line.strip_prefix("old "))
            .filter(|old| *old == "0" || !old.starts_with(['0', '+']))
            .and_then(|old| old.parse().ok())
            .ok_or(malformed("it does not begin with an old size"))?;
        let proof: Vec<&str> = lines.collect();
        if proof.len() > MOST_HASHES {
            return Err(malformed("its proof is too long"));
        }
        let hash = |line: &&str| base64().decode(line).ok()?.try_into().ok();
        let proof: Option<Vec<Hash>> = proof.iter().map(hash).collect();
        Ok(Self {
            old,
            proof: proof.ok_or(malformed("a line of its proof is not a hash"))?,
            note: Note::parse(note)?,
        })
    }
}

/// The body.
impl fmt::Display for AddCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old)?;
        for hash in &self.proof {
            writeln!(f, "{}", base64().encode(hash))?;
        }
        write!(f, "\n{}", self.note)
    }
}

impl Witness {
    /// A witness of the log with this key, which saw `latest` last. The caller takes `latest` from its own files.
    pub fn new(log: NoteKey, latest: Option<Checkpoint>) -> Self {
        Self { log, latest }
    }

    /// Judges a request. The returned checkpoint may be cosigned once it is kept. It is then the latest.
    ///
    /// # Errors
    /// [`WitnessRefusal`]. The latest checkpoint stays the same.
    pub fn consider(&self, request: &AddCheckpoint) -> Result<Checkpoint, WitnessRefusal> {
        let shown = Checkpoint::open(&request.note, &self.log).map_err(|error| match error {
            LogError::NotSigned(_) => WitnessRefusal::NotSigned(error),
            error => WitnessRefusal::Invalid(error),
        })?;
        if request.old > shown.size {
            let why = LogError::Malformed("its old size is above the size of the checkpoint");
            return Err(WitnessRefusal::Invalid(why));
        }
        let Some(seen) = &self.latest else {
            return match request.old {
                0 if request.proof.is_empty() => Ok(shown),
                0 => Err(WitnessRefusal::Invalid(LogError::Malformed(
                    "there is nothing to prove from size 0",
                ))),
                _ => Err(WitnessRefusal::Seen(0)),
            };
        };
        if shown.size < seen.size {
            return Err(WitnessRefusal::Truncated {
                origin: shown.origin,
                seen: seen.size,
                shown: shown.size,
            });
        }
        let forked = || WitnessRefusal::Forked {
            origin: shown.origin.clone(),
            seen: seen.size,
            shown: shown.size,
        };
        if shown.size == seen.size && shown.root != seen.root {
            return Err(forked());
        }
        if request.old != seen.size {
            return Err(WitnessRefusal::Seen(seen.size));
        }
        verify_consistency(
            seen.size,
            &seen.root,
            shown.size,
            &shown.root,
            &request.proof,
        )
        .map_err(|_| forked())?;
        Ok(shown)
    }

    /// The latest checkpoint.
    pub fn latest(&self) -> Option<&Checkpoint> {
        self.latest.as_ref()
    }

    /// Notes the checkpoint that was accepted and kept.
    pub fn accepted(&mut self, checkpoint: Checkpoint) {
        self.latest = Some(checkpoint);
    }
}
