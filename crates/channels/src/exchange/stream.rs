//! The two directions of frames between this process and another: numbers, acknowledgements, repeats, and early frames.
//! No I/O and no clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::counts::Counts;
use super::receipt::Receipt;
use crate::frame::Frame;

/// Frames that may come before the one that is due.
const EARLY: u64 = 1024;
/// Frames sent again at a time.
const AGAIN: usize = 64;
/// The number of best-effort events that wait for the transport before the oldest is dropped.
const DATAGRAMS: usize = 4096;

/// The writer of a frame: an agent, or the process itself.
pub(crate) type Author = Option<Arc<str>>;

/// A frame on its way out. If the frame carries a long message, the head and the tail hold all bytes except the
/// content. The content is the publisher's own, shared by all processes that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// The writer: an agent, or the process itself.
    pub(crate) author: Author,
    /// Its head, and the beginning of the message.
    pub(crate) head: Vec<u8>,
    /// The offset in `head` at which the message begins.
    pub(crate) message_at: usize,
    /// The bytes after the head.
    pub(crate) content: Bytes,
    /// The bytes after the content.
    pub(crate) tail: &'static [u8],
}

impl Parcel {
    /// A frame of the process itself.
    pub(super) fn of_process(frame: &Frame<'_>) -> Self {
        let mut head = Vec::with_capacity(40);
        frame.encode(&mut head);
        Self {
            author: None,
            message_at: head.len(),
            head,
            content: Bytes::new(),
            tail: &[],
        }
    }

    /// The ACL message it carries.
    pub(super) fn message(&self) -> Bytes {
        let start = self.head.get(self.message_at..).unwrap_or_default();
        [start, &self.content, self.tail].concat().into()
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.content.len() + self.tail.len()
    }
}

/// A frame that is kept until the other process has it.
pub(super) struct Kept {
    pub(super) parcel: Parcel,
    pub(super) receipt: Option<Arc<Receipt>>,
    /// Subscriptions whose credit it took.
    pub(super) charged: Option<Arc<[u32]>>,
    /// The number that it took of each.
    pub(super) cost: u64,
    /// Its author knows that it was lost.
    pub(super) is_settled: bool,
    /// The other process holds the frame until the frames before it have come.
    pub(super) has_come: bool,
}

impl Kept {
    pub(super) fn new(parcel: Parcel) -> Self {
        Self {
            parcel,
            receipt: None,
            charged: None,
            cost: 0,
            is_settled: false,
            has_come: false,
        }
    }
}

/// The message to send.
pub(super) struct Outgoing {
    /// Frames from number `first` on.
    kept: VecDeque<Kept>,
    first: u64,
    /// The next one that was never sent.
    unsent: u64,
    bytes: usize,
    /// To be sent again.
    again: VecDeque<u64>,
    /// Hellos and acknowledgements.
    control: VecDeque<Parcel>,
    /// Best-effort events, with the counters that count those dropped.
    datagrams: VecDeque<(Parcel, Arc<Counts>)>,
    datagram: u64,
    /// The time of the last progress in acknowledgements, or when a frame first waited for one again.
    progress: Duration,
    again_at: Option<Duration>,
    pause: Duration,
}

/// The place of the next frame to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Control,
    Again(u64),
    Datagram,
    New(u64),
}

impl Outgoing {
    pub(super) fn new(pause: Duration) -> Self {
        Self {
            kept: VecDeque::new(),
            first: 1,
            unsent: 1,
            bytes: 0,
            again: VecDeque::new(),
            control: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagram: 0,
            progress: Duration::ZERO,
            again_at: None,
            pause,
        }
    }

