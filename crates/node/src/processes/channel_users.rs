//! The processes of a node whose agents use channels.

use sealbus_control::Fault;
use sealbus_control::rpc::RpcCaller;

use super::Processes;

/// How a process uses channels.
#[derive(Debug)]
pub(crate) enum Channels {
    /// Its agents do not use channels, as far as it has said.
    Unused,
    /// Its agents use channels, and it must be told of the others.
    Used,
    /// It was told of the others, and is sent news of them.
    Told(Hearing),
}

/// The news of the others that a process was sent, and has confirmed.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    /// The revision of the directory with the latest news that it was sent.
    told: u64,
    /// The revision up to which it has confirmed all news.
    heard: u64,
    /// Whether it may lack news, and must be told of all others again.
    lacks_others: bool,
    /// Whether a task waits until it has confirmed the news.
    is_awaited: bool,
    /// Whether it did not confirm in time. Nobody waits for it until it does.
    is_silent: bool,
}

impl Hearing {
    fn is_behind(&self) -> bool {
        self.lacks_others || self.heard < self.told
    }
}

impl Channels {
    /// The state of a process that ran before the node was restarted.
    pub(super) fn taken_over(are_used: bool) -> Self {
        match are_used {
            true => Self::Told(Hearing::default()),
            false => Self::Unused,
        }
    }

    pub(super) fn are_used(&self) -> bool {
        !matches!(self, Self::Unused)
    }

    fn hearing(&self) -> Option<&Hearing> {
        match self {
            Self::Told(hearing) => Some(hearing),
            _ => None,
        }
    }

    fn hearing_mut(&mut self) -> Option<&mut Hearing> {
        match self {
            Self::Told(hearing) => Some(hearing),
            _ => None,
        }
    }
}

impl Processes {
    /// Whether agents of any process use channels.
    pub(crate) fn use_channels(&self) -> bool {
        let entries = self.entries.lock();
        entries.values().any(|entry| entry.channels.are_used())
    }

    /// Notes that agents of a process use channels. Returns true the first time.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn uses_channels(&self, process: &str) -> Result<bool, Fault> {
        self.with(process, |entry| {
            let is_first = !entry.channels.are_used();
            if is_first {
                entry.channels = Channels::Used;
                entry.remembered.channels = true;
            }
            is_first
        })
    }

    /// Whether a process is sent news of the others that use channels.
    pub(crate) fn is_told_of_others(&self, process: &str) -> bool {
        self.with(process, |entry| entry.channels.hearing().is_some())
            .unwrap_or(false)
    }

    /// Whether a process that uses channels must be told of all others.
    pub(crate) fn lacks_others(&self, process: &str) -> bool {
        let lacks = |channels: &Channels| channels.hearing().is_none_or(|it| it.lacks_others);
        self.with(process, |entry| lacks(&entry.channels))
            .unwrap_or(false)
    }

    /// Notes that a process is being told of all others that use channels, and returns the connection to it. On a later
    /// connection it is told when it comes back.
    pub(crate) fn is_to_hear_of_others(&self, process: &str) -> Option<RpcCaller> {
        let connection = self.with(process, |entry| {
            if !matches!(entry.channels, Channels::Told(_)) {
                entry.channels = Channels::Told(Hearing::default());
            }
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        });
        connection.ok().flatten()
    }

    /// Notes that a process was told of all others that use channels, as of this revision.
    pub(crate) fn told_of_others(&self, process: &str, revision: u64) {
        let _ = self.with(process, |entry| {
            if let Some(hearing) = entry.channels.hearing_mut() {
                hearing.heard = match hearing.told {
                    // Its own publishers wait until it knows all others.
                    0 => revision,
                    _ => hearing.heard.min(revision.saturating_sub(1)),
                };
                hearing.told = hearing.told.max(revision);
                hearing.lacks_others = false;
            }
        });
    }

    /// Notes that a process came back when the others were not known here.
    pub(crate) fn came_back_without_others(&self, process: &str) {
        let _ = self.with(process, |entry| {
            if let Some(hearing) = entry.channels.hearing_mut() {
                hearing.lacks_others = true;
            }
        });
    }

    /// Notes that all processes that are sent news of others were sent this revision, or could not be.
    pub(crate) fn told_news(&self, revision: u64) {
        for entry in self.entries.lock().values_mut() {
            if let Some(hearing) = entry.channels.hearing_mut() {
                hearing.told = revision;
            }
        }
    }

    /// The processes that have not confirmed the latest news, and that nobody waits for yet. The caller waits for them.
    pub(crate) fn await_hearing(&self) -> Vec<String> {
        let mut entries = self.entries.lock();
        let begin = |entry: &mut super::Entry| {
            let hearing = entry.channels.hearing_mut()?;
            let begins = hearing.is_behind() && !std::mem::replace(&mut hearing.is_awaited, true);
            begins.then(|| entry.placement.process.clone())
        };
        entries.values_mut().filter_map(begin).collect()
    }

    /// The revision of the latest news that a process has not confirmed, and the connection on which to ask. `None`
    /// ends the wait.
    pub(crate) fn awaited(&self, process: &str) -> Option<(u64, Option<RpcCaller>)> {
        let awaited = self.with(process, |entry| {
            let caller = entry.connection.as_ref().map(|(_, caller)| caller.clone());
            let hearing = entry.channels.hearing_mut()?;
            hearing.is_awaited = hearing.is_behind();
            let caller = caller.filter(|_| !hearing.lacks_others);
            hearing.is_awaited.then_some((hearing.told, caller))
        });
        awaited.ok().flatten()
    }

    /// Notes that a process has confirmed the news up to a revision.
    pub(crate) fn has_heard(&self, process: &str, revision: u64) {
        let _ = self.with(process, |entry| {
            if let Some(hearing) = entry.channels.hearing_mut() {
                hearing.heard = hearing.heard.max(revision);
                hearing.is_silent = false;
            }
        });
    }

    /// Notes that a process did not confirm in time. The wait for it ends.
    pub(crate) fn is_silent(&self, process: &str) {
        let _ = self.with(process, |entry| {
            if let Some(hearing) = entry.channels.hearing_mut() {
                (hearing.is_silent, hearing.is_awaited) = (true, false);
            }
        });
    }

    /// The revision up to which all processes know those that use channels; at most `told`.
    pub(crate) fn heard(&self, told: u64) -> u64 {
        let entries = self.entries.lock();
        let hearing = entries.values().filter_map(|it| it.channels.hearing());
        let awaited = hearing.filter(|it| it.is_behind() && !it.is_silent);
        awaited.map(|it| it.heard).min().unwrap_or(told).min(told)
    }
}
