//! The counted frames that the other side has not acknowledged, as encoded bytes.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;

use bytes::Bytes;
use sealbus_fipa::bitefficient::Rest;

use super::Violation;
use crate::frame::{self, Frame, Joinable, MESSAGE_START};

/// The size of a full chunk of the stream of counted frames. A chunk is freed as a whole.
const CHUNK: usize = 64 << 10;
/// The first chunk of a quiet session is small.
const FIRST_CHUNK: usize = 2 << 10;
/// The room for the bytes that usually precede a shared end: the header of the frame, and the head of an event in it.
const BEFORE_SHARED: usize = 512;

/// The end of a frame, shared with its other holders: [`Session::append_shared`](super::Session::append_shared).
#[derive(Clone, Debug)]
pub struct Shared {
    /// Most of the frame.
    pub body: Bytes,
    /// The part after the body.
    pub tail: &'static [u8],
}

impl Shared {
    /// The bytes of both parts.
    fn len(&self) -> usize {
        self.body.len() + self.tail.len()
    }
}

struct Chunk {
    bytes: Vec<u8>,
    /// The rest of the last frame in `bytes`. Nothing more is added to the chunk then.
    shared: Option<Shared>,
    first: u64,
    frames: u64,
}

impl Chunk {
    fn len(&self) -> usize {
        self.bytes.len() + self.shared.as_ref().map_or(0, Shared::len)
    }

    fn is_full(&self) -> bool {
        self.shared.is_some() || self.bytes.len() >= CHUNK
    }

    /// The contents from `offset` on, in pieces. Some of them may be empty.
    fn pieces(&self, offset: usize) -> [&[u8]; 3] {
        let (body, tail): (&[u8], &[u8]) = match &self.shared {
            Some(shared) => (&shared.body, shared.tail),
            None => (&[], &[]),
        };
        let mut skip = offset;
        [self.bytes.as_slice(), body, tail].map(|piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            &piece[skipped..]
        })
    }

    /// The length of the frame that begins at `offset`, if one does.
    fn length_at(&self, offset: usize) -> Option<usize> {
        frame::length_of(self.bytes.get(offset..)?)
    }
}

/// The counted frames that were appended and not acknowledged, and how far they are written to the connection.
pub(super) struct Unacknowledged {
    chunks: VecDeque<Chunk>,
    /// The number of the next frame appended.
    pub(super) next: u64,
    pub(super) acknowledged: u64,
    /// The number of bytes in `chunks`.
    pub(super) bytes: usize,
    /// Where writing continues: chunk and offset.
    cursor: (usize, usize),
    /// The number of bytes from the cursor to the end.
    pub(super) unwritten: usize,
    /// Frames before this number were written to some connection, so they may have arrived.
    ever_written: u64,
    /// The last frame in the last chunk, if it holds whole messages and none of it is written.
    joinable: Option<Joinable>,
    spare: Option<Vec<u8>>,
}

