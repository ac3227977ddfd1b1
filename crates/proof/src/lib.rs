//! Proofs of authorship: one signature for many messages, which anyone with the author's certificate can check. No I/O.
//!
//! - A [`Statement`] is an author's word about one message, with its channel, its quality of service and its receivers.
//! - A [`Signer`] signs the statements that are ready now, together: it builds a Merkle tree over them (RFC 9162) and
//!   signs the root once. It never waits for more. [`Batch::proof`] gives the [`Proof`] of successive statements.
//! - A [`Verifier`] checks proofs from one source, at a bounded cost.
//! - A receiver keeps [`Evidence`] of a proof, so that others can check it again.
//! - [`inspect`] checks a file of evidence: everything that others need to know who said what. [`disclose`] puts the words
//!   of sealed messages into one.
//!
//! docs/evidence.md describes the formats.

mod batch;
mod disclosure;
mod error;
mod evidence;
mod file;
mod inspection;
mod proof;
mod statement;
mod verifier;

pub use batch::{Batch, Signer};
pub use disclosure::{DisclosedReport, Disclosure, disclose, is_inside};
pub use error::{
    FileError, Malformed, NotAnAuthor, NotDisclosed, NotEvident, NotProved, NotTrue, SignError,
};
pub use evidence::{Author, Evidence, MAX_EVIDENCE_LENGTH};
pub use file::{
    Base64, CertificateLine, DisclosedLine, EarlierLine, FILE_VERSION, Head, Line, LogLine,
    MessageLine, write_file,
};
pub use inspection::{CosignatureReport, Demands, LogReport, MessageReport, Report, inspect};
pub use proof::{MAX_BATCH, MAX_PROOF_LENGTH, Proof};
pub use sealbus_transparency::{Hash, Inclusion, NotLogged};
pub use statement::Statement;
pub use verifier::{Verifier, WRONG_SIGNATURES};
