//! Numbers that were passed over and may still come. No I/O.

use std::ops::Range;

use sealbus_journal::Spans;

/// A set of numbers, kept as ranges, because most passed-over numbers are adjacent. The set has a limited size and
/// drops its smallest numbers.
#[derive(Debug)]
pub(crate) struct PassedOver {
    numbers: Spans,
    /// How many they are.
    count: u64,
    limit: u64,
}

impl PassedOver {
    /// Holds no more than `limit` numbers.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            numbers: Spans::default(),
            count: 0,
            limit,
        }
    }

    /// Adds numbers, all of them above those it holds.
    pub(crate) fn add(&mut self, numbers: Range<u64>) {
        if numbers.is_empty() {
            return;
        }
        self.count += numbers.end - numbers.start;
        self.numbers.add(numbers.start, numbers.end);
        while self.count > self.limit {
            let Some((start, end)) = self.numbers.iter().next() else {
                return;
            };
            let dropped = (self.count - self.limit).min(end - start);
            self.numbers.remove_stretch(start, start + dropped);
            self.count -= dropped;
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.numbers.contains(number)
    }

    /// Takes a number out. Returns whether it was there.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let was_there = self.numbers.contains(number);
        if was_there {
            self.numbers.remove(number);
            self.count -= 1;
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::PassedOver;

    const LIMIT: u64 = 20;

    proptest! {
        #[test]
        fn it_is_a_set_of_the_largest(steps in proptest::collection::vec((0u64..4, 0u64..30, 0u64..200), 0..60)) {
            let mut passed_over = PassedOver::new(LIMIT);
            let mut set = BTreeSet::new();
            let mut next = 0;
            for (gap, length, number) in steps {
                let start = next + gap;
                next = start + length;
                passed_over.add(start..next);
                set.extend(start..next);
                while set.len() as u64 > LIMIT {
                    set.pop_first();
                }
                prop_assert_eq!(passed_over.contains(number), set.contains(&number));
                prop_assert_eq!(passed_over.remove(number), set.remove(&number));
                prop_assert_eq!(passed_over.count, set.len() as u64);
                let held: Vec<_> = passed_over.numbers.iter().flat_map(|(start, end)| start..end).collect();
                prop_assert_eq!(held, set.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
