//! The news of the directory on the way from the Master to a node, and what a node states about its replica.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::slices::Slices;
use crate::{AgentLocation, DirectoryChange, EndedProcess, ProcessContact, Rules};

/// The most entries in one part of a whole transfer.
pub const PART: usize = 1000;
/// The most names that a node begins or stops to follow in one exchange.
pub const NAMES_AT_ONCE: usize = 1000;

/// The state of a node's replica, and the node's wishes. The Master's directory answers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The revision of the directory that the node has; 0 before the first update.
    pub revision: u64,
    /// The slices that the node holds completely.
    #[serde(default)]
    pub slices: Slices,
    /// The number of the last exchange of followed names; 0 if the Master follows none for the node.
    #[serde(default)]
    pub names: u64,
    /// Local names that the node wants to follow from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<String>,
    /// Local names that the node no longer follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget: Vec<String>,
    /// Whether the node wants to be told of the processes that use channels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processes: bool,
    /// The revision up to which the node's processes know these.
    #[serde(default)]
    pub heard: u64,
    /// The transfer of which the node wants the next part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
}

/// A step of the directory from one revision to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryUpdate {
    /// The revision from which it starts; 0 is the empty directory.
    pub from: u64,
    /// The revision to which it leads.
    pub to: u64,
    /// The slices that the node must hold. The changes are those of these slices, of followed names, and of everything
    /// that all nodes hold.
    #[serde(default)]
    pub slices: Slices,
    /// The number of the last exchange of followed names.
    #[serde(default)]
    pub names: u64,
    /// The changes.
    pub changes: Vec<DirectoryStep>,
    /// Whether there are more changes that did not fit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The next part of a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<DirectoryPart>,
}

impl DirectoryUpdate {
    /// Whether it tells of processes that now use channels. Somebody may wait until it has arrived.
    pub fn tells_of_processes(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|step| matches!(step, DirectoryStep::Joined { .. }))
    }
}

/// One step of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DirectoryStep {
    /// An agent's new place.
    Agent(DirectoryChange),
    /// Agents that are all at the same place. This step is part of a whole transfer.
    Together {
        /// Local names.
        agents: Vec<String>,
        /// The agents' place.
        at: AgentLocation,
    },
    /// A process whose agents use channels can be reached, or can be reached at another address.
    Joined {
        /// The process.
        joined: ProcessContact,
    },
    /// A process ended.
    Ended {
        /// The process.
        ended: EndedProcess,
    },
    /// The rules for all processes.
    Rules {
        /// All rules, in place of the earlier ones.
        rules: Rules,
    },
}

/// A whole transfer, from some place in it on. It comes in parts, ordered by section, and by name in a section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The slices.
    pub slices: Slices,
    /// Whether it has what all nodes hold: rules and nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base: bool,
    /// Whether it has the processes that use channels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processes: bool,
    /// The last entry of the previous part; `None` at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A part of a whole transfer. There is nothing else between its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryPart {
    /// The transfer, from the beginning of this part on.
    pub of: Transfer,
    /// The last entry of this part; `None` if the transfer ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Cursor>,
    /// The entries.
    pub entries: Vec<DirectoryStep>,
}

/// A place in a whole transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The section.
    pub section: u8,
    /// Local name of an agent, or name of a node.
    pub name: String,
    /// Name of a process of that node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
}

/// The section of nodes.
pub(super) const NODES: u8 = 0;
/// The section of processes.
pub(super) const PROCESSES: u8 = 1;

/// The section of a slice.
pub(super) fn section_of(slice: usize) -> u8 {
    // There are 64 slices.
    2 + slice as u8
}

impl Cursor {
    pub(super) fn at(section: u8, name: &str) -> Self {
        Self {
            section,
            name: name.to_owned(),
            process: String::new(),
        }
    }

    pub(super) fn at_process(named: &EndedProcess) -> Self {
        Self {
            section: PROCESSES,
            name: named.node.clone(),
            process: named.process.clone(),
        }
    }

    fn named(&self) -> EndedProcess {
        EndedProcess {
            node: self.name.clone(),
            process: self.process.clone(),
        }
    }
}

/// The names of a section after one cursor and up to another; `None` if the section is not between them.
pub(super) fn names_between<'c>(
    section: u8,
    after: Option<&'c Cursor>,
    until: Option<&'c Cursor>,
) -> Option<(Bound<&'c str>, Bound<&'c str>)> {
    let (after, until) = between(section, after, until)?;
    Some((
        after.map(|cursor| cursor.name.as_str()),
        until.map(|cursor| cursor.name.as_str()),
    ))
}

/// As [`names_between`], for processes.
pub(super) fn processes_between(
    after: Option<&Cursor>,
    until: Option<&Cursor>,
) -> Option<(Bound<EndedProcess>, Bound<EndedProcess>)> {
    let (after, until) = between(PROCESSES, after, until)?;
    let (after, until) = (after.map(Cursor::named), until.map(Cursor::named));
    Some((after, until))
}

fn between<'c>(
    section: u8,
    after: Option<&'c Cursor>,
    until: Option<&'c Cursor>,
) -> Option<(Bound<&'c Cursor>, Bound<&'c Cursor>)> {
    let after = match after {
        Some(cursor) if cursor.section > section => return None,
        Some(cursor) if cursor.section == section => Bound::Excluded(cursor),
        _ => Bound::Unbounded,
    };
    let until = match until {
        Some(cursor) if cursor.section < section => return None,
        Some(cursor) if cursor.section == section => Bound::Included(cursor),
        _ => Bound::Unbounded,
    };
    Some((after, until))
}
