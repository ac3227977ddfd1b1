//! What a node keeps on its disk: messages for agents that are away, and the logs of channels.

pub mod channel_log;
pub mod node_journal;
pub mod post;
