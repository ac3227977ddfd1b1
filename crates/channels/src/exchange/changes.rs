//! The changes that decide who receives on channels. A channel keeps its receivers if no change concerns it.

use std::collections::VecDeque;

use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;

/// The number of changes whose patterns are remembered. Looking at more would cost more than computing the receivers again.
const REMEMBERED: usize = 32;

/// The number of changes so far, and the channels that the latest ones concern.
pub(super) struct Changes {
    number: u64,
    /// The patterns of the latest changes, without a gap, newest last.
    latest: VecDeque<ChannelPattern>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            number: 1,
            latest: VecDeque::new(),
        }
    }
}

impl Changes {
    /// The number of changes so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A change that concerns the channels of a pattern.
    pub(super) fn note(&mut self, pattern: &ChannelPattern) {
        self.number += 1;
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(pattern.clone());
    }

    /// A change that may concern every channel.
    pub(super) fn note_all(&mut self) {
        self.number += 1;
        self.latest.clear();
    }

    /// Whether no change after number `number` concerns the channel. False if that is no longer remembered.
    pub(super) fn spare(&self, channel: &ChannelPath, number: u64) -> bool {
        let later = self.number.saturating_sub(number);
        if later > self.latest.len() as u64 {
            return false;
        }
        // At most as many as are remembered.
        let mut later = self.latest.iter().rev().take(later as usize);
        later.all(|pattern| !pattern.matches(channel))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ChannelPattern {
        ChannelPattern::new(text).unwrap()
    }

    #[test]
    fn a_change_of_other_channels_spares_a_channel_as_long_as_it_is_remembered() {
        let mut changes = Changes::default();
        let tea = ChannelPath::new("/offers/tea").unwrap();
        assert!(!changes.spare(&tea, 0));
        let before = changes.number();
        assert!(changes.spare(&tea, before));
        for _ in 0..REMEMBERED {
            changes.note(&pattern("/offers/coffee"));
        }
        assert!(changes.spare(&tea, before));
        changes.note(&pattern("/dates"));
        assert!(!changes.spare(&tea, before));
        assert!(changes.spare(&tea, before + 1));
        let before = changes.number();
        changes.note(&pattern("/offers/*"));
        assert!(!changes.spare(&tea, before));
        let before = changes.number();
        changes.note_all();
        changes.note(&pattern("/dates"));
        assert!(!changes.spare(&tea, before));
        assert!(changes.spare(&tea, before + 1));
    }
}
