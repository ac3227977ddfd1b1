//! Several messages of one sender to one target in one frame. Successive messages mostly begin alike: with the act, the
//! sender and the receiver. Those bytes are sent once.
//!
//! ```text
//! first message | (length u16 | rest of a message)* | length of the first message u16 | length of the beginning u16
//! ```

use std::ops::Range;

use bytes::Bytes;
use sealbus_fipa::bitefficient::Rest;

use super::{LONGEST_ROW, MESSAGE_START, put_length};

/// The bytes behind the messages of a row.
const TRAILER: usize = 4;
/// The most bytes that the beginnings of a row's messages may have together. They are sent once, and the reader copies them
/// for each message. Rows of agents' messages stay below it anyway: the longer the beginning, the fewer messages have room.
const MOST_REPEATED: usize = 256 * LONGEST_ROW;

/// The messages of a row, which begin with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMessages<'a> {
    first: &'a [u8],
    beginning: usize,
    others: &'a [u8],
}

impl<'a> RowMessages<'a> {
    /// Reads the messages that fill the bytes. `None`: the bytes are malformed, or stand for more than a writer puts
    /// into a row.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > LONGEST_ROW + TRAILER {
            return None;
        }
        let (bytes, beginning) = bytes.split_last_chunk()?;
        let (bytes, first) = bytes.split_last_chunk()?;
        let beginning = usize::from(u16::from_le_bytes(*beginning));
        let (first, others) = bytes.split_at_checked(usize::from(u16::from_le_bytes(*first)))?;
        let (mut left, mut count) = (others, 1_usize);
        while !left.is_empty() {
            (_, left) = split_rest(left)?;
            count += 1;
        }
        let is_right = beginning <= first.len() && beginning * count <= MOST_REPEATED;
        is_right.then_some(Self {
            first,
            beginning,
            others,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.first);
        out.extend_from_slice(self.others);
        put_length(out, self.first.len());
        put_length(out, self.beginning);
    }

    /// The bytes with which all messages begin.
    pub fn beginning(&self) -> &'a [u8] {
        &self.first[..self.beginning]
    }

    /// Each message as a whole.
    pub fn to_bytes(self) -> impl Iterator<Item = Bytes> + use<'a> {
        let beginning = self.beginning();
        self.rests()
            .map(move |rest| [beginning, rest].concat().into())
    }

    /// The rest of each message, in order.
    pub fn rests(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.others;
        let others = std::iter::from_fn(move || {
            let (rest, after) = split_rest(left)?;
            left = after;
            Some(rest)
        });
        std::iter::once(&self.first[self.beginning..]).chain(others)
    }
}

/// The first rest in `bytes`, and the bytes behind it.
fn split_rest(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, bytes) = bytes.split_first_chunk()?;
    bytes.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// A written message, or a row of them, that another message may join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joinable {
    /// The place of the frame in its buffer.
    pub(crate) start: usize,
    pub(crate) sender: u32,
    pub(crate) target: u32,
    /// The length of the first message, and of its beginning.
    pub(crate) first: usize,
    pub(crate) beginning: usize,
    /// The number of its messages.
    pub(crate) count: usize,
    pub(crate) is_row: bool,
}

impl Joinable {
    /// Joins the message to the row if both begin alike. The message is the last frame in `out`, and its header is not
    /// written yet. The caller then [completes](super::finish_row) the row's frame.
    pub(crate) fn join(&mut self, next: &Self, out: &mut Vec<u8>) -> bool {
        let payload = next.start + MESSAGE_START;
        let rest = payload + next.beginning;
        let own = self.start + MESSAGE_START;
        let is_alike = (self.sender, self.target, self.beginning)
            == (next.sender, next.target, next.beginning)
            && self.has_room(next.start, next.first)
            && out[own..own + self.beginning] == out[payload..rest];
        if is_alike {
            let end = self.end(next.start);
            let length = next.first - next.beginning;
            out.copy_within(rest.., end + 2);
            out.truncate(end + 2 + length);
            // Both are shorter than LONGEST_ROW.
            out[end..end + 2].copy_from_slice(&(length as u16).to_le_bytes());
            self.joined(out);
        }
        is_alike
    }

