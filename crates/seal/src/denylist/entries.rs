//! The entries of a deny list, in pages: copies share the pages, and a change copies and hashes only the pages that it
//! touches.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use super::Denial;
use crate::Hash;
use crate::certificate::Serial;
use crate::identity::Identity;
use crate::timestamp::Timestamp;

/// The pages of serial numbers, and those of identities. A full list has about a hundred serial numbers on each.
pub(super) const PAGES: usize = 1024;

/// A denial, and how long the list holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) denial: Denial,
    pub(super) forget_after: Timestamp,
}

/// A key of an entry, which always lies on the same page.
pub(super) trait Paged: Ord + Clone {
    fn page(&self) -> usize;
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

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        // Most lists deny no identity: there is nothing to look for.
        if self.count == 0 {
            return None;
        }
        self.pages[key.page()].entries.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let page = Arc::make_mut(&mut self.pages[key.page()]);
        page.digest = OnceLock::new();
        self.count += usize::from(page.entries.insert(key, value).is_none());
    }

    /// Forgets the entries that are over.
    pub(super) fn forget(&mut self, is_over: impl Fn(&V) -> bool) {
        for page in &mut self.pages {
            if page.entries.values().any(&is_over) {
                let before = page.entries.len();
                let page = Arc::make_mut(page);
                page.digest = OnceLock::new();
                page.entries.retain(|_, value| !is_over(value));
                self.count -= before - page.entries.len();
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
                let mut encoded = Vec::with_capacity(page.entries.len() * 33);
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
}

/// The page is chosen by FNV-1a over the identity's text. Authority and receivers must agree on it.
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
        // Writing to it does not fail.
        let _ = write!(hash, "{self}");
        (hash.0 % PAGES as u64) as usize
    }
}
