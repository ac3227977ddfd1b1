//! Flow control for the messages of one link: which messages may be sent to each target now, and in which order. No I/O
//! and no clock.
//!
//! Each target has a credit: a number of bytes that the receiving process is ready to keep for it. A message may be
//! sent while the credit is not used up. A target without credit holds up no other target. Some messages cannot go at
//! once, because the target has not answered yet or because they are long. They wait in the target's queue and go in
//! pieces, and the targets take turns.

use std::collections::VecDeque;

use bytes::Bytes;
use sealbus_bus::MESSAGE_OVERHEAD;
use sealbus_proof::Hash;

use crate::frame::LONGEST_PIECE;
use crate::session::Shared;

/// The number of bytes queued for one target at which its senders wait. One long message may exceed it.
const QUEUE: usize = 256 << 10;
/// As [`QUEUE`], for the bus of a process. Its frames are shared with their other holders, so queueing copies nothing.
const PROCESS_QUEUE: usize = 4 << 20;
/// The number of bytes queued on one link, for all targets that have not answered yet, at which their senders wait.
const UNANSWERED: usize = 16 << 20;
/// The number of long messages that may be sent in pieces at the same time, on one link in one direction.
pub(crate) const PARTIAL_MESSAGES: usize = 4;

/// The cost of a message in its target's credit.
pub fn cost(payload_length: usize) -> u64 {
    (payload_length + MESSAGE_OVERHEAD) as u64
}

/// A message that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The sender's handle.
    pub sender: u32,
    /// The part of a bus frame before the payload; less than the longest piece of a message.
    pub head: Bytes,
    /// The message's encoding.
    pub payload: Bytes,
    /// The part of a bus frame behind the payload.
    pub tail: &'static [u8],
    /// The statement that the sender signs, if it signs one.
    pub statement: Option<Hash>,
}

/// A part of a waiting message. It is copied only if it consists of more than one buffer.
#[derive(Clone, Debug)]
pub struct Part {
    /// The beginning of the part.
    pub head: Bytes,
    /// The rest.
    pub shared: Shared,
}

impl Queued {
    /// A message.
    pub fn message(sender: u32, payload: Bytes) -> Self {
        Self {
            sender,
            head: Bytes::new(),
            payload,
            tail: &[],
            statement: None,
        }
    }

    /// The length of all parts, in bytes.
    pub fn length(&self) -> usize {
        self.head.len() + self.payload.len() + self.tail.len()
    }

    /// The whole message in one piece.
    pub fn into_bytes(self) -> Bytes {
        if self.head.is_empty() && self.tail.is_empty() {
            self.payload
        } else {
            [&self.head, &self.payload, self.tail].concat().into()
        }
    }

    /// The part of the message between two offsets.
    fn part(&self, from: usize, to: usize) -> Part {
        // The range of the part in the buffer that begins at `start` and has `length` bytes.
        let within = |start: usize, length: usize| {
            let place = |at: usize| at.saturating_sub(start).min(length);
            place(from)..place(to)
        };
        let (head, payload) = (self.head.len(), self.payload.len());
        Part {
            head: self.head.slice(within(0, head)),
            shared: Shared {
                body: self.payload.slice(within(head, payload)),
                tail: &self.tail[within(head + payload, self.tail.len())],
            },
        }
    }
}

/// The sending side's state of one target.
#[derive(Debug)]
pub struct Credit {
    /// The number of bytes that may be sent in all; `None` until the target has answered.
    limit: Option<u64>,
    sent: u64,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// The number of bytes that may be queued.
    room: usize,
    /// The bytes of the first queued message that were already sent.
    begun: usize,
    /// Whether the target stands in the line of targets with something to send.
    in_line: bool,
}

/// Whether a message may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Send it.
    Now,
    /// Put it into the queue.
    Queue,
    /// The message must wait outside.
    Full,
}

impl Default for Credit {
    fn default() -> Self {
        Self {
            limit: None,
            sent: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            room: QUEUE,
            begun: 0,
            in_line: false,
        }
    }
}

impl Credit {
    /// The credit of the bus of a process.
    pub fn of_process() -> Self {
        Self {
            room: PROCESS_QUEUE,
            ..Self::default()
        }
    }

    /// Whether a message to the target may be sent. `has_window`: the link has room for the message. `has_queue`: the
    /// link has room for messages that wait for an answer.
    pub fn admit(&self, has_window: bool, has_queue: bool) -> Admission {
        if self.queue.is_empty() && has_window && self.limit.is_some_and(|limit| self.sent < limit)
        {
            Admission::Now
        } else if self.limit.is_none() && self.queued_bytes < self.room && has_queue {
            Admission::Queue
        } else if !self.queue.is_empty() && self.queued_bytes < self.room && has_window {
            // A long message is under way before it. Without one there would be credit, or the message would have to
            // wait outside.
            Admission::Queue
        } else {
            Admission::Full
        }
    }

