//! The accounts of other processes with a subscription that pushes back: the bytes that each has sent, and the bytes
//! that it may send. The unread events of a process's former sessions count against its account in the present one.

use sealbus_bus::WindowCredit;

use crate::exchange::aftermath::PeerKey;

/// The least and the most that a subscription lets another process send at a time, in bytes. Both are small in tests,
/// so that credit runs out.
const SMALLEST_WINDOW: usize = if cfg!(test) { 2 << 10 } else { 16 << 10 };
const LARGEST_WINDOW: usize = 4 << 20;

/// One process's account.
struct Ledger {
    /// The unread bytes of former sessions that take room in the window.
    counted: u64,
    /// The other unread bytes of former sessions.
    excess: u64,
    /// The unread bytes of former sessions, and the bytes that have come since.
    received: u64,
    /// The bytes, those of former sessions included, that the agent has not taken.
    unread: u64,
    credit: WindowCredit,
}

impl Ledger {
    /// An account with a window, and with the unread bytes of former sessions, of which at most so many take no room in
    /// the window. Even if they exceed it, each byte that the agent takes then gives credit for another one: publishers
    /// must learn that the agent takes events.
    fn new(window: u64, left: u64, most_excess: u64) -> Self {
        let excess = left.saturating_sub(window).min(most_excess);
        Self {
            counted: left - excess,
            excess,
            received: left,
            unread: left,
            credit: WindowCredit::new(window),
        }
    }

    fn count(&mut self, cost: u64) {
        self.received = self.received.saturating_add(cost);
        self.unread = self.unread.saturating_add(cost);
    }

    /// A limit of the account, as its process counts: from the beginning of the session. `None` if the process may send
    /// nothing yet.
    fn told(&self, limit: u64) -> Option<u64> {
        let limit = limit.saturating_sub(self.counted);
        (limit > 0).then_some(limit)
    }

    /// The number of bytes from which on events are refused: far more than the credit. The process may have sent a
    /// little before it knew of the subscription.
    fn end(&self, window: u64) -> u64 {
        self.credit.announced() + (3 * window).max(self.excess)
    }
}

/// The accounts with one subscription.
pub(super) struct Ledgers {
    /// The bytes that all windows hold together.
    bytes: usize,
    /// The most unread bytes of former sessions of a process that take no room in its window. One session leaves no
    /// more: the last event that its window let through may be long, and the next window may be small. More bytes take
    /// room, because each session could add a long event to them.
    most_excess: u64,
    /// Sorted by process. There are few, and each event looks one up.
    ledgers: Vec<(PeerKey, Ledger)>,
    /// The unread bytes of processes without an account, by the index of each. Without them, a process that begins
    /// sessions without end would get a full window each time.
    left: Vec<(u32, u64)>,
}

impl Ledgers {
    /// No accounts yet, for a queue of this many bytes, and for events that are no longer than the largest message.
    pub(super) fn new(queue_bytes: usize, largest_message: usize) -> Self {
        Self {
            bytes: queue_bytes / 2,
            most_excess: LARGEST_WINDOW.saturating_add(largest_message) as u64,
            ledgers: Vec::new(),
            left: Vec::new(),
        }
    }

    /// The window of each process if there are this many.
    fn window_of(&self, processes: usize) -> u64 {
        let share = self.bytes / processes.max(1);
        share.clamp(SMALLEST_WINDOW, LARGEST_WINDOW) as u64
    }

    fn window(&self) -> u64 {
        self.window_of(self.ledgers.len())
    }

    fn place(&self, peer: PeerKey) -> Result<usize, usize> {
        self.ledgers.binary_search_by_key(&peer, |(key, _)| *key)
    }

    fn find(&mut self, peer: PeerKey) -> Option<&mut Ledger> {
        let place = self.place(peer).ok()?;
        self.ledgers.get_mut(place).map(|(_, ledger)| ledger)
    }

    /// The account of a process. Opens one with a first window if there is none.
    fn ledger(&mut self, peer: PeerKey, window: u64) -> &mut Ledger {
        let place = match self.place(peer) {
            Ok(place) => place,
            Err(place) => {
                let left = self.left_of(peer);
                let left = left.map_or(0, |left| self.left.swap_remove(left).1);
                let ledger = Ledger::new(window, left, self.most_excess);
                self.ledgers.insert(place, (peer, ledger));
                place
            }
        };
        &mut self.ledgers[place].1
    }

    /// The place of a process among those that have unread bytes and no account.
    fn left_of(&self, peer: PeerKey) -> Option<usize> {
        self.left.iter().position(|(index, _)| *index == peer.index)
    }

    /// Opens a window for one process of this many. Returns its first limit, which is 0 while the unread events of the
    /// process fill the window.
    pub(super) fn open(&mut self, peer: PeerKey, processes: usize) -> u64 {
        let window = self.window_of(processes);
        let ledger = self.ledger(peer, window);
        ledger.told(window).unwrap_or(0)
    }

    /// Counts an event of a process. Returns false if the process has sent far more than its credit.
    pub(super) fn receive(&mut self, peer: PeerKey, cost: usize) -> bool {
        let window = self.window();
        let ledger = self.ledger(peer, window);
        let is_beyond = ledger.received >= ledger.end(window);
        ledger.count(cost as u64);
        !is_beyond
    }

