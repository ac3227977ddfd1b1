//! Numbers that were passed over and may still come. No I/O.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as ranges, because most passed-over numbers are adjacent. The set has a limited size and
/// drops its smallest numbers.
#[derive(Debug)]
pub(crate) struct PassedOver {
    /// The end of each range, by its beginning. Ranges do not touch.
    ranges: BTreeMap<u64, u64>,
    count: u64,
    limit: u64,
}

impl PassedOver {
    /// Holds no more than `limit` numbers.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            ranges: BTreeMap::new(),
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
        self.ranges.insert(numbers.start, numbers.end);
        while self.count > self.limit
            && let Some((start, end)) = self.ranges.pop_first()
        {
            let dropped = (self.count - self.limit).min(end - start);
            self.count -= dropped;
            if start + dropped < end {
                self.ranges.insert(start + dropped, end);
            }
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let range = self.ranges.range(..=number).next_back();
        range.is_some_and(|(_, end)| number < *end)
    }

    /// Takes a number out. Returns whether it was there.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let range = self.ranges.range(..=number).next_back();
        let Some((start, end)) = range.map(|(start, end)| (*start, *end)) else {
            return false;
        };
        if number >= end {
            return false;
        }
        self.ranges.remove(&start);
        if start < number {
            self.ranges.insert(start, number);
        }
        if number + 1 < end {
            self.ranges.insert(number + 1, end);
        }
        self.count -= 1;
        true
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
                let held: Vec<_> = passed_over.ranges.iter().flat_map(|(start, end)| *start..*end).collect();
                prop_assert_eq!(held, set.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
