//! The latest changes of a deny list, for a receiver of an older version.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::certificate::Serial;
use crate::identity::Identity;

/// The number of changes that an authority remembers. A receiver that misses more gets the whole list.
const REMEMBERED: usize = 8192;

/// An entry that was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    Serial(Serial),
    Identity(Identity),
}

/// The number of changes in one part. Copies of a list share parts, so a further change copies at most this many.
const SHARED: usize = 128;

/// Changes, each with the version that it produced.
type Part = Vec<(u64, Changed)>;

#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// All changes after this version are remembered.
    since: u64,
    /// In order. All parts but the last are full.
    parts: VecDeque<Arc<Part>>,
}

impl Changes {
    /// Remembers the changes after this version.
    pub(super) fn after(version: u64) -> Self {
        Self {
            since: version,
            parts: VecDeque::new(),
        }
    }

    pub(super) fn note(&mut self, version: u64, what: Changed) {
        match self.parts.back_mut() {
            Some(last) if last.len() < SHARED => Arc::make_mut(last).push((version, what)),
            _ => self.parts.push_back(Arc::new(vec![(version, what)])),
        }
        if self.parts.len() > REMEMBERED / SHARED
            && let Some(first) = self.parts.pop_front()
            && let Some((forgotten, _)) = first.last()
        {
            self.since = *forgotten;
        }
    }

    /// The changes after `version`; `None` if not all of them are remembered.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Changed>> {
        let is_before = |part: &Arc<Part>| part.last().is_none_or(|(at, _)| *at <= version);
        let first = self.parts.partition_point(is_before);
        let changes = self.parts.range(first..).flat_map(|part| part.iter());
        let after = changes.filter(move |(at, _)| *at > version);
        (version >= self.since).then(|| after.map(|(_, what)| what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_changes_after_a_remembered_version_are_known_and_copies_share_them() {
        let mut changes = Changes::after(7);
        let serial = |version: u64| Serial::from_bytes(u128::from(version).to_be_bytes());
        let last = 7 + 2 * REMEMBERED as u64;
        for version in 8..=last {
            let copy = changes.clone();
            changes.note(version, Changed::Serial(serial(version)));
            let shared = copy.parts.iter().zip(&changes.parts);
            let copied = shared.filter(|(old, new)| !Arc::ptr_eq(old, new));
            assert!(copied.count() <= 1 || changes.since > copy.since);
        }
        assert!(changes.since(changes.since - 1).is_none());
        assert!(last - changes.since >= (REMEMBERED - SHARED) as u64);
        for version in [changes.since, last - 200, last - 1, last, last + 1] {
            let found: Vec<&Changed> = changes.since(version).unwrap().collect();
            let expected: Vec<Changed> = (version + 1..=last)
                .map(|version| Changed::Serial(serial(version)))
                .collect();
            assert!(found.into_iter().eq(&expected), "{version}");
        }
    }
}
