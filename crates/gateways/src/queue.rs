//! The requests on their way to one platform, in order: not yet written, or written and not answered.
//!
//! Requests are written before earlier ones are answered, up to a window. Answers come in the order of requests. When a
//! connection ends, all unanswered requests are written again on the next one, in the same order.
//!
//! A platform may put a request off because its receiver has no room. Then every request for that receiver is set
//! aside. They continue later, with one request first as a trial. Requests for other receivers are not held up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How often a request may be written to an open connection that then ends without an answer, before the request is
/// taken for the cause.
const UNANSWERED: u32 = 4;
/// How long requests that were put off are set aside, and a platform that was not reached is left alone. The pause grows each
/// time.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

struct Item<T> {
    request: Bytes,
    expires: Instant,
    unanswered: u32,
    receiver: Arc<str>,
    ticket: T,
}

/// The requests that are set aside for one receiver.
struct Aside<T> {
    items: VecDeque<Item<T>>,
    /// The time to try the first of them; `None` while the first is already among the requests to write.
    at: Option<Instant>,
    pause: Duration,
    reason: String,
}

/// The queue. `T` goes along with each request.
pub struct OutgoingQueue<T> {
    items: VecDeque<Item<T>>,
    /// The number of requests from the front that are written on the present connection.
    written: usize,
    window: usize,
    aside: HashMap<Arc<str>, Aside<T>>,
}

/// A request that was not sent in time.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The value that went along with it.
    pub ticket: T,
    /// Why the request was set aside, if it was.
    pub reason: Option<String>,
}

/// The meaning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The platform took the message.
    Taken,
    /// The platform will never take the message.
    Refused(String),
    /// The platform may take the message later. The connection must end, since later messages on it must not overtake
    /// this one.
    Later(String),
}

impl<T> OutgoingQueue<T> {
    /// An empty queue that writes at most `window` requests before their answers.
    pub fn new(window: usize) -> Self {
        Self {
            items: VecDeque::new(),
            written: 0,
            window: window.max(1),
            aside: HashMap::new(),
        }
    }

    /// Adds a request. It is not worth sending after `expires`.
    pub fn push(&mut self, request: Bytes, expires: Instant, receiver: Arc<str>, ticket: T) {
        let item = Item {
            request,
            expires,
            unanswered: 0,
            receiver,
            ticket,
        };
        match self.aside.get_mut(&item.receiver) {
            Some(aside) => aside.items.push_back(item),
            None => self.items.push_back(item),
        }
    }