    /// Notes that a message was sent whole.
    pub fn sent(&mut self, payload_length: usize) {
        self.sent += cost(payload_length);
    }

    /// The receiving side allows `limit` bytes in all. The limit never falls.
    pub fn raise(&mut self, limit: u64) {
        self.limit = Some(self.limit.map_or(limit, |old| old.max(limit)));
    }

    fn may_go_on(&self) -> bool {
        !self.queue.is_empty()
            && (self.begun > 0 || self.limit.is_some_and(|limit| self.sent < limit))
    }
}

/// A piece of a queued message, to be sent now.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A message that fits into one frame.
    Whole(Queued),
    /// The first piece of a long one, of `total` bytes.
    First {
        /// The sender's handle.
        sender: u32,
        /// Whether its sender signs a statement about it.
        is_signed: bool,
        /// The length of all pieces.
        total: usize,
        /// The piece.
        piece: Part,
    },
    /// A further piece. The last piece comes with the whole message.
    Next {
        /// The piece.
        piece: Part,
        /// The message, once all of it is sent.
        complete: Option<Queued>,
    },
}

/// The targets that have queued messages. They take turns.
#[derive(Debug, Default)]
pub struct TargetLine {
    waiting: VecDeque<u32>,
    partial: usize,
    /// Bytes in the queues of all targets.
    queued_bytes: usize,
}

impl TargetLine {
    /// Puts a message into the queue of `credit`, which belongs to the target `handle`.
    pub fn enqueue(&mut self, handle: u32, credit: &mut Credit, message: Queued) {
        let cost = message.length() + MESSAGE_OVERHEAD;
        credit.queued_bytes += cost;
        self.queued_bytes += cost;
        credit.queue.push_back(message);
        self.notice(handle, credit);
    }

    /// The state of the target has changed, so it may have its turn again.
    pub fn notice(&mut self, handle: u32, credit: &mut Credit) {
        if !credit.in_line && credit.may_go_on() {
            credit.in_line = true;
            self.waiting.push_back(handle);
        }
    }

    /// The next target to call [`take_piece`](Self::take_piece) for.
    pub(crate) fn next_target(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// The next piece for the target that has its turn.
    pub(crate) fn take_piece(&mut self, handle: u32, credit: &mut Credit) -> Option<Piece> {
        credit.in_line = false;
        if !credit.may_go_on() {
            return None;
        }
        let first = credit.queue.front()?;
        let total = first.length();
        let piece = if total <= LONGEST_PIECE {
            let message = credit.queue.pop_front()?;
            credit.queued_bytes -= total + MESSAGE_OVERHEAD;
            self.queued_bytes -= total + MESSAGE_OVERHEAD;
            credit.sent += cost(total);
            Piece::Whole(message)
        } else if credit.begun == 0 {
            if self.partial == PARTIAL_MESSAGES {
                // Another message must end first. The target keeps its place.
                credit.in_line = true;
                self.waiting.push_back(handle);
                return None;
            }
            self.partial += 1;
            credit.begun = LONGEST_PIECE;
            credit.sent += cost(total);
            Piece::First {
                sender: first.sender,
                is_signed: first.statement.is_some(),
                total,
                piece: first.part(0, LONGEST_PIECE),
            }
        } else {
            let end = total.min(credit.begun + LONGEST_PIECE);
            let piece = first.part(credit.begun, end);
            credit.begun = end;
            let complete = if end == total {
                self.partial -= 1;
                credit.begun = 0;
                credit.queued_bytes -= total + MESSAGE_OVERHEAD;
                self.queued_bytes -= total + MESSAGE_OVERHEAD;
                credit.queue.pop_front()
            } else {
                None
            };
            Piece::Next { piece, complete }
        };
        self.notice(handle, credit);
        Some(piece)
    }

    /// Takes out all messages that were not sent to the target completely. The receiver drops the pieces of a message
    /// that ends early.
    pub(crate) fn take_queue(&mut self, credit: &mut Credit) -> Vec<Queued> {
        if credit.begun > 0 {
            self.partial -= 1;
        }
        self.queued_bytes -= credit.queued_bytes;
        credit.queued_bytes = 0;
        credit.begun = 0;
        credit.queue.drain(..).collect()
    }

    /// Takes out the messages that are longer than `limit`, unless a piece of them was sent.
    pub fn take_longer(&mut self, credit: &mut Credit, limit: usize) -> Vec<Queued> {
        let begun = usize::from(credit.begun > 0).min(credit.queue.len());
        let rest = credit.queue.split_off(begun);
        let (longer, rest): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|message| message.length() > limit);
        credit.queue.extend(rest);
        for message in &longer {
            let cost = message.length() + MESSAGE_OVERHEAD;
            credit.queued_bytes -= cost;
            self.queued_bytes -= cost;
        }
        longer
    }

