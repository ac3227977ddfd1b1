//! The plan of a commit: the changes of a batch in the form in which etcd takes them. Long values are cut out, to be written in
//! pieces. Changes that are too many for one transaction of etcd are divided into parts.

use std::collections::BTreeMap;

use prost::Message;

use super::pieces::{InPieces, Listed, PIECE, Pieces, is_long, list_row};
use super::{LONGEST_REQUEST, LONGEST_VALUE};
use crate::{Batch, StoreError};

/// Most changes of one transaction. etcd takes 128 operations by default; the rest is for marks.
pub(super) const MOST_CHANGES: usize = 100;
/// Most characters of a key in an error.
const SHOWN: usize = 200;

/// The changes of a batch: a value to be written, or `None` for a row to be deleted.
pub(super) type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// A part of a large commit, small enough for one transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CommitPart {
    #[prost(message, repeated, tag = "1")]
    pub(super) changes: Vec<Change>,
}

/// A row to be written, or, without a value, deleted.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Change {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) value: Option<Vec<u8>>,
    /// The folder of the row's former pieces, which are deleted with the row; empty if it had none.
    #[prost(string, tag = "3")]
    pub(super) former: String,
}

impl Change {
    /// How many operations of etcd make the change.
    fn operations(&self) -> usize {
        match self.former.is_empty() {
            true => 1,
            false => 2,
        }
    }

    /// How many bytes the change takes in a request, approximately.
    fn size(&self) -> usize {
        let value = self.value.as_ref().map_or(0, Vec::len);
        self.key.len() + value + 2 * self.former.len() + 16
    }
}

/// The plan of a commit.
pub(super) struct Plan<'a> {
    /// The changes. In the place of a long value, each has the row that says where the pieces are.
    pub(super) changes: Vec<Change>,
    /// The long values, each with the folder of its pieces.
    pub(super) long: Vec<(String, &'a [u8])>,
    /// The revision of the list of rows in pieces that the plan was made from.
    pub(super) listed: i64,
    /// This list after the commit; `None` if it stays as it is.
    pub(super) list: Option<InPieces>,
}

