//! The hand-overs of letters to the agent's processes, and which processes may have taken a letter.

use super::{Handed, MOST_AT_ONCE, MOST_UNDER_WAY, Shelf, is_in_time};
use sealbus_control::UnixMillis;

impl Shelf {
    /// Notes that letters up to this number are about to be handed to a process. Returns the number for the note on
    /// disk.
    pub(crate) fn note_handing(&mut self, number: u64) -> u64 {
        self.last_handed = self.last_handed.max(number);
        self.last_handed
    }

    /// Takes in the number from disk. Letters up to it may have been taken.
    pub(crate) fn was_handed(&mut self, number: u64) {
        self.last_handed = self.last_handed.max(number);
        for number in self.letters.range(..=number).map(|(number, _)| *number) {
            let handed = Handed { times: 1, open: 0 };
            self.handed.entry(number).or_default().insert(None, handed);
        }
    }

    /// Whether a process other than the present one may have taken a letter.
    pub(crate) fn may_be_taken(&self, number: u64) -> bool {
        let is_again = self
            .letters
            .get(&number)
            .is_some_and(|kept| kept.cover.again);
        let is_present = |process: &Option<String>| process.is_some() && *process == self.process;
        let handed = self.handed.get(&number);
        is_again || handed.is_some_and(|handed| handed.keys().any(|process| !is_present(process)))
    }

    /// Sets the agent's process on this node, if there is one. Letters that an earlier process has not settled are
    /// handed over again.
    pub(crate) fn is_in(&mut self, process: Option<&str>) {
        if self.process.as_deref() != process {
            self.process = process.map(str::to_owned);
            self.under_way.clear();
        }
    }

    /// The connection to the process was lost. Letters may have been lost with it, so all are handed over again; the
    /// process knows the ones that it has.
    pub(crate) fn resend(&mut self) {
        self.under_way.clear();
    }

    /// Notes that a letter may not have reached the process.
    pub(crate) fn was_not_handed(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// Notes that a process did not get this letter, or gave it back unread, after the hand-over with this number. A
    /// repeated report, whose first answer was lost, changes nothing: the letter may have been handed over anew.
    pub(crate) fn was_left(&mut self, process: &str, number: u64, hand_over: u64) {
        let key = Some(process.to_owned());
        let last = self.last_hand_over;
        let Some(processes) = self.handed.get_mut(&number) else {
            return;
        };
        let handed = processes.get_mut(&key);
        let Some(handed) = handed.filter(|it| (it.open..=last).contains(&hand_over)) else {
            return;
        };
        handed.times -= 1;
        handed.open = hand_over + 1;
        if handed.times == 0 {
            processes.remove(&key);
        }
        if self.process == key {
            self.under_way.remove(&number);
        }
    }

    /// The letters that may be handed to the agent's process next, in order.
    pub(crate) fn to_hand_over(&self, now: UnixMillis) -> Vec<u64> {
        let mut next = Vec::new();
        let mut bytes = 0;
        for number in self.line.values() {
            if self.under_way.len() + next.len() >= MOST_UNDER_WAY || bytes >= MOST_AT_ONCE {
                break;
            }
            let Some(kept) = self.letters.get(number) else {
                continue;
            };
            if is_in_time(kept, now) && !self.under_way.contains(number) {
                bytes += kept.size;
                next.push(*number);
            }
        }
        next
    }

    /// Hands these letters to the agent's process now. Returns the number of this hand-over and, for each letter,
    /// whether another process may have taken it before.
    pub(crate) fn hand_over(&mut self, numbers: &[u64]) -> (u64, Vec<(u64, bool)>) {
        self.last_hand_over += 1;
        let first = Handed {
            times: 0,
            open: self.last_hand_over,
        };
        let mut handed = Vec::with_capacity(numbers.len());
        for number in numbers {
            handed.push((*number, self.may_be_taken(*number)));
            self.under_way.insert(*number);
            let processes = self.handed.entry(*number).or_default();
            processes.entry(self.process.clone()).or_insert(first).times += 1;
        }
        (self.last_hand_over, handed)
    }
}