    /// Counts a row of events if the process has credit for all of them, by the rule of [`receive`](Self::receive).
    pub(super) fn receive_row(&mut self, peer: PeerKey, cost: usize) -> bool {
        let window = self.window();
        let ledger = self.ledger(peer, window);
        let received = ledger.received.saturating_add(cost as u64);
        let is_paid = received <= ledger.end(window);
        if is_paid {
            ledger.count(cost as u64);
        }
        is_paid
    }

    /// An event of a process has left the queue. Returns the new limit and the present session, if the process must be
    /// told.
    pub(super) fn pay(&mut self, peer: PeerKey, cost: usize) -> Option<(PeerKey, u64)> {
        let (window, cost) = (self.window(), cost as u64);
        // The present session of a process comes right behind the former ones, which have no account.
        let (Ok(place) | Err(place)) = self.place(peer);
        let account = self.ledgers.get_mut(place);
        if let Some((key, ledger)) = account.filter(|(key, _)| key.index == peer.index) {
            ledger.unread = ledger.unread.saturating_sub(cost);
            let limit = ledger.credit.take(cost, window)?;
            return Some((*key, ledger.told(limit)?));
        }
        let left = self.left_of(peer)?;
        let unread = &mut self.left[left].1;
        *unread = unread.saturating_sub(cost);
        if *unread == 0 {
            self.left.swap_remove(left);
        }
        None
    }

    /// The limit of a process that asks for it, if it does not know that limit yet.
    pub(super) fn announce(&mut self, peer: PeerKey) -> Option<u64> {
        let window = self.window();
        let ledger = self.find(peer)?;
        let limit = ledger.credit.announce(window)?;
        ledger.told(limit)
    }

    /// Closes the account of a process whose session has ended. Its unread events count against its next session.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        if let Ok(place) = self.place(peer) {
            let (_, ledger) = self.ledgers.remove(place);
            if ledger.unread > 0 {
                self.left.push((peer.index, ledger.unread));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest message, in bytes.
    const LARGEST: usize = 16 << 20;

    /// The accounts with a subscription whose windows have 10,000 bytes together.
    fn ledgers() -> Ledgers {
        Ledgers::new(20_000, LARGEST)
    }

    fn session(serial: u32) -> PeerKey {
        PeerKey { index: 3, serial }
    }

    #[test]
    fn unread_bytes_of_former_sessions_take_room_until_they_are_taken() {
        let mut ledgers = ledgers();
        assert_eq!(ledgers.open(session(0), 1), 10_000);
        assert!(ledgers.receive(session(0), 9_000));
        ledgers.forget(session(0));
        assert_eq!(ledgers.open(session(1), 1), 1_000);
        assert!(ledgers.receive_row(session(1), 1_000));
        ledgers.forget(session(1));
        assert_eq!(ledgers.open(session(2), 1), 0);
        assert_eq!(ledgers.announce(session(2)), None);
        // Bytes of every session make room in the present one.
        assert_eq!(ledgers.pay(session(0), 4_000), None);
        assert_eq!(ledgers.pay(session(1), 1_000), Some((session(2), 5_000)));
        assert_eq!(ledgers.pay(session(0), 1_000), None);
        assert_eq!(ledgers.announce(session(2)), Some(6_000));
        ledgers.forget(session(2));
        assert_eq!(ledgers.left, [(3, 4_000)]);
        // The process is gone.
        assert_eq!(ledgers.pay(session(0), 4_000), None);
        assert!(ledgers.left.is_empty());
    }

    #[test]
    fn each_byte_taken_gives_credit_though_unread_bytes_of_former_sessions_exceed_the_window() {
        let mut ledgers = ledgers();
        assert_eq!(ledgers.open(session(0), 1), 10_000);
        // The last event is long.
        assert!(ledgers.receive(session(0), 9_000));
        assert!(ledgers.receive(session(0), 9_000));
        ledgers.forget(session(0));
        assert_eq!(ledgers.open(session(1), 1), 0);
        for taken in 1..=4 {
            assert_eq!(ledgers.pay(session(0), 1_000), None);
            assert_eq!(ledgers.announce(session(1)), Some(1_000 * taken));
        }
        // The process may send as much as was taken.
        assert!(ledgers.receive(session(1), 4_000));
        ledgers.forget(session(1));
        assert_eq!(ledgers.left, [(3, 18_000)]);
    }

    /// Otherwise each short event that the agent takes would let a process begin a session and send a long one.
    #[test]
    fn an_agent_that_takes_little_gives_sessions_no_endless_room() {
        let mut ledgers = ledgers();
        let mut unread = 0;
        for serial in 0..100 {
            ledgers.open(session(serial), 1);
            ledgers.pay(session(0), 100);
            ledgers.announce(session(serial));
            while ledgers.receive(session(serial), LARGEST) {
                unread += LARGEST;
            }
            // The refused event is given up.
            ledgers.pay(session(serial), LARGEST);
            ledgers.forget(session(serial));
        }
        let most = LARGEST_WINDOW + 2 * LARGEST;
        assert!(unread <= most, "{unread} bytes wait");
    }

    #[test]
    fn sessions_without_end_bring_no_more_than_one() {
        let mut ledgers = ledgers();
        let mut taken = 0;
        for serial in 0..100 {
            ledgers.open(session(serial), 1);
            while ledgers.receive(session(serial), 500) {
                taken += 500;
            }
            // The refused event is given up.
            ledgers.pay(session(serial), 500);
            ledgers.forget(session(serial));
        }
        assert!((10_000..=41_000).contains(&taken), "{taken} bytes wait");
    }
}
