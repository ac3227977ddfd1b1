//! The state of a session between two processes: unacknowledged frames, received frames, and the agreement on how to
//! continue after a broken connection. No I/O and no clock.
//!
//! Counted frames are kept, as encoded bytes, until the other side reports that it has taken them. On a new connection
//! each side reports how many frames it has taken, and the other side continues from there. A counted frame is thus
//! taken once and in order, over any number of connections.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;

use bytes::Bytes;
use thiserror::Error;

use crate::frame::{self, Frame, Hello, Token};

/// A full chunk of the stream of counted frames. Chunks are freed as a whole.
const CHUNK: usize = 64 << 10;
/// The first chunk of a quiet session is small.
const FIRST_CHUNK: usize = 2 << 10;
/// Room for the bytes that usually precede a shared end: the headers of a frame, and those of an event in it.
const BEFORE_SHARED: usize = 512;

/// The other side broke the rules of the session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// An acknowledgement of frames that were not sent.
    #[error("the peer acknowledged {acknowledged} frames where {sent} were sent")]
    AcknowledgedUnsent {
        /// Its text.
        acknowledged: u64,
        /// The sent message.
        sent: u64,
    },
    /// A frame is missing: the connection lost bytes.
    #[error("frame {found} arrived where frame {expected} was due")]
    Gap {
        /// Low 32 bits of the number found.
        found: u32,
        /// The number expected.
        expected: u64,
    },
    /// The peer wants to continue from a frame that it acknowledged before.
    #[error("the peer asks again for frame {wanted}, which it had acknowledged")]
    Forgotten {
        /// The first frame it has not received.
        wanted: u64,
    },
}

/// The end of a frame, shared with its other holders: [`Session::append_shared`].
#[derive(Clone, Debug)]
pub struct Shared {
    /// Most of the frame.
    pub body: Bytes,
    /// The part after that.
    pub tail: &'static [u8],
}

impl Shared {
    /// Bytes of both.
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

    /// The contents from `offset` on, in pieces, of which some may be empty.
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

/// The counted frames that were appended and not acknowledged, and how far they were written to the connection.
struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Number of the next frame appended.
    next: u64,
    acknowledged: u64,
    /// Bytes in `chunks`.
    bytes: usize,
    /// The place where writing continues: chunk and offset.
    cursor: (usize, usize),
    /// Bytes from the cursor to the end.
    unwritten: usize,
    /// Frames before this number were written to some connection: they may have arrived.
    ever_written: u64,
    spare: Option<Vec<u8>>,
}

