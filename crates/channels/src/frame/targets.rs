//! The subscriptions of the receiving process that a frame names.

use super::FrameError;
use super::field::FieldReader;

/// The most subscriptions that a frame names. An event for more of them goes to all subscriptions whose pattern
/// matches.
pub const MOST_TARGETS: usize = 1024;

/// The subscriptions of the receiving process that get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets<'a> {
    pub(super) count: usize,
    pub(super) encoded: &'a [u8],
}

impl Targets<'_> {
    /// Whether all subscriptions are meant whose pattern and filter match.
    pub fn is_all(&self) -> bool {
        self.count == 0
    }

    /// The subscriptions named.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let mut reader = FieldReader { rest: self.encoded };
        (0..self.count).map_while(move |_| reader.short("a subscription").ok())
    }
}

impl<'a> Targets<'a> {
    pub(super) fn read(reader: &mut FieldReader<'a>) -> Result<Self, FrameError> {
        let count = reader.number("the targets")?;
        if count > MOST_TARGETS as u64 {
            return Err(FrameError::Limit("the number of targets"));
        }
        let start = reader.rest;
        for _ in 0..count {
            reader.short("a target")?;
        }
        let length = start.len() - reader.rest.len();
        Ok(Self {
            count: count as usize,
            encoded: start.get(..length).unwrap_or_default(),
        })
    }
}