impl<'a> Plan<'a> {
    /// Plans a commit. `folder` is a name for its pieces that is never used again.
    pub(super) fn new(changes: &'a Changes, listed: &Listed, folder: &str) -> Self {
        let mut planned = Vec::with_capacity(changes.len());
        let mut long: Vec<(String, &'a [u8])> = Vec::new();
        let mut list: Option<InPieces> = None;
        for (key, value) in changes {
            let former = listed.rows.get(key).cloned();
            let value = match value {
                Some(value) if is_long(value) => {
                    let folder = format!("{folder}/{}", long.len());
                    let row = Pieces::of(&folder, value).row();
                    let list = list.get_or_insert_with(|| listed.rows.clone());
                    list.insert(key.clone(), folder.clone());
                    long.push((folder, value.as_slice()));
                    Some(row)
                }
                other => {
                    if former.is_some() {
                        let list = list.get_or_insert_with(|| listed.rows.clone());
                        list.remove(key);
                    }
                    other.clone()
                }
            };
            planned.push(Change {
                key: key.clone(),
                value,
                former: former.unwrap_or_default(),
            });
        }
        Self {
            changes: planned,
            long,
            listed: listed.written,
            list,
        }
    }

    /// Whether the changes fit into one transaction of etcd.
    pub(super) fn fits(&self) -> bool {
        let operations: usize = self.changes.iter().map(Change::operations).sum();
        let size: usize = self.changes.iter().map(Change::size).sum();
        let list = self.list.as_ref().map_or(0, |list| list_row(list).len());
        operations <= MOST_CHANGES && size + list <= LONGEST_REQUEST
    }

    /// Whether one transaction of etcd is the whole commit.
    pub(super) fn is_small(&self) -> bool {
        self.long.is_empty() && self.fits()
    }
}

/// Divides changes into parts.
pub(super) fn parts(changes: Vec<Change>) -> Vec<CommitPart> {
    let mut parts: Vec<CommitPart> = Vec::new();
    let (mut operations, mut size) = (0, 0);
    for change in changes {
        operations += change.operations();
        size += change.size();
        let is_full = operations > MOST_CHANGES || size > LONGEST_REQUEST;
        if parts.is_empty() || is_full {
            parts.push(CommitPart::default());
            (operations, size) = (change.operations(), change.size());
        }
        if let Some(part) = parts.last_mut() {
            part.changes.push(change);
        }
    }
    parts
}

/// Refuses a batch with a value that is longer than any may be.
pub(super) fn check_lengths(batch: &Batch) -> Result<(), StoreError> {
    for (key, value) in batch.changes() {
        let length = value.map_or(0, <[u8]>::len);
        if length > LONGEST_VALUE || key.len() > PIECE {
            return Err(StoreError::LongValue {
                key: key.chars().take(SHOWN).collect(),
                length: key.len() + length,
                limit: LONGEST_VALUE,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::super::pieces::name;
    use super::super::wire::KeyValue;
    use super::*;

    /// The rows and pieces that etcd would have.
    #[derive(Default)]
    struct KeptRows {
        rows: BTreeMap<String, Vec<u8>>,
        pieces: BTreeMap<String, Vec<u8>>,
        listed: Listed,
    }

    impl KeptRows {
        fn commit(&mut self, changes: &Changes, number: i64) {
            let plan = Plan::new(changes, &self.listed, &format!("one/7.{number}"));
            assert_eq!(plan.listed, self.listed.written);
            for (folder, value) in &plan.long {
                for (number, piece) in value.chunks(PIECE).enumerate() {
                    let key = format!("{folder}{}", name(number));
                    assert!(self.pieces.insert(key, piece.to_vec()).is_none());
                }
            }
            for change in plan.changes {
                match change.value {
                    Some(value) => {
                        assert!(value.len() <= PIECE);
                        self.rows.insert(change.key, value);
                    }
                    None => {
                        self.rows.remove(&change.key);
                    }
                }
                if !change.former.is_empty() {
                    let former = format!("{}/", change.former);
                    self.pieces.retain(|key, _| !key.starts_with(&former));
                }
            }
            if let Some(rows) = plan.list {
                self.listed = Listed {
                    written: number,
                    rows,
                };
            }
        }

        /// Reads a row. Returns it with the number of its pieces.
        fn read(&self, key: &str) -> (Vec<u8>, usize) {
            let row = &self.rows[key];
            let Some(pieces) = Pieces::read(row).unwrap() else {
                return (row.clone(), 0);
            };
            let folder = format!("{}/", pieces.folder);
            let found = self.pieces.iter();
            let found = found.filter(|(key, _)| key.starts_with(&folder));
            let found = found.map(|(key, piece)| KeyValue {
                key: key.clone().into_bytes(),
                written: 1,
                value: piece.clone(),
                ..KeyValue::default()
            });
            let found: Vec<_> = found.collect();
            let count = found.len();
            (pieces.join(found).unwrap(), count)
        }
    }

    /// Changes of few rows, some with long values, and some with values that look like rows in pieces.
    fn steps() -> impl Strategy<Value = Vec<Changes>> {
        let long = (any::<u8>(), PIECE - 1..2 * PIECE + 2);
        let value = prop_oneof![
            2 => prop::collection::vec(any::<u8>(), 0..4),
            2 => long.prop_map(|(byte, length)| vec![byte; length]),
            1 => any::<u8>().prop_map(|byte| Pieces::of("one/7.1/0", &[byte]).row()),
        ];
        let change = ("[ab]{1,2}", prop::option::weighted(0.7, value));
        let changes = prop::collection::btree_map(change.0, change.1, 0..4);
        prop::collection::vec(changes, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn rows_are_read_as_they_were_written_and_no_piece_is_left(commits in steps()) {
            let mut kept = KeptRows::default();
            let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            for (number, changes) in (1..).zip(commits) {
                kept.commit(&changes, number);
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(model.insert(key, value)),
                        None => drop(model.remove(&key)),
                    }
                }
                prop_assert!(kept.rows.keys().eq(model.keys()));
                let mut pieces = 0;
                for (key, value) in &model {
                    let (read, count) = kept.read(key);
                    prop_assert!(read == *value, "{} differs", key);
                    prop_assert_eq!(count > 0, kept.listed.rows.contains_key(key));
                    prop_assert_eq!(count > 0, is_long(value));
                    pieces += count;
                }
                prop_assert_eq!(pieces, kept.pieces.len());
            }
        }

        #[test]
        fn each_part_is_small_enough_and_together_they_are_all(
            sizes in prop::collection::vec((0..PIECE + 1, any::<bool>()), 0..12),
            many in 0..300usize,
        ) {
            let mut changes = Vec::new();
            for (number, (length, had_pieces)) in sizes.into_iter().enumerate() {
                let former = match had_pieces {
                    true => "one/7.1/0".to_owned(),
                    false => String::new(),
                };
                changes.push(Change {
                    key: format!("long/{number}"),
                    value: Some(vec![0; length]),
                    former,
                });
            }
            for number in 0..many {
                changes.push(Change {
                    key: format!("many/{number}"),
                    value: None,
                    former: String::new(),
                });
            }
            let parts = parts(changes.clone());
            for part in &parts {
                let operations: usize = part.changes.iter().map(Change::operations).sum();
                prop_assert!((1..=MOST_CHANGES).contains(&operations));
                // etcd takes requests of 1.5 MiB.
                prop_assert!(part.encoded_len() <= LONGEST_REQUEST + (64 << 10));
            }
            let all = parts.into_iter().flat_map(|part| part.changes);
            prop_assert!(all.eq(changes));
        }
    }

    #[test]
    fn a_commit_of_small_values_is_one_transaction_and_keeps_the_list() {
        let mut changes = Changes::new();
        for number in 0..MOST_CHANGES {
            changes.insert(format!("row/{number}"), Some(vec![b'x'; 1024]));
        }
        let judge = |changes: &Changes| {
            let plan = Plan::new(changes, &Listed::default(), "one/7.1");
            (plan.fits(), plan.is_small(), plan.list.is_some())
        };
        assert_eq!(judge(&changes), (true, true, false));
        changes.insert("one more".to_owned(), None);
        assert_eq!(judge(&changes), (false, false, false));
        // A long value alone needs no parts: its row is short.
        let long = Changes::from([("long".to_owned(), Some(vec![b'x'; 5 << 20]))]);
        assert_eq!(judge(&long), (true, false, true));
    }

    #[test]
    fn a_value_that_is_too_long_is_refused_by_its_key() {
        let mut batch = Batch::new();
        batch.put("group/most", vec![0u8; LONGEST_VALUE]);
        batch.put("a", "small");
        check_lengths(&batch).unwrap();
        batch.put("group/more", vec![0u8; LONGEST_VALUE + 1]);
        let refused = check_lengths(&batch).unwrap_err();
        assert!(matches!(&refused, StoreError::LongValue { key, .. } if key == "group/more"));
        assert!(refused.to_string().contains("'group/more'"), "{refused}");
    }
}
