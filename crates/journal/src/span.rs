//! Sets of record numbers, kept as stretches.

use std::collections::BTreeMap;

/// A set of numbers. Each stretch is kept as its first number and the number after its last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds `first..end`.
    pub fn add(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }
        while let Some((&start, &stop)) = self.0.range(..=end).next_back() {
            if stop < first {
                break;
            }
            first = first.min(start);
            end = end.max(stop);
            self.0.remove(&start);
        }
        self.0.insert(first, end);
    }

    /// Takes one number out.
    pub fn remove(&mut self, number: u64) {
        self.remove_stretch(number, number.saturating_add(1));
    }

    /// Takes `first..end` out.
    pub fn remove_stretch(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        while let Some((&start, &stop)) = self.0.range(..end).next_back() {
            if stop <= first {
                break;
            }
            self.0.remove(&start);
            self.add(start, first);
            self.add(end, stop);
        }
    }

    /// The first number from `number` on that is not in the set.
    pub(crate) fn next_outside(&self, number: u64) -> u64 {
        match self.0.range(..=number).next_back() {
            Some((_, &end)) if end > number => end,
            _ => number,
        }
    }

    /// Forgets everything below `first`.
    pub(crate) fn forget_below(&mut self, first: u64) {
        while let Some((&start, &end)) = self.0.first_key_value() {
            if start >= first {
                return;
            }
            self.0.remove(&start);
            if end > first {
                self.0.insert(first, end);
            }
        }
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.next_outside(number) != number
    }

    /// The stretch that contains `number`, if it is in the set: its first number and the number after its last.
    pub fn stretch_of(&self, number: u64) -> Option<(u64, u64)> {
        let (&first, &end) = self.0.range(..=number).next_back()?;
        (end > number).then_some((first, end))
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, end)| end - first).sum()
    }

    /// How many stretches there are.
    pub fn stretches(&self) -> usize {
        self.0.len()
    }

    /// The stretches, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(first, end)| (*first, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in prop::collection::vec((0_u64..60, 0_u64..12, 0_u64..70), 0..40),
            below in 0_u64..70,
        ) {
            let (mut spans, mut set) = (Spans::default(), BTreeSet::new());
            for (first, length, removed) in steps {
                spans.add(first, first + length);
                set.extend(first..first + length);
                spans.remove(removed);
                set.remove(&removed);
                let stretch = removed + 2..removed + 2 + length;
                spans.remove_stretch(stretch.start, stretch.end);
                set.retain(|number| !stretch.contains(number));
            }
            spans.forget_below(below);
            set.retain(|number| *number >= below);
            prop_assert_eq!(spans.count(), set.len() as u64);
            for number in 0..80 {
                let outside = (number..).find(|n| !set.contains(n)).unwrap();
                prop_assert_eq!(spans.next_outside(number), outside);
            }
            let parts: Vec<(u64, u64)> = spans.iter().collect();
            prop_assert_eq!(parts.len(), spans.stretches());
            for pair in parts.windows(2) {
                prop_assert!(pair[0].1 < pair[1].0);
            }
        }
    }
}
