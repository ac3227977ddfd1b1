//! Stamps: the numbers on messages by which each message is delivered once and in order.

use std::fmt;

/// The longest text of a stamp: 16 digits, twice up to 16 more, and two separators.
const LONGEST: usize = 50;

/// The place of a message among all messages from one agent to another. As text it is hexadecimal: `EPOCH-NUMBER-BASE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderStamp {
    /// A new random number each time the sender attaches. Numbers of different epochs are unrelated.
    pub epoch: u64,
    /// Counts the messages to this receiver, from 1. The largest integer is never used, since another number must be
    /// able to follow.
    pub number: u64,
    /// Numbers below this one are not waited for, because one of them was given up. At most `number`.
    pub base: u64,
}

impl OrderStamp {
    /// Reads a stamp; `None` if the text is no stamp. Only texts that [`fmt::Display`] writes are stamps.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parts = text.split('-');
        let (epoch, number, base) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || epoch.len() != 16 {
            return None;
        }
        let stamp = Self {
            epoch: digits(epoch)?,
            number: digits(number)?,
            base: digits(base)?,
        };
        let is_possible = stamp.base >= 1 && stamp.base <= stamp.number && stamp.number < u64::MAX;
        (is_possible && stamp.to_string() == text).then_some(stamp)
    }
}

fn digits(text: &str) -> Option<u64> {
    // `from_str_radix` would take a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

impl fmt::Display for OrderStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}-{:x}", self.epoch, self.number, self.base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::OrderStamp;

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch: u64, a in 1..u64::MAX, b in 1..u64::MAX) {
            let stamp = OrderStamp { epoch, number: a.max(b), base: a.min(b) };
            prop_assert_eq!(OrderStamp::parse(&stamp.to_string()), Some(stamp));
        }

        #[test]
        fn any_text_is_a_stamp_or_none(text in "[0-9a-fA-F+-]{0,60}") {
            if let Some(stamp) = OrderStamp::parse(&text) {
                prop_assert_eq!(stamp.to_string(), text);
            }
        }
    }

    #[test]
    fn a_base_above_the_number_is_none() {
        assert_eq!(OrderStamp::parse("0000000000000001-1-2"), None);
        assert_eq!(OrderStamp::parse("0000000000000001-1-0"), None);
        assert_eq!(OrderStamp::parse("0000000000000001-+1-1"), None);
    }

    #[test]
    fn a_number_that_none_could_follow_is_none() {
        let text = |number: u64| format!("0000000000000001-{number:x}-1");
        assert_eq!(OrderStamp::parse(&text(u64::MAX)), None);
        assert!(OrderStamp::parse(&text(u64::MAX - 1)).is_some());
    }
}
