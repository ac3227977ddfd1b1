//! Proofs of authorship: one signature for many messages of many agents, which anyone with an author's certificate can
//! check. No I/O.
//!
//! - A [`Statement`] is an author's word about one message, with its channel, its quality of service and its receivers.
//! - A process has one [`BatchKey`]. Each of its agents vouches for the key once for each certificate, by a
//!   [`BatchKeyDelegation`].
//! - A [`Signer`] numbers the statements of one agent. A [`Batch`] takes the statements of all agents that are ready now:
//!   the statements of each author are a Merkle tree (RFC 9162), and the roots of these trees are another one. The key
//!   signs the root of that tree once. A batch never waits for more statements. A [`Proof`] shows one message of a
//!   batch.
//! - A [`Verifier`] checks delegations, batches and proofs from one source, at a bounded cost.
//! - A receiver keeps [`Evidence`] of a proof, so that others can check it again.
//! - [`inspect`] checks a file of evidence: everything that others need to know who said what. [`disclose`] puts the words
//!   of sealed messages into one.
//!
//! docs/evidence.md describes the formats.

mod author;
mod batch;
mod blob;
mod delegation;
mod disclosure;
mod error;
mod evidence;
mod file;
mod inspection;
mod key;
mod proof;
mod report;
mod statement;
mod verifier;

pub use author::Author;
pub use batch::{Batch, SignedBatch, Signer, sign_together};
pub use blob::Blob;
pub use delegation::{BatchKeyDelegation, LONGEST_DELEGATION};
pub use disclosure::{DisclosedReport, Disclosure, disclose, is_inside};
pub use error::{
    EvidenceFileError, Malformed, NotAnAuthor, NotDisclosed, NotEvident, NotProved, NotTrue,
    SignError,
};
pub use evidence::{Evidence, LONGEST_EVIDENCE, ProvedAuthor, ProvedBatch};
pub use file::{
    CertificateLine, DisclosedLine, EarlierLine, EvidenceHead, EvidenceLine, FILE_VERSION, LogLine,
    MessageLine, write_file,
};
pub use inspection::{Demands, inspect};
pub use key::{BatchKey, BatchPublicKey};
pub use proof::{LONGEST_PROOF, MOST_MESSAGES, Proof};
pub use report::{CosignatureReport, LogReport, MessageReport, Report};
pub use sealbus_transparency::{Hash, Inclusion, NotLogged};
pub use statement::{AuthorEntry, Statement};
pub use verifier::{Verifier, WRONG_SIGNATURES, check_time};
