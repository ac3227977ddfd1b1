//! The state of a session between two processes: unacknowledged frames, received frames, and the agreement on how to
//! continue after a broken connection. No I/O and no clock.
//!
//! Counted frames are kept, as encoded bytes, until the other side reports that it has taken them. On a new connection
//! each side reports how many frames it has taken, and the other side continues from there. So a counted frame is taken
//! once and in order, over any number of connections.

mod unacknowledged;
mod violation;

use std::convert::Infallible;
use std::io::IoSlice;

use sealbus_fipa::bitefficient::Rest;

use crate::frame::{Frame, Hello, RandomId};

pub use unacknowledged::Shared;
use unacknowledged::Unacknowledged;
pub use violation::Violation;

/// The treatment of a counted frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The frame is the one that is due: take it.
    Due,
    /// The frame was taken before: drop it.
    Again,
}

/// Judges a counted frame by the low bits of its number; `due` is the number of the next frame to take.
///
/// # Errors
/// [`Violation::Gap`] if frames are missing. The connection is then of no more use.
pub fn judge(sequence: u32, due: u64) -> Result<Judgement, Violation> {
    // How far the number is ahead of the due one, modulo 2^32.
    let ahead = sequence.wrapping_sub((due & u64::from(u32::MAX)) as u32);
    match ahead {
        0 => Ok(Judgement::Due),
        behind if behind > u32::MAX / 2 => Ok(Judgement::Again),
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
    /// The session is new, and none of the frames can have arrived: all are sent.
    Started,
    /// The session is new, and the former one is lost: report the unacknowledged frames, then call
    /// [`Session::start_over`].
    Lost,
}

/// Counted frames that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The number of frames.
    pub frames: u64,
    /// The length of the frames in bytes.
    pub bytes: usize,
    /// How many of the frames are signatures for earlier messages.
    pub signatures: usize,
}

/// One side of a session.
pub struct Session {
    unacknowledged: Unacknowledged,
    received: u64,
    /// The frames received up to which all messages are proved. The other side is told of no more. If the session is
    /// lost, it reports the frames that it was not told of. A frame that it sends again is dropped.
    settled: u64,
    /// The frames received that the other side was told of.
    told: u64,
    /// The bytes and signatures received that the other side was not told of.
    untold: (usize, usize),
    id: RandomId,
    /// Whether the other side is known to have the session `id`.
    is_confirmed: bool,
    peer: RandomId,
    given_up: RandomId,
}

/// Stands for no session.
const NONE: RandomId = [0; 16];

impl Default for Session {
    fn default() -> Self {
        Self {
            unacknowledged: Unacknowledged::new(),
            received: 0,
            settled: 0,
            told: 0,
            untold: (0, 0),
            id: NONE,
            is_confirmed: false,
            peer: NONE,
            given_up: NONE,
        }
    }
}

impl Session {
    /// No session yet, on a side that has given up this one.
    pub fn after(given_up: RandomId) -> Self {
        Self {
            given_up,
            ..Self::default()
        }
    }

    /// Appends a counted frame.
    pub fn append(&mut self, frame: &Frame<'_>) {
        debug_assert!(frame.kind().is_counted());
        let Ok(()) = self.unacknowledged.append(|out, sequence| {
            frame.encode(sequence, out);
            Ok::<_, Infallible>(())
        });
    }

    /// Appends a whole message, whose payload `write` puts at the end of the buffer. `write` returns how many bytes
    /// similar messages begin with. Similar messages that wait to be written share a frame.
    ///
    /// # Errors
    /// The error of `write`; then nothing was appended.
    pub fn append_message<E>(
        &mut self,
        sender: u32,
        target: u32,
        is_signed: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.unacknowledged
            .append_message(sender, target, is_signed, write)
    }

