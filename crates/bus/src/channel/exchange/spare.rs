//! Buffers of events that were acknowledged, for the next ones: above a kilobyte the allocator is the dearest part of
//! publishing.

use bytes::Bytes;

/// Buffers kept, and the largest of them. Together no more than an acknowledgement covers a few times over.
const MOST: usize = 64;
const LARGEST: usize = 32 << 10;
/// Smaller ones cost the allocator nothing.
const SMALLEST: usize = 1 << 10;

/// Buffers for events.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    /// An empty buffer with room for about `size` bytes.
    pub(super) fn take(&mut self, size: usize) -> Vec<u8> {
        match self.buffers.pop_if(|it| it.capacity() >= size) {
            Some(buffer) => buffer,
            None => Vec::with_capacity(size),
        }
    }

    /// What a frame held that nobody needs any more, unless somebody else holds it still.
    pub(super) fn put(&mut self, body: Bytes) {
        if (SMALLEST..=LARGEST).contains(&body.len())
            && self.buffers.len() < MOST
            && let Ok(body) = body.try_into_mut()
        {
            let mut buffer = Vec::from(body);
            buffer.clear();
            if buffer.capacity() <= 2 * LARGEST {
                self.buffers.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_free_is_used_again() {
        let mut spare = Spare::default();
        let mut buffer = Vec::with_capacity(5000);
        buffer.resize(4000, 1);
        let place = buffer.as_ptr();
        spare.put(buffer.into());
        let again = spare.take(4500);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn a_buffer_that_is_held_or_too_small_is_not() {
        let mut spare = Spare::default();
        let body = Bytes::from(vec![1; 4000]);
        let held = body.clone();
        spare.put(body);
        assert!(spare.buffers.is_empty());
        spare.put(held);
        assert!(spare.take(40_000).capacity() >= 40_000);
        assert_eq!(spare.buffers.len(), 1);
    }
}
