//! The messages that one receiver has got in a round.

use serde_json::Value;

use crate::histogram::Buckets;
use crate::order::Answer;
use crate::payload::Payload;

/// Counts the messages of a process's receivers: each message once, repetitions as duplicates.
#[derive(Debug, Default)]
pub struct Tally {
    round: u32,
    messages: u32,
    /// For each receiver and sender, the numbers that were seen, and the highest of them.
    seen: Vec<Vec<(Vec<u64>, Option<u32>)>>,
    /// Distinct messages of this round.
    pub received: u64,
    /// Messages seen before.
    pub duplicated: u64,
    /// Messages that came after one that their sender had sent later.
    pub disordered: u64,
    /// Messages of an earlier round.
    pub late: u64,
    /// Messages that do not belong to the benchmark, or are damaged.
    pub corrupt: u64,
    /// When the last message came.
    pub last_ns: u64,
    /// Times from sending to receiving.
    pub times: Buckets,
}

impl Tally {
    /// Begins a round in which each of `senders` sends `messages`.
    pub fn begin(&mut self, round: u32, receivers: u32, senders: u32, messages: u32) {
        *self = Self {
            round,
            messages,
            seen: vec![vec![(Vec::new(), None); senders as usize]; receivers as usize],
            ..Self::default()
        };
    }

    /// Adds the counts of other receivers in the same round.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.duplicated += other.duplicated;
        self.disordered += other.disordered;
        self.late += other.late;
        self.corrupt += other.corrupt;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.times.add(&other.times);
    }

    /// The answer that reports these counts. `received` is an argument because round trips are not counted here.
    pub fn to_answer(&self, received: u64) -> Answer {
        Answer::Report {
            received,
            duplicated: self.duplicated,
            disordered: self.disordered,
            late: self.late,
            corrupt: self.corrupt,
            last_ns: self.last_ns,
            times: self.times.to_pairs(),
            mean_ns: self.times.mean(),
            remarks: Value::Null,
        }
    }

    /// Counts a message that `receiver` got at `now_ns`. `size` is the length that its sender gave it.
    pub fn count(&mut self, receiver: u32, content: &[u8], size: usize, now_ns: u64) {
        let Some(payload) = Payload::read(content).filter(|_| content.len() == size) else {
            self.corrupt += 1;
            return;
        };
        if payload.round != self.round {
            self.late += 1;
            return;
        }
        let senders = self.seen.get_mut(receiver as usize);
        let seen = senders.and_then(|senders| senders.get_mut(payload.sender as usize));
        let Some((bits, highest)) = seen.filter(|_| payload.number < self.messages) else {
            self.corrupt += 1;
            return;
        };
        let (word, bit) = (payload.number as usize / 64, payload.number % 64);
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        if bits[word] >> bit & 1 == 1 {
            self.duplicated += 1;
            return;
        }
        bits[word] |= 1 << bit;
        if highest.is_some_and(|highest| highest > payload.number) {
            self.disordered += 1;
        } else {
            *highest = Some(payload.number);
        }
        self.received += 1;
        self.last_ns = now_ns;
        self.times.record(now_ns.saturating_sub(payload.time_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(round: u32, sender: u32, number: u32) -> Vec<u8> {
        let mut content = crate::fill(32);
        let payload = Payload {
            round,
            sender,
            number,
            time_ns: 1000,
        };
        payload.write(&mut content);
        content
    }

    #[test]
    fn each_message_counts_once() {
        let mut tally = Tally::default();
        tally.begin(3, 2, 2, 100);
        for (receiver, content) in [
            (0, message(3, 0, 0)),
            (0, message(3, 0, 2)),
            (0, message(3, 0, 1)),
            (0, message(3, 0, 1)),
            (1, message(3, 0, 1)),
            (1, message(2, 1, 1)),
            (1, message(3, 2, 1)),
            (1, message(3, 1, 100)),
            (2, message(3, 1, 1)),
            (1, b"?".to_vec()),
        ] {
            tally.count(receiver, &content, 32, 3000);
        }
        assert_eq!(
            (tally.received, tally.duplicated, tally.disordered),
            (4, 1, 1)
        );
        assert_eq!((tally.late, tally.corrupt, tally.last_ns), (1, 4, 3000));
        assert_eq!(tally.times.to_pairs(), [(2000, 4)]);
    }
}
