//! The compiled filters of another process's subscriptions. Equal filters share one, and the size of all patterns is limited.

use std::collections::HashMap;

use thiserror::Error;

use crate::filter::{ChannelFilter, FilterError, LARGEST_PATTERN};

/// The bytes that the patterns of one process's filters may take. Few in tests, so that the limit is reached.
const MOST_BYTES: usize = LARGEST_PATTERN * if cfg!(test) { 2 } else { 256 };
/// Below this number of filters, unused ones are not looked for.
const FEWEST: usize = 64;

/// Why a filter of another process is refused.
#[derive(Debug, Error)]
pub(super) enum FilterRefusal {
    #[error(transparent)]
    NoFilter(#[from] FilterError),
    #[error(
        "the patterns in the filters of a process may take {MOST_BYTES} bytes together: write fewer or simpler patterns, or the \
         same filter for many subscriptions"
    )]
    TooLarge,
}

/// The compiled filters of a process, by their text.
#[derive(Default)]
pub(super) struct KnownFilters {
    by_text: HashMap<Box<str>, ChannelFilter>,
    /// The bytes of all their patterns.
    bytes: usize,
    /// The number of filters at which unused ones are forgotten.
    most: usize,
}

impl KnownFilters {
    /// The filter of a subscription; `None` for the empty text.
    pub(super) fn get(&mut self, text: &str) -> Result<Option<ChannelFilter>, FilterRefusal> {
        if text.is_empty() {
            return Ok(None);
        }
        if let Some(filter) = self.by_text.get(text) {
            return Ok(Some(filter.clone()));
        }
        let filter = ChannelFilter::new(text)?;
        let is_too_large = |bytes: usize| bytes + filter.pattern_bytes() > MOST_BYTES;
        if is_too_large(self.bytes) || self.by_text.len() >= self.most.max(FEWEST) {
            self.forget_unused();
        }
        if is_too_large(self.bytes) {
            return Err(FilterRefusal::TooLarge);
        }
        self.bytes += filter.pattern_bytes();
        self.by_text.insert(text.into(), filter.clone());
        Ok(Some(filter))
    }

    fn forget_unused(&mut self) {
        self.by_text.retain(|_, filter| filter.is_shared());
        self.bytes = self
            .by_text
            .values()
            .map(ChannelFilter::pattern_bytes)
            .sum();
        self.most = 2 * self.by_text.len();
    }

    /// The number of filters that are kept compiled.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }
}