    /// Whether more messages may wait for targets that have not answered yet.
    pub fn has_queue(&self) -> bool {
        self.queued_bytes < UNANSWERED
    }

    /// Whether no message waits for any target.
    pub fn is_drained(&self) -> bool {
        self.queued_bytes == 0
    }

    /// Whether no target has its turn.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of targets in line.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// The receiving side's state of one target. It holds the sender to the credit that it was given.
#[derive(Debug)]
pub struct GivenCredit {
    limit: u64,
    received: u64,
}

impl GivenCredit {
    /// A credit that begins with `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, received: 0 }
    }

    /// Notes that the sender was told of a higher limit.
    pub fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// A message of that length begins to arrive. Returns false if the credit does not cover it.
    pub fn take(&mut self, payload_length: usize) -> bool {
        let is_allowed = self.received < self.limit;
        self.received += cost(payload_length);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: usize) -> Queued {
        Queued::message(7, vec![1; length].into())
    }

    #[test]
    fn nothing_is_sent_before_the_target_answers() {
        let (mut line, mut credit) = (TargetLine::default(), Credit::default());
        assert_eq!(credit.admit(true, true), Admission::Queue);
        line.enqueue(1, &mut credit, message(10));
        assert_eq!(line.next_target(), None);
        credit.raise(1000);
        line.notice(1, &mut credit);
        assert_eq!(line.next_target(), Some(1));
        let piece = line.take_piece(1, &mut credit);
        assert!(matches!(piece, Some(Piece::Whole(it)) if it == message(10)));
        assert_eq!(credit.admit(true, true), Admission::Now);
    }

    #[test]
    fn what_waits_for_answers_is_bounded_for_all_targets_together() {
        let mut line = TargetLine::default();
        let mut credits: Vec<Credit> = (0..1000).map(|_| Credit::default()).collect();
        let mut queued = 0;
        for (handle, credit) in (0..).zip(&mut credits) {
            while credit.admit(true, line.has_queue()) == Admission::Queue {
                line.enqueue(handle, credit, message(100_000));
                queued += 100_000;
            }
        }
        assert!(queued < 17 << 20, "{queued} bytes wait");
        // Room comes back as targets end.
        line.take_queue(&mut credits[0]);
        assert_eq!(credits[999].admit(true, line.has_queue()), Admission::Queue);
    }

    #[test]
    fn a_used_up_credit_holds_back_until_it_is_raised() {
        let mut credit = Credit::default();
        credit.raise(100);
        credit.sent(200);
        assert_eq!(credit.admit(true, true), Admission::Full);
        credit.raise(400);
        assert_eq!(credit.admit(true, true), Admission::Now);
        assert_eq!(credit.admit(false, true), Admission::Full);
    }

    #[test]
    fn long_messages_take_turns_and_short_ones_stay_behind_their_own() {
        let mut line = TargetLine::default();
        let mut credits = [Credit::default(), Credit::default()];
        for (handle, credit) in (0..).zip(&mut credits) {
            credit.raise(100 << 20);
            line.enqueue(handle, credit, message(3 * LONGEST_PIECE));
            line.enqueue(handle, credit, message(10));
        }
        let mut order = Vec::new();
        while let Some(handle) = line.next_target() {
            let piece = line.take_piece(handle, &mut credits[handle as usize]);
            order.push((handle, matches!(piece, Some(Piece::Whole(_)))));
        }
        assert_eq!(
            order,
            [
                (0, false),
                (1, false),
                (0, false),
                (1, false),
                (0, false),
                (1, false),
                (0, true),
                (1, true)
            ]
        );
    }

    #[test]
    fn the_parts_of_a_frame_are_all_of_it() {
        let frame = Queued {
            sender: 1,
            head: vec![1, 2, 3].into(),
            payload: vec![4, 5, 6, 7].into(),
            tail: &[8, 9],
            statement: None,
        };
        for cut in 0..=frame.length() {
            let parts = [frame.part(0, cut), frame.part(cut, frame.length())];
            let all: Vec<u8> = parts
                .iter()
                .flat_map(|it| [&it.head[..], &it.shared.body, it.shared.tail].concat())
                .collect();
            assert_eq!(all, frame.clone().into_bytes());
        }
    }

    #[test]
    fn an_allowance_is_held() {
        let mut allowance = GivenCredit::new(100);
        assert!(allowance.take(1_000_000));
        assert!(!allowance.take(1));
        allowance.raise(2_000_000);
        assert!(allowance.take(1));
    }
}
