//! The frames for the wire: first the frames of one connection, then those that the session keeps. Queued messages take
//! turns.

use std::io::IoSlice;
use std::time::Instant;

use bytes::Bytes;

use super::{Long, Outward, TargetState};
use crate::flow::{Piece, Queued};
use crate::frame::Frame;
use crate::wire::Wire;

/// The bytes of counted frames that are prepared for writing at a time, so that a long message does not precede
/// everything else.
const AHEAD: usize = 128 << 10;
/// The most bytes written together.
const BATCH: usize = 256 << 10;
/// A link is quiet if it has at most this much to write at a time. On a quiet link, senders may write this much at
/// once, each its own message, before the task has its turn: a message that waited for that turn would wait for all
/// tasks ahead of it.
pub(super) const QUIET: usize = 2 << 10;

/// How many bytes the wire got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Nothing,
    /// The wire has all bytes.
    All,
    /// The wire has many bytes, and there may be more.
    Limit,
    /// The wire has all bytes that may go now. Messages are held back, for [`LONGEST_HOLD`](super::LONGEST_HOLD) at most.
    Held,
}

impl Outward {
    /// Whether the link's task must be told that there is something to write. It then counts as told.
    pub(crate) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    /// Whether a sender that has just announced a message writes it at once, instead of waiting for the task's turn
    /// behind all other senders. A few senders may do so, as long as little is sent. Then the task writes the messages
    /// that others have added meanwhile, and finds out whether it is still little.
    pub(crate) fn may_write_at_once(&mut self) -> bool {
        let may = self.at_once > 0;
        self.at_once = self.at_once.saturating_sub(self.session.unwritten());
        may
    }

    /// Notes that the task has had its turn, because it has read.
    pub(crate) fn has_read(&mut self) {
        if self.session.unwritten() == 0 {
            self.at_once = self.at_once.max(1);
        }
    }

    /// Notes that the task looks at everything now. The next message must be announced again.
    pub(crate) fn heard(&mut self) {
        self.is_announced = false;
    }

    /// Hands the wire the pending bytes in the task's turn, up to a limit.
    pub(crate) fn fill_in_turn(&mut self, wire: &mut Wire) -> Filled {
        self.unbind_departing();
        let filled = self.fill(wire);
        if filled != Filled::Nothing {
            self.at_once = if self.filled <= QUIET { QUIET } else { 0 };
        }
        filled
    }

    /// Notes that a message goes back to the peer.
    pub(crate) fn gives_back(&mut self) {
        self.giving_back = self.session.unwritten();
    }

    /// Whether at least this many bytes are ready.
    pub(crate) fn has_ready(&self, bytes: usize) -> bool {
        self.session.unwritten() >= bytes && !self.holds_messages()
    }

    /// Hands the wire the pending bytes, up to a limit.
    pub(crate) fn fill(&mut self, wire: &mut Wire) -> Filled {
        self.is_announced = false;
        if wire.number != self.connection {
            return Filled::Nothing;
        }
        // The peer first gets the messages that go back. Until it learns that its messages were taken, it remembers
        // them and their senders.
        if self.giving_back == 0 && self.session.untold().frames > 0 {
            self.session.tell().encode(0, &mut self.control);
        }
        self.filled = 0;
        let mut left = BATCH.saturating_sub(wire.pending() + self.control.len());
        let filled = loop {
            if left == 0 {
                break Filled::Limit;
            }
            self.pump();
            if !self.unsigned.is_empty() && self.hold_messages(Instant::now()) {
                // Nobody needs to announce the waiting messages: an acknowledgement or the time ends the wait.
                self.is_announced = true;
                break Filled::Held;
            }
            self.sign_all();
            // An acknowledgement and the messages behind it share a TLS record.
            let control = Some(IoSlice::new(&self.control)).filter(|bytes| !bytes.is_empty());
            let mut slices = Vec::from_iter(control);
            let length = self.session.gather(left, &mut slices);
            if length == 0 {
                break match self.filled + self.control.len() {
                    0 => Filled::Nothing,
                    _ => Filled::All,
                };
            }
            self.filled += self.control.len() + length;
            wire.put_all(&slices, self.control.len() + length);
            self.control.clear();
            self.session.written(length);
            self.giving_back = self.giving_back.saturating_sub(length);
            if self.session.unwritten() == 0 {
                self.signatures_written();
            }
            left = left.saturating_sub(length);
        };
        self.filled += self.control.len();
        wire.put(&self.control);
        self.control.clear();
        if self.control.capacity() > BATCH {
            self.control = Vec::new();
        }
        filled
    }

