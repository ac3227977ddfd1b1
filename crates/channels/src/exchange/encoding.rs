//! The encoding of a message for other processes: made once for all of them, without copying long content.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, bitefficient};

use super::Exchange;
use super::publication::PublishError;

/// Content of this length and above is shared with the publisher. Shorter content is copied with the rest of the
/// message.
const SHARED: usize = 2 << 10;
/// A buffer that has grown beyond this is not kept.
pub(super) const LARGEST_SPARE: usize = 64 << 10;

/// A message as it goes to other processes. Long content is shared with the message itself.
pub(super) struct Encoded {
    pub(super) start: Vec<u8>,
    pub(super) content: Bytes,
    pub(super) tail: &'static [u8],
}

/// The content of a message.
struct SharedContent(Arc<AclMessage>);

impl AsRef<[u8]> for SharedContent {
    fn as_ref(&self) -> &[u8] {
        self.0.content_bytes().unwrap_or_default()
    }
}

impl Exchange {
    /// A message as it goes to other processes.
    pub(super) fn encode(&mut self, message: &Arc<AclMessage>) -> Result<Encoded, PublishError> {
        let mut start = std::mem::take(&mut self.encoded);
        start.clear();
        let (mut content, mut tail): (_, &[u8]) = (Bytes::new(), &[]);
        let length = message.content_bytes().map_or(0, <[u8]>::len);
        if length < SHARED {
            bitefficient::encode(message, &mut start)?;
        } else if let Some(after) = bitefficient::encode_around_content(message, &mut start)? {
            content = Bytes::from_owner(SharedContent(message.clone()));
            tail = after;
        }
        let size = start.len() + content.len() + tail.len();
        if size > self.config.largest_message {
            return Err(PublishError::TooLarge {
                size,
                limit: self.config.largest_message,
            });
        }
        Ok(Encoded {
            start,
            content,
            tail,
        })
    }
}
