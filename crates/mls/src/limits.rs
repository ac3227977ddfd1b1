//! The limit that several parts share.

/// Most members of a group, without its publisher.
pub const MOST_MEMBERS: usize = 1024;
