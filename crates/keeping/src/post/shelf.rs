//! The letters that wait for one agent on this node, and their order. This module does no I/O.

mod handing;
mod stretches;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::had::{Had, SETTLED};
use super::shares::Shares;
use super::waiting_notices::Notices;
use sealbus_control::UnixMillis;
use sealbus_control::post::{Cover, LetterMark, LetterStanding};

/// The most letters for one agent.
pub(crate) const MOST_LETTERS: usize = 10_000;
/// The most bytes of letters for one agent.
pub(crate) const MOST_BYTES: u64 = 64 << 20;
/// The most letters that are handed to the agent's process and not settled.
const MOST_UNDER_WAY: usize = 64;
/// The most bytes handed over at once.
const MOST_AT_ONCE: u64 = 2 << 20;

/// A letter as the shelf records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShelvedLetter {
    pub(crate) cover: Cover,
    pub(crate) size: u64,
}

/// A letter's place in the line. Letters go in this order, and the letters of one origin in the order of their sequence
/// numbers.
///
/// The first part is the letter's number on disk. If a letter comes after a later one of the same origin, it is put in
/// front of that one, and the first part is the later letter's number.
type LinePosition = (u64, u64);

/// The hand-overs of a letter to a process that did not leave the letter every time.
#[derive(Clone, Copy, Debug)]
struct Handed {
    times: u32,
    /// The process may still leave the letter that was in this hand-over or a later one.
    open: u64,
}

/// The letters for one agent.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    letters: BTreeMap<u64, ShelvedLetter>,
    bytes: u64,
    notices: Notices,
    line: BTreeMap<LinePosition, u64>,
    /// The places by origin and sequence number.
    places: BTreeMap<(u64, u64), LinePosition>,
    had: Had,
    /// Letters that are admitted and not yet on the shelf, and letters whose return is not yet noted, by origin and
    /// sequence number. Each has the lowest carry count with which it may be missing on disk.
    writing: BTreeMap<(u64, u64), u32>,
    /// Letters that are handed to the present process and not settled.
    under_way: BTreeSet<u64>,
    /// The agent's present process.
    process: Option<String>,
    /// The processes that may have taken a letter. A process from before this node started has no name.
    handed: HashMap<u64, BTreeMap<Option<String>, Handed>>,
    /// The number of the last hand-over.
    last_hand_over: u64,
    /// The highest number that was, or is about to be, handed to any process.
    last_handed: u64,
    /// The number that comes to the shelf next. The tasks that wait for the disk report in any order.
    next: u64,
    /// Letters on disk that were reported before their turn.
    early: BTreeMap<u64, ShelvedLetter>,
    /// The number of letters that were admitted.
    arrivals: u64,
    /// Counts the letters by sender.
    shares: Arc<Shares>,
    /// Whether letters came from other nodes, which may bring them again.
    is_visited: bool,
}

/// Why a letter is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The letter was here before: it is kept here, was settled here, or went on from here.
    Known,
    /// A copy of the letter is on its way to the disk.
    BeingWritten,
    /// The letter lies here under this number. It comes back from a node to which it was carried from here, or may have
    /// come back before without a note on disk.
    Returned(u64),
    /// The shelf is full.
    Full,
}

impl Shelf {
    /// An empty shelf whose letters count in `shares`.
    pub(crate) fn counted_by(shares: &Arc<Shares>) -> Self {
        Self {
            shares: shares.clone(),
            ..Self::default()
        }
    }

    /// Whether no letter is here or being written, none was ever handed to a process, and none came from another node.
    pub(crate) fn is_unused(&self) -> bool {
        self.waiting() == 0 && self.last_handed == 0 && !self.is_visited
    }

    /// Admits a letter that can be taken in. From then on it is known. The node's own notices are always taken in, those
    /// of other nodes up to the [limit](Notices::are_too_many), and letters that precede one that is already here.
    pub(crate) fn admit(&mut self, cover: &Cover, size: u64) -> Result<(), NotTaken> {
        let key = (cover.origin, cover.sequence);
        if let Some(number) = self.number_of(key) {
            let kept = self.letters.get(&number);
            let has_come_back = kept.is_some_and(|kept| kept.cover.hops < cover.hops);
            return Err(match has_come_back || self.writing.contains_key(&key) {
                true => NotTaken::Returned(number),
                false => NotTaken::Known,
            });
        }
        if self.writing.contains_key(&key) {
            return Err(NotTaken::BeingWritten);
        }
        if self.had.had(cover.mark()) {
            return Err(NotTaken::Known);
        }
        let is_full = match cover.about {
            None => self.letters.len() >= MOST_LETTERS || self.bytes + size > MOST_BYTES,
            // The other node keeps its notice until there is room here.
            Some(_) => cover.hops > 0 && self.notices.are_too_many(),
        };
        let goes_first = self.next_of(key).is_some()
            && self.letters.len() < 2 * MOST_LETTERS
            && self.bytes + size <= 2 * MOST_BYTES;
        if is_full && !goes_first {
            return Err(NotTaken::Full);
        }
        self.had.note(cover.mark());
        self.writing.insert(key, cover.hops);
        self.arrivals += 1;
        Ok(())
    }

