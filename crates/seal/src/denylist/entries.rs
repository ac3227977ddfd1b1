//! The entries of a deny list, in pages: copies share the pages, and a change copies and hashes only the pages that it
//! touches.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::Denial;
use crate::certificate::Serial;
use crate::log::Hash;
use crate::timestamp::Timestamp;

/// The pages of serial numbers. A full list has about a hundred entries on each.
pub(super) const PAGES: usize = 1024;

/// A denial, and how long the list holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) denial: Denial,
    pub(super) forget_after: Timestamp,
}

/// Entries with their digest, which is computed once.
#[derive(Clone, Debug)]
pub(super) struct Page<K, V> {
    entries: BTreeMap<K, V>,
    digest: OnceLock<Hash>,
}

/// Denied serial numbers.
#[derive(Clone, Debug)]
pub(super) struct Serials {
    pages: Vec<Arc<Page<Serial, Entry>>>,
    count: usize,
}

impl Entry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.denial.at.as_unix_seconds().to_be_bytes());
        out.push(self.denial.reason as u8);
        out.extend_from_slice(&self.forget_after.as_unix_seconds().to_be_bytes());
    }
}

impl<K: Ord, V> Page<K, V> {
    pub(super) fn entries(&self) -> &BTreeMap<K, V> {
        &self.entries
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.digest = OnceLock::new();
        self.entries.insert(key, value)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.digest = OnceLock::new();
        self.entries.retain(|_, value| keep(value));
    }

    pub(super) fn digest(&self, encode: impl Fn(&K, &V, &mut Vec<u8>)) -> Hash {
        *self.digest.get_or_init(|| {
            let mut encoded = Vec::with_capacity(self.entries.len() * 33);
            for (key, value) in &self.entries {
                encode(key, value, &mut encoded);
            }
            crate::sha256(&[&encoded])
        })
    }
}

impl<K, V> Default for Page<K, V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            digest: OnceLock::new(),
        }
    }
}

impl Serials {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, serial: &Serial) -> Option<&Entry> {
        self.pages[page_of(serial)].entries.get(serial)
    }

    pub(super) fn insert(&mut self, serial: Serial, entry: Entry) {
        let page = Arc::make_mut(&mut self.pages[page_of(&serial)]);
        self.count += usize::from(page.insert(serial, entry).is_none());
    }

    /// Forgets the entries that nobody needs at `time`.
    pub(super) fn forget(&mut self, time: Timestamp) {
        let is_over = |entry: &Entry| entry.forget_after < time;
        for page in &mut self.pages {
            if page.entries.values().any(is_over) {
                let before = page.entries.len();
                let page = Arc::make_mut(page);
                page.retain(|entry| !is_over(entry));
                self.count -= before - page.entries.len();
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Serial, &Entry)> {
        self.pages.iter().flat_map(|page| &page.entries)
    }

    /// The digests of all pages, in order.
    pub(super) fn digests(&self) -> impl Iterator<Item = Hash> + '_ {
        self.pages.iter().map(|page| page.digest(encode_serial))
    }
}

impl Default for Serials {
    fn default() -> Self {
        // All empty pages share one digest.
        let empty = Arc::new(Page::default());
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
fn page_of(serial: &Serial) -> usize {
    let bytes = serial.as_bytes();
    usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % PAGES
}
