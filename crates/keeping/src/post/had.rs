//! The letters that a mailbox has had, so that each is taken in once however often it is brought.
//!
//! A letter counts how often it was carried from node to node. A copy with no higher count than the one that was here
//! is the same letter, brought again because an answer was lost. A copy with a higher count went on from here and has
//! come back. It is the letter itself, unless the letter was settled here.

use std::collections::{BTreeMap, HashMap};

use sealbus_journal::Spans;

use sealbus_control::post::LetterMark;

/// The carry count of a letter that was settled here. Every other copy of the letter is older.
pub(crate) const SETTLED: u32 = u32::MAX;

/// The letters that a mailbox has had: sequence numbers by origin and carry count.
#[derive(Debug, Default)]
pub(crate) struct Had(HashMap<u64, BTreeMap<u32, Spans>>);

impl Had {
    /// Whether this copy of a letter, or a later one, was here.
    pub(crate) fn had(&self, mark: LetterMark) -> bool {
        let by_hops = self.0.get(&mark.origin);
        by_hops.is_some_and(|by_hops| {
            let mut later = by_hops.range(mark.hops..);
            later.any(|(_, spans)| spans.contains(mark.sequence))
        })
    }

    /// Whether a letter was settled here.
    pub(crate) fn was_settled(&self, mark: LetterMark) -> bool {
        let hops = SETTLED;
        self.had(LetterMark { hops, ..mark })
    }

    /// Notes that a letter is here.
    pub(crate) fn note(&mut self, mark: LetterMark) {
        self.remember(mark, mark.sequence.saturating_add(1));
    }

    /// Notes that several letters were here: the marked one and its successors before `end`.
    pub(crate) fn remember(&mut self, mark: LetterMark, end: u64) {
        let by_hops = self.0.entry(mark.origin).or_default();
        by_hops
            .entry(mark.hops)
            .or_default()
            .add(mark.sequence, end);
    }

    /// Takes back the note of a letter that is not here after all.
    pub(crate) fn forget(&mut self, mark: LetterMark) {
        let Some(by_hops) = self.0.get_mut(&mark.origin) else {
            return;
        };
        if let Some(spans) = by_hops.get_mut(&mark.hops) {
            spans.remove(mark.sequence);
        }
    }

    /// The stretch that a letter belongs to: consecutive letters of one origin with the same carry count. Letters that are
    /// being `written` with this carry count, or a lower one, end it.
    pub(crate) fn stretch(
        &self,
        mark: LetterMark,
        written: &BTreeMap<(u64, u64), u32>,
    ) -> Option<(u64, u64)> {
        let (origin, here) = (mark.origin, mark.sequence);
        let spans = self.0.get(&origin)?.get(&mark.hops)?;
        let (first, end) = spans.stretch_of(here)?;
        let ends_it = |(_, hops): &(_, &u32)| **hops <= mark.hops;
        let before = written.range((origin, first)..(origin, here));
        let mut after = written.range((origin, here + 1)..(origin, end));
        let first = before.rev().find(ends_it).map_or(first, |it| it.0.1 + 1);
        let end = after.find(ends_it).map_or(end, |it| it.0.1);
        Some((first, end))
    }
}
