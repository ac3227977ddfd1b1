//! The stretches of letters that were here, as the disk notes them.

use sealbus_control::post::LetterMark;

use super::Shelf;
use crate::post::had::{SETTLED, StretchStart};

impl Shelf {
    /// Notes on disk say that a letter with this mark was here.
    pub(crate) fn was_here(&mut self, stretch: LetterMark, end: u64) {
        self.is_visited |= stretch.hops != 0 && stretch.hops != SETTLED;
        self.had.recall(stretch, end);
    }

    /// The stretch around this letter whose letters were here and cannot be missing on disk.
    pub(crate) fn stretch(&self, mark: LetterMark) -> Option<(u64, u64)> {
        self.had.stretch(mark, &self.writing)
    }

    /// Forgets a noted stretch of letters that were here. Letters that still are, or are on their way to the disk, stay
    /// known.
    pub(crate) fn forget_stretch(&mut self, start: StretchStart) {
        let Some(end) = self.had.forget_stretch(start) else {
            return;
        };
        let (origin, _, first) = start;
        let within = (origin, first)..(origin, end);
        for place in self.places.range(within.clone()).map(|(_, place)| place) {
            let number = self.line.get(place);
            if let Some(kept) = number.and_then(|number| self.letters.get(number)) {
                self.had.note(kept.cover.mark());
            }
        }
        for ((_, sequence), hops) in self.writing.range(within) {
            self.had.note(LetterMark {
                origin,
                sequence: *sequence,
                hops: *hops,
            });
        }
    }
}
