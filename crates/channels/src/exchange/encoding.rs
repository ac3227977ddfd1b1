//! The encoding of a message for other processes: made once for all of them, without copying long content.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_seal::SecurityLevel;

use super::Exchange;
use super::publication::PublishError;
use super::stream::Parcel;
use crate::frame::{self, Head, Stamp};

/// Content of at least this length is shared with the publisher. Shorter content is copied with the rest of the
/// message.
const SHARED: usize = 2 << 10;
/// A buffer that has grown larger than this is not kept.
const LARGEST_SPARE: usize = 64 << 10;

/// A message as it goes to other processes. Long content is shared with the message itself.
pub(super) struct Encoded {
    pub(super) start: Vec<u8>,
    pub(super) content: Bytes,
    pub(super) tail: &'static [u8],
    /// The outline of the event that is sealed in the message.
    pub(super) outline: Option<Arc<AclMessage>>,
}

impl Encoded {
    pub(super) fn len(&self) -> usize {
        self.start.len() + self.content.len() + self.tail.len()
    }

    /// The frame that brings the message to the subscriptions `named` of one process.
    pub(super) fn parcel(
        &self,
        author: &Arc<str>,
        stamp: Stamp,
        head: &Head<'_>,
        named: &[u32],
    ) -> Parcel {
        let room = 64 + head.channel.len() + 2 * named.len() + self.start.len();
        let mut written = Vec::with_capacity(room);
        frame::begin_event(&mut written, stamp, head, named);
        let message_at = written.len();
        written.extend_from_slice(&self.start);
        Parcel {
            author: Some(author.clone()),
            head: written,
            message_at,
            content: self.content.clone(),
            tail: self.tail,
            outline: self.outline.clone(),
            is_signed: head.level >= Some(SecurityLevel::Signed),
        }
    }
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
        let encoded = Encoded {
            start,
            content,
            tail,
            outline: None,
        };
        let size = encoded.len();
        if size > self.config.largest_message {
            return Err(PublishError::TooLarge {
                size,
                limit: self.config.largest_message,
            });
        }
        Ok(encoded)
    }

    /// Keeps the buffer for the next message.
    pub(super) fn keep_buffer(&mut self, encoded: Encoded) {
        if encoded.start.capacity() <= LARGEST_SPARE {
            self.encoded = encoded.start;
        }
    }
}
