//! Gates: senders wait at a gate, first come first served, until there is room again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::waiting::until;

/// The number of messages that a sender may send after its turn before it queues again, as long as there is room. With
/// one message for each turn, every message would cost a task switch, and often a write.
const BURST: u32 = 512;
/// The number of senders that are remembered after their turn, besides the waiting senders.
const REMEMBERED: usize = 1024;
/// The number that stands for all senders that are never remembered.
const NOBODY: u64 = 0;

/// A queue of waiting senders.
///
/// A task that frees room calls [`open`](Self::open). A refused sender waits in [`pass`](Self::pass) and tries again.
/// While senders wait, newcomers queue behind them ([`is_crowded`](Self::is_crowded)), so no sender starves. A sender
/// that has waited may send some more messages before it counts as a newcomer again
/// ([`is_crowded_for`](Self::is_crowded_for)).
#[derive(Debug)]
pub struct Gate {
    waiting: AtomicUsize,
    /// The place of the sender that tries. The other senders wait for it in order.
    first: Semaphore,
    /// Tells the first sender to try again.
    room: Notify,
    /// The waiting senders, and those that have had their turn, by number. Empty if no sender waits.
    #[expect(
        clippy::box_collection,
        reason = "every agent has two gates, and senders seldom wait"
    )]
    standings: Mutex<Option<Box<HashMap<u64, Standing, RandomState>>>>,
}

#[derive(Debug, Default)]
struct Standing {
    waiting: u32,
    /// The number of messages that the sender may still send in its turn.
    burst: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            first: Semaphore::new(1),
            room: Notify::new(),
            standings: Mutex::default(),
        }
    }
}

/// A place in the queue. A sender that leaves it, also by cancellation, passes the turn on.
struct QueuePlace<'a> {
    gate: &'a Gate,
    sender: u64,
    has_passed: bool,
}

impl<'a> QueuePlace<'a> {
    fn take(gate: &'a Gate, sender: u64) -> Self {
        let mut standings = gate.standings.lock();
        if sender != NOBODY {
            let standings = standings.get_or_insert_default();
            // The longer the queue, the more a search costs. It is due only once that many senders have had their turn.
            let waiting = gate.waiting.load(Ordering::Acquire);
            if standings.len() >= REMEMBERED + waiting {
                standings.retain(|_, standing| standing.waiting > 0);
            }
            let standing = standings.entry(sender).or_default();
            standing.waiting += 1;
            standing.burst = 0;
        }
        gate.waiting.fetch_add(1, Ordering::AcqRel);
        Self {
            gate,
            sender,
            has_passed: false,
        }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut guard = self.gate.standings.lock();
        let is_last = self.gate.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        let Some(standings) = &mut *guard else {
            return;
        };
        if is_last && standings.capacity() > 2 * REMEMBERED {
            // Clearing the map costs as much as the largest crowd ever needed, so it is dropped.
            *guard = None;
        } else if is_last {
            standings.clear();
        } else if let Some(standing) = standings.get_mut(&self.sender) {
            standing.waiting -= 1;
            if standing.waiting == 0 {
                if self.has_passed {
                    standing.burst = BURST;
                } else {
                    standings.remove(&self.sender);
                }
            }
        }
    }
}

impl Gate {
    /// Whether a sender is already waiting.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Whether the sender of this number must queue behind other senders, or behind its own earlier messages. An answer
    /// of `false` may use up some of the sender's turn.
    #[inline]
    pub fn is_crowded_for(&self, sender: u64) -> bool {
        self.is_crowded() && self.must_queue(sender)
    }

    #[inline(never)]
    fn must_queue(&self, sender: u64) -> bool {
        let mut standings = self.standings.lock();
        match standings.as_mut().and_then(|it| it.get_mut(&sender)) {
            Some(standing) if standing.waiting == 0 && standing.burst > 0 => {
                standing.burst -= 1;
                false
            }
            _ => self.is_crowded(),
        }
    }

    /// Lets the first waiting sender try again.
    pub fn open(&self) {
        if self.is_crowded() {
            self.room.notify_one();
        }
    }

    /// Lets every waiting sender try again, one after the other, for example when the destination is gone.
    pub fn open_all(&self) {
        self.room.notify_one();
    }

    /// Runs `attempt` until it returns an answer, and waits at the gate between attempts. `attempt` returns `None`
    /// while there is no room.
    pub async fn pass<T>(&self, attempt: impl FnMut() -> Option<T>) -> T {
        self.pass_as(NOBODY, attempt).await
    }

