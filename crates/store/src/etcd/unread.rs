//! The rest of a range that is read page by page. A damaged member may answer, or something that is not etcd. Each page must
//! therefore take the read further, and a read has an end.

use super::next;
use super::wire::Found;
use crate::StoreError;

/// The part of a range that is not read yet.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    /// The first key.
    pub(super) from: Vec<u8>,
    /// The first key behind the range.
    pub(super) end: Vec<u8>,
    /// Whether there may be rows in it.
    pub(super) is_more: bool,
    /// Most bytes of keys and values in it.
    room: u64,
}

impl Unread {
    /// The whole range, with at most `room` bytes of keys and values.
    pub(super) fn new(from: Vec<u8>, end: Vec<u8>, room: u64) -> Self {
        Self {
            from,
            end,
            is_more: true,
            room,
        }
    }

    /// Goes on behind a page of at most `limit` rows.
    ///
    /// # Errors
    /// [`StoreError::Impossible`]. The page must not be used.
    pub(super) fn take(&mut self, page: &Found, limit: usize) -> Result<(), StoreError> {
        let rows = &page.rows;
        let is_within = |key: &Vec<u8>| *key >= self.from && *key < self.end;
        let bytes = rows.iter().map(|row| row.key.len() + row.value.len());
        let bytes = bytes.sum::<usize>() as u64;
        let detail = match rows.last() {
            _ if !rows.iter().all(|row| is_within(&row.key)) => "keys that were not asked for",
            _ if !rows.is_sorted_by(|row, next| row.key < next.key) => "keys that are not in order",
            _ if rows.len() > limit => "more rows than were asked for",
            _ if bytes > self.room => "more bytes than etcd can hold there",
            None if page.more => "no rows, and says that there are more",
            last => {
                self.room -= bytes;
                self.is_more = page.more;
                if let Some(last) = last {
                    self.from = next(last.key.clone());
                }
                return Ok(());
            }
        };
        Err(StoreError::Impossible {
            key: String::from_utf8_lossy(&self.from).into_owned(),
            detail,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::wire::KeyValue;
    use super::*;

    fn page(keys: &[&str], more: bool) -> Found {
        let row = |key: &&str| KeyValue {
            key: key.as_bytes().to_vec(),
            value: vec![0; 10],
            ..KeyValue::default()
        };
        Found {
            rows: keys.iter().map(row).collect(),
            more,
            ..Found::default()
        }
    }

    fn begun() -> Unread {
        Unread::new(b"a/".to_vec(), b"a0".to_vec(), 100)
    }

    #[test]
    fn a_range_is_read_to_its_end() {
        let mut unread = begun();
        unread.take(&page(&["a/1", "a/2"], true), 2).unwrap();
        assert!(unread.is_more && unread.from == b"a/2\0");
        unread.take(&page(&["a/3"], false), 2).unwrap();
        assert!(!unread.is_more);
        let mut empty = begun();
        empty.take(&page(&[], false), 2).unwrap();
        assert!(!empty.is_more);
    }

    #[test]
    fn a_read_that_gets_no_further_or_has_no_end_is_an_error() {
        let mut unread = begun();
        let same = page(&["a/1", "a/2"], true);
        unread.take(&same, 2).unwrap();
        let error = unread.take(&same, 2).unwrap_err();
        assert!(error.to_string().starts_with("etcd-impossible: "));

        // Always another key, and never the last one.
        let mut unread = begun();
        let endless = (0..100).find_map(|number| {
            let key = format!("a/{number:03}");
            unread.take(&page(&[key.as_str()], true), 2).err()
        });
        assert!(matches!(endless, Some(StoreError::Impossible { .. })));

        for wrong in [
            page(&["a/2", "a/1"], false),
            page(&["a/1", "a/1"], true),
            page(&["a/1", "a0"], false),
            page(&["a"], false),
            page(&["a/1", "a/2", "a/3"], true),
            page(&[], true),
        ] {
            let taken = begun().take(&wrong, 2);
            assert!(matches!(taken, Err(StoreError::Impossible { .. })));
        }
    }
}
