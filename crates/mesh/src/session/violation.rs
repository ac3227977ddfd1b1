//! Breaches of the session's rules.

use thiserror::Error;

/// The other side broke the rules of the session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The peer acknowledged frames that were not sent.
    #[error("the peer acknowledged {acknowledged} frames where {sent} were sent")]
    AcknowledgedUnsent {
        /// The number of frames that the peer acknowledged.
        acknowledged: u64,
        /// The number of frames that were sent.
        sent: u64,
    },
    /// A frame is missing: the connection lost bytes.
    #[error("frame {found} arrived where frame {expected} was due")]
    Gap {
        /// The low 32 bits of the number found.
        found: u32,
        /// The number that was due.
        expected: u64,
    },
    /// The peer wants to continue from a frame that it acknowledged before.
    #[error("the peer asks again for frame {wanted}, which it had acknowledged")]
    Forgotten {
        /// The first frame that the peer has not received.
        wanted: u64,
    },
}