    /// Adds a message to the row, the last frame in `out`, given its `rest` behind the row's beginning. Returns the place of
    /// the rest, or `None` if nothing was added. The caller then [completes](super::finish_row) the row's frame.
    #[inline]
    pub(crate) fn extend<'a>(
        &mut self,
        out: &mut Vec<u8>,
        rest: impl FnOnce(&[u8]) -> Option<Rest<'a>>,
    ) -> Option<Range<usize>> {
        let own = self.start + MESSAGE_START;
        let rest = rest(&out[own..own + self.beginning])?;
        let length = rest.length();
        if !self.has_room(out.len(), self.beginning + length) {
            return None;
        }
        out.truncate(self.end(out.len()));
        // The length is less than LONGEST_ROW.
        put_length(out, length);
        let start = out.len();
        rest.append_to(out);
        self.joined(out);
        Some(start..start + length)
    }

    /// Whether a message of this length has room in the row, whose frame ends at `end`.
    fn has_room(&self, end: usize, length: usize) -> bool {
        end - self.start + length <= LONGEST_ROW
            && self.beginning * (self.count + 1) <= MOST_REPEATED
    }

    /// The end of the row's messages; the frame ends at `end`.
    fn end(&self, end: usize) -> usize {
        match self.is_row {
            true => end - TRAILER,
            false => end,
        }
    }

    /// Counts a message that now stands behind the others, at the end of `out`.
    fn joined(&mut self, out: &mut Vec<u8>) {
        // Both are shorter than LONGEST_ROW.
        put_length(out, self.first);
        put_length(out, self.beginning);
        self.count += 1;
        self.is_row = true;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use sealbus_bus::aid_of;
    use sealbus_fipa::{AclMessage, Content, Performative, bitefficient};

    use super::*;
    use crate::frame::{Frame, LONGEST_BODY, parse};
    use crate::session::Session;

    /// The bytes that wait to be written.
    fn bytes(session: &Session) -> Vec<u8> {
        let mut slices = Vec::new();
        session.gather(usize::MAX, &mut slices);
        slices.iter().flat_map(|it| it.to_vec()).collect()
    }

    /// The messages of all frames that wait to be written, with the number of frames.
    fn waiting(session: &Session) -> (Vec<(u32, u32, Vec<u8>)>, usize) {
        let written = bytes(session);
        let (mut messages, mut frames, mut left) = (Vec::new(), 0, written.as_slice());
        while let Some(parsed) = parse(left, LONGEST_BODY).unwrap() {
            assert_eq!(parsed.sequence, frames);
            match parsed.frame {
                Frame::Message {
                    sender,
                    target,
                    payload,
                    ..
                } => messages.push((sender, target, payload.to_vec())),
                Frame::Row {
                    sender,
                    target,
                    messages: row,
                } => messages.extend(row.to_bytes().map(|it| (sender, target, it.into()))),
                other => panic!("{other:?}"),
            }
            let mut again = Vec::new();
            parsed.frame.encode(parsed.sequence.into(), &mut again);
            assert_eq!(again, left[..parsed.length]);
            frames += 1;
            left = &left[parsed.length..];
        }
        assert!(left.is_empty());
        (messages, frames as usize)
    }

    fn append(session: &mut Session, sender: u32, target: u32, beginning: &[u8], rest: &[u8]) {
        let Ok(()) = session.append_message(sender, target, false, |out| {
            out.extend_from_slice(beginning);
            out.extend_from_slice(rest);
            Ok::<_, Infallible>(beginning.len())
        });
    }

    #[test]
    fn messages_that_begin_alike_share_a_frame_until_it_is_written() {
        let mut session = Session::default();
        for rest in [b"one".as_slice(), b"", b"three"] {
            append(&mut session, 1, 2, b"from a to b: ", rest);
        }
        let (messages, frames) = waiting(&session);
        assert_eq!((messages.len(), frames), (3, 1));
        assert_eq!(messages[2].2, b"from a to b: three");
        let length = session.unwritten();
        assert!(
            length < MESSAGE_START + 13 + 3 + 2 + 7 + TRAILER + 1,
            "{length}"
        );
        session.written(length);
        append(&mut session, 1, 2, b"from a to b: ", b"four");
        assert_eq!(session.next(), 2);
    }

    /// A message. Some of the messages begin alike.
    fn message(number: usize) -> AclMessage {
        let content = match number / 100 % 4 {
            0 => Content::from("x".repeat(number % 7)),
            1 => Content::from(vec![0_u8; number % 7]),
            2 => Content::from(vec![0_u8; 300 + number % 7]),
            // This content must be encoded, because a reader would remove its quotes.
            _ => Content::from("\"in quotes\""),
        };
        AclMessage::new(Performative::Inform)
            .with_sender(aid_of("alice@factory"))
            .with_receiver(aid_of("bob@factory"))
            .with_content(content)
    }

    #[test]
    fn what_joins_without_an_encoding_is_written_as_if_it_had_been_encoded() {
        let (mut encoded, mut joined) = (Session::default(), Session::default());
        let mut count = 0;
        for number in 0..2000 {
            let message = message(number);
            let mut whole = Vec::new();
            bitefficient::encode(&message, &mut whole).unwrap();
            let content = message.content_bytes().unwrap().len();
            let (beginning, rest) = whole.split_at(whole.len() - content - 2);
            append(&mut encoded, 1, 2, beginning, rest);
            match joined.join(1, 2, |beginning| Rest::behind(&message, beginning)) {
                Some(found) => {
                    assert_eq!(found, rest);
                    count += 1;
                }
                None => append(&mut joined, 1, 2, beginning, rest),
            }
            assert_eq!(joined.unwritten(), encoded.unwritten());
        }
        assert_eq!(bytes(&joined), bytes(&encoded));
        assert!(count > 1400, "{count}");
    }

    #[test]
    fn only_a_row_of_the_same_agents_that_is_still_here_is_joined() {
        let message = message(3);
        let mut whole = Vec::new();
        bitefficient::encode(&message, &mut whole).unwrap();
        let (beginning, rest) = whole.split_at(whole.len() - 5);
        let mut session = Session::default();
        append(&mut session, 1, 2, beginning, rest);
        let joins = |session: &mut Session, sender, target| {
            let rest = |beginning: &[u8]| Rest::behind(&message, beginning);
            session.join(sender, target, rest).is_some()
        };
        assert!(joins(&mut session, 1, 2));
        assert!(!joins(&mut session, 3, 2));
        assert!(!joins(&mut session, 1, 3));
        session.written(session.unwritten());
        assert!(!joins(&mut session, 1, 2));
    }

    #[test]
    fn a_row_is_not_joined_behind_a_chunk_that_was_begun_in_vain() {
        let message = message(3);
        let mut whole = Vec::new();
        bitefficient::encode(&message, &mut whole).unwrap();
        let (beginning, rest) = whole.split_at(whole.len() - 5);
        let mut session = Session::default();
        // The last message fills its chunk.
        while session.unwritten() < 64 * 1024 {
            append(&mut session, 1, 2, beginning, rest);
        }
        let failed = session.append_message(1, 3, false, |_| Err("it cannot be encoded"));
        assert!(failed.is_err());
        let joined = session.join(1, 2, |beginning| Rest::behind(&message, beginning));
        assert_eq!(joined, None);
        let (before, _) = waiting(&session);
        append(&mut session, 1, 2, beginning, rest);
        let (after, _) = waiting(&session);
        assert_eq!(after.len(), before.len() + 1);
    }

    /// A row of a message of this length and of others that are equal to it.
    fn same(length: usize, others: usize) -> Vec<u8> {
        let mut row = vec![7; length];
        row.resize(length + 2 * others, 0);
        put_length(&mut row, length);
        put_length(&mut row, length);
        row
    }

    #[test]
    fn few_bytes_do_not_become_many() {
        assert!(RowMessages::decode(&same(32 << 10, 15_000)).is_none());
        assert!(RowMessages::decode(&same(0, LONGEST_ROW / 2)).is_some());
        assert!(RowMessages::decode(&same(0, LONGEST_ROW / 2 + 1)).is_none());
        let most = MOST_REPEATED / 4096 - 1;
        assert!(RowMessages::decode(&same(4096, most)).is_some());
        assert!(RowMessages::decode(&same(4096, most + 1)).is_none());
    }

    #[test]
    fn every_row_that_is_written_is_read() {
        for length in [0, 1, 100, 1000, 2041, 4000] {
            for rest in [b"".as_slice(), b"\x00\x01", b"hello\x00\x01"] {
                let mut session = Session::default();
                let beginning = vec![7; length];
                for _ in 0..2000 {
                    append(&mut session, 1, 2, &beginning, rest);
                }
                let (messages, frames) = waiting(&session);
                assert_eq!(messages.len(), 2000);
                assert!(frames < 2000, "{frames} frames");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            messages in prop::collection::vec(
                (0_u32..2, 0_u32..2, 0_usize..3, prop::collection::vec(any::<u8>(), 0..3000)),
                0..40,
            ),
        ) {
            let mut session = Session::default();
            let mut expected = Vec::new();
            for (sender, target, beginning, rest) in messages {
                let beginning = [7].repeat(10 * beginning);
                append(&mut session, sender, target, &beginning, &rest);
                expected.push((sender, target, [beginning, rest].concat()));
            }
            prop_assert_eq!(waiting(&session).0, expected);
        }

        #[test]
        fn any_bytes_are_messages_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(messages) = RowMessages::decode(&bytes) {
                let mut again = Vec::new();
                messages.encode(&mut again);
                prop_assert!(messages.to_bytes().count() > 0);
                prop_assert!(again == bytes);
            }
        }
    }
}
