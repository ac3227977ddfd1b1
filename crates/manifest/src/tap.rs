//! `[tap]`: the agents of which watchers see less.

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::read::Reader;

/// Most patterns of agents in a list.
const MOST_AGENTS: usize = 256;

/// `[tap]`. The lists have local names of agents, in which `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapEntry {
    /// Watchers see the heads of messages from and to these agents, and never the bodies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<String>,
    /// Watchers see no message from or to these agents. The counters count them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub none: Vec<String>,
}

impl TapEntry {
    /// Whether watchers see everything that they have a right to.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<'t> Reader<'t> {
    /// Reads the section.
    pub(super) fn tap(&mut self, root: &DeTable<'t>) -> TapEntry {
        let Some(value) = root.get("tap") else {
            return TapEntry::default();
        };
        let Some(table) = self.table(value, "tap") else {
            return TapEntry::default();
        };
        self.unknown_keys(table, &["heads", "none"], "in [tap]");
        let entry = TapEntry {
            heads: self.texts(table, "heads"),
            none: self.texts(table, "none"),
        };
        for (key, list) in [("heads", &entry.heads), ("none", &entry.none)] {
            if list.len() > MOST_AGENTS {
                let help = "use patterns, such as \"doctor-*\"".to_owned();
                let message = format!("{key} in [tap] has more than {MOST_AGENTS} agents");
                self.problem(value.span(), message, Some(help));
            }
        }
        entry
    }
}
