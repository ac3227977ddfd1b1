//! Values that are too long for one request to etcd. Such a value is cut into pieces, and each is a key of its own. The row
//! then says where the pieces are. They lie in a folder whose name is never used again. Nobody reads them before a row names
//! them. The transaction that writes the row anew, or deletes it, also deletes them.

use std::collections::BTreeMap;

use prost::{DecodeError, Message};

use super::wire::KeyValue;
use crate::StoreError;

/// Longest piece, and longest value that is not cut.
pub(super) const PIECE: usize = 512 << 10;
/// The first bytes of a row whose value is in pieces.
const MARK: &[u8] = b"\0sealbus: this value is in pieces\n";

/// Whether a value is kept in pieces. So is a value that begins like a row with pieces, however short it is.
pub(super) fn is_long(value: &[u8]) -> bool {
    value.len() > PIECE || value.starts_with(MARK)
}

/// The name of a piece behind that of its folder.
pub(super) fn name(number: usize) -> String {
    format!("/{number:06}")
}

/// Says where the pieces of a value are.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pieces {
    #[prost(string, tag = "1")]
    pub(super) folder: String,
    /// The number of the pieces.
    #[prost(uint64, tag = "2")]
    count: u64,
    /// The bytes of the whole value.
    #[prost(uint64, tag = "3")]
    length: u64,
}

impl Pieces {
    /// The pieces of a value that will lie in `folder`.
    pub(super) fn of(folder: &str, value: &[u8]) -> Self {
        Self {
            folder: folder.to_owned(),
            count: value.chunks(PIECE).count() as u64,
            length: value.len() as u64,
        }
    }

    /// The contents of the row.
    pub(super) fn row(&self) -> Vec<u8> {
        let mut row = MARK.to_vec();
        row.extend(self.encode_to_vec());
        row
    }

    /// Reads a row. `None` if it holds its value itself.
    ///
    /// # Errors
    /// If the row does not say where its pieces are.
    pub(super) fn read(row: &[u8]) -> Result<Option<Self>, DecodeError> {
        match row.strip_prefix(MARK) {
            Some(pieces) => Self::decode(pieces).map(Some),
            None => Ok(None),
        }
    }

    /// The value whose pieces were found, in the order of their keys. The error is the fault.
    pub(super) fn join(&self, found: Vec<KeyValue>) -> Result<Vec<u8>, String> {
        let mut numbered = found.iter().enumerate();
        let are_these =
            numbered.all(|(number, piece)| piece.key.ends_with(name(number).as_bytes()));
        let length: usize = found.iter().map(|piece| piece.value.len()).sum();
        if !are_these || found.len() as u64 != self.count || length as u64 != self.length {
            return Err(format!(
                "its value is in {} pieces of {} bytes, and {} of {length} bytes are there",
                self.count,
                self.length,
                found.len()
            ));
        }
        let mut value = Vec::with_capacity(length);
        for piece in found {
            value.extend_from_slice(&piece.value);
        }
        Ok(value)
    }
}

/// The rows whose values are in pieces, each with the folder of its pieces.
pub(super) type InPieces = BTreeMap<String, String>;

/// The list of the rows whose values are in pieces, as etcd has it. Each commit demands that the list has not changed since the
/// commit was planned. So a commit knows which pieces its changes leave behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// The revision that wrote the list; 0 if there is none.
    pub(super) written: i64,
    pub(super) rows: InPieces,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    rows: Vec<ListedRow>,
}

#[derive(Clone, PartialEq, Message)]
struct ListedRow {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    folder: String,
}

impl Listed {
    /// Reads the list.
    ///
    /// # Errors
    /// [`StoreError::DamagedRow`].
    pub(super) fn of(row: Option<&KeyValue>) -> Result<Self, StoreError> {
        let Some(row) = row else {
            return Ok(Self::default());
        };
        let list = List::decode(row.value.as_slice());
        let list = list.map_err(|error| StoreError::DamagedRow {
            key: String::from_utf8_lossy(&row.key).into_owned(),
            detail: error.to_string(),
        })?;
        let rows = list.rows.into_iter();
        Ok(Self {
            written: row.written,
            rows: rows.map(|row| (row.key, row.folder)).collect(),
        })
    }
}

/// The contents of the list's row.
pub(super) fn list_row(rows: &InPieces) -> Vec<u8> {
    let rows = rows.iter().map(|(key, folder)| ListedRow {
        key: key.clone(),
        folder: folder.clone(),
    });
    List {
        rows: rows.collect(),
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// The pieces of a value as etcd has them.
    fn cut(value: &[u8]) -> Vec<KeyValue> {
        let pieces = value.chunks(PIECE).enumerate();
        pieces
            .map(|(number, piece)| KeyValue {
                key: format!("/sealbus/factory/pieces/one/7.1/0{}", name(number)).into_bytes(),
                written: 9,
                value: piece.to_vec(),
                ..KeyValue::default()
            })
            .collect()
    }

    #[test]
    fn a_row_says_where_its_pieces_are_or_is_its_value() {
        let pieces = Pieces::of("one/7.1/0", &vec![b'x'; PIECE + 1]);
        let row = pieces.row();
        assert!(row.len() < 100);
        assert_eq!(Pieces::read(&row).unwrap(), Some(pieces));
        for value in [b"".as_slice(), b"{}", &MARK[..MARK.len() - 1], &[0; 100]] {
            assert!(!is_long(value) && Pieces::read(value).unwrap().is_none());
        }
        // A value that would be taken for such a row is never a row itself.
        assert!(is_long(&row) && is_long(MARK));
        assert!(is_long(&vec![0; PIECE + 1]) && !is_long(&vec![0; PIECE]));
        assert!(Pieces::read(&[MARK, b"\xff"].concat()).is_err());
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let rows = InPieces::from([
            ("ca/deny-list".to_owned(), "one/7.1/0".to_owned()),
            ("group/big".to_owned(), "two/8.3/12".to_owned()),
        ]);
        let mut row = KeyValue {
            key: b"/sealbus/factory/in-pieces".to_vec(),
            written: 12,
            value: list_row(&rows),
            ..KeyValue::default()
        };
        let listed = Listed::of(Some(&row)).unwrap();
        assert_eq!((listed.written, listed.rows), (12, rows));
        let none = Listed::of(None).unwrap();
        assert!(none.written == 0 && none.rows.is_empty());
        row.value = b"\xff".to_vec();
        let damaged = Listed::of(Some(&row)).unwrap_err();
        assert!(damaged.to_string().contains("in-pieces"), "{damaged}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_make_the_whole_value_or_a_fault(
            (byte, length) in (any::<u8>(), 1..4 * PIECE),
            (at, damage) in (any::<prop::sample::Index>(), 0..4),
        ) {
            let mut value = vec![byte; length];
            // No two pieces are the same.
            for (number, piece) in value.chunks_mut(PIECE).enumerate() {
                piece[0] = number as u8;
            }
            let pieces = Pieces::of("one/7.1/0", &value);
            let found = cut(&value);
            prop_assert!(pieces.join(found.clone()) == Ok(value));
            let at = at.index(found.len());
            let mut damaged = found;
            match damage {
                0 => drop(damaged.remove(at)),
                1 => damaged.push(damaged[at].clone()),
                2 => {
                    damaged[at].value.pop();
                }
                _ => damaged.clear(),
            }
            let fault = pieces.join(damaged).unwrap_err();
            prop_assert!(fault.contains("pieces"), "{}", fault);
        }
    }
}
