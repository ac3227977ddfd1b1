//! What waits for one agent on this node, and in which order it goes: no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sealbus_journal::Spans;

use sealbus_control::UnixMillis;
use sealbus_control::post::Cover;

/// Most letters for one agent.
pub(crate) const MOST_LETTERS: usize = 10_000;
/// Most bytes of letters for one agent.
pub(crate) const MOST_BYTES: u64 = 64 << 20;
/// Most letters handed to the agent's process that it has not settled.
const MOST_UNDER_WAY: usize = 64;
/// Most bytes handed over at once.
const MOST_AT_ONCE: u64 = 2 << 20;

/// A letter as the shelf knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) cover: Cover,
    pub(crate) size: u64,
}

/// The letters for one agent.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    letters: BTreeMap<u64, Kept>,
    bytes: u64,
    /// What was ever taken in, by origin and sequence number.
    seen: HashMap<u64, Spans>,
    /// Handed to the present process, which has not settled them.
    under_way: BTreeSet<u64>,
    /// The agent's present process.
    process: Option<String>,
    /// Up to this number, letters may have been taken by a former process.
    handed: u64,
    /// Up to this number, letters were handed to the present process.
    now_handed: u64,
    /// The number that is to come to the shelf next: those who wait for the disk learn of it in any order.
    next: u64,
    /// Letters on disk that came before their turn.
    early: BTreeMap<u64, Kept>,
}

/// Why a letter is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It is here already, or was.
    Known,
    /// The shelf is full.
    Full,
}

impl Shelf {
    /// Whether a letter can be taken in; it counts as known from then on. Notices of the platform are taken in always.
    pub(crate) fn admit(&mut self, cover: &Cover, size: u64) -> Result<(), NotTaken> {
        let seen = self.seen.entry(cover.origin).or_default();
        if seen.contains(cover.sequence) {
            return Err(NotTaken::Known);
        }
        let is_full = self.letters.len() >= MOST_LETTERS || self.bytes + size > MOST_BYTES;
        if is_full && cover.about.is_none() {
            return Err(NotTaken::Full);
        }
        seen.add(cover.sequence, cover.sequence.saturating_add(1));
        Ok(())
    }

    /// A letter that was admitted could not be written.
    pub(crate) fn retract(&mut self, cover: &Cover) {
        let Some(seen) = self.seen.get_mut(&cover.origin) else {
            return;
        };
        let mut rest = Spans::default();
        for (first, end) in seen.iter() {
            if (first..end).contains(&cover.sequence) {
                rest.add(first, cover.sequence);
                rest.add(cover.sequence + 1, end);
            } else {
                rest.add(first, end);
            }
        }
        *seen = rest;
    }

    /// Known from before: the stretch of an origin's letters that was taken in.
    pub(crate) fn remember(&mut self, origin: u64, first: u64, end: u64) {
        self.seen.entry(origin).or_default().add(first, end);
    }

    /// The stretch of known letters around this one.
    pub(crate) fn stretch(&self, origin: u64, sequence: u64) -> Option<(u64, u64)> {
        self.seen.get(&origin)?.stretch_of(sequence)
    }

    /// The number that the next letter on disk will have.
    pub(crate) fn begin_at(&mut self, next: u64) {
        self.next = next;
    }

    /// A letter is on disk under this number; it is put once all before it are.
    pub(crate) fn arrived(&mut self, number: u64, kept: Kept) {
        self.early.insert(number, kept);
        while let Some(kept) = self.early.remove(&self.next) {
            self.put(self.next, kept);
            self.next += 1;
        }
    }

    /// A letter that lies on disk.
    pub(crate) fn put(&mut self, number: u64, kept: Kept) {
        self.bytes += kept.size;
        self.letters.insert(number, kept);
    }