    /// Whether a copy of an admitted letter is not on the shelf yet.
    pub(crate) fn is_on_its_way(&self, cover: &Cover) -> bool {
        let key = (cover.origin, cover.sequence);
        self.writing.contains_key(&key) && !self.places.contains_key(&key)
    }

    /// Whether a letter, or the note that it came back, may be on its way to the disk.
    pub(crate) fn is_being_written(&self, mark: LetterMark) -> bool {
        self.writing.contains_key(&(mark.origin, mark.sequence))
    }

    /// Whether a copy of a letter is here.
    pub(crate) fn holds(&self, cover: &Cover) -> bool {
        self.places.contains_key(&(cover.origin, cover.sequence))
    }

    /// Whether this copy of a letter, or a later one, is or was here.
    pub(crate) fn is_known(&self, cover: &Cover) -> bool {
        self.holds(cover) || self.had.had(cover.mark())
    }

    /// Takes back the admission of a letter that could not be written.
    pub(crate) fn retract(&mut self, cover: &Cover) {
        self.writing.remove(&(cover.origin, cover.sequence));
        self.had.forget(cover.mark());
    }

    /// Takes over the carry count of the letter under this number, which came back from where it was carried to, and
    /// whether it may have been taken there. Returns both, for the note on disk.
    ///
    /// Until that note is on disk, other nodes keep their copies of the letter.
    pub(crate) fn returned(&mut self, number: u64, back: &Cover) -> Option<(LetterMark, bool)> {
        let kept = self.letters.get_mut(&number)?;
        kept.cover.hops = kept.cover.hops.max(back.hops);
        kept.cover.again |= back.again;
        let mark = kept.cover.mark();
        self.had.note(mark);
        let key = (mark.origin, mark.sequence);
        self.writing.entry(key).or_insert(mark.hops);
        Some((mark, kept.cover.again))
    }

    /// Notes that the disk has the note that a letter came back with this mark.
    pub(crate) fn return_noted(&mut self, number: u64, mark: LetterMark) {
        let kept = self.letters.get(&number);
        // Otherwise the letter has come back once more, or is gone.
        if kept.is_some_and(|kept| kept.cover.mark() == mark) {
            self.writing.remove(&(mark.origin, mark.sequence));
        }
    }

    /// The letters that were ever here.
    pub(crate) fn had(&mut self) -> &mut Had {
        &mut self.had
    }

    /// Marks a letter as settled here, so that no copy of it is taken in again. Returns the mark.
    pub(crate) fn settled(&mut self, number: u64) -> Option<LetterMark> {
        let mark = LetterMark {
            hops: SETTLED,
            ..self.letters.get(&number)?.cover.mark()
        };
        self.had.note(mark);
        Some(mark)
    }

    /// The number that the next letter on disk will have.
    pub(crate) fn begin_at(&mut self, next: u64) {
        self.next = next;
    }

    /// Notes that a letter is on disk under this number. It goes on the shelf once all letters before it have.
    pub(crate) fn arrived(&mut self, number: u64, kept: ShelvedLetter) {
        self.early.insert(number, kept);
        while let Some(kept) = self.early.remove(&self.next) {
            self.put(self.next, kept);
            self.next += 1;
        }
    }

    /// Puts a letter that is on disk on the shelf.
    pub(crate) fn put(&mut self, number: u64, kept: ShelvedLetter) {
        let key = (kept.cover.origin, kept.cover.sequence);
        self.writing.remove(&key);
        let first = self.next_of(key).map_or(number, |(first, _)| first);
        let place = (first, key.1);
        self.line.insert(place, number);
        self.places.insert(key, place);
        self.bytes += kept.size;
        let cover = &kept.cover;
        self.is_visited |= cover.hops > 0;
        self.notices.add(&kept.cover, kept.size);
        self.shares
            .add(&cover.provenance, &cover.receiver, kept.size);
        if let Some(former) = self.letters.insert(number, kept) {
            self.uncount(&former);
        }
    }

    fn uncount(&mut self, kept: &ShelvedLetter) {
        self.notices.remove(&kept.cover, kept.size);
        let cover = &kept.cover;
        self.shares
            .remove(&cover.provenance, &cover.receiver, kept.size);
    }