    /// The number of the next frame to be kept.
    pub(super) fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Frames and bytes kept.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes)
    }

    /// Adds a frame that was encoded with the number [`next`](Self::next).
    pub(super) fn push(&mut self, kept: Kept, now: Duration) {
        if self.kept.is_empty() {
            self.progress = now;
        }
        self.bytes += kept.parcel.len();
        self.kept.push_back(kept);
    }

    /// Adds a hello or an acknowledgement. It replaces an older one of the same kind that is still waiting.
    pub(super) fn push_control(&mut self, frame: &Frame<'_>) {
        let parcel = Parcel::of_process(frame);
        self.control
            .retain(|waiting| waiting.head.first() != parcel.head.first());
        self.control.push_back(parcel);
    }

    /// The number of the next best-effort event.
    pub(super) fn next_datagram(&mut self) -> u64 {
        self.datagram += 1;
        self.datagram
    }

    /// Adds a best-effort event of the channel that owns `counts`. If there is no room, the oldest such event is
    /// dropped.
    pub(super) fn push_datagram(&mut self, parcel: Parcel, counts: &Arc<Counts>) {
        if self.datagrams.len() >= DATAGRAMS
            && let Some((_, counts)) = self.datagrams.pop_front()
        {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.datagrams.push_back((parcel, counts.clone()));
    }

    fn place(&self, is_known: bool) -> Option<Place> {
        if !self.control.is_empty() {
            Some(Place::Control)
        } else if !is_known {
            None
        } else if let Some(number) = self.again.front() {
            Some(Place::Again(*number))
        } else if !self.datagrams.is_empty() {
            Some(Place::Datagram)
        } else if self.unsent < self.next() {
            Some(Place::New(self.unsent))
        } else {
            None
        }
    }

    pub(super) fn kept(&mut self, number: u64) -> Option<&mut Kept> {
        let index = number.checked_sub(self.first)?;
        self.kept.get_mut(usize::try_from(index).ok()?)
    }

    /// The next frame to send. `is_known`: the epoch of the other process is known. Without the epoch only hellos are
    /// sent.
    pub(super) fn peek(&self, is_known: bool) -> Option<&Parcel> {
        match self.place(is_known)? {
            Place::Control => self.control.front(),
            Place::Datagram => self.datagrams.front().map(|(parcel, _)| parcel),
            Place::Again(number) | Place::New(number) => {
                let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
                self.kept.get(index).map(|kept| &kept.parcel)
            }
        }
    }

    /// The number of the frame that [`peek`](Self::peek) returns, if that frame is kept.
    pub(super) fn peek_number(&self, is_known: bool) -> Option<u64> {
        match self.place(is_known)? {
            Place::Again(number) | Place::New(number) => Some(number),
            Place::Control | Place::Datagram => None,
        }
    }

    /// The transport has taken the frame that [`peek`](Self::peek) returned.
    pub(super) fn advance(&mut self, is_known: bool, now: Duration) {
        match self.place(is_known) {
            Some(Place::Control) => drop(self.control.pop_front()),
            Some(Place::Datagram) => drop(self.datagrams.pop_front()),
            Some(Place::Again(_)) => drop(self.again.pop_front()),
            Some(Place::New(_)) => {
                self.unsent += 1;
                self.again_at.get_or_insert(now + self.pause);
            }
            None => {}
        }
    }

    /// The other process has taken all frames up to `upto`, and holds the later frames whose bit is set. Calls
    /// `settled` for each frame that is newly taken.
    ///
    /// # Errors
    /// If the process acknowledges a frame that was never sent.
    pub(super) fn acknowledge(
        &mut self,
        upto: u64,
        beyond: u64,
        now: Duration,
        mut settled: impl FnMut(u64, Kept),
    ) -> Result<(), ()> {
        let highest = match beyond {
            0 => upto,
            bits => upto.saturating_add(65 - u64::from(bits.leading_zeros())),
        };
        if highest >= self.unsent.max(1) {
            return Err(());
        }
        let mut moved = false;
        while self.first <= upto
            && let Some(kept) = self.kept.pop_front()
        {
            self.bytes -= kept.parcel.len();
            let number = self.first;
            self.first += 1;
            moved = true;
            if !kept.is_settled {
                settled(number, kept);
            }
        }
        if moved {
            self.progress = now;
            let first = self.first;
            self.again.retain(|number| *number >= first);
            self.again_at = (self.unsent > self.first).then(|| now + self.pause);
        }
        // A gap before a received frame is a loss, or a frame that is about to come. The missing frame is sent again
        // once in a pause.
        if beyond != 0 && self.again.is_empty() {
            let soon = now + self.pause / 4;
            self.again_at = Some(self.again_at.map_or(soon, |at| at.min(soon)));
        }
        // These frames have come and wait for earlier ones. They need not be sent again, but are not taken yet.
        for bit in (0..64).filter(|bit| beyond & 1 << bit != 0) {
            if let Some(kept) = self.kept(upto + 2 + bit) {
                kept.has_come = true;
            }
        }
        if beyond != 0 {
            let mut again = std::mem::take(&mut self.again);
            again.retain(|number| self.kept(*number).is_some_and(|kept| !kept.has_come));
            self.again = again;
        }
        Ok(())
    }

    /// Sends the oldest frames again if the time has come.
    pub(super) fn tick(&mut self, now: Duration, longest_pause: Duration) -> bool {
        let Some(at) = self.again_at else {
            return false;
        };
        if now < at || !self.again.is_empty() {
            return false;
        }
        let quiet = now.saturating_sub(self.progress);
        // The longer nothing comes back, the longer the pauses.
        let pause = self.pause.max(quiet / 2).min(longest_pause.max(self.pause));
        self.again_at = Some(now + pause);
        let sent = self.unsent - self.first;
        let frames = self.kept.iter().zip(self.first..).take(sent as usize);
        self.again.extend(
            frames
                .filter(|(kept, _)| !kept.has_come)
                .map(|(_, number)| number)
                .take(AGAIN),
        );
        !self.again.is_empty()
    }

    /// A kept frame can never be sent: a void takes its place. Returns the replaced frame.
    pub(super) fn void(&mut self, number: u64, void: Parcel) -> Option<Kept> {
        let kept = self.kept(number)?;
        let former = std::mem::replace(&mut kept.parcel, void);
        let added = kept.parcel.len();
        let was_settled = std::mem::replace(&mut kept.is_settled, false);
        let taken = Kept {
            receipt: kept.receipt.take(),
            charged: kept.charged.take(),
            cost: kept.cost,
            is_settled: was_settled,
            has_come: false,
            parcel: former,
        };
        self.bytes = self.bytes + added - taken.parcel.len();
        Some(taken)
    }

    /// The transport lost accepted frames: all unacknowledged frames are sent again at once.
    pub(super) fn hurry(&mut self, now: Duration) {
        if self.unsent > self.first {
            self.again_at = Some(now);
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.again_at.filter(|_| self.again.is_empty())
    }

    /// How long acknowledgements have made no progress while some are awaited.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        if self.kept.is_empty() {
            Duration::ZERO
        } else {
            now.saturating_sub(self.progress)
        }
    }

    /// Since when acknowledgements are waited for.
    pub(super) fn waiting_since(&self) -> Option<Duration> {
        (!self.kept.is_empty()).then_some(self.progress)
    }

    /// Takes out everything, to be reported.
    pub(super) fn take(&mut self) -> Vec<Kept> {
        let kept = std::mem::take(&mut self.kept);
        *self = Self::new(self.pause);
        kept.into_iter().filter(|kept| !kept.is_settled).collect()
    }
}

