use std::collections::BTreeMap;

use serde::Serialize;

/// A row to be written (`Some`) or deleted (`None`).
pub type Row = (String, Option<Vec<u8>>);

/// Rows that changed since they were last written to the store. The latest value of each counts.
#[derive(Debug, Default)]
pub struct Rows {
    changed: BTreeMap<String, Option<Vec<u8>>>,
}

impl Rows {
    /// Notes a row's new value.
    pub fn put(&mut self, key: String, value: &impl Serialize) {
        // The values are plain data with text keys, which always have a JSON form.
        match serde_json::to_vec(value) {
            Ok(bytes) => self.changed.insert(key, Some(bytes)),
            Err(error) => {
                tracing::error!(%key, %error, "a row of the platform's state could not be written");
                None
            }
        };
    }

    /// Notes a row's new bytes.
    pub fn put_bytes(&mut self, key: String, value: Vec<u8>) {
        self.changed.insert(key, Some(value));
    }

    /// Notes that a row must be deleted.
    pub fn delete(&mut self, key: String) {
        self.changed.insert(key, None);
    }

    /// Notes that a row must be deleted. Its key must never be used again. If the row's value was not taken yet, the store
    /// never hears of the row.
    pub fn delete_once_used(&mut self, key: String) {
        if self.changed.remove(&key).is_none() {
            self.delete(key);
        }
    }

    /// Takes the changes.
    pub fn take(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_does_not_hear_of_a_row_that_came_and_went_before_it_was_taken() {
        let mut rows = Rows::default();
        rows.put_bytes("event/1".to_owned(), vec![1]);
        rows.put_bytes("event/2".to_owned(), vec![2]);
        rows.delete_once_used("event/1".to_owned());
        assert_eq!(rows.take(), [("event/2".to_owned(), Some(vec![2]))]);
        rows.delete_once_used("event/2".to_owned());
        assert_eq!(rows.take(), [("event/2".to_owned(), None)]);
    }
}
