//! The two directions of frames between this process and another: the numbers of the frames, and the acknowledgements
//! of taken frames. The transport carries frames in order, once, or they come back. No I/O and no clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_proof::Hash;

use super::counts::Counts;
use super::receipt::Receipt;
use super::share::Share;
use crate::frame::{self, Frame};

/// The number of best-effort events that may wait for the transport, whatever their bytes. Beyond it, the oldest is
/// dropped.
const DATAGRAMS: usize = 4096;

/// The writer of a frame: an agent, or the process itself.
pub(crate) type Author = Option<Arc<str>>;

/// A frame on its way out. If it carries a long message, the head and the tail hold all bytes except the content. The
/// content is the publisher's own, shared by all processes that get it.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// The writer: an agent, or the process itself.
    pub(crate) author: Author,
    /// The head of the frame, and the beginning of the message.
    pub(crate) head: Vec<u8>,
    /// The offset in `head` at which the message begins.
    pub(crate) message_at: usize,
    /// The bytes after the head.
    pub(crate) content: Bytes,
    /// The bytes after the content.
    pub(crate) tail: &'static [u8],
    /// Whether the author signs it, even below level `signed`.
    pub(crate) is_signed: bool,
    /// The outline of the event that is sealed in it, which its author gets if it is lost.
    pub(super) outline: Option<Arc<AclMessage>>,
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
            is_signed: false,
            outline: None,
        }
    }

    /// The ACL message in the frame.
    pub(super) fn message(&self) -> Bytes {
        let start = self.head.get(self.message_at..).unwrap_or_default();
        [start, &self.content, self.tail].concat().into()
    }

    /// The message that the author gets back if the frame is lost.
    pub(super) fn lost(&self) -> Bytes {
        let Some(outline) = &self.outline else {
            return self.message();
        };
        let mut lost = Vec::new();
        match bitefficient::encode(outline, &mut lost) {
            Ok(()) => lost.into(),
            // The message was encoded before, so its parts can be encoded.
            Err(_) => self.message(),
        }
    }

    /// The hash of the statement that the author makes with it; `None` if it carries no message.
    pub(crate) fn statement(&self) -> Option<Hash> {
        self.author.as_ref()?;
        frame::statement(&self.head, &[&self.content, self.tail])
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.content.len() + self.tail.len()
    }
}

/// A frame that is kept until the other process has it.
pub(super) struct KeptFrame {
    pub(super) parcel: Parcel,
    pub(super) receipt: Option<Arc<Receipt>>,
    /// The event of a group in the frame. If the frame is lost, another member gets the event.
    pub(super) share: Option<Share>,
    /// The subscriptions whose credit the frame took.
    pub(super) charged: Option<Arc<[u32]>>,
    /// The bytes of credit that it took of each.
    pub(super) cost: u64,
    /// Whether the author need not be told that it was lost.
    pub(super) is_settled: bool,
    /// Whether the publisher gets the event back if an agent does not take it. (Neither a receipt nor a group handles this.)
    pub(super) is_returnable: bool,
}

impl KeptFrame {
    pub(super) fn new(parcel: Parcel) -> Self {
        Self {
            parcel,
            receipt: None,
            share: None,
            charged: None,
            cost: 0,
            is_settled: false,
            is_returnable: false,
        }
    }
}

/// The frames to send.
#[derive(Default)]
pub(super) struct OutgoingStream {
    /// Frames that the other process has not acknowledged.
    kept: VecDeque<KeptFrame>,
    /// The number of acknowledged frames.
    acknowledged: u64,
    /// Acknowledged frames, by number, whose events wait for agents there.
    unread: VecDeque<(u64, KeptFrame)>,
    unread_bytes: usize,
    /// The number of frames that the transport has taken and that have not come back.
    sent: u64,
    bytes: usize,
    hello: Option<Parcel>,
    /// The acknowledgement of arrived frames. It is sent behind the frame with that number, which may report a refusal.
    acknowledgement: Option<(Parcel, u64)>,
    /// Best-effort events, each with the counters for dropped ones.
    datagrams: VecDeque<(Parcel, Arc<Counts>)>,
    datagram_bytes: usize,
    /// The time of the last progress in acknowledgements, or when a frame again was the first to wait for one.
    progress: Duration,
}