impl Outgoing {
    fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            next: 0,
            acknowledged: 0,
            bytes: 0,
            cursor: (0, 0),
            unwritten: 0,
            ever_written: 0,
            spare: None,
        }
    }

    /// Appends one frame that `write` puts at the end of the buffer. `write` may change its mind.
    fn append<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let sequence = self.next;
        let back = self.chunks.back();
        if back.is_none_or(Chunk::is_full) {
            // A shared frame is likely to be followed by another, with few bytes between them.
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
            self.settle_cursor();
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return Ok(());
        };
        let start = chunk.bytes.len();
        if let Err(error) = write(&mut chunk.bytes, sequence) {
            chunk.bytes.truncate(start);
            // A large message that did not stay here must not leave its room behind.
            if chunk.bytes.capacity() > 4 * CHUNK {
                chunk.bytes.shrink_to(CHUNK);
            }
            return Err(error);
        }
        let length = chunk.bytes.len() - start;
        chunk.frames += 1;
        self.next += 1;
        self.bytes += length;
        self.unwritten += length;
        Ok(())
    }

    /// Appends one frame whose end is shared. `write` puts the bytes before that end at the end of the buffer.
    fn append_shared(&mut self, shared: Shared, write: impl FnOnce(&mut Vec<u8>, u64)) {
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
    fn gather<'a>(&'a self, most: usize, slices: &mut Vec<IoSlice<'a>>) -> usize {
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

    /// That many of the pending bytes were written.
    fn written(&mut self, count: usize) {
        self.unwritten -= count;
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

    fn acknowledge(&mut self, received: u64) -> Result<(), Violation> {
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

    /// The number of the first frame that was not written whole.
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
    fn stop(&mut self) {
        self.ever_written = self.ever_written.max(self.frame_at_cursor());
    }

    /// Writing begins anew at frame `received`.
    fn rewind(&mut self, received: u64) -> Result<(), Violation> {
        if received < self.acknowledged {
            return Err(Violation::Forgotten { wanted: received });
        }
        // All chunks count as before the cursor for the moment, so that whole chunks can go.
        self.cursor = (self.chunks.len(), 0);
        self.unwritten = 0;
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
    fn for_each_kept(&self, mut each: impl FnMut(&Frame<'_>, u64, bool)) {
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

/// The treatment of a counted frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The frame is the one that is due: take it.
    Due,
    /// The frame was taken before: drop it.
    Again,
}

/// Judges a counted frame by the low bits of its number, where frame `due` is the next to take.
///
/// # Errors
/// [`Violation::Gap`] if frames are missing: the connection is of no more use.
pub fn judge(sequence: u32, due: u64) -> Result<Arrival, Violation> {
    // The distance of the number ahead of the due one, on the circle of 2^32.
    let ahead = sequence.wrapping_sub((due & u64::from(u32::MAX)) as u32);
    match ahead {
        0 => Ok(Arrival::Due),
        behind if behind > u32::MAX / 2 => Ok(Arrival::Again),
        _ => Err(Violation::Gap {
            found: sequence,
            expected: due,
        }),
    }
}

/// The effect of a new connection on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The session continues.
    Resumed,
    /// The session is new, and no frame to be sent can have arrived: all are sent.
    Started,
    /// The session is new, and the one before is lost: report the unacknowledged frames, then call
    /// [`Session::start_over`].
    Lost,
}

/// One side of a session.
pub struct Session {
    outgoing: Outgoing,
    received: u64,
    /// Frames received that the other side was told of.
    told: u64,
    /// Bytes received that the other side was not told of.
    untold_bytes: usize,
    id: Token,
    /// Whether the other side is known to have taken up `id`.
    is_confirmed: bool,
    peer: Token,
    given_up: Token,
}

/// No session.
const NONE: Token = [0; 16];

impl Default for Session {
    fn default() -> Self {
        Self {
            outgoing: Outgoing::new(),
            received: 0,
            told: 0,
            untold_bytes: 0,
            id: NONE,
            is_confirmed: false,
            peer: NONE,
            given_up: NONE,
        }
    }
}

impl Session {
    /// Appends a counted frame.
    pub fn append(&mut self, frame: &Frame<'_>) {
        debug_assert!(frame.kind().is_counted());
        let Ok(()) = self.outgoing.append(|out, sequence| {
            frame.encode(sequence, out);
            Ok::<_, Infallible>(())
        });
    }

    /// Appends a counted frame that `write` encodes itself, with the number that it is given.
    ///
    /// # Errors
    /// The error of `write`; then nothing was appended.
    pub fn append_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.outgoing.append(write)
    }

    /// Appends a counted frame whose end is shared and not copied. `write` encodes the frame, with the number that it
    /// is given, as if the frame ended before the shared end.
    pub fn append_shared(&mut self, shared: Shared, write: impl FnOnce(&mut Vec<u8>, u64)) {
        self.outgoing.append_shared(shared, write);
    }

    /// Adds slices of the counted frames to write next, and returns their bytes: about `most` at most, ending at the
    /// end of a frame. 0: nothing is left.
    pub fn gather<'a>(&'a self, most: usize, slices: &mut Vec<IoSlice<'a>>) -> usize {
        self.outgoing.gather(most, slices)
    }

    /// That many of the bytes that [`gather`](Self::gather) gives were written.
    pub fn written(&mut self, count: usize) {
        self.outgoing.written(count);
    }

    /// The number of bytes appended and not yet written to the connection.
    pub fn unwritten(&self) -> usize {
        self.outgoing.unwritten
    }

    /// The number of bytes kept because they were not acknowledged (counted by whole chunks).
    pub fn kept(&self) -> usize {
        self.outgoing.bytes
    }

    /// The number of the next frame appended. Frames before it count as sent.
    pub fn next(&self) -> u64 {
        self.outgoing.next
    }

    /// Frames the other side has taken.
    pub fn acknowledged(&self) -> u64 {
        self.outgoing.acknowledged
    }

    /// Whether all frames were acknowledged.
    pub fn is_settled(&self) -> bool {
        self.outgoing.acknowledged == self.outgoing.next
    }

    /// The other side reports how many frames it has taken.
    ///
    /// # Errors
    /// [`Violation`] if that number is impossible.
    pub fn acknowledge(&mut self, received: u64) -> Result<(), Violation> {
        self.is_confirmed = true;
        self.outgoing.acknowledge(received)
    }

    /// The number of the counted frame that is due.
    pub fn due(&self) -> u64 {
        self.received
    }

    /// That many counted frames, of so many bytes, were taken.
    pub fn took(&mut self, frames: u64, bytes: usize) {
        self.is_confirmed |= frames > 0;
        self.received += frames;
        self.untold_bytes += bytes;
    }

    /// The number of received frames that were not yet reported to the other side, and their bytes.
    pub fn untold(&self) -> (u64, usize) {
        (self.received - self.told, self.untold_bytes)
    }

    /// The acknowledgement to write now.
    pub fn tell(&mut self) -> Frame<'static> {
        self.told = self.received;
        self.untold_bytes = 0;
        Frame::Acknowledge {
            received: self.received,
        }
    }

    /// The connection is gone. Frames written to it may or may not have arrived.
    pub fn disconnected(&mut self) {
        self.outgoing.stop();
    }

    /// Fills in what a dialler says of the session.
    pub fn dial(&self, hello: &mut Hello<'_>) {
        hello.session = self.id;
        hello.given_up = self.given_up;
        hello.received = self.received;
        hello.resumed = false;
    }

    /// Decides by the dialler's `hello`, on the acceptor's side. After [`Agreement::Lost`] call
    /// [`start_over`](Self::start_over). Then, in any case, call [`accepted`](Self::accepted).
    ///
    /// # Errors
    /// [`Violation`] if the dialler contradicts its earlier statements.
    pub fn accept(&mut self, hello: &Hello<'_>) -> Result<Agreement, Violation> {
        if self.id != NONE && hello.session == self.id && hello.incarnation == self.peer {
            self.outgoing.rewind(hello.received)?;
            self.is_confirmed = true;
            return Ok(Agreement::Resumed);
        }
        self.begin(hello)
    }

    /// Whether a new session can begin without any loss.
    fn begin(&mut self, hello: &Hello<'_>) -> Result<Agreement, Violation> {
        // A peer that never took up our session has taken no frame of it.
        let never_taken_up = self.id == NONE
            || (!self.is_confirmed && hello.incarnation == self.peer && hello.given_up != self.id);
        if !never_taken_up {
            return Ok(Agreement::Lost);
        }
        self.outgoing.rewind(0)?;
        Ok(Agreement::Started)
    }

    /// Fills in `hello`, the acceptor's answer. `fresh` names the session unless it was resumed.
    pub fn accepted(
        &mut self,
        agreement: Agreement,
        peer: Token,
        fresh: Token,
        hello: &mut Hello<'_>,
    ) {
        if agreement != Agreement::Resumed {
            self.id = fresh;
            self.peer = peer;
            self.is_confirmed = false;
        }
        hello.session = self.id;
        hello.given_up = self.given_up;
        hello.received = self.received;
        hello.resumed = agreement == Agreement::Resumed;
        self.told = self.received;
        self.untold_bytes = 0;
    }

    /// Takes the acceptor's answer, on the dialler's side. After [`Agreement::Lost`] call
    /// [`start_over`](Self::start_over), and then this method again.
    ///
    /// # Errors
    /// [`Violation`] if the acceptor contradicts its earlier statements.
    pub fn answered(&mut self, hello: &Hello<'_>) -> Result<Agreement, Violation> {
        if hello.resumed {
            if hello.session != self.id || hello.incarnation != self.peer {
                return Err(Violation::Forgotten {
                    wanted: hello.received,
                });
            }
            self.outgoing.rewind(hello.received)?;
            self.is_confirmed = true;
            self.told = self.received;
            self.untold_bytes = 0;
            return Ok(Agreement::Resumed);
        }
        let agreement = self.begin(hello)?;
        if agreement == Agreement::Started {
            self.id = hello.session;
            self.peer = hello.incarnation;
            // The acceptor has it: it made it.
            self.is_confirmed = true;
        }
        Ok(agreement)
    }

    /// Calls `each` with every unacknowledged frame, in order, its number, and whether it may have arrived.
    pub fn for_each_kept(&self, each: impl FnMut(&Frame<'_>, u64, bool)) {
        self.outgoing.for_each_kept(each);
    }

    /// Forgets everything. The next connection begins a new session.
    pub fn start_over(&mut self) {
        // If a peer took up a session of which this side is not sure, the peer itself is sure of it.
        let given_up = if self.is_confirmed {
            self.id
        } else {
            self.given_up
        };
        *self = Self {
            given_up,
            ..Self::default()
        };
    }
}
