//! The entries of a deny list, in pages. Copies share the pages, and a change copies and hashes only the pages that it
//! touches.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use super::{Denial, SERIAL_ENTRY};
use crate::Hash;
use crate::certificate::Serial;
use crate::identity::Identity;
use crate::timestamp::Timestamp;

/// The number of pages for serial numbers, and for identities. A full list has about five hundred serial numbers on each.
pub(super) const PAGES: usize = 1024;

/// The length of an entry in bytes, excluding its key.
const ENTRY: usize = 17;

/// A denial, and how long the list keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) denial: Denial,
    pub(super) forget_after: Timestamp,
}

/// The key of an entry, which decides on which page the entry lies.
pub(super) trait Paged: Ord + Clone {
    fn page(&self) -> usize;
    /// The length of the key's entry in the signed list, in bytes.
    fn entry_length(&self) -> usize;
}

/// Entries with their digest, which is computed once.
#[derive(Clone, Debug)]
struct Page<K, V> {
    entries: BTreeMap<K, V>,
    digest: OnceLock<Hash>,
}

/// Entries by serial number, or by identity.
#[derive(Clone, Debug)]
pub(super) struct Pages<K, V> {
    pages: Vec<Arc<Page<K, V>>>,
    count: usize,
    bytes: usize,
}

impl Entry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.denial.at.as_unix_seconds().to_be_bytes());
        out.push(self.denial.reason as u8);
        out.extend_from_slice(&self.forget_after.as_unix_seconds().to_be_bytes());
    }
}

impl<K: Paged, V: Clone> Pages<K, V> {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The length of all entries, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        // Most lists deny no identity, so there is nothing to look up.
        if self.count == 0 {
            return None;
        }
        self.pages[key.page()].entries.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let page = Arc::make_mut(&mut self.pages[key.page()]);
        page.digest = OnceLock::new();
        let length = key.entry_length();
        if page.entries.insert(key, value).is_none() {
            self.count += 1;
            self.bytes += length;
        }
    }

    /// Forgets the entries for which `is_over` holds.
    pub(super) fn forget(&mut self, is_over: impl Fn(&V) -> bool) {
        for page in &mut self.pages {
            if page.entries.values().any(&is_over) {
                let page = Arc::make_mut(page);
                page.digest = OnceLock::new();
                for (key, _) in page.entries.extract_if(.., |_, value| is_over(value)) {
                    self.count -= 1;
                    self.bytes -= key.entry_length();
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pages.iter().flat_map(|page| &page.entries)
    }

    /// The digests of all pages, in order. `encode` appends the bytes of an entry.
    pub(super) fn digests(
        &self,
        encode: impl Fn(&K, &V, &mut Vec<u8>),
    ) -> impl Iterator<Item = Hash> {
        self.pages.iter().map(move |page| {
            *page.digest.get_or_init(|| {
                let mut encoded = Vec::with_capacity(page.entries.len() * SERIAL_ENTRY);
                for (key, value) in &page.entries {
                    encode(key, value, &mut encoded);
                }
                crate::sha256(&[&encoded])
            })
        })
    }
}

impl<K, V> Default for Pages<K, V> {
    fn default() -> Self {
        // All empty pages share one digest.
        let empty = Arc::new(Page {
            entries: BTreeMap::new(),
            digest: OnceLock::new(),
        });
        Self {
            pages: vec![empty; PAGES],
            count: 0,
            bytes: 0,
        }
    }
}

pub(super) fn encode_serial(serial: &Serial, entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(serial.as_bytes());
    entry.encode(out);
}

/// Serial numbers are random, so their last bits spread them evenly.
impl Paged for Serial {
    fn page(&self) -> usize {
        let bytes = self.as_bytes();
        usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % PAGES
    }

    fn entry_length(&self) -> usize {
        SERIAL_ENTRY
    }
}

/// FNV-1a over the identity's text chooses the page. Authority and receivers must agree on it.
impl Paged for Identity {
    fn page(&self) -> usize {
        struct Fnv(u64);
        impl fmt::Write for Fnv {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for byte in text.bytes() {
                    self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
                Ok(())
            }
        }
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        // Writing to the hash cannot fail.
        let _ = write!(hash, "{self}");
        (hash.0 % PAGES as u64) as usize
    }

    /// The identity's length and text come first, then the time before which its certificates are denied.
    fn entry_length(&self) -> usize {
        size_of::<u16>() + self.to_string().len() + size_of::<u64>() + ENTRY
    }
}