/// The treatment of a numbered frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The frame is the one that was due.
    Due,
    /// The frame is early: an earlier one is due first.
    Early,
    /// The frame has come before.
    Known,
    /// The frame is too far ahead to be kept. It will be sent again.
    TooEarly,
}

/// The receiving side: the numbers that have come, and frames that came early.
pub(super) struct Incoming<T> {
    upto: u64,
    /// Frames that came early; `None`: handed out already, because its QoS asks for no order.
    early: BTreeMap<u64, Option<(T, usize)>>,
    early_bytes: usize,
    frames: usize,
    bytes: usize,
    acknowledge_at: Option<Duration>,
    datagram: u64,
    datagrams: u64,
}

impl<T> Default for Incoming<T> {
    fn default() -> Self {
        Self {
            upto: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            frames: 0,
            bytes: 0,
            acknowledge_at: None,
            datagram: 0,
            datagrams: 0,
        }
    }
}

/// When what has come is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) after: Duration,
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

impl<T> Incoming<T> {
    /// All frames up to this one have come.
    pub(super) fn upto(&self) -> u64 {
        self.upto
    }

    /// Judges a frame of `size` bytes. At most `most` bytes may be held early.
    pub(super) fn judge(&self, number: u64, size: usize, most: usize) -> Arrival {
        if number == self.upto + 1 {
            Arrival::Due
        } else if number <= self.upto || self.early.contains_key(&number) {
            Arrival::Known
        } else if number - self.upto > EARLY || self.early_bytes + size > most {
            Arrival::TooEarly
        } else {
            Arrival::Early
        }
    }

