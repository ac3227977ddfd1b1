//! What a node keeps on its disk: messages for agents that are away, and the logs of channels.

pub mod channel_log;
pub mod node_journal;
pub mod post;

/// Longest message that is kept: with its encoding it fits a frame between process and node.
pub(crate) const LONGEST_KEPT: usize = 12 << 20;

/// Longest message that is kept on a platform whose longest message is `max_message`. Between nodes it is part of another,
/// encoded for it.
pub(crate) fn longest(max_message: u64) -> usize {
    LONGEST_KEPT.min(usize::try_from(max_message / 2).unwrap_or(LONGEST_KEPT))
}
