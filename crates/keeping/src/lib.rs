//! Everything that a node keeps on its disk: messages for agents that are away, and the logs of channels.

pub mod channel_log;
pub mod node_journal;
pub mod post;
mod reserve;

pub use reserve::free_and_reserve;

use sealbus_control::{Fault, FaultCode};
use sealbus_journal::JournalError;

/// The length of the longest kept message. When encoded, it fits a frame between process and node.
pub(crate) const LONGEST_KEPT: usize = 12 << 20;

/// The length of the longest kept message on a platform with messages of up to `max_message` bytes. Between nodes a
/// kept message is encoded as part of another message.
pub(crate) fn longest(max_message: u64) -> usize {
    LONGEST_KEPT.min(usize::try_from(max_message / 2).unwrap_or(LONGEST_KEPT))
}

/// A failure of the journal, as others are told of it.
pub(crate) fn storage(error: JournalError) -> Fault {
    let code = match error {
        JournalError::Busy { .. } => FaultCode::Full,
        _ => FaultCode::Storage,
    };
    Fault::new(code, format!("the node's journal: {error}"))
}
