//! The shared part of simulations, here and in crates above: repeatable chance, and the choice of schedules.

use std::ops::Range;

/// Chance that can be repeated (SplitMix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number less than `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in this many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in one of this many cases.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The seeds to try: the seed in `SEALBUS_SEED`, or `SEALBUS_SCHEDULES` (else `usual`) seeds from `SEALBUS_FIRST_SEED`
/// on.
///
/// # Panics
/// If a variable does not hold a number.
pub fn seeds(usual: u64) -> Range<u64> {
    if let Some(seed) = number("SEALBUS_SEED") {
        return seed..seed + 1;
    }
    let first = number("SEALBUS_FIRST_SEED").unwrap_or(0);
    first..first + number("SEALBUS_SCHEDULES").unwrap_or(usual)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is to be a number, not {text:?}")),
    )
}
