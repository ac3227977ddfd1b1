//! Why a proof was not made, not read or not believed.

use sealbus_fipa::DecodeError;
use sealbus_seal::denylist::DenyListError;
use sealbus_seal::{
    CertificateError, Identity, IdentityError, KeyError, SecurityLevel, Serial, SignatureAlgorithm,
    Timestamp, TrustError, VerifyError,
};
use sealbus_transparency::{LogError, NotLogged};
use thiserror::Error;

/// Why nothing was signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignError {
    /// The certificate cannot be read.
    #[error("the author's certificate cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    /// Only agents are authors.
    #[error("{0} is no agent: only agents sign messages")]
    NotAnAgent(Identity),
    /// The author is not here any more.
    #[error("the author of the messages has left")]
    NoAuthor,
    /// The keys of the author and of the process are of different algorithms.
    #[error(
        "the author's proofs are of the algorithm {wanted}, and those of its process are of {found}"
    )]
    Algorithm {
        /// The author's algorithm.
        wanted: SignatureAlgorithm,
        /// The process's algorithm.
        found: SignatureAlgorithm,
    },
    /// The level asks for no signature.
    #[error("messages at level {0} are not signed: the level must be signed or sealed")]
    Level(SecurityLevel),
    /// The number of statements is 0 or too large.
    #[error("{count} messages cannot be signed together: 1 to {most} can")]
    Count {
        /// The number of statements.
        count: usize,
        /// The largest number.
        most: usize,
    },
    /// The statements asked for are not in the batch.
    #[error("the batch does not hold these messages: {0}")]
    NotInBatch(LogError),
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Why bytes are no proof.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The bytes do not end with the proof.
    #[error("a proof of {expected} bytes was expected, but there are {found}")]
    Length {
        /// The length that the first fields give, or the least length of a proof.
        expected: usize,
        /// The number of bytes.
        found: usize,
    },
    /// The form is of another version.
    #[error("a proof of version {0}: this program reads version 2")]
    Version(u8),
    /// The byte names no algorithm of batch keys.
    #[error("the number {0} names no algorithm of a batch key")]
    Algorithm(u8),
    /// The number stands for no level that asks for signatures.
    #[error("the number {0} is not that of level signed or sealed")]
    Level(u8),
    /// A message or an author is not in the batch.
    #[error("there is no place {place} among {of} messages or authors")]
    Place {
        /// The place, from 0.
        place: u16,
        /// The number of places.
        of: u16,
    },
    /// The batch has too many messages.
    #[error("a batch of {authors} authors, of whom one has {count} messages, is too large")]
    TooLarge {
        /// The authors.
        authors: u16,
        /// The messages of one of them.
        count: u16,
    },
    /// The numbers of the messages are beyond 64 bits.
    #[error("the numbers of the messages are too large")]
    Numbers,
}

/// Why a proof is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotProved {
    /// The certificate is not that of an agent of this platform.
    #[error("{identity} is no agent of platform {platform}: it cannot be the author")]
    NotAnAuthor {
        /// The certified identity.
        identity: Identity,
        /// The verifier's platform.
        platform: String,
    },
    /// The proof was made with another certificate.
    #[error("the proof needs the certificate {wanted} of {author}, and was checked with {found}")]
    OtherCertificate {
        /// The author.
        author: Identity,
        /// The certificate that the proof names.
        wanted: Serial,
        /// The certificate at hand.
        found: Serial,
    },
    /// The proof was made for another level.
    #[error("the message was proved at level {found}, but level {wanted} is required")]
    OtherLevel {
        /// The verifier's level.
        wanted: SecurityLevel,
        /// The level of the proof.
        found: SecurityLevel,
    },
    /// The certificate was not valid at the time that the proof states, or that time is yet to come.
    #[error(
        "{author} states that it signed at {time}, but its certificate is valid from {not_before} to {not_after}, and the time here is {now}"
    )]
    NotThen {
        /// The author.
        author: Identity,
        /// The stated time.
        time: Timestamp,
        /// The beginning of the certificate's validity.
        not_before: Timestamp,
        /// Its end.
        not_after: Timestamp,
        /// The time here.
        now: Timestamp,
    },
    /// The author did not let the batch key sign for it.
    #[error(
        "{author} did not delegate to the batch key with this certificate: the delegation was changed, or is that of another agent, certificate, key or platform"
    )]
    NotDelegated {
        /// The author.
        author: Identity,
    },
    /// The batch key did not sign these messages, at these places, for this platform and level.
    #[error(
        "the batch key did not sign these messages: a message, its channel, quality of service, receivers, author or place was changed, or the proof belongs to another batch or platform"
    )]
    WrongSignature,
    /// The source sent too many wrong proofs. The proof was not looked at.
    #[error("too many wrong proofs came from the source of this message: try again later")]
    TooManyWrong,
}