/// The next frame to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextFrame {
    Hello,
    Acknowledgement,
    Datagram,
    Kept(u64),
}

impl OutgoingStream {
    /// The number of the next frame to be kept.
    pub(super) fn next(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64 + 1
    }

    /// The number and the bytes of the kept frames.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes)
    }

    /// The number and the bytes of events that wait for agents of the other process.
    #[cfg(test)]
    pub(super) fn unread_size(&self) -> (usize, usize) {
        (self.unread.len(), self.unread_bytes)
    }

    /// The frames that the other process has not acknowledged.
    pub(super) fn all_kept(&self) -> impl Iterator<Item = &KeptFrame> {
        self.kept.iter()
    }

    /// Adds a frame that was encoded with the number [`next`](Self::next).
    pub(super) fn push(&mut self, kept: KeptFrame, now: Duration) {
        if self.kept.is_empty() {
            self.progress = now;
        }
        self.bytes += kept.parcel.len();
        self.kept.push_back(kept);
    }

    /// Adds a hello, in place of one that still waits. All kept frames are sent again behind it, because the other
    /// process takes none before it knows the epochs.
    pub(super) fn greet(&mut self, hello: &Frame<'_>) {
        self.hello = Some(Parcel::of_process(hello));
        self.sent = self.acknowledged;
    }

    /// Adds an acknowledgement, which is sent behind the frame `after`, in place of one that still waits.
    pub(super) fn push_acknowledgement(&mut self, acknowledgement: &Frame<'_>, after: u64) {
        self.acknowledgement = Some((Parcel::of_process(acknowledgement), after));
    }

    /// Adds a best-effort event of the channel that owns `counts`. If there is no room, the oldest such events are
    /// dropped. `most`: the bytes that they may have together. One longer event may wait alone.
    pub(super) fn push_datagram(&mut self, parcel: Parcel, counts: &Arc<Counts>, most: usize) {
        let bytes = parcel.len();
        while self.datagrams.len() >= DATAGRAMS || self.datagram_bytes + bytes > most {
            let Some(dropped) = self.pop_datagram() else {
                break;
            };
            dropped.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.datagram_bytes += bytes;
        self.datagrams.push_back((parcel, counts.clone()));
    }

    /// Takes out the oldest best-effort event. Returns the counters of its channel.
    fn pop_datagram(&mut self) -> Option<Arc<Counts>> {
        let (parcel, counts) = self.datagrams.pop_front()?;
        self.datagram_bytes -= parcel.len();
        Some(counts)
    }

    fn place(&self, is_known: bool) -> Option<NextFrame> {
        let may_acknowledge = |(_, after): &(Parcel, u64)| *after <= self.sent;
        if self.hello.is_some() {
            Some(NextFrame::Hello)
        } else if !is_known {
            None
        } else if self.acknowledgement.as_ref().is_some_and(may_acknowledge) {
            Some(NextFrame::Acknowledgement)
        } else if !self.datagrams.is_empty() {
            Some(NextFrame::Datagram)
        } else if self.sent + 1 < self.next() {
            Some(NextFrame::Kept(self.sent + 1))
        } else {
            None
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.acknowledged + 1)?).ok()
    }

    pub(super) fn kept(&mut self, number: u64) -> Option<&mut KeptFrame> {
        self.kept.get_mut(self.index(number)?)
    }

    /// The next frame to send. `is_known`: the epoch of the other process is known. Without it only hellos are sent.
    pub(super) fn peek(&self, is_known: bool) -> Option<&Parcel> {
        match self.place(is_known)? {
            NextFrame::Hello => self.hello.as_ref(),
            NextFrame::Acknowledgement => self.acknowledgement.as_ref().map(|(parcel, _)| parcel),
            NextFrame::Datagram => self.datagrams.front().map(|(parcel, _)| parcel),
            NextFrame::Kept(number) => self.kept.get(self.index(number)?).map(|kept| &kept.parcel),
        }
    }

    /// The number of the frame that [`peek`](Self::peek) returns, if that frame is kept.
    pub(super) fn peek_number(&self, is_known: bool) -> Option<u64> {
        match self.place(is_known)? {
            NextFrame::Kept(number) => Some(number),
            NextFrame::Hello | NextFrame::Acknowledgement | NextFrame::Datagram => None,
        }
    }

    /// The transport has taken the frame that [`peek`](Self::peek) returned.
    pub(super) fn advance(&mut self, is_known: bool) {
        match self.place(is_known) {
            Some(NextFrame::Hello) => self.hello = None,
            Some(NextFrame::Acknowledgement) => self.acknowledgement = None,
            Some(NextFrame::Datagram) => drop(self.pop_datagram()),
            Some(NextFrame::Kept(number)) => self.sent = number,
            None => {}
        }
    }

    /// The other process has taken all frames up to `upto`. Calls `settled` for each newly taken frame.
    ///
    /// # Errors
    /// If there is no such frame.
    pub(super) fn acknowledge(
        &mut self,
        upto: u64,
        now: Duration,
        mut settled: impl FnMut(u64, KeptFrame),
    ) -> Result<(), ()> {
        if upto >= self.next() {
            return Err(());
        }
        while self.acknowledged < upto
            && let Some(kept) = self.kept.pop_front()
        {
            self.bytes -= kept.parcel.len();
            self.acknowledged += 1;
            self.progress = now;
            if !kept.is_settled {
                settled(self.acknowledged, kept);
            }
        }
        self.sent = self.sent.max(self.acknowledged);
        Ok(())
    }

    /// Keeps an acknowledged frame until its event has been read. If there is no room, forgets the oldest one.
    pub(super) fn keep_unread(&mut self, number: u64, kept: KeptFrame, most: (usize, usize)) {
        self.unread_bytes += kept.parcel.len();
        self.unread.push_back((number, kept));
        while self.unread.len() > most.0 || self.unread_bytes > most.1 {
            self.forget_first_unread();
        }
    }

    /// The events of all frames up to this one have been read.
    pub(super) fn read(&mut self, upto: u64) {
        while self.unread.front().is_some_and(|(it, _)| *it <= upto) {
            self.forget_first_unread();
        }
    }

    fn forget_first_unread(&mut self) {
        if let Some((_, kept)) = self.unread.pop_front() {
            self.unread_bytes -= kept.parcel.len();
        }
    }

    /// A frame whose event an agent has yet to take.
    pub(super) fn owed(&mut self, number: u64) -> Option<&mut KeptFrame> {
        if number > self.acknowledged {
            return self.kept(number);
        }
        let place = self.unread.binary_search_by_key(&number, |it| it.0).ok()?;
        self.unread.get_mut(place).map(|it| &mut it.1)
    }

    /// The frames that are not acknowledged, from this number on.
    pub(super) fn kept_from(&self, number: u64) -> impl Iterator<Item = (u64, &KeptFrame)> {
        let skipped = number.saturating_sub(self.acknowledged + 1);
        let kept = (self.acknowledged + 1..).zip(&self.kept);
        kept.skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// The frame `number` has come back. It is sent again, and all later ones behind it, because they may have come too
    /// early.
    pub(super) fn send_again(&mut self, number: u64) {
        self.sent = self
            .sent
            .min(number.saturating_sub(1))
            .max(self.acknowledged);
    }

    /// Replaces a kept frame, which can never be sent, by a void. Returns the replaced frame.
    pub(super) fn void(&mut self, number: u64, void: Parcel) -> Option<KeptFrame> {
        let kept = self.kept(number)?;
        let former = std::mem::replace(kept, KeptFrame::new(void));
        let added = kept.parcel.len();
        self.bytes = self.bytes + added - former.parcel.len();
        Some(former)
    }

    /// How long awaited acknowledgements have made no progress.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        self.waiting_since()
            .map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// The time since which acknowledgements are awaited.
    pub(super) fn waiting_since(&self) -> Option<Duration> {
        (!self.kept.is_empty()).then_some(self.progress)
    }

    /// Takes out everything, to be reported.
    pub(super) fn take(&mut self) -> Vec<KeptFrame> {
        let Self { unread, kept, .. } = std::mem::take(self);
        let unread = unread.into_iter().map(|it| it.1);
        let all = unread.chain(kept);
        all.filter(|kept| !kept.is_settled).collect()
    }
}

