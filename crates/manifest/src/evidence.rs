//! `[evidence]`: the agents whose received messages are recorded with their proofs.

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::RetentionEntry;
use super::read::Reader;

/// Most patterns of agents.
const MOST_AGENTS: usize = 256;

/// `[evidence]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceEntry {
    /// The agents whose received messages are recorded: local names, in which `*` stands for any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// How much each node keeps of the record.
    #[serde(default)]
    pub retention: RetentionEntry,
}

impl EvidenceEntry {
    /// Whether nothing is recorded, and nothing is said about it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<'t> Reader<'t> {
    /// Reads the section. `signs`: whether the platform's agents can sign.
    pub(super) fn evidence(&mut self, root: &DeTable<'t>, signs: bool) -> EvidenceEntry {
        let Some(value) = root.get("evidence") else {
            return EvidenceEntry::default();
        };
        let Some(table) = self.table(value, "evidence") else {
            return EvidenceEntry::default();
        };
        self.unknown_keys(table, &["agents", "retention"], "in [evidence]");
        let example = "agents = [\"seller-*\"]";
        let message = "[evidence] names no agents";
        self.missing(table, "agents", value.span(), message, example);
        let entry = EvidenceEntry {
            agents: self.texts(table, "agents"),
            retention: self.retention(table),
        };
        if entry.agents.len() > MOST_AGENTS {
            let help = "use patterns, such as \"seller-*\"".to_owned();
            let message = format!("[evidence] has more than {MOST_AGENTS} agents");
            self.problem(value.span(), message, Some(help));
        }
        if !signs {
            let help = "write level = \"auth\" or \"signed\" in [platform]".to_owned();
            let message = "agents without certificates sign nothing that can be recorded";
            self.problem(value.span(), message, Some(help));
        }
        entry
    }
}