/// Why nobody is believed to be the author of what a certificate's key signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAnAuthor {
    /// The certificates do not lead to a trusted root.
    #[error(transparent)]
    Untrusted(#[from] VerifyError),
    /// The certificate is not in the issuance log.
    #[error(transparent)]
    NotLogged(#[from] NotLogged),
}

/// Why evidence is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotEvident {
    /// The certificates cannot be read.
    #[error("the certificates of the evidence cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    /// The proof cannot be read.
    #[error("the proof of the evidence cannot be read: {0}")]
    Proof(#[from] Malformed),
    /// At the time that the proof states, the certificates did not lead to a trusted root, or the log did not have them.
    #[error("the author's certificate was not valid when the message was signed: {0}")]
    Author(#[from] NotAnAuthor),
    /// The proof does not prove the message.
    #[error(transparent)]
    NotProved(#[from] NotProved),
}

/// Why a file of evidence proves nothing.
#[derive(Debug, Error)]
#[error("line {line} of the evidence: {why}")]
pub struct EvidenceFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// The reason.
    #[source]
    pub why: Box<NotTrue>,
}

/// Why the words of sealed messages were not put into a file of evidence.
#[derive(Debug, Error)]
pub enum NotDisclosed {
    /// The file is damaged.
    #[error(transparent)]
    File(#[from] EvidenceFileError),
    /// The words are not those of a sealed message of the file.
    #[error("the words {number} are not those of a sealed message in the file")]
    OfNoMessage {
        /// The number of the words, from 1.
        number: usize,
    },
    /// A line cannot be written.
    #[error("the file cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// Why a line of a file of evidence is not believed.
#[derive(Debug, Error)]
pub enum NotTrue {
    /// The line, or the file, does not have its form.
    #[error("{0}")]
    Form(&'static str),
    /// The line is not written as docs/evidence.md says.
    #[error("the line cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The format is newer.
    #[error("the file has version {0} of the format: this program reads version 2")]
    Version(u32),
    /// The platform's name is not legal.
    #[error("the platform has no legal name: {0}")]
    Platform(#[from] IdentityError),
    /// The verifier believes another root.
    #[error("the root certificate (SHA-256 {found}) is not the one that was given")]
    OtherRoot {
        /// SHA-256 of the root in the file.
        found: String,
    },
    /// The root is no root of the platform.
    #[error(transparent)]
    Root(#[from] TrustError),
    /// A certificate cannot be read.
    #[error("a certificate cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    /// A certificate does not lead to the root.
    #[error(transparent)]
    Untrusted(#[from] VerifyError),
    /// The log does not say what it must.
    #[error("the issuance log: {0}")]
    Log(#[from] LogError),
    /// Too few witnesses cosigned the checkpoint.
    #[error("{found} witnesses cosigned the checkpoint, and {wanted} must")]
    Witnesses {
        /// Witnesses whose cosignature is good.
        found: usize,
        /// The least number.
        wanted: usize,
    },
    /// The file does not show that the log continues a checkpoint.
    #[error(
        "the file does not show that the log continues the checkpoint of {0} certificates that was given: export again with --against"
    )]
    NotContinued(u64),
    /// Only nodes are witnesses with certificates of the platform.
    #[error("{0} is no node: it cannot be a witness")]
    NotAWitness(String),
    /// One witness makes no quorum.
    #[error("{0} is there twice among the witnesses: each of them counts once")]
    WitnessTwice(String),
    /// The log's entry cannot be read.
    #[error("the log's entry cannot be read: {0}")]
    Entry(String),
    /// The log's entry is of another certificate.
    #[error("the log's entry is not that of the certificate of {0}")]
    OtherEntry(Identity),
    /// The deny list is not the CA's.
    #[error(transparent)]
    DenyList(#[from] DenyListError),
    /// The proof cannot be read.
    #[error("the proof cannot be read: {0}")]
    Proof(#[from] Malformed),
    /// The proof does not prove the message.
    #[error(transparent)]
    NotProved(#[from] NotProved),
    /// The message cannot be read.
    #[error("the message is no ACL message: {0}")]
    Message(#[from] DecodeError),
    /// The message names another sender.
    #[error("{0} signed a message that names another sender")]
    OtherSender(String),
}