    /// Whether there is nothing left to do.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.aside.is_empty()
    }

    /// Whether there is something to send now.
    pub(crate) fn has_work(&self) -> bool {
        !self.items.is_empty()
    }

    /// Requests written and not answered.
    pub fn unanswered(&self) -> usize {
        self.written
    }

    /// The next request to write.
    pub(crate) fn next_to_write(&mut self) -> Option<Bytes> {
        if self.written >= self.window {
            return None;
        }
        let item = self.items.get(self.written)?;
        self.written += 1;
        Some(item.request.clone())
    }

    /// Notes an answer to the oldest written request. Returns the request's ticket, unless the request must be sent
    /// again. Also `None` if no request waits for an answer. Requests that were put off are set aside, and the
    /// connection must end.
    pub fn answered(&mut self, verdict: &Verdict, now: Instant) -> Option<T> {
        if self.written == 0 {
            return None;
        }
        if let Verdict::Later(reason) = verdict {
            self.set_aside(reason, now);
            return None;
        }
        self.written -= 1;
        self.take_first()
    }

    /// Notes that the connection has ended. `blamed` says that only the oldest unanswered request can explain the end.
    /// Returns the request's ticket if that has happened too often.
    pub(crate) fn connection_ended(&mut self, blamed: bool) -> Option<T> {
        let was_written = std::mem::take(&mut self.written) > 0;
        let first = self.items.front_mut()?;
        if !(blamed && was_written) {
            return None;
        }
        first.unanswered += 1;
        if first.unanswered < UNANSWERED {
            return None;
        }
        self.take_first()
    }

    /// Settles the first request. If it was the trial for its receiver, the requests set aside follow it.
    fn take_first(&mut self) -> Option<T> {
        let item = self.items.pop_front()?;
        if let Some(aside) = self.aside.remove(&item.receiver) {
            self.items.extend(aside.items);
        }
        Some(item.ticket)
    }

    /// Sets the first request, which was written, aside with all others for its receiver.
    fn set_aside(&mut self, reason: &str, now: Instant) {
        let Some(first) = self.items.front() else {
            return;
        };
        let receiver = first.receiver.clone();
        self.written = 0;
        let (mut of_it, others) = self
            .items
            .drain(..)
            .partition::<VecDeque<_>, _>(|item| item.receiver == receiver);
        self.items = others;
        let aside = self.aside.entry(receiver).or_insert_with(|| Aside {
            items: VecDeque::new(),
            at: None,
            pause: SHORTEST_PAUSE / 2,
            reason: String::new(),
        });
        aside.pause = (aside.pause * 2).min(LONGEST_PAUSE);
        aside.at = Some(now + aside.pause);
        reason.clone_into(&mut aside.reason);
        // The tried request comes before the waiting ones.
        of_it.append(&mut aside.items);
        aside.items = of_it;
    }

    /// When the next request that was set aside is to be tried.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.aside.values().filter_map(|aside| aside.at).min()
    }

    /// Moves the first of the requests that were set aside long enough back among the others, as a trial.
    pub fn try_again(&mut self, now: Instant) {
        for aside in self.aside.values_mut() {
            if aside.at.is_some_and(|at| at <= now) {
                aside.at = None;
                self.items.extend(aside.items.pop_front());
            }
        }
    }

    /// Takes out expired requests that are not written, the oldest first.
    pub fn expired(&mut self, now: Instant) -> Vec<Expired<T>> {
        let mut expired = Vec::new();
        for item in take_expired(&mut self.items, self.written, now) {
            let aside = self.aside.get_mut(&item.receiver);
            expired.push(Expired {
                ticket: item.ticket,
                reason: aside.as_ref().map(|aside| aside.reason.clone()),
            });
            // The expired request was the trial. The request behind it replaces it.
            if let Some(aside) = aside {
                aside.at = Some(now);
            }
        }
        for aside in self.aside.values_mut() {
            for item in take_expired(&mut aside.items, 0, now) {
                expired.push(Expired {
                    ticket: item.ticket,
                    reason: Some(aside.reason.clone()),
                });
            }
        }
        self.aside
            .retain(|_, aside| aside.at.is_none() || !aside.items.is_empty());
        expired
    }

    /// When the first unwritten message expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.items.iter().skip(self.written);
        let aside = self.aside.values().flat_map(|aside| &aside.items);
        waiting.chain(aside).map(|item| item.expires).min()
    }
}

