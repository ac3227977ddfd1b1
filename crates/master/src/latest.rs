//! The latest records from many origins, each of which has its share of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Records, oldest first, each with its number.
type Numbered<R> = VecDeque<(u64, R)>;

/// The latest records, as many as allowed.
pub(crate) struct Latest<R> {
    most: usize,
    /// The records, by groups of origins and their origins.
    kept: BTreeMap<String, BTreeMap<String, Numbered<R>>>,
    next: u64,
    held: usize,
}

impl<R> Latest<R> {
    /// Keeps at most this many records.
    pub(crate) fn of(most: usize) -> Self {
        Self {
            most,
            kept: BTreeMap::new(),
            next: 0,
            held: 0,
        }
    }

    /// Keeps a record of one of a group's origins. Some origins are invented, so the group has a share, too.
    pub(crate) fn keep(&mut self, group: &str, origin: String, record: R) {
        let origins = self.kept.entry(group.to_owned()).or_default();
        let records = origins.entry(origin).or_default();
        records.push_back((self.next, record));
        self.next = self.next.saturating_add(1);
        self.held += 1;
        if self.held > self.most {
            self.forget_one();
            self.held -= 1;
        }
    }

    /// Forgets the oldest record of the origin with the most records, in the group with the most. So no origin pushes
    /// out the records of another one that has fewer.
    fn forget_one(&mut self) {
        let group = self.kept.values_mut().max_by_key(|origins| {
            let count: usize = origins.values().map(VecDeque::len).sum();
            (count, Reverse(origins.values().filter_map(oldest).min()))
        });
        let Some(origins) = group else { return };
        let origin = origins
            .values_mut()
            .max_by_key(|records| (records.len(), Reverse(oldest(records))));
        if let Some(records) = origin {
            records.pop_front();
        }
        origins.retain(|_, records| !records.is_empty());
        self.kept.retain(|_, origins| !origins.is_empty());
    }

    /// The records, oldest first.
    pub(crate) fn all(&self) -> Vec<&R> {
        let origins = self.kept.values().flat_map(BTreeMap::values);
        let mut all: Vec<_> = origins.flatten().collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, record)| record).collect()
    }
}

/// The number of the oldest record.
fn oldest<R>(records: &Numbered<R>) -> Option<u64> {
    records.front().map(|(number, _)| *number)
}
