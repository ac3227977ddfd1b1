//! The latest changes of a deny list: what a receiver of an older version needs.

use std::collections::VecDeque;

use crate::certificate::Serial;
use crate::identity::Identity;

/// The changes that an authority remembers. A receiver that misses more gets the whole list.
const REMEMBERED: usize = 8192;

/// An entry that was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    Serial(Serial),
    Identity(Identity),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// All changes after this version are remembered.
    since: u64,
    /// Each with the version that it made.
    log: VecDeque<(u64, Changed)>,
}

impl Changes {
    /// Remembers the changes after this version.
    pub(super) fn after(version: u64) -> Self {
        Self {
            since: version,
            log: VecDeque::new(),
        }
    }

    pub(super) fn note(&mut self, version: u64, what: Changed) {
        if self.log.len() >= REMEMBERED
            && let Some((forgotten, _)) = self.log.pop_front()
        {
            self.since = forgotten;
        }
        self.log.push_back((version, what));
    }

    /// The changes after `version`, if all of them are remembered.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Changed>> {
        let first = self.log.partition_point(|(at, _)| *at <= version);
        (version >= self.since).then(|| self.log.range(first..).map(|(_, what)| what))
    }
}