fn take_expired<T>(items: &mut VecDeque<Item<T>>, from: usize, now: Instant) -> Vec<Item<T>> {
    let mut expired = Vec::new();
    let mut at = from;
    while at < items.len() {
        if items[at].expires <= now {
            expired.extend(items.remove(at));
        } else {
            at += 1;
        }
    }
    expired
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A platform's act towards one of three receivers.
    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Write,
        Answer,
        Lose,
        /// A mailbox becomes full, or is read.
        Turn(usize),
        Pass,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_usize..3).prop_map(Step::Push),
            3 => Just(Step::Write),
            3 => Just(Step::Answer),
            1 => Just(Step::Lose),
            1 => (0_usize..3).prop_map(Step::Turn),
            1 => Just(Step::Pass),
        ]
    }

    /// A platform that takes requests and puts off those for full mailboxes, over a connection that is lost at random.
    struct Simulation {
        queue: OutgoingQueue<u32>,
        now: Instant,
        on_wire: VecDeque<u32>,
        is_full: [bool; 3],
        taken: Vec<u32>,
    }

    impl Simulation {
        fn receiver(number: u32) -> usize {
            number as usize % 3
        }

        fn answer(&mut self) {
            let Some(number) = self.on_wire.pop_front() else {
                return;
            };
            if self.is_full[Self::receiver(number)] {
                let verdict = Verdict::Later("full".to_owned());
                assert_eq!(self.queue.answered(&verdict, self.now), None);
                self.lose();
            } else {
                assert_eq!(self.queue.answered(&Verdict::Taken, self.now), Some(number));
                self.taken.push(number);
            }
        }

        fn lose(&mut self) {
            self.on_wire.clear();
            assert_eq!(self.queue.connection_ended(false), None);
        }

        fn pass(&mut self) {
            self.now += Duration::from_secs(1);
            self.queue.try_again(self.now);
        }
    }

    proptest! {
        /// No request is lost, or sent again after its answer. The order for each receiver is kept, even if messages
        /// are put off and the connection is lost often. Requests for other receivers continue.
        #[test]
        fn nothing_is_lost_and_order_is_kept(
            steps in prop::collection::vec(step(), 1..300),
            window in 1_usize..8,
        ) {
            let now = Instant::now();
            let later = now + Duration::from_secs(100_000);
            let mut it = Simulation {
                queue: OutgoingQueue::new(window),
                now,
                on_wire: VecDeque::new(),
                is_full: [false; 3],
                taken: Vec::new(),
            };
            let mut pushed = [0_u32; 3];
            for step in steps {
                match step {
                    Step::Push(receiver) => {
                        let number = pushed[receiver] * 3 + receiver as u32;
                        pushed[receiver] += 1;
                        let request = Bytes::copy_from_slice(&number.to_be_bytes());
                        it.queue.push(request, later, receiver.to_string().into(), number);
                    }
                    Step::Write => it.on_wire.extend(it.queue.next_to_write().map(number)),
                    Step::Answer => it.answer(),
                    Step::Lose => it.lose(),
                    Step::Turn(receiver) => it.is_full[receiver] ^= true,
                    Step::Pass => it.pass(),
                }
                prop_assert_eq!(it.queue.unanswered(), it.on_wire.len());
                prop_assert!(it.on_wire.len() <= window);
            }
            // One mailbox stays full: everything else arrives, and every expired request for it is reported.
            it.is_full = [true, false, false];
            for _ in 0..2_000 {
                while let Some(request) = it.queue.next_to_write() {
                    it.on_wire.push_back(number(request));
                }
                while !it.on_wire.is_empty() {
                    it.answer();
                }
                it.pass();
            }
            it.lose();
            let mut left: Vec<_> = it.queue.expired(later).into_iter().map(|it| it.ticket).collect();
            left.sort_unstable();
            prop_assert!(it.queue.is_empty());
            for (receiver, pushed) in pushed.into_iter().enumerate() {
                let of_it = |number: &&u32| Simulation::receiver(**number) == receiver;
                let taken: Vec<_> = it.taken.iter().filter(of_it).copied().collect();
                let left: Vec<_> = left.iter().filter(of_it).copied().collect();
                prop_assert!(receiver == 0 || left.is_empty(), "{left:?} left for {receiver}");
                let all: Vec<_> = (0..pushed).map(|it| it * 3 + receiver as u32).collect();
                prop_assert_eq!([taken, left].concat(), all);
            }
        }
    }

    fn number(request: Bytes) -> u32 {
        u32::from_be_bytes(request[..].try_into().unwrap())
    }

    #[test]
    fn a_request_that_ends_every_connection_is_given_up() {
        let mut queue = OutgoingQueue::new(4);
        let later = Instant::now() + Duration::from_secs(60);
        queue.push(Bytes::new(), later, "r".into(), "poison");
        queue.push(Bytes::new(), later, "r".into(), "good");
        for _ in 1..UNANSWERED {
            queue.next_to_write();
            assert_eq!(queue.connection_ended(true), None);
        }
        queue.next_to_write();
        assert_eq!(queue.connection_ended(true), Some("poison"));
        queue.next_to_write();
        assert_eq!(queue.answered(&Verdict::Taken, later), Some("good"));
    }

    #[test]
    fn what_has_expired_is_taken_out_unless_it_is_written() {
        let mut queue = OutgoingQueue::new(1);
        let now = Instant::now();
        queue.push(Bytes::new(), now, "r".into(), "written");
        queue.push(
            Bytes::new(),
            now + Duration::from_secs(9),
            "r".into(),
            "fresh",
        );
        queue.push(Bytes::new(), now, "r".into(), "late");
        queue.next_to_write();
        let expired = |ticket, reason: Option<&str>| {
            vec![Expired {
                ticket,
                reason: reason.map(str::to_owned),
            }]
        };
        assert_eq!(queue.expired(now), expired("late", None));
        queue.answered(&Verdict::Later("full".to_owned()), now);
        assert!(!queue.has_work() && !queue.is_empty());
        assert_eq!(queue.expired(now), expired("written", Some("full")));
        queue.try_again(now + LONGEST_PAUSE);
        assert!(queue.next_to_write().is_some());
        assert_eq!(queue.answered(&Verdict::Taken, now), Some("fresh"));
        assert!(queue.is_empty());
    }
}
