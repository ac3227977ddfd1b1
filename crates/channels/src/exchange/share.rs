//! Shares of queue groups: they show which member has which event of a group.

/// A member of a queue group: its process (`None` for this one), and the number of its subscription there.
pub(crate) type MemberKey = (Option<u32>, u32);

/// An event of a group that a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(super) group: u32,
    pub(super) member: MemberKey,
    pub(super) event: u64,
}