    /// A letter is here no more.
    pub(crate) fn take(&mut self, number: u64) -> Option<Kept> {
        let kept = self.letters.remove(&number)?;
        self.bytes -= kept.size;
        self.under_way.remove(&number);
        Some(kept)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Kept> {
        self.letters.get(&number)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.letters.len()
    }

    pub(crate) fn letters(&self) -> impl Iterator<Item = (u64, &Kept, bool)> {
        self.letters
            .iter()
            .map(|(number, kept)| (*number, kept, self.under_way.contains(number)))
    }

    /// What was handed to any process, as it is to be noted on disk.
    pub(crate) fn handed_before(&self) -> u64 {
        self.handed.max(self.now_handed)
    }

    /// What was noted on disk: letters up to this number may have been taken.
    pub(crate) fn was_handed(&mut self, number: u64) {
        self.handed = self.handed.max(number);
    }

    /// The agent is in this process now, or in none of this node: what an earlier one has not settled goes again.
    pub(crate) fn is_in(&mut self, process: Option<&str>) {
        if self.process.as_deref() != process {
            self.process = process.map(str::to_owned);
            self.handed = self.handed.max(self.now_handed);
            self.under_way.clear();
        }
    }

    /// The connection to the process was lost, and with it perhaps letters on their way: all go again, and the process
    /// knows those it has.
    pub(crate) fn resend(&mut self) {
        self.under_way.clear();
    }

    /// The process has not got this letter, or not any more.
    pub(crate) fn was_left(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// What is to be handed to the agent's process next, in order; counted as under way from now on. With each, whether
    /// it may have been taken before.
    pub(crate) fn hand_over(&mut self, now: UnixMillis) -> Vec<(u64, bool)> {
        let mut next = Vec::new();
        let mut bytes = 0;
        for (number, kept) in &self.letters {
            if self.under_way.len() + next.len() >= MOST_UNDER_WAY || bytes >= MOST_AT_ONCE {
                break;
            }
            let is_valid =
                kept.cover.valid_from.is_none_or(|from| from <= now) && kept.cover.expiry > now;
            if is_valid && !self.under_way.contains(number) {
                bytes += kept.size;
                next.push((*number, *number <= self.handed));
            }
        }
        for (number, _) in &next {
            self.under_way.insert(*number);
            self.now_handed = self.now_handed.max(*number);
        }
        next
    }

    /// What is to be carried to another node next, in order.
    pub(crate) fn to_forward(&self, most_bytes: u64) -> Vec<u64> {
        let most_bytes = most_bytes.min(MOST_AT_ONCE);
        let mut bytes = 0;
        let next = self
            .letters
            .iter()
            .take(MOST_UNDER_WAY)
            .take_while(|(_, kept)| {
                // The first one always goes.
                let fits = bytes == 0 || bytes + kept.size <= most_bytes;
                bytes += kept.size.max(1);
                fits
            });
        next.map(|(number, _)| *number).collect()
    }

    /// What has expired here: what the agent's process has, that settles itself.
    pub(crate) fn expired(&self, now: UnixMillis) -> Vec<u64> {
        self.letters
            .iter()
            .filter(|(number, kept)| kept.cover.expiry <= now && !self.under_way.contains(number))
            .map(|(number, _)| *number)
            .collect()
    }

    /// When there is something to do next by the clock alone.
    pub(crate) fn next_moment(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.letters
            .iter()
            .filter(|(number, _)| !self.under_way.contains(number))
            .flat_map(|(_, kept)| [Some(kept.cover.expiry), kept.cover.valid_from])
            .flatten()
            .filter(|moment| *moment > now)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use sealbus_control::WaitingProvenance;

    fn letter(origin: u64, sequence: u64) -> Kept {
        Kept {
            cover: Cover {
                origin,
                sequence,
                receiver: "b".to_owned(),
                provenance: WaitingProvenance::Claimed,
                posted: 0,
                expiry: 1000,
                valid_from: None,
                receipt: None,
                about: None,
            },
            size: 10,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post(u64),
        PostAgain(u64),
        HandOver,
        Settle,
        Restart,
        Reconnect,
        Leave,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..3).prop_map(Step::Post),
            2 => (0_u64..3).prop_map(Step::PostAgain),
            4 => Just(Step::HandOver),
            4 => Just(Step::Settle),
            1 => Just(Step::Restart),
            1 => Just(Step::Reconnect),
            1 => Just(Step::Leave),
        ]
    }

    proptest! {
        /// Whatever is posted twice, lost on the way or left unread: what is taken is taken once and in each origin's
        /// order, and a process gets nothing as new that an earlier one may have taken.
        #[test]
        fn each_letter_is_taken_once_and_in_order(steps in prop::collection::vec(step(), 1..80)) {
            let mut shelf = Shelf::default();
            let (mut number, mut process) = (0, 0);
            let mut sequences = [0_u64; 3];
            let mut inside: Vec<u64> = Vec::new();
            let mut touched = BTreeSet::new();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            shelf.is_in(Some("p0"));
            for step in steps {
                match step {
                    Step::Post(origin) => {
                        sequences[origin as usize] += 1;
                        let kept = letter(origin, sequences[origin as usize]);
                        prop_assert_eq!(shelf.admit(&kept.cover, kept.size), Ok(()));
                        number += 1;
                        shelf.put(number, kept);
                    }
                    Step::PostAgain(origin) => {
                        for sequence in 1..=sequences[origin as usize] {
                            let kept = letter(origin, sequence);
                            prop_assert_eq!(shelf.admit(&kept.cover, 10), Err(NotTaken::Known));
                        }
                    }
                    Step::HandOver => for (next, again) in shelf.hand_over(0) {
                        prop_assert!(again || !touched.contains(&(next, process - 1)) || process == 0);
                        if !inside.contains(&next) {
                            inside.push(next);
                            touched.insert((next, process));
                        }
                    },
                    Step::Settle if !inside.is_empty() => {
                        let kept = shelf.take(inside.remove(0));
                        let kept = kept.expect("it was not taken before");
                        taken.push((kept.cover.origin, kept.cover.sequence));
                    }
                    Step::Settle => {}
                    Step::Restart => {
                        process += 1;
                        inside.clear();
                        shelf.is_in(Some(&format!("p{process}")));
                    }
                    Step::Reconnect => shelf.resend(),
                    Step::Leave => for left in inside.drain(..) {
                        shelf.was_left(left);
                    },
                }
            }
            loop {
                for (next, _) in shelf.hand_over(0) {
                    if !inside.contains(&next) {
                        inside.push(next);
                    }
                }
                if inside.is_empty() {
                    break;
                }
                let kept = shelf.take(inside.remove(0)).expect("it was not taken before");
                taken.push((kept.cover.origin, kept.cover.sequence));
            }
            for origin in 0..3 {
                let of_it: Vec<u64> =
                    taken.iter().filter(|(from, _)| *from == origin).map(|(_, n)| *n).collect();
                let all: Vec<u64> = (1..=sequences[origin as usize]).collect();
                prop_assert_eq!(of_it, all);
            }
        }
    }

    #[test]
    fn nothing_is_handed_over_before_its_time_or_after() {
        let mut shelf = Shelf::default();
        let mut early = letter(1, 1);
        early.cover.valid_from = Some(50);
        shelf.put(1, early);
        shelf.put(2, letter(1, 2));
        assert_eq!(shelf.next_moment(10), Some(50));
        assert_eq!(shelf.hand_over(10), [(2, false)]);
        assert_eq!(shelf.hand_over(50), [(1, false)]);
        shelf.was_left(1);
        assert_eq!(shelf.expired(1000), [1]);
        assert_eq!(shelf.hand_over(1000), []);
    }

    #[test]
    fn letters_come_to_the_shelf_in_the_order_of_the_disk() {
        let mut shelf = Shelf::default();
        shelf.begin_at(7);
        shelf.arrived(8, letter(1, 2));
        assert_eq!(shelf.hand_over(0), []);
        shelf.arrived(7, letter(1, 1));
        assert_eq!(shelf.hand_over(0), [(7, false), (8, false)]);
    }

    #[test]
    fn a_full_shelf_takes_notices_only() {
        let mut shelf = Shelf::default();
        for number in 1..=MOST_LETTERS as u64 {
            let kept = letter(1, number);
            assert_eq!(shelf.admit(&kept.cover, 10), Ok(()));
            shelf.put(number, kept);
        }
        let mut next = letter(2, 1);
        assert_eq!(shelf.admit(&next.cover, 10), Err(NotTaken::Full));
        next.cover.about = Some(sealbus_control::post::About {
            receiver: "c".to_owned(),
            number: 1,
        });
        assert_eq!(shelf.admit(&next.cover, 10), Ok(()));
        shelf.retract(&next.cover);
        assert_eq!(shelf.admit(&next.cover, 10), Ok(()));
    }
}
