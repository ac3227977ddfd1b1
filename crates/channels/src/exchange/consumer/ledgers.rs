//! The accounts of other processes with a subscription that pushes back: the bytes that each has sent, and the bytes
//! that it may send.

use sealbus_bus::WindowCredit;

use crate::exchange::aftermath::PeerKey;

/// The least and the most that a subscription lets another process send at a time, in bytes. Both are small in tests,
/// so that credit runs out.
const SMALLEST_WINDOW: usize = if cfg!(test) { 2 << 10 } else { 16 << 10 };
const LARGEST_WINDOW: usize = 4 << 20;

/// One process's account.
struct Ledger {
    received: u64,
    credit: WindowCredit,
}

/// The accounts with one subscription.
pub(super) struct Ledgers {
    /// The bytes that all windows hold together.
    bytes: usize,
    /// Sorted by process. There are few, and each event looks one up.
    ledgers: Vec<(PeerKey, Ledger)>,
}

impl Ledgers {
    /// No accounts yet, for a queue of this many bytes.
    pub(super) fn new(queue_bytes: usize) -> Self {
        Self {
            bytes: queue_bytes / 2,
            ledgers: Vec::new(),
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
                let ledger = Ledger {
                    received: 0,
                    credit: WindowCredit::new(window),
                };
                self.ledgers.insert(place, (peer, ledger));
                place
            }
        };
        &mut self.ledgers[place].1
    }

    /// Opens a window for one process of this many. Returns its first limit.
    pub(super) fn open(&mut self, peer: PeerKey, processes: usize) -> u64 {
        let window = self.window_of(processes);
        self.ledger(peer, window);
        window
    }

    /// Counts an event of a process. Returns false if the process has sent far more than its credit. It may have sent a
    /// little before it knew of the subscription.
    pub(super) fn receive(&mut self, peer: PeerKey, cost: usize) -> bool {
        let window = self.window();
        let ledger = self.ledger(peer, window);
        let is_beyond = ledger.received > ledger.credit.announced() + 3 * window;
        ledger.received += cost as u64;
        !is_beyond
    }

    /// Counts a row of events if the process has credit for all of them, by the rule of [`receive`](Self::receive).
    pub(super) fn receive_row(&mut self, peer: PeerKey, cost: usize) -> bool {
        let window = self.window();
        let ledger = self.ledger(peer, window);
        let received = ledger.received.saturating_add(cost as u64);
        let is_paid = received <= ledger.credit.announced() + 3 * window;
        if is_paid {
            ledger.received = received;
        }
        is_paid
    }

    /// An event of a process has left the queue. Returns the new limit, if the process must be told.
    pub(super) fn pay(&mut self, peer: PeerKey, cost: usize) -> Option<u64> {
        let window = self.window();
        // A leftover of a former session has no account.
        self.find(peer)?.credit.take(cost as u64, window)
    }

    /// The limit of a process that asks for it, if it does not know that limit yet.
    pub(super) fn announce(&mut self, peer: PeerKey) -> Option<u64> {
        let window = self.window();
        self.find(peer)?.credit.announce(window)
    }

    /// Closes the account of a process that is gone.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        self.ledgers.retain(|(key, _)| *key != peer);
    }
}
