//! The reasons why an event cannot be sealed to a group, or opened.

use mls_rs::error::MlsError;
use sealbus_seal::encryption::EncryptionError;
use sealbus_seal::{CertificateError, Identity, VerifyError};
use thiserror::Error;

/// The reason why an operation of a group failed.
#[derive(Debug, Error)]
pub enum GroupError {
    /// Bytes that are not what they should be.
    #[error("the bytes are not {0} of MLS")]
    Malformed(&'static str),
    /// More bytes than allowed.
    #[error("{what} has {length} bytes, and the limit is {limit}")]
    TooLong {
        /// The bytes.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// More members than a group may have.
    #[error(
        "a sealed channel has at most {most} agents of other processes for each publisher, and not {0}",
        most = crate::limits::MOST_MEMBERS
    )]
    TooManyMembers(usize),
    /// The key package is another agent's.
    #[error("the key package is that of {found}, not that of {wanted}")]
    AnotherAgent {
        /// The agent that is to join.
        wanted: Identity,
        /// The agent of the key package.
        found: Identity,
    },
    /// The group belongs to another publisher, or somebody else wrote the message.
    #[error("it is not a message of {0} to its own group")]
    AnotherPublisher(Identity),
    /// The Welcome is for others.
    #[error("the Welcome is for others, or for a key that was forgotten")]
    NotInvited,
    /// The receiver is not a member of the group any more.
    #[error("the agent was removed from the group")]
    Removed,
    /// The event was sealed before the last change that this member took, or after one that it lacks.
    #[error("it was sealed before or after another change of the group")]
    AnotherEpoch,
    /// The event was sealed with other words around it.
    #[error("it was sealed for another channel, or its author committed to another message")]
    AnotherContext,
    /// The cryptographic library gave no secret.
    #[error("the cryptographic library made no secret")]
    NoSecret,
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The certificate is not trusted.
    #[error(transparent)]
    NotVerified(#[from] VerifyError),
    /// Nothing can be sealed to the member's key.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// MLS refuses it.
    #[error("MLS refuses it: {0}")]
    Mls(#[from] MlsError),
}
