//! The channels with new events, for the readers that wait.

use std::collections::VecDeque;

use sealbus_channels::{ChannelPath, ChannelPattern};

/// The most entries that are remembered. A reader that has waited longer looks anyway.
const MOST: usize = 256;

/// The channels of the latest kept events.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The number of the next entry.
    next: u64,
    latest: VecDeque<ChannelPath>,
}

impl News {
    /// Notes that an event of this channel was kept.
    pub(super) fn note(&mut self, channel: &ChannelPath) {
        self.latest.push_back(channel.clone());
        if self.latest.len() > MOST {
            self.latest.pop_front();
        }
        self.next += 1;
    }

    /// The number of the next entry.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the entries from number `from` on may include an event that this pattern matches.
    pub(super) fn concern(&self, pattern: &ChannelPattern, from: u64) -> bool {
        let count = usize::try_from(self.next.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut latest = self.latest.iter().rev().take(count);
        count > self.latest.len() || latest.any(|channel| pattern.matches(channel))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_reader_looks_only_if_there_may_be_something_for_it() {
        let channel = |text: &str| ChannelPath::new(text).unwrap();
        let tea = ChannelPattern::new("/offers/tea").unwrap();
        let offers = ChannelPattern::new("/offers/**").unwrap();
        let mut news = News::default();
        assert!(!news.concern(&offers, news.next()));
        news.note(&channel("/offers/tea"));
        let seen = news.next();
        assert!(news.concern(&tea, 0) && !news.concern(&tea, seen));
        news.note(&channel("/offers/coffee"));
        assert!(!news.concern(&tea, seen) && news.concern(&offers, seen));
        let after = news.next();
        for _ in 0..MOST {
            assert!(!news.concern(&tea, after));
            news.note(&channel("/other"));
        }
        assert!(!news.concern(&tea, after));
        // The rest is not remembered.
        news.note(&channel("/other"));
        assert!(news.concern(&tea, after) && !news.concern(&tea, news.next()));
    }
}
