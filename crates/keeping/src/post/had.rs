//! The letters that a mailbox has had, so that each is taken in once, however often it is brought.
//!
//! A letter counts how often it was carried from node to node. A copy with no higher count than the one that was here
//! is the same letter, brought again because an answer was lost. A copy with a higher count went on from here and has
//! come back. It is the letter itself, unless the letter was settled here.

use std::collections::{BTreeMap, HashMap};

use sealbus_journal::Spans;

use sealbus_control::post::LetterMark;

/// The carry count of a letter that was settled here. Every other copy of it is older.
pub(crate) const SETTLED: u32 = u32::MAX;

/// The most stretches of letters remembered for one agent. The stretches of the oldest origins are forgotten first.
pub(crate) const MOST_STRETCHES: usize = 4096;
/// The most of these for one origin. It may number its letters with gaps, and must not push out many others.
pub(crate) const MOST_OF_ORIGIN: usize = 256;

/// The first letter of a stretch: its origin, carry count and sequence number.
pub(crate) type StretchStart = (u64, u32, u64);

/// The letters that a mailbox has had.
#[derive(Debug, Default)]
pub(crate) struct Had {
    /// Sequence numbers by origin and carry count.
    letters: HashMap<u64, BTreeMap<u32, Spans>>,
    /// The stretches that are noted on disk, each with the number after its last letter. Every letter that is no longer
    /// here is in one of them.
    noted: BTreeMap<StretchStart, u64>,
}

impl Had {
    /// Whether this copy of a letter, or a later one, was here.
    pub(crate) fn had(&self, mark: LetterMark) -> bool {
        let by_hops = self.letters.get(&mark.origin);
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
        if mark.sequence < end {
            let by_hops = self.letters.entry(mark.origin).or_default();
            let spans = by_hops.entry(mark.hops).or_default();
            spans.add(mark.sequence, end);
        }
    }

    /// Takes in a note from disk: the marked letter and its successors before `end` were here.
    pub(crate) fn recall(&mut self, mark: LetterMark, end: u64) {
        self.remember(mark, end);
        if mark.sequence < end {
            let start = (mark.origin, mark.hops, mark.sequence);
            self.noted.insert(start, end);
        }
    }

    /// Notes that a [stretch](Self::stretch) is being noted on disk. Returns the noted stretches that it contains,
    /// because their own notes are no longer needed.
    pub(crate) fn note_stretch(&mut self, start: StretchStart, end: u64) -> Vec<StretchStart> {
        let (origin, hops, first) = start;
        let inside = (origin, hops, first + 1)..(origin, hops, end);
        let contained = self.noted.range(inside).map(|(inner, _)| *inner);
        let contained: Vec<StretchStart> = contained.collect();
        for inner in &contained {
            self.noted.remove(inner);
        }
        self.noted.insert(start, end);
        contained
    }

    /// The noted stretch to forget next, if there are too many after one of this origin was noted.
    pub(crate) fn surplus(&self, origin: u64) -> Option<StretchStart> {
        let of_origin = (origin, 0, 0)..=(origin, u32::MAX, u64::MAX);
        let mut own = self.noted.range(of_origin).map(|(start, _)| *start);
        let first = own.next();
        if own.count() >= MOST_OF_ORIGIN {
            return first;
        }
        // An origin's number begins with the second in which it began, so the oldest one is first.
        let oldest = self.noted.keys().next().copied();
        oldest.filter(|_| self.noted.len() > MOST_STRETCHES)
    }

    /// Forgets a noted stretch, and earlier copies of its letters. Returns the number after its last letter.
    pub(crate) fn forget_stretch(&mut self, start: StretchStart) -> Option<u64> {
        let end = self.noted.remove(&start)?;
        let (origin, hops, first) = start;
        if let Some(by_hops) = self.letters.get_mut(&origin) {
            for (_, spans) in by_hops.range_mut(..=hops) {
                spans.remove_stretch(first, end);
            }
        }
        self.tidy(origin);
        Some(end)
    }

    /// Takes back the note of a letter that is not here after all.
    pub(crate) fn forget(&mut self, mark: LetterMark) {
        let by_hops = self.letters.get_mut(&mark.origin);
        if let Some(spans) = by_hops.and_then(|by_hops| by_hops.get_mut(&mark.hops)) {
            spans.remove(mark.sequence);
        }
        self.tidy(mark.origin);
    }

    /// Frees the room of empty entries.
    fn tidy(&mut self, origin: u64) {
        let Some(by_hops) = self.letters.get_mut(&origin) else {
            return;
        };
        by_hops.retain(|_, spans| spans.stretches() > 0);
        if by_hops.is_empty() {
            self.letters.remove(&origin);
        }
    }

    /// The stretch that a letter belongs to: consecutive letters of one origin with the same carry count. Letters that
    /// are still being `written` with this carry count, or a lower one, end it.
    pub(crate) fn stretch(
        &self,
        mark: LetterMark,
        written: &BTreeMap<(u64, u64), u32>,
    ) -> Option<(u64, u64)> {
        let (origin, here) = (mark.origin, mark.sequence);
        let spans = self.letters.get(&origin)?.get(&mark.hops)?;
        let (first, end) = spans.stretch_of(here)?;
        let ends_it = |(_, hops): &(_, &u32)| **hops <= mark.hops;
        let before = written.range((origin, first)..(origin, here));
        let mut after = written.range((origin, here + 1)..(origin, end));
        let first = before.rev().find(ends_it).map_or(first, |it| it.0.1 + 1);
        let end = after.find(ends_it).map_or(end, |it| it.0.1);
        Some((first, end))
    }
}