    /// The place of the next letter of the same origin.
    fn next_of(&self, (origin, sequence): (u64, u64)) -> Option<LinePosition> {
        let after = (origin, sequence.saturating_add(1))..=(origin, u64::MAX);
        self.places.range(after).next().map(|(_, place)| *place)
    }

    fn number_of(&self, key: (u64, u64)) -> Option<u64> {
        self.line.get(self.places.get(&key)?).copied()
    }

    /// Takes a letter off the shelf.
    pub(crate) fn take(&mut self, number: u64) -> Option<ShelvedLetter> {
        let kept = self.letters.remove(&number)?;
        let key = (kept.cover.origin, kept.cover.sequence);
        if let Some(place) = self.places.remove(&key) {
            self.line.remove(&place);
        }
        self.writing.remove(&key);
        self.bytes -= kept.size;
        self.uncount(&kept);
        self.under_way.remove(&number);
        self.handed.remove(&number);
        Some(kept)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&ShelvedLetter> {
        self.letters.get(&number)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.letters.len()
    }

    /// The notices among the letters.
    pub(crate) fn notices(&self) -> Notices {
        self.notices
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// The number of letters that are here or on their way to the disk.
    pub(crate) fn waiting(&self) -> usize {
        self.letters.len() + self.writing.len()
    }

    pub(crate) fn letters(&self) -> impl Iterator<Item = (u64, &ShelvedLetter, bool)> {
        self.letters
            .iter()
            .map(|(number, kept)| (*number, kept, self.under_way.contains(number)))
    }

    /// How a letter that another node keeps compares with the letters that are or were here.
    pub(crate) fn standing(&self, mark: LetterMark, now: UnixMillis) -> LetterStanding {
        // This copy is lost if the node ends now, so the other node keeps its own for now.
        if self.is_being_written(mark) {
            return LetterStanding::Behind;
        }
        let carried = LetterMark {
            hops: mark.hops.saturating_add(1),
            ..mark
        };
        if self.had.had(carried) {
            return LetterStanding::Had;
        }
        let before = (mark.origin, 0)..(mark.origin, mark.sequence);
        let mut numbers = self
            .places
            .range(before.clone())
            .filter_map(|(_, place)| self.line.get(place));
        let is_here = numbers.any(|number| {
            self.letters
                .get(number)
                .is_some_and(|kept| is_in_time(kept, now))
        });
        if is_here || self.writing.range(before).next().is_some() {
            return LetterStanding::Behind;
        }
        LetterStanding::Free
    }

    /// Notes that a letter may have been carried to a node that does not answer.
    pub(crate) fn may_have_gone(&mut self, number: u64) {
        if let Some(kept) = self.letters.get_mut(&number) {
            kept.cover.again = true;
        }
    }

    /// The letters that may be carried to another node next, in order.
    pub(crate) fn to_forward(&self, most_bytes: u64) -> Vec<u64> {
        let most_bytes = most_bytes.min(MOST_AT_ONCE);
        let mut bytes = 0;
        let numbers = self.line.values().take(MOST_UNDER_WAY);
        let next = numbers.take_while(|number| {
            let size = self.letters.get(number).map_or(0, |kept| kept.size);
            // The first letter always goes.
            let fits = bytes == 0 || bytes + size <= most_bytes;
            bytes += size.max(1);
            fits
        });
        next.copied().collect()
    }

    /// The letters of `may_go` that may still go. A letter may not go if an earlier one of its origin may not go, or
    /// has come in the meantime, even if it is still being written.
    pub(crate) fn still_in_order(&self, line: &[u64], may_go: &HashSet<u64>) -> Vec<u64> {
        let mut waits = HashSet::new();
        let go = line.iter().filter(|number| {
            let Some(kept) = self.letters.get(number) else {
                return false;
            };
            let LetterMark {
                origin, sequence, ..
            } = kept.cover.mark();
            let mut written_before = self.writing.range((origin, 0)..(origin, sequence));
            if !may_go.contains(number) || written_before.next().is_some() {
                waits.insert(origin);
            }
            !waits.contains(&origin)
        });
        go.copied().collect()
    }

    /// The letters that have expired here. The agent's process settles expired letters that are under way.
    pub(crate) fn expired(&self, now: UnixMillis) -> Vec<u64> {
        self.letters
            .iter()
            .filter(|(number, kept)| kept.cover.expiry <= now && !self.under_way.contains(number))
            .map(|(number, _)| *number)
            .collect()
    }

    /// When the clock alone next makes something due.
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

fn is_in_time(kept: &ShelvedLetter, now: UnixMillis) -> bool {
    kept.cover.valid_from.is_none_or(|from| from <= now) && kept.cover.expiry > now
}

#[cfg(test)]
mod tests;