impl Unacknowledged {
    pub(super) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            next: 0,
            acknowledged: 0,
            bytes: 0,
            cursor: (0, 0),
            unwritten: 0,
            ever_written: 0,
            joinable: None,
            spare: None,
        }
    }

    /// Appends one frame that `write` puts at the end of the buffer, unless `write` fails.
    pub(super) fn append<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.joinable = None;
        self.write(write)?;
        self.count();
        Ok(())
    }

    /// Appends a message, whose payload `write` puts at the end of the buffer. `write` returns how many bytes similar
    /// messages begin with. The message joins the last frame if its messages are similar and not written yet.
    pub(super) fn append_message<E>(
        &mut self,
        sender: u32,
        target: u32,
        is_signed: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<usize, E>,
    ) -> Result<(), E> {
        let before = self.joinable;
        let mut after = None;
        let mut has_joined = false;
        self.write(|out, sequence| {
            let start = frame::begin_message(out, sender, target);
            let beginning = write(out)?;
            let message = Joinable {
                start,
                sender,
                target,
                first: out.len() - start - MESSAGE_START,
                beginning,
                count: 1,
                is_row: false,
            };
            if !is_signed
                && let Some(mut row) = before.filter(|row| row.start < start)
                && row.join(&message, out)
            {
                has_joined = true;
                frame::finish_row(out, row.start, sequence - 1);
                after = Some(row);
            } else {
                frame::finish_message(out, start, sequence, is_signed);
                after = Some(message).filter(|_| !is_signed);
            }
            Ok(())
        })?;
        self.joinable = after;
        if !has_joined {
            self.count();
        }
        Ok(())
    }

    /// Adds a message to the last frame, as [`append_message`](Self::append_message) may do, if `rest` finds without
    /// encoding it the bytes behind the common beginning. Returns these bytes, or `None` if nothing was added.
    #[inline]
    pub(super) fn join<'a>(
        &mut self,
        sender: u32,
        target: u32,
        rest: impl FnOnce(&[u8]) -> Option<Rest<'a>>,
    ) -> Option<&[u8]> {
        let row = self.joinable.as_mut()?;
        let chunk = self.chunks.back_mut()?;
        if (row.sender, row.target) != (sender, target) || chunk.is_full() {
            return None;
        }
        let before = chunk.bytes.len();
        let place = row.extend(&mut chunk.bytes, rest)?;
        frame::finish_row(&mut chunk.bytes, row.start, self.next - 1);
        let added = chunk.bytes.len() - before;
        self.bytes += added;
        self.unwritten += added;
        chunk.bytes.get(place)
    }

    /// Counts an appended frame.
    fn count(&mut self) {
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.frames += 1;
            self.next += 1;
        }
    }

    /// Lets `write` put bytes at the end of the buffer.
    fn write<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let sequence = self.next;
        let back = self.chunks.back();
        if back.is_none_or(Chunk::is_full) {
            // A shared frame is probably followed by another one, with few bytes between them.
            let bytes = match back.map(|chunk| chunk.bytes.len()) {
                Some(length) if length < FIRST_CHUNK => Vec::with_capacity(BEFORE_SHARED),
                length => {
                    let room = length.map_or(FIRST_CHUNK, |_| CHUNK + CHUNK / 8);
                    let spare = self.spare.take();
                    spare.unwrap_or_else(|| Vec::with_capacity(room))
                }
            };
            self.chunks.push_back(Chunk {
                bytes,
                shared: None,
                first: sequence,
                frames: 0,
            });
            // The joinable frame is in the chunk before.
            self.joinable = None;
            self.settle_cursor();
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return Ok(());
        };
        let start = chunk.bytes.len();
        if let Err(error) = write(&mut chunk.bytes, sequence) {
            chunk.bytes.truncate(start);
            // A large message that is gone must not leave its room behind.
            if chunk.bytes.capacity() > 4 * CHUNK {
                chunk.bytes.shrink_to(CHUNK);
            }
            return Err(error);
        }
        let length = chunk.bytes.len() - start;
        self.bytes += length;
        self.unwritten += length;
        Ok(())
    }

    /// Appends one frame whose end is shared. `write` puts the bytes before that end at the end of the buffer.
    pub(super) fn append_shared(&mut self, shared: Shared, write: impl FnOnce(&mut Vec<u8>, u64)) {
        let Ok(()) = self.append(|out, sequence| {
            let start = out.len();
            write(out, sequence);
            frame::lengthen(&mut out[start..], shared.len());
            Ok::<_, Infallible>(())
        });
        if let Some(chunk) = self.chunks.back_mut() {
            self.bytes += shared.len();
            self.unwritten += shared.len();
            chunk.shared = Some(shared);
        }
    }

    /// Adds slices of the bytes to write next, and returns their number: about `most` at most, and whole frames.
    pub(super) fn gather<'a>(&'a self, most: usize, slices: &mut Vec<IoSlice<'a>>) -> usize {
        let (first, mut offset) = self.cursor;
        let mut count = 0;
        for chunk in self.chunks.iter().skip(first) {
            if count >= most {
                break;
            }
            let pieces = chunk.pieces(offset);
            offset = 0;
            let filled = pieces.into_iter().filter(|piece| !piece.is_empty());
            slices.extend(filled.map(IoSlice::new));
            count += pieces.iter().map(|piece| piece.len()).sum::<usize>();
        }
        count
    }

    /// Notes that this many of the pending bytes were written.
    pub(super) fn written(&mut self, count: usize) {
        self.unwritten -= count;
        self.joinable = None;
        let mut left = count;
        while let Some(chunk) = self.chunks.get(self.cursor.0) {
            let in_chunk = left.min(chunk.len() - self.cursor.1);
            self.cursor.1 += in_chunk;
            left -= in_chunk;
            self.settle_cursor();
            if left == 0 {
                break;
            }
        }
        if self.unwritten == 0 {
            self.ever_written = self.next;
        }
    }

    /// Moves on from the end of a chunk. Only the last chunk still grows.
    fn settle_cursor(&mut self) {
        let (index, offset) = self.cursor;
        let at_end = self
            .chunks
            .get(index)
            .is_some_and(|chunk| chunk.len() == offset);
        if at_end && index + 1 < self.chunks.len() {
            self.cursor = (index + 1, 0);
        }
    }

    pub(super) fn acknowledge(&mut self, received: u64) -> Result<(), Violation> {
        if received > self.next {
            return Err(Violation::AcknowledgedUnsent {
                acknowledged: received,
                sent: self.next,
            });
        }
        self.acknowledged = self.acknowledged.max(received);
        while self.cursor.0 > 0
            && self
                .chunks
                .front()
                .is_some_and(|chunk| chunk.first + chunk.frames <= self.acknowledged)
        {
            if let Some(chunk) = self.chunks.pop_front() {
                self.bytes -= chunk.len();
                self.recycle(chunk.bytes);
            }
            self.cursor.0 -= 1;
        }
        if self.acknowledged == self.next && self.unwritten == 0 {
            for chunk in std::mem::take(&mut self.chunks) {
                self.recycle(chunk.bytes);
            }
            self.bytes = 0;
            self.cursor = (0, 0);
        }
        Ok(())
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        let is_larger = |it: &Vec<u8>| it.capacity() < bytes.capacity();
        if bytes.capacity() <= 4 * CHUNK && self.spare.as_ref().is_none_or(is_larger) {
            bytes.clear();
            self.spare = Some(bytes);
        }
    }

    /// The number of the first frame that is not written completely.
    fn frame_at_cursor(&self) -> u64 {
        let Some(chunk) = self.chunks.get(self.cursor.0) else {
            return self.next;
        };
        let (mut offset, mut number) = (0, chunk.first);
        while offset < self.cursor.1 {
            let Some(length) = chunk.length_at(offset) else {
                break;
            };
            if offset + length > self.cursor.1 {
                break;
            }
            offset += length;
            number += 1;
        }
        number
    }

    /// The connection is gone.
    pub(super) fn stop(&mut self) {
        self.ever_written = self.ever_written.max(self.frame_at_cursor());
    }

    /// Writing begins again at frame `received`.
    pub(super) fn rewind(&mut self, received: u64) -> Result<(), Violation> {
        if received < self.acknowledged {
            return Err(Violation::Forgotten { wanted: received });
        }
        // For the moment, all chunks count as before the cursor, so that whole chunks can be freed.
        self.cursor = (self.chunks.len(), 0);
        self.unwritten = 0;
        self.joinable = None;
        self.acknowledge(received)?;
        self.cursor = (0, 0);
        if let Some(chunk) = self.chunks.front() {
            let mut number = chunk.first;
            while number < received {
                let Some(length) = chunk.length_at(self.cursor.1) else {
                    break;
                };
                self.cursor.1 += length;
                number += 1;
            }
        }
        self.unwritten = self.bytes - self.cursor.1;
        Ok(())
    }

    /// Calls `each` with every unacknowledged frame, its number, and whether it may have arrived.
    pub(super) fn for_each_kept(&self, mut each: impl FnMut(&Frame<'_>, u64, bool)) {
        for chunk in &self.chunks {
            let (mut offset, mut number) = (0, chunk.first);
            while let Some(length) = chunk.length_at(offset) {
                let whole = match chunk.bytes.get(offset..offset + length) {
                    Some(bytes) => Cow::Borrowed(bytes),
                    None => Cow::Owned(chunk.pieces(offset).concat()),
                };
                let Ok(Some(parsed)) = frame::parse(&whole, usize::MAX) else {
                    break;
                };
                if number >= self.acknowledged {
                    each(&parsed.frame, number, number < self.ever_written);
                }
                offset += length;
                number += 1;
            }
        }
    }
}