    /// Counts the frame that was due.
    pub(super) fn take_due(&mut self) {
        self.upto += 1;
    }

    /// Keeps a frame that came early, or notes that it was handed out.
    pub(super) fn keep_early(&mut self, number: u64, frame: Option<(T, usize)>) {
        self.early_bytes += frame.as_ref().map_or(0, |(_, size)| *size);
        self.early.insert(number, frame);
    }

    /// The next of the early frames that is due now.
    pub(super) fn next_due(&mut self) -> Option<T> {
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() != self.upto + 1 {
                return None;
            }
            self.upto += 1;
            if let Some((frame, size)) = entry.remove() {
                self.early_bytes -= size;
                return Some(frame);
            }
        }
        None
    }

    /// Something came that is to be acknowledged.
    pub(super) fn owe(&mut self, size: usize, now: Duration, pace: Pace) {
        self.frames += 1;
        self.bytes += size;
        let at = if self.frames >= pace.frames || self.bytes >= pace.bytes {
            now
        } else {
            now + pace.after
        };
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |old| old.min(at)));
    }

    /// When to acknowledge.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.acknowledge_at
    }

    /// The frames to acknowledge now: all up to one number, and some beyond it.
    pub(super) fn acknowledgement(&mut self) -> (u64, u64) {
        self.acknowledge_at = None;
        self.frames = 0;
        self.bytes = 0;
        let mut beyond = 0;
        for number in self.early.keys() {
            match number - self.upto - 2 {
                bit @ 0..64 => beyond |= 1 << bit,
                _ => break,
            }
        }
        (self.upto, beyond)
    }

    /// Whether to hand out a best-effort event: not if it came before, nor if it is too late for its order.
    pub(super) fn take_datagram(&mut self, number: u64, is_ordered: bool) -> bool {
        if number > self.datagram {
            let step = number - self.datagram;
            self.datagrams = match step {
                1..64 => self.datagrams << step | 1,
                _ => 1,
            };
            self.datagram = number;
            return true;
        }
        let age = self.datagram - number;
        if is_ordered || age >= 64 || self.datagrams & 1 << age != 0 {
            return false;
        }
        self.datagrams |= 1 << age;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_events_without_room_are_counted_on_their_channel() {
        let mut outgoing = Outgoing::new(Duration::from_secs(1));
        let (first, second) = (Arc::<Counts>::default(), Arc::<Counts>::default());
        let parcel = || Parcel::of_process(&Frame::Hello { from: 1, to: 0 });
        for _ in 0..3 {
            outgoing.push_datagram(parcel(), &first);
        }
        for _ in 0..DATAGRAMS {
            outgoing.push_datagram(parcel(), &second);
        }
        let dropped = |counts: &Counts| counts.dropped.load(Ordering::Relaxed);
        assert_eq!((dropped(&first), dropped(&second)), (3, 0));
        outgoing.push_datagram(parcel(), &first);
        assert_eq!((dropped(&first), dropped(&second)), (3, 1));
        assert_eq!(outgoing.datagrams.len(), DATAGRAMS);
    }
}
