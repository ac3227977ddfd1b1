//! The party that an error of a handler concerns.

/// The party that must deal with the error of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtFault {
    /// Nobody is at fault: the agent intends this answer.
    Nobody,
    /// The message cannot be read. The agent works correctly.
    Sender,
    /// The agent must deal with the error.
    Agent,
}
