//! What is on its way to one platform, in order: requests not written yet, and those written and not answered.
//!
//! Requests are written before earlier ones are answered, up to a window. Answers come in the order of requests. When
//! a connection ends, everything not answered is written again on the next one, in the same order.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

/// How often a request may be written to an open connection that then ends without an answer, before it is taken for
/// the cause.
const UNANSWERED: u32 = 4;

struct Item<T> {
    request: Bytes,
    expires: Instant,
    unanswered: u32,
    ticket: T,
}

/// The queue. `T` goes along with each request.
pub struct OutgoingQueue<T> {
    items: VecDeque<Item<T>>,
    /// How many from the front are written on the connection there is.
    written: usize,
    window: usize,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The platform took the message.
    Taken,
    /// It never will.
    Refused(String),
    /// It may later: the connection is to be ended, and everything sent again after a pause.
    Later(String),
}

impl Verdict {
    /// What a status code says (RFC 9110, section 15).
    pub fn of(status: u16, detail: &str) -> Self {
        let told = || format!("status {status}: {}", detail.trim());
        match status {
            200..=299 => Self::Taken,
            408 | 425 | 429 | 500..=599 if status != 505 && status != 508 => Self::Later(told()),
            _ => Self::Refused(told()),
        }
    }
}

impl<T> OutgoingQueue<T> {
    /// An empty queue that writes at most `window` requests before their answers.
    pub fn new(window: usize) -> Self {
        Self {
            items: VecDeque::new(),
            written: 0,
            window: window.max(1),
        }
    }

    /// Adds a request, which is not worth sending after `expires`.
    pub fn push(&mut self, request: Bytes, expires: Instant, ticket: T) {
        self.items.push_back(Item {
            request,
            expires,
            unanswered: 0,
            ticket,
        });
    }

    /// Whether there is nothing left to do.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Requests written and not answered.
    pub fn unanswered(&self) -> usize {
        self.written
    }

    /// The next request to write.
    pub fn next_to_write(&mut self) -> Option<Bytes> {
        if self.written >= self.window {
            return None;
        }
        let item = self.items.get(self.written)?;
        self.written += 1;
        Some(item.request.clone())
    }

    /// An answer has come to the oldest written request. Returns its ticket unless it is to be sent again; `None` also
    /// if no request waits for an answer.
    pub fn answered(&mut self, verdict: &Verdict) -> Option<T> {
        if self.written == 0 || matches!(verdict, Verdict::Later(_)) {
            return None;
        }
        self.written -= 1;
        self.items.pop_front().map(|item| item.ticket)
    }

    /// The connection has ended. `blamed`: nothing but the oldest unanswered request explains why; its ticket is
    /// returned if that has happened too often.
    pub fn connection_ended(&mut self, blamed: bool) -> Option<T> {
        let was_written = std::mem::take(&mut self.written) > 0;
        let first = self.items.front_mut()?;
        if !(blamed && was_written) {
            return None;
        }
        first.unanswered += 1;
        if first.unanswered < UNANSWERED {
            return None;
        }
        self.items.pop_front().map(|item| item.ticket)
    }

    /// Takes out what has expired, if it is not written; the oldest first.
    pub fn expired(&mut self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        let mut at = self.written;
        while at < self.items.len() {
            if self.items[at].expires <= now {
                expired.extend(self.items.remove(at).map(|item| item.ticket));
            } else {
                at += 1;
            }
        }
        expired
    }

    /// When the first of what is not written expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.items.iter().skip(self.written);
        waiting.map(|item| item.expires).min()
    }

    /// Everything that is left.
    pub fn drain(&mut self) -> Vec<T> {
        self.written = 0;
        self.items.drain(..).map(|item| item.ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A platform that takes, refuses, puts off and loses its connection at random gets every message it did not
        /// refuse, in order; after a connection was lost it may get some again, but none it has answered.
        #[test]
        fn nothing_is_lost_and_order_is_kept(
            steps in prop::collection::vec(0_u8..10, 1..300),
            window in 1_usize..8,
        ) {
            let now = Instant::now();
            let later = now + Duration::from_secs(60);
            let mut queue = OutgoingQueue::new(window);
            let mut pushed = 0_u32;
            let mut on_wire: VecDeque<u32> = VecDeque::new();
            let mut settled: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    0..=2 => {
                        queue.push(Bytes::copy_from_slice(&pushed.to_be_bytes()), later, pushed);
                        pushed += 1;
                    }
                    3..=5 => on_wire.extend(queue.next_to_write().map(number)),
                    6 | 7 => if on_wire.pop_front().is_some() {
                        settled.extend(queue.answered(&Verdict::Taken));
                    }
                    8 => {
                        on_wire.clear();
                        settled.extend(queue.connection_ended(false));
                    }
                    _ => if on_wire.pop_front().is_some() {
                        prop_assert_eq!(queue.answered(&Verdict::Later(String::new())), None);
                        on_wire.clear();
                        settled.extend(queue.connection_ended(false));
                    }
                }
                prop_assert_eq!(queue.unanswered(), on_wire.len());
                prop_assert!(on_wire.len() <= window);
            }
            settled.extend(queue.drain());
            prop_assert_eq!(settled, (0..pushed).collect::<Vec<_>>());
        }
    }

    fn number(request: Bytes) -> u32 {
        u32::from_be_bytes(request[..].try_into().unwrap())
    }

    #[test]
    fn a_request_that_ends_every_connection_is_given_up() {
        let mut queue = OutgoingQueue::new(4);
        let later = Instant::now() + Duration::from_secs(60);
        queue.push(Bytes::new(), later, "poison");
        queue.push(Bytes::new(), later, "good");
        for _ in 1..UNANSWERED {
            queue.next_to_write();
            assert_eq!(queue.connection_ended(true), None);
        }
        queue.next_to_write();
        assert_eq!(queue.connection_ended(true), Some("poison"));
        queue.next_to_write();
        assert_eq!(queue.answered(&Verdict::Taken), Some("good"));
    }

    #[test]
    fn what_has_expired_is_taken_out_unless_it_is_written() {
        let mut queue = OutgoingQueue::new(1);
        let now = Instant::now();
        queue.push(Bytes::new(), now, "written");
        queue.push(Bytes::new(), now + Duration::from_secs(9), "fresh");
        queue.push(Bytes::new(), now, "late");
        queue.next_to_write();
        assert_eq!(queue.expired(now), ["late"]);
        queue.connection_ended(false);
        assert_eq!(queue.expired(now), ["written"]);
        assert_eq!(queue.drain(), ["fresh"]);
    }

    #[test]
    fn statuses_are_judged() {
        assert_eq!(Verdict::of(200, ""), Verdict::Taken);
        assert!(matches!(Verdict::of(503, "busy"), Verdict::Later(_)));
        assert!(matches!(Verdict::of(508, "loop"), Verdict::Refused(_)));
        assert!(matches!(Verdict::of(406, ""), Verdict::Refused(_)));
    }
}
