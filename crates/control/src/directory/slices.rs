//! The slices of a large directory: the slice of an agent, and the nodes that hold it.

use std::ops::{BitAnd, BitOr, Sub};

use serde::{Deserialize, Serialize};

/// The number of slices of a large directory.
pub const SLICES: usize = 64;
/// The number of nodes that hold each slice.
pub const HOLDERS: usize = 3;
/// Up to this many agents, every node holds all slices.
pub const MOST_WHOLE: usize = 2000;
/// Below this many agents, every node holds all slices again.
pub const WHOLE_AGAIN: usize = 1500;

/// A set of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slices(u64);

impl Slices {
    /// No slice.
    pub const NONE: Self = Self(0);
    /// All slices, which are the whole directory.
    pub const ALL: Self = Self(u64::MAX);

    /// The slice of `agent`.
    pub fn of(agent: &str) -> Self {
        Self::one(slice_of(agent))
    }

    pub(super) fn one(slice: usize) -> Self {
        Self(1 << slice)
    }

    /// Whether these slices contain all of `others`.
    pub fn contains(self, others: Self) -> bool {
        others - self == Self::NONE
    }

    /// The number of slices.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..SLICES).filter(move |slice| self.contains(Self::one(*slice)))
    }
}

impl BitAnd for Slices {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Slices {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for Slices {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The slice of an agent. All nodes and the Master must agree on it.
pub(super) fn slice_of(agent: &str) -> usize {
    (hash(agent) >> 58) as usize
}

/// A node's part in [`weight`].
pub(super) fn hash(name: &str) -> u64 {
    // FNV-1a. It need not resist names that are made for it, because they only make one slice larger.
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The weight of a node for a slice. The nodes with the greatest weights hold it (rendezvous hashing), so that a node
/// that comes or goes does not change other slices.
pub(super) fn weight(slice: usize, node: u64) -> u64 {
    mix(node ^ mix(slice as u64 + 1))
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of the value.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_and_holders_are_spread_evenly() {
        let mut agents = [0; SLICES];
        for number in 0..64_000 {
            agents[slice_of(&format!("agent-{number}"))] += 1;
        }
        assert!(agents.iter().all(|count| (800..1200).contains(count)));
        let mut held = [0; 100];
        for slice in 0..SLICES {
            let mut nodes: Vec<usize> = (0..100).collect();
            nodes.sort_by_key(|node| weight(slice, hash(&format!("node-{node}"))));
            for node in &nodes[100 - HOLDERS..] {
                held[*node] += 1;
            }
        }
        assert!(held.iter().all(|count| *count < 10), "{held:?}");
    }

    #[test]
    fn slices_are_a_set() {
        let (one, two) = (Slices::one(0), Slices::one(63));
        assert_eq!((one | two).iter().collect::<Vec<_>>(), [0, 63]);
        assert_eq!((one | two) & two, two);
        assert_eq!((one | two) - two, one);
        assert!(Slices::ALL.contains(one | two) && !one.contains(two));
        assert_eq!(Slices::ALL.count() as usize, SLICES);
    }
}
