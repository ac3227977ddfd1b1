//! The processes of a node whose agents use channels.

use sealbus_control::Fault;
use sealbus_control::rpc::Caller;

use super::Processes;

/// A process's use of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channels {
    /// Its agents use none, as far as it has said.
    Unused,
    /// They do, and the process is to hear of the others.
    Used,
    /// It was told of the others, and hears the news of them.
    Told,
}

impl Processes {
    /// Whether agents of any process use channels.
    pub(crate) fn use_channels(&self) -> bool {
        let entries = self.entries.lock();
        entries
            .values()
            .any(|entry| entry.channels >= Channels::Used)
    }

    /// Notes that agents of a process use channels.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn uses_channels(&self, process: &str) -> Result<(), Fault> {
        self.with(process, |entry| {
            entry.channels = entry.channels.max(Channels::Used);
        })
    }

    /// Notes that a process is told of the others that use channels, and returns the connection to it.
    pub(crate) fn hears_of_others(&self, process: &str) -> Option<Caller> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(process)?;
        entry.channels = Channels::Told;
        let (_, caller) = entry.connection.as_ref()?;
        Some(caller.clone())
    }

    /// Whether a process hears of the others that use channels.
    pub(crate) fn is_told_of_others(&self, process: &str) -> bool {
        self.with(process, |entry| entry.channels == Channels::Told)
            .unwrap_or(false)
    }
}
