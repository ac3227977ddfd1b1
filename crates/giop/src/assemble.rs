//! Joins arriving bytes to whole messages (CORBA 3.3 part 2, 9.4.9 and 9.5.1).

use std::time::Instant;

use thiserror::Error;

use crate::header::{HEADER_LENGTH, Header, Kind, Version};

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct AssemblyLimits {
    /// The longest message, in bytes, all its parts together.
    pub message: usize,
    /// The most messages in parts at a time.
    pub unfinished: usize,
    /// The most bytes of messages in parts.
    pub unfinished_bytes: usize,
}

impl AssemblyLimits {
    /// Limits for messages of at most this many bytes.
    pub fn of_messages(message: usize) -> Self {
        Self {
            message,
            unfinished: 16,
            unfinished_bytes: message,
        }
    }
}

/// Why a connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// The bytes are no header of GIOP 1.0 to 1.2.
    #[error("the bytes are not GIOP 1.0 to 1.2")]
    NotGiop,
    /// A message is longer than the limit.
    #[error("a message has {size} bytes or more, and the limit is {most}")]
    TooLong {
        /// Its length as far as known, in bytes.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// Too many messages, or bytes of messages, are unfinished.
    #[error("too many messages, or bytes of messages, are in parts at a time")]
    TooManyParts,
}

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The header of its first part.
    pub header: Header,
    /// The bytes from the header on. The bytes of further parts follow without their headers.
    pub bytes: Vec<u8>,
}

/// A message whose last part is missing.
struct Unfinished {
    /// The number of the request. `None` in 1.1, whose fragments have no number.
    id: Option<u32>,
    whole: Whole,
    since: Instant,
}

/// Takes bytes as they arrive, and returns whole messages.
pub struct Assembler {
    limits: AssemblyLimits,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    taken: usize,
    unfinished: Vec<Unfinished>,
}

impl Assembler {
    /// An assembler for a new connection.
    pub fn new(limits: AssemblyLimits) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            taken: 0,
            unfinished: Vec::new(),
        }
    }

    /// Adds bytes from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The bytes that wait for the rest of their message.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.taken + self.unfinished_bytes()
    }

    /// Since when a message in parts has waited for its end.
    pub fn oldest(&self) -> Option<Instant> {
        self.unfinished.iter().map(|it| it.since).min()
    }

    /// Forgets messages in parts whose first part came before `time`. Some ORBs never send the rest, and small parts from
    /// time to time would hold a message's room for ever.
    pub fn forget_older_than(&mut self, time: Instant) {
        self.unfinished.retain(|it| it.since > time);
    }

    fn unfinished_bytes(&self) -> usize {
        self.unfinished.iter().map(|it| it.whole.bytes.len()).sum()
    }

    /// The next whole message; `None` until more bytes come. `now` dates messages in parts.
    ///
    /// # Errors
    /// [`AssembleError`]: the following bytes cannot be understood, so the connection must end.
    pub fn next_message(&mut self, now: Instant) -> Result<Option<Whole>, AssembleError> {
        loop {
            let rest = &self.buffer[self.taken..];
            let Some((head, _)) = rest.split_first_chunk::<HEADER_LENGTH>() else {
                return Ok(None);
            };
            let header = Header::read(head).ok_or(AssembleError::NotGiop)?;
            let size = (header.size as usize).saturating_add(HEADER_LENGTH);
            self.check(size)?;
            let Some(part) = rest.get(..size) else {
                return Ok(None);
            };
            let part = part.to_vec();
            self.taken += size;
            if self.taken == self.buffer.len() {
                self.buffer.clear();
                self.taken = 0;
            }
            if let Some(whole) = self.join(header, part, now)? {
                return Ok(Some(whole));
            }
        }
    }

    fn check(&self, size: usize) -> Result<(), AssembleError> {
        let most = self.limits.message;
        if size > most {
            return Err(AssembleError::TooLong { size, most });
        }
        Ok(())
    }

    /// Adds a part to its message. Returns the message if it is whole.
    fn join(
        &mut self,
        header: Header,
        part: Vec<u8>,
        now: Instant,
    ) -> Result<Option<Whole>, AssembleError> {
        if header.kind != Kind::Fragment {
            let whole = Whole {
                header,
                bytes: part,
            };
            if !header.has_more {
                return Ok(Some(whole));
            }
            let id = request_id(&header, &whole.bytes);
            // A second message with the same number replaces the first, which nobody can finish any more.
            self.unfinished.retain(|it| it.id != id);
            let all = self.unfinished_bytes() + whole.bytes.len();
            if self.unfinished.len() >= self.limits.unfinished || all > self.limits.unfinished_bytes
            {
                return Err(AssembleError::TooManyParts);
            }
            self.unfinished.push(Unfinished {
                id,
                whole,
                since: now,
            });
            return Ok(None);
        }
        let id = request_id(&header, &part);
        let data_begin = HEADER_LENGTH
            + if header.version == Version::V1_2 {
                4
            } else {
                0
            };
        let data = part.get(data_begin..).unwrap_or_default();
        let Some(at) = self.unfinished.iter().position(|it| it.id == id) else {
            // A part of a message that was forgotten.
            return Ok(None);
        };
        let size = self.unfinished[at].whole.bytes.len() + data.len();
        self.check(size)?;
        if self.unfinished_bytes() + data.len() > self.limits.unfinished_bytes {
            return Err(AssembleError::TooManyParts);
        }
        let unfinished = &mut self.unfinished[at];
        unfinished.whole.bytes.extend_from_slice(data);
        if header.has_more {
            return Ok(None);
        }
        Ok(Some(self.unfinished.swap_remove(at).whole))
    }
}

/// The number that the parts of a message share. In 1.2 it comes first in every part; in 1.1 messages in parts follow
/// one another.
fn request_id(header: &Header, part: &[u8]) -> Option<u32> {
    if header.version != Version::V1_2 {
        return None;
    }
    let mut decoder = crate::cdr::Decoder::new(part, HEADER_LENGTH, header.order);
    decoder.ulong().ok()
}
