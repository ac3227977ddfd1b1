//! The nodes, with a moment before which none of them has been silent for too long, and with a note whether any has changed
//! since agents were last placed. So a heartbeat costs no look at all nodes, nor at all groups that wait for one.

use std::collections::BTreeMap;
use std::ops::Deref;

use sealbus_control::UnixMillis;

use crate::registry::Node;

/// The nodes by their names.
#[derive(Debug, Default)]
pub(super) struct HeardNodes {
    nodes: BTreeMap<String, Node>,
    /// No deadline of a node is earlier than this. `None` if that is not known.
    due: Option<UnixMillis>,
    /// How often the nodes were changed.
    changes: u64,
    /// The number of changes when agents were last placed.
    placed_after: u64,
}

impl HeardNodes {
    /// The nodes, to be changed. The change may make deadlines earlier.
    pub(super) fn change(&mut self) -> &mut BTreeMap<String, Node> {
        self.due = None;
        self.changes += 1;
        &mut self.nodes
    }

    /// Notes a sign of life. It makes no deadline earlier.
    pub(super) fn heard(&mut self, name: &str, now: UnixMillis) {
        if let Some(node) = self.nodes.get_mut(name)
            && !node.state.is_gone()
        {
            node.heard = node.heard.max(now);
        }
    }

    /// Whether a node has changed since the last call.
    pub(super) fn have_changed(&mut self) -> bool {
        std::mem::replace(&mut self.placed_after, self.changes) != self.changes
    }

    /// How often nodes were changed, signs of life aside.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes the earliest deadline of a node.
    pub(super) fn are_due_at(&mut self, first: UnixMillis) {
        self.due = Some(first);
    }

    /// The moment noted last, if nothing has changed since.
    pub(super) fn due(&self) -> Option<UnixMillis> {
        self.due
    }

    /// Whether a node's deadline may have come by this moment.
    pub(super) fn may_be_due(&self, by: UnixMillis) -> bool {
        self.due.is_none_or(|due| due <= by)
    }
}

impl Deref for HeardNodes {
    type Target = BTreeMap<String, Node>;

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}