    /// Adds a message to the last frame, as [`append_message`](Self::append_message) may do, if `rest` finds without
    /// encoding it the bytes behind the common beginning. Returns these bytes, or `None` if nothing was added.
    #[inline]
    pub fn join<'a>(
        &mut self,
        sender: u32,
        target: u32,
        rest: impl FnOnce(&[u8]) -> Option<Rest<'a>>,
    ) -> Option<&[u8]> {
        self.unacknowledged.join(sender, target, rest)
    }

    /// Appends a counted frame that `write` encodes itself, with the number that it is given.
    ///
    /// # Errors
    /// The error of `write`; then nothing was appended.
    pub(crate) fn append_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.unacknowledged.append(write)
    }

    /// Appends a counted frame whose end is shared and not copied. `write` encodes the frame, with the number that it
    /// is given, as if it ended before the shared end.
    pub fn append_shared(&mut self, shared: Shared, write: impl FnOnce(&mut Vec<u8>, u64)) {
        self.unacknowledged.append_shared(shared, write);
    }

    /// Adds slices of the counted frames to write next, and returns their bytes: about `most` at most, up to the end of
    /// a frame. 0 if nothing is left.
    pub fn gather<'a>(&'a self, most: usize, slices: &mut Vec<IoSlice<'a>>) -> usize {
        self.unacknowledged.gather(most, slices)
    }

    /// Notes that this many of the bytes that [`gather`](Self::gather) gave were written.
    pub fn written(&mut self, count: usize) {
        self.unacknowledged.written(count);
    }

    /// The number of bytes appended and not yet written to the connection.
    pub fn unwritten(&self) -> usize {
        self.unacknowledged.unwritten
    }

    /// The number of bytes kept because they were not acknowledged (counted by whole chunks).
    pub fn kept(&self) -> usize {
        self.unacknowledged.bytes
    }

    /// The number of the next frame appended. Earlier frames count as sent.
    pub fn next(&self) -> u64 {
        self.unacknowledged.next
    }

    /// The number of frames that the other side has taken.
    pub fn acknowledged(&self) -> u64 {
        self.unacknowledged.acknowledged
    }

    /// Whether all frames were acknowledged.
    pub fn is_settled(&self) -> bool {
        self.unacknowledged.acknowledged == self.unacknowledged.next
    }

    /// The other side reports how many frames it has taken.
    ///
    /// # Errors
    /// [`Violation`] if that number is impossible.
    pub fn acknowledge(&mut self, received: u64) -> Result<(), Violation> {
        self.is_confirmed = true;
        self.unacknowledged.acknowledge(received)
    }

    /// The number of the counted frame that is due.
    pub fn due(&self) -> u64 {
        self.received
    }

    /// Notes that counted frames were taken. `are_settled`: no message in them waits for its proof.
    pub fn took(&mut self, taken: Taken, are_settled: bool) {
        self.is_confirmed |= taken.frames > 0;
        self.received += taken.frames;
        self.untold.0 += taken.bytes;
        self.untold.1 += taken.signatures;
        if are_settled {
            self.settled = self.received;
        }
    }

    /// The received frames that were not yet reported to the other side.
    pub fn untold(&self) -> Taken {
        Taken {
            frames: self.settled - self.told,
            bytes: self.untold.0,
            signatures: self.untold.1,
        }
    }

    /// The acknowledgement to write now.
    pub fn tell(&mut self) -> Frame<'static> {
        self.told = self.settled;
        self.untold = (0, 0);
        Frame::Acknowledge {
            received: self.settled,
        }
    }

    /// The connection is gone. Frames written to it may or may not have arrived.
    pub fn disconnected(&mut self) {
        self.unacknowledged.stop();
    }

    /// Fills in what the dialler says about the session.
    pub fn dial(&self, hello: &mut Hello<'_>) {
        hello.session = self.id;
        hello.given_up = self.given_up;
        hello.received = self.settled;
        hello.resumed = false;
    }

    /// Decides about the dialler's `hello`, on the acceptor's side. After [`Agreement::Lost`] call
    /// [`start_over`](Self::start_over). Then, in any case, call [`accepted`](Self::accepted).
    ///
    /// # Errors
    /// [`Violation`] if the dialler contradicts its earlier statements.
    pub fn accept(&mut self, hello: &Hello<'_>) -> Result<Agreement, Violation> {
        if self.id != NONE && hello.session == self.id && hello.incarnation == self.peer {
            self.unacknowledged.rewind(hello.received)?;
            self.is_confirmed = true;
            return Ok(Agreement::Resumed);
        }
        self.begin(hello)
    }

    /// Begins a new session, if that loses nothing.
    fn begin(&mut self, hello: &Hello<'_>) -> Result<Agreement, Violation> {
        // A peer that never took up our session has taken none of its frames.
        let never_taken_up = self.id == NONE
            || (!self.is_confirmed && hello.incarnation == self.peer && hello.given_up != self.id);
        if !never_taken_up {
            return Ok(Agreement::Lost);
        }
        self.unacknowledged.rewind(0)?;
        Ok(Agreement::Started)
    }

    /// Fills in `hello`, the acceptor's answer. `fresh` names the session unless it was resumed.
    pub fn accepted(
        &mut self,
        agreement: Agreement,
        peer: RandomId,
        fresh: RandomId,
        hello: &mut Hello<'_>,
    ) {
        if agreement != Agreement::Resumed {
            self.id = fresh;
            self.peer = peer;
            self.is_confirmed = false;
        }
        hello.session = self.id;
        hello.given_up = self.given_up;
        hello.received = self.settled;
        hello.resumed = agreement == Agreement::Resumed;
        self.told = self.settled;
        self.untold = (0, 0);
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
            self.unacknowledged.rewind(hello.received)?;
            self.is_confirmed = true;
            self.told = self.settled;
            self.untold = (0, 0);
            return Ok(Agreement::Resumed);
        }
        let agreement = self.begin(hello)?;
        if agreement == Agreement::Started {
            self.id = hello.session;
            self.peer = hello.incarnation;
            // The acceptor has the session, because it made it.
            self.is_confirmed = true;
        }
        Ok(agreement)
    }

    /// Calls `each` with every unacknowledged frame, in order, its number, and whether it may have arrived.
    pub fn for_each_kept(&self, each: impl FnMut(&Frame<'_>, u64, bool)) {
        self.unacknowledged.for_each_kept(each);
    }

    /// The session that this side would give up by forgetting everything now, or the one that it gave up before.
    pub fn given_up(&self) -> RandomId {
        // A peer that took up a session is sure of it, even if this side is not.
        match self.is_confirmed {
            true => self.id,
            false => self.given_up,
        }
    }

    /// Forgets everything. The next connection begins a new session.
    pub fn start_over(&mut self) {
        *self = Self::after(self.given_up());
    }
}