    /// As [`pass`](Self::pass), for the sender of this number (not 0). Afterwards the sender may send some more
    /// messages before it must queue again.
    pub async fn pass_as<T>(&self, sender: u64, attempt: impl FnMut() -> Option<T>) -> T {
        let mut place = QueuePlace::take(self, sender);
        // The semaphore is never closed. In any case, the place is kept until the end.
        let turn = self.first.acquire().await;
        let answer = until(&self.room, attempt).await;
        place.has_passed = true;
        drop(place);
        drop(turn);
        // There may be room for the next sender, too.
        self.open();
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_has_waited_sends_some_more_and_then_queues_again() {
        let gate = Gate::default();
        let has_room = std::cell::Cell::new(false);
        let attempt = || has_room.get().then_some(());
        let mut first = pin!(gate.pass_as(1, attempt));
        let mut second = pin!(gate.pass_as(2, attempt));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert!(gate.is_crowded_for(1) && gate.is_crowded_for(3));
        has_room.set(true);
        gate.open();
        assert!(poll(first.as_mut()).is_ready());
        for _ in 0..BURST {
            assert!(!gate.is_crowded_for(1));
        }
        assert!(gate.is_crowded_for(1) && gate.is_crowded_for(3));
        assert!(poll(second.as_mut()).is_ready());
        assert!(!gate.is_crowded_for(1) && !gate.is_crowded());
        assert!(gate.standings.lock().as_ref().unwrap().is_empty());
    }

    #[test]
    fn a_crowd_forgets_no_turn_and_leaves_no_memory_behind() {
        let gate = Gate::default();
        let has_room = std::cell::Cell::new(false);
        let attempt = || has_room.get().then_some(());
        let numbers = 1..=2 * REMEMBERED as u64;
        let mut crowd: Vec<_> = numbers
            .map(|number| Box::pin(gate.pass_as(number, attempt)))
            .collect();
        for waiter in &mut crowd {
            assert!(poll(waiter.as_mut()).is_pending());
        }
        has_room.set(true);
        gate.open();
        assert!(poll(crowd[0].as_mut()).is_ready());
        let mut late = pin!(gate.pass_as(u64::MAX, attempt));
        assert!(poll(late.as_mut()).is_pending());
        assert!(!gate.is_crowded_for(1));
        for waiter in &mut crowd[1..] {
            assert!(poll(waiter.as_mut()).is_ready());
        }
        assert!(poll(late.as_mut()).is_ready());
        assert!(!gate.is_crowded());
        let standings = gate.standings.lock();
        let capacity = standings.as_ref().map_or(0, |it| it.capacity());
        assert!(capacity <= 2 * REMEMBERED, "room for {capacity} is kept");
    }

    #[test]
    fn senders_that_have_gone_are_remembered_up_to_a_bound() {
        let gate = Gate::default();
        let has_room = std::cell::Cell::new(false);
        let attempt = || has_room.get().then_some(());
        let mut first = Box::pin(gate.pass_as(1, attempt));
        assert!(poll(first.as_mut()).is_pending());
        for number in 2..=4 * REMEMBERED as u64 {
            let mut next = Box::pin(gate.pass_as(number, attempt));
            assert!(poll(next.as_mut()).is_pending());
            has_room.set(true);
            gate.open();
            assert!(poll(first.as_mut()).is_ready());
            has_room.set(false);
            assert!(poll(next.as_mut()).is_pending());
            first = next;
        }
        let remembered = gate.standings.lock().as_ref().map_or(0, |it| it.len());
        assert!(remembered <= REMEMBERED + 2, "{remembered} are remembered");
    }

    #[test]
    fn nobody_overtakes_what_it_sent_itself() {
        let gate = Gate::default();
        let room = std::cell::Cell::new(0);
        let attempt = || {
            room.set(room.get() - 1);
            (room.get() >= 0).then_some(())
        };
        let mut first = pin!(gate.pass_as(1, attempt));
        let mut second = pin!(gate.pass_as(1, attempt));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        room.set(1);
        gate.open();
        assert!(poll(first.as_mut()).is_ready());
        // New messages come after those that still wait.
        assert!(gate.is_crowded_for(1));
        assert!(poll(second.as_mut()).is_pending());
        assert!(gate.is_crowded_for(1));
    }

    #[test]
    fn the_first_stays_first_when_it_finds_no_room() {
        let gate = Gate::default();
        let room = std::cell::Cell::new(0);
        let attempt = || {
            let has_room = room.get() > 0;
            room.set(room.get() - i32::from(has_room));
            has_room.then_some(())
        };
        let mut first = pin!(gate.pass_as(1, attempt));
        let mut second = pin!(gate.pass_as(2, attempt));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        for _ in 0..3 {
            gate.open();
            assert!(poll(first.as_mut()).is_pending());
            assert!(poll(second.as_mut()).is_pending());
        }
        room.set(1);
        gate.open();
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(first.as_mut()).is_ready());
    }

    #[test]
    fn all_try_again_one_after_the_other() {
        let gate = Gate::default();
        let is_over = std::cell::Cell::new(false);
        // Each attempt looks twice before it believes the refusal, as a sender that was woken by mistake does.
        let attempt = || {
            let mut looked = false;
            let is_over = &is_over;
            move || (is_over.get() && std::mem::replace(&mut looked, true)).then_some(())
        };
        let mut waiters: Vec<_> = (1..=3)
            .map(|number| Box::pin(gate.pass_as(number, attempt())))
            .collect();
        for waiter in &mut waiters {
            assert!(poll(waiter.as_mut()).is_pending());
        }
        is_over.set(true);
        gate.open_all();
        for waiter in &mut waiters {
            // The first sender looks once more each time it is woken.
            while poll(waiter.as_mut()).is_pending() {
                gate.open();
            }
        }
        assert!(!gate.is_crowded());
    }
}
