//! A node's journal, which is opened once for both the messages of absent agents and the logs of channels.

use std::path::Path;

use sealbus_journal::{Journal, JournalConfig, JournalError};
use sealbus_seal::PlatformName;

use crate::channel_log::KeptChannelLogs;
use crate::longest;
use crate::post::KeptLetters;

/// The records of a node.
pub struct NodeJournal {
    /// The journal itself.
    pub journal: Journal,
    /// Messages for absent agents.
    pub post: KeptLetters,
    /// Logs of channels.
    pub logs: KeptChannelLogs,
}

impl NodeJournal {
    /// Opens the journal in `folder`, and reports any damage found. This blocks.
    ///
    /// # Errors
    /// If the journal cannot be used.
    pub fn open(
        folder: &Path,
        node: &str,
        platform: &PlatformName,
        max_message: u64,
    ) -> Result<Self, JournalError> {
        let (journal, report) = Journal::open(folder, JournalConfig::default())?;
        for torn in &report.torn {
            tracing::warn!(
                stream = torn.stream, file = %torn.file.display(), offset = torn.offset,
                bytes = torn.bytes, problem = torn.problem,
                "cut off what the journal had not acknowledged when it was interrupted"
            );
        }
        for damage in &report.damaged {
            tracing::error!(%damage, "the journal is damaged");
        }
        let longest = longest(max_message);
        let logs =
            KeptChannelLogs::open(journal.clone(), &report, node, platform.clone(), longest)?;
        let post = KeptLetters::open(journal.clone(), node, platform.as_str(), max_message)?;
        Ok(Self {
            journal,
            post,
            logs,
        })
    }
}