/// When arrived frames must be acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) after: Duration,
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

/// The receiving side: the number of frames taken, and when to acknowledge them.
#[derive(Default)]
pub(super) struct IncomingStream {
    taken: u64,
    frames: usize,
    bytes: usize,
    acknowledge_at: Option<Duration>,
}

impl IncomingStream {
    /// All frames up to this one have come.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the frame `number` of `size` bytes. Returns whether to handle it: not if it was taken before, nor if a
    /// frame before it came back to its process, which sends both again.
    pub(super) fn take(&mut self, number: u64, size: usize, now: Duration, pace: Pace) -> bool {
        let due = self.taken + 1;
        if number > due {
            return false;
        }
        self.frames += 1;
        self.bytes += size;
        let at = if self.frames >= pace.frames || self.bytes >= pace.bytes {
            now
        } else {
            now + pace.after
        };
        self.acknowledge_by(at);
        if number == due {
            self.taken = due;
        }
        number == due
    }

    /// Schedules the acknowledgement of arrived frames; also a second time, if an acknowledgement came back.
    pub(super) fn acknowledge_by(&mut self, at: Duration) {
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |old| old.min(at)));
    }

    /// When to acknowledge.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.acknowledge_at
    }

    /// The number of the last frame taken, which is acknowledged now.
    pub(super) fn acknowledged(&mut self) -> u64 {
        *self = Self {
            taken: self.taken,
            ..Self::default()
        };
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_events_without_room_are_counted_on_their_channel() {
        let mut outgoing = OutgoingStream::default();
        let (first, second) = (Arc::<Counts>::default(), Arc::<Counts>::default());
        let parcel = || Parcel::of_process(&Frame::Hello { from: 1, to: 0 });
        for _ in 0..3 {
            outgoing.push_datagram(parcel(), &first, usize::MAX);
        }
        for _ in 0..DATAGRAMS {
            outgoing.push_datagram(parcel(), &second, usize::MAX);
        }
        let dropped = |counts: &Counts| counts.dropped.load(Ordering::Relaxed);
        assert_eq!((dropped(&first), dropped(&second)), (3, 0));
        outgoing.push_datagram(parcel(), &first, usize::MAX);
        assert_eq!((dropped(&first), dropped(&second)), (3, 1));
        assert_eq!(outgoing.datagrams.len(), DATAGRAMS);
    }

    #[test]
    fn best_effort_events_of_many_bytes_are_dropped_and_counted() {
        let mut outgoing = OutgoingStream::default();
        let counts = Arc::<Counts>::default();
        let parcel = || Parcel {
            content: Bytes::from(vec![0_u8; 1000]),
            ..Parcel::of_process(&Frame::Hello { from: 1, to: 0 })
        };
        let most = 3 * parcel().len();
        let dropped = || counts.dropped.load(Ordering::Relaxed);
        for _ in 0..10 {
            outgoing.push_datagram(parcel(), &counts, most);
        }
        assert_eq!((outgoing.datagrams.len(), dropped()), (3, 7));
        // An event that was sent makes room.
        outgoing.advance(true);
        outgoing.push_datagram(parcel(), &counts, most);
        assert_eq!((outgoing.datagrams.len(), dropped()), (3, 7));
        // An event that is longer than all room is not lost for that.
        outgoing.push_datagram(parcel(), &counts, 1);
        assert_eq!((outgoing.datagrams.len(), dropped()), (1, 10));
    }
}