    /// Moves queued messages into the session. The targets take turns.
    fn pump(&mut self) {
        let mut stalled = 0;
        while self.session.unwritten() < AHEAD
            && self.session.kept() < self.window
            && stalled <= self.line.len()
        {
            let Some(handle) = self.line.next_target() else {
                return;
            };
            let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
                continue;
            };
            if let TargetState::Closing { .. } = target.state {
                // Waiting messages go back to the bus when the target has closed.
                continue;
            }
            let piece = self.line.take_piece(handle, &mut target.credit);
            if target.is_waited_for {
                target.gate.open();
            }
            let name = target.name.clone();
            let is_process = target.is_process;
            let Some(piece) = piece else {
                stalled += 1;
                continue;
            };
            stalled = 0;
            match piece {
                Piece::Whole(message) => {
                    let (sender, statement) = (message.sender, message.statement);
                    // The sender is bound again if the connection is new. If that fails, the receiver refuses the
                    // message and says so.
                    let _ = self.prove(sender);
                    let payload = &message.into_bytes();
                    self.note_sent(handle, sender, payload);
                    if statement.is_none() && !is_process {
                        self.sign(sender);
                    }
                    self.session.append(&Frame::Message {
                        sender,
                        target: handle,
                        is_signed: statement.is_some(),
                        payload,
                    });
                    if let Some(statement) = statement {
                        self.note_unsigned(sender, statement);
                    }
                    self.note_unqueued(sender);
                }
                Piece::First {
                    sender,
                    is_signed,
                    total,
                    piece,
                } => {
                    let _ = self.prove(sender);
                    self.long.push_back(Long {
                        end: u64::MAX,
                        target: name,
                        message: Queued::message(sender, Bytes::new()),
                    });
                    // Messages are limited to far less than 4 GiB.
                    let total = u32::try_from(total).unwrap_or(u32::MAX);
                    let begin = Frame::Begin {
                        sender,
                        target: handle,
                        is_signed,
                        total,
                        piece: &piece.head,
                    };
                    self.session
                        .append_shared(piece.shared, |out, sequence| begin.encode(sequence, out));
                }
                Piece::Next { piece, complete } => {
                    if let Some(message) = &complete
                        && message.statement.is_none()
                        && !is_process
                    {
                        self.sign(message.sender);
                    }
                    let go_on = Frame::Continue {
                        target: handle,
                        piece: &piece.head,
                    };
                    self.session
                        .append_shared(piece.shared, |out, sequence| go_on.encode(sequence, out));
                    if let Some(message) = complete
                        && let Some(long) = self
                            .long
                            .iter_mut()
                            .find(|long| long.end == u64::MAX && long.target == name)
                    {
                        long.end = self.session.next();
                        let sender = message.sender;
                        let statement = message.statement;
                        let payload = message.payload.clone();
                        long.message = message;
                        self.note_sent(handle, sender, &payload);
                        if let Some(statement) = statement {
                            self.note_unsigned(sender, statement);
                        }
                        self.note_unqueued(sender);
                    }
                }
            }
        }
    }

    /// Notes that a message was sent to an agent completely.
    fn note_sent(&mut self, handle: u32, sender: u32, payload: &[u8]) {
        let name = self.name_of(sender);
        if let Some(Some(target)) = self.targets.get_mut(handle as usize)
            && !target.is_process
            && let Some(name) = name
        {
            let hash = self.memory.hash(&name, payload);
            target.sent.note(hash, &mut self.memory);
        }
    }

    /// Whether a connection is needed: something waits to be sent or acknowledged.
    pub(crate) fn needs_connection(&self) -> bool {
        !self.session.is_settled() || !self.line.is_empty()
    }

    /// A frame for this connection only.
    pub(crate) fn control(&mut self, frame: &Frame<'_>) {
        frame.encode(0, &mut self.control);
    }
}

#[cfg(test)]
mod tests {
    use sealbus_seal::SecurityLevel;

    use super::*;
    use crate::frame::LONGEST_PIECE;

    /// Queues a message of this many pieces.
    fn send(outward: &mut Outward, handle: u32, pieces: usize) {
        let message = Queued::message(7, vec![1; pieces * LONGEST_PIECE].into());
        let Some(Some(target)) = outward.targets.get_mut(handle as usize) else {
            unreachable!()
        };
        outward.line.enqueue(handle, &mut target.credit, message);
    }

    /// Writes everything that may be written.
    fn write(outward: &mut Outward) {
        loop {
            outward.pump();
            match outward.session.unwritten() {
                0 => return,
                count => outward.session.written(count),
            }
        }
    }

    /// The bytes of the long messages that are kept.
    fn kept(outward: &Outward) -> usize {
        outward.long.iter().map(|it| it.message.length()).sum()
    }

    #[test]
    fn behind_a_target_that_never_closes_no_long_message_is_kept() {
        let mut outward = Outward::new(SecurityLevel::None, 8 << 20, 1 << 20, 16);
        let [first, second] =
            ["a@factory", "b@factory"].map(|name| outward.open(name).unwrap().handle);
        outward.credited(first, 8 << 20, true);
        outward.credited(second, 8 << 20, true);
        send(&mut outward, first, 8);
        outward.pump();
        // The remaining pieces are never sent.
        outward.start_closing(first, true);
        write(&mut outward);
        assert_eq!((outward.long.len(), kept(&outward)), (1, 0));
        for _ in 0..3 {
            send(&mut outward, second, 3);
            write(&mut outward);
            assert_eq!(kept(&outward), 3 * LONGEST_PIECE);
            outward.acknowledged(outward.session.next()).unwrap();
            assert_eq!((outward.long.len(), kept(&outward)), (1, 0));
        }
    }
}
