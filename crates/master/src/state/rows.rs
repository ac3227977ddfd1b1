//! The rows of nodes and groups: which of them must be written, and when.

use sealbus_control::UnixMillis;
use sealbus_store::Row;

use super::{GROUP_ROW, MasterState, NODE_ROW};

/// A group with more agents than this is not written for each report of one of them.
const MANY: usize = 16;
/// The shortest interval at which such a group is written, in milliseconds.
const WHILE: UnixMillis = 1000;
/// For this many agents of the group, the interval grows by a millisecond.
const AGENTS_A_MILLISECOND: usize = 10;

impl MasterState {
    /// Takes the changed rows. In a group of many agents, each reports on its own. For reports of states, the group's row is
    /// written only at intervals. After a restart the node reports the states that are missing. Ends are written at once: a node
    /// forgets them, and brings many of them together.
    pub fn take_rows(&mut self, now: UnixMillis) -> Vec<Row> {
        let groups = &self.groups;
        let is_due = |name: &String| {
            groups.get(name).is_none_or(|group| {
                let longer = (group.agents.len() / AGENTS_A_MILLISECOND) as UnixMillis;
                let is_recent = group.saved.is_some_and(|at| now < at + WHILE + longer);
                group.agents.len() <= MANY || !is_recent
            })
        };
        let due = self.reported.extract_if(.., |name| is_due(name));
        self.unsaved.extend(due);
        for name in std::mem::take(&mut self.unsaved) {
            self.reported.remove(&name);
            if let Some(group) = self.groups.get_mut(&name) {
                group.saved = Some(now);
                self.rows.put(format!("{GROUP_ROW}{name}"), group);
            }
        }
        self.rows.take()
    }

    /// Whether rows that [`take_rows`](Self::take_rows) kept back still wait.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.reported.is_empty()
    }

    /// Notes that a group's row must be written, and the present places of its agents.
    pub(super) fn save(&mut self, name: &str) {
        self.note_load(name);
        if !self.unsaved.contains(name) {
            self.unsaved.insert(name.to_owned());
        }
    }

    /// As [`save`](Self::save), for a fact that the group's node also knows.
    pub(super) fn save_soon(&mut self, name: &str) {
        self.note_load(name);
        if !self.reported.contains(name) {
            self.reported.insert(name.to_owned());
        }
    }

    fn note_load(&mut self, name: &str) {
        self.loads.note(name, self.groups.get(name));
    }

    pub(super) fn save_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.get(name) {
            self.rows.put(format!("{NODE_ROW}{name}"), node);
        }
    }
}
