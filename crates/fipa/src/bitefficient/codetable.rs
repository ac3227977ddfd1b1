//! Dynamic code tables (FIPA00069): texts that were sent before are sent as numbers.
//!
//! Sender and receiver each keep a table for each direction, of a size agreed by other means. Every message must
//! arrive, once and in order. Implementations differ in the texts that they enter and in their notion of use. Sealbus
//! therefore reads such messages, but writes them only on request.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::encode::{encode, misleads};
use super::parse::{Observer, Parser};
use super::scan::byte_string;
use super::token::{Atom, Bracket, Piece, tag};
use crate::parameter::Parameter;
use crate::{AclMessage, DecodeError, DecodeProblem, EncodeError, EncodeProblem, Limits};

/// Most bytes the texts of a table may have together.
const MOST_BYTES: usize = 4 << 20;

/// The code table of one direction between two agents or platforms.
#[derive(Debug)]
pub struct CodeTable {
    entries: Vec<Option<Entry>>,
    numbers: BTreeMap<Box<[u8]>, usize>,
    free: BinaryHeap<Reverse<usize>>,
    bytes: usize,
    clock: u64,
    enters_content: bool,
}

#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    /// The kind of the atom that entered it.
    kind: Atom,
    last_use: u64,
}

impl CodeTable {
    /// An empty table of 2 to the power of `bits` entries; `None` unless `bits` is 8 to 16.
    pub fn new(bits: u32) -> Option<Self> {
        if !(8..=16).contains(&bits) {
            return None;
        }
        let size = 1usize << bits;
        Some(Self {
            entries: (0..size).map(|_| None).collect(),
            numbers: BTreeMap::new(),
            free: (0..size).map(Reverse).collect(),
            bytes: 0,
            clock: 0,
            enters_content: false,
        })
    }

    /// Reads from a peer that also enters the texts of `content`, as the codecs for JADE do against the standard.
    #[must_use]
    pub fn with_content_entered(mut self) -> Self {
        self.enters_content = true;
        self
    }

    fn index_width(&self) -> usize {
        if self.entries.len() == 256 { 1 } else { 2 }
    }

    /// Reads a message, with or without code tables.
    ///
    /// # Errors
    /// [`DecodeError`], with an offset in `bytes`. The tables then no longer agree.
    pub fn decode(&mut self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
        if !matches!(bytes.first(), Some(0xfb | 0xfc)) {
            return super::decode(bytes, limits);
        }
        let index_width = self.index_width();
        let expander = Expander {
            enters_content: self.enters_content,
            table: self,
            bytes,
            updates: bytes.first() == Some(&0xfb),
            in_content: false,
            most: limits.message_length,
            out: Vec::with_capacity(bytes.len()),
        };
        let mut parser = Parser::new(bytes, limits, expander).with_code_table(index_width);
        parser.message()?;
        super::decode(&parser.into_observer().out, limits)
    }

    /// Appends a message that uses and updates the table (FB).
    ///
    /// # Errors
    /// As [`encode`]. The table is then unchanged.
    pub fn encode(&mut self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.write(message, 0xfb, out)
    }

    /// Appends a message that uses the table and leaves it as it is (FC).
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode_without_update(
        &mut self,
        message: &AclMessage,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.write(message, 0xfc, out)
    }

    fn write(
        &mut self,
        message: &AclMessage,
        message_id: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let too_large = || {
            let limit = MOST_BYTES;
            EncodeError::new("message", EncodeProblem::TooLarge { limit })
        };
        let mut plain = Vec::new();
        encode(message, &mut plain)?;
        if plain.len() > MOST_BYTES {
            return Err(too_large());
        }
        // A message just written is sound, unless it nests deeper than any reader allows.
        let limits = Limits {
            depth: super::DEEPEST,
            values: usize::MAX,
            agents: usize::MAX,
            ..Limits::DEFAULT
        };
        // The receiver never gets a message that is refused, so none of its texts may be entered here.
        if message_id == 0xfb && self.bytes + plain.len() > MOST_BYTES {
            let texts = NewTexts {
                table: self,
                bytes: &plain,
                in_content: false,
                texts: BTreeSet::new(),
            };
            let mut parser = Parser::new(&plain, &limits, texts);
            parser.message().map_err(|_| too_large())?;
            let new = parser.into_observer().texts;
            if self.bytes + new.iter().map(|text| text.len()).sum::<usize>() > MOST_BYTES {
                return Err(too_large());
            }
        }
        let start = out.len();
        let compressor = Compressor {
            table: self,
            bytes: &plain,
            message_id,
            in_content: false,
            out,
        };
        let written = Parser::new(&plain, &limits, compressor).message();
        written.map(drop).map_err(|_| {
            out.truncate(start);
            too_large()
        })
    }

    /// The number of a text. The look-up counts as a use of the text.
    fn number(&mut self, text: &[u8]) -> Option<usize> {
        let number = *self.numbers.get(text)?;
        self.touch(number);
        Some(number)
    }

    /// The text of a number, and the kind of the atom that entered the text. The look-up counts as a use of the text.
    fn text(&mut self, number: usize) -> Option<(&[u8], Atom)> {
        self.touch(number);
        let entry = self.entries.get(number)?.as_ref()?;
        Some((&*entry.text, entry.kind))
    }

    fn touch(&mut self, number: usize) {
        self.clock += 1;
        if let Some(Some(entry)) = self.entries.get_mut(number) {
            entry.last_use = self.clock;
        }
    }

    /// Gives a text the smallest free number, unless it already has one. Returns false if the table would hold too many
    /// bytes.
    fn enter(&mut self, text: &[u8], kind: Atom) -> bool {
        if self.number(text).is_some() {
            return true;
        }
        if self.free.is_empty() {
            self.remove_oldest();
        }
        let Some(Reverse(number)) = self.free.pop() else {
            return false;
        };
        self.bytes += text.len();
        self.clock += 1;
        self.entries[number] = Some(Entry {
            text: text.into(),
            kind,
            last_use: self.clock,
        });
        self.numbers.insert(text.into(), number);
        self.bytes <= MOST_BYTES
    }

    /// Removes an eighth of the entries: the ones not used for the longest time.
    fn remove_oldest(&mut self) {
        let count = self.entries.len() >> 3;
        let age = |number: &usize| {
            self.entries[*number]
                .as_ref()
                .map_or(u64::MAX, |entry| entry.last_use)
        };
        let mut numbers: Vec<usize> = (0..self.entries.len()).collect();
        numbers.select_nth_unstable_by_key(count, age);
        for number in &numbers[..count] {
            if let Some(entry) = self.entries[*number].take() {
                self.bytes -= entry.text.len();
                self.numbers.remove(&entry.text);
                self.free.push(Reverse(*number));
            }
        }
    }
}

/// The text of an atom that may be in the table, without tag, length and end mark.
fn literal(bytes: &[u8], kind: Atom, start: usize, end: usize) -> Option<&[u8]> {
    match kind {
        Atom::Word | Atom::String => bytes.get(start + 1..end - 1),
        Atom::Bytes(width) => {
            let (start, end) = byte_string(bytes, start + 1, usize::from(width)).ok()?;
            bytes.get(start..end)
        }
        _ => None,
    }
}

/// Writes a message again without table.
struct Expander<'a, 't> {
    table: &'t mut CodeTable,
    bytes: &'a [u8],
    updates: bool,
    enters_content: bool,
    in_content: bool,
    most: usize,
    out: Vec<u8>,
}

impl Observer for Expander<'_, '_> {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) -> Result<(), DecodeError> {
        follow_content(&mut self.in_content, piece);
        match piece {
            Piece::MessageId => self.out.push(0xfa),
            Piece::Atom { kind, bracket } => match kind {
                Atom::TableWord | Atom::TableString | Atom::TableBytes => {
                    let index = &self.bytes[start + 1..end];
                    let index = index
                        .iter()
                        .fold(0usize, |index, byte| index << 8 | usize::from(*byte));
                    let Some((text, entered)) = self.table.text(index) else {
                        return Err(DecodeError::new(
                            start,
                            DecodeProblem::NoTableEntry { index },
                        ));
                    };
                    // Some encoders mark every text from the table as a word, even one that no word can contain.
                    let kind = match kind {
                        Atom::TableWord if self.in_content || is_quoted(text) => entered,
                        kind => kind,
                    };
                    write_literal(kind, bracket, text, &mut self.out);
                }
                _ => {
                    if self.updates
                        && (self.enters_content || !self.in_content)
                        && let Some(text) = literal(self.bytes, kind, start, end)
                        && !self.table.enter(text, kind)
                    {
                        return Err(DecodeError::limit(
                            start,
                            "bytes in the code table",
                            MOST_BYTES,
                        ));
                    }
                    self.out.extend_from_slice(&self.bytes[start..end]);
                }
            },
            _ => self.out.extend_from_slice(&self.bytes[start..end]),
        }
        if self.out.len() > self.most {
            return Err(DecodeError::limit(start, "bytes when expanded", self.most));
        }
        Ok(())
    }
}

/// Whether readers take these bytes for a text in quotes, which no word is.
fn is_quoted(text: &[u8]) -> bool {
    core::str::from_utf8(text).is_ok_and(misleads)
}

/// Writes an entry of the table as the literal that it stands for.
fn write_literal(kind: Atom, bracket: Bracket, text: &[u8], out: &mut Vec<u8>) {
    if matches!(kind, Atom::TableBytes | Atom::Bytes(_)) || text.contains(&0) {
        let length = text.len() as u32;
        let long = if bracket == Bracket::None { 9 } else { 8 };
        out.push(tag(bracket, long));
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(text);
    } else {
        let is_word = matches!(kind, Atom::TableWord | Atom::Word);
        out.push(tag(bracket, if is_word { 0 } else { 4 }));
        out.extend_from_slice(text);
        out.push(0);
    }
}

/// Collects the texts that a message would enter.
struct NewTexts<'a, 't> {
    table: &'t CodeTable,
    bytes: &'a [u8],
    in_content: bool,
    texts: BTreeSet<&'a [u8]>,
}

impl Observer for NewTexts<'_, '_> {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) -> Result<(), DecodeError> {
        follow_content(&mut self.in_content, piece);
        if let Piece::Atom { kind, .. } = piece
            && !self.in_content
            && let Some(text) = literal(self.bytes, kind, start, end)
            && !self.table.numbers.contains_key(text)
        {
            self.texts.insert(text);
        }
        Ok(())
    }
}

/// Rewrites a message with the numbers of the table.
struct Compressor<'a, 't> {
    table: &'t mut CodeTable,
    bytes: &'a [u8],
    message_id: u8,
    in_content: bool,
    out: &'t mut Vec<u8>,
}

impl Observer for Compressor<'_, '_> {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) -> Result<(), DecodeError> {
        follow_content(&mut self.in_content, piece);
        match piece {
            Piece::MessageId => self.out.push(self.message_id),
            Piece::Atom { kind, bracket } if !self.in_content => {
                let Some(text) = literal(self.bytes, kind, start, end) else {
                    self.out.extend_from_slice(&self.bytes[start..end]);
                    return Ok(());
                };
                if let Some(number) = self.table.number(text) {
                    let kind = match (kind, bracket) {
                        (Atom::Word, _) => 1,
                        (Atom::String, _) => 5,
                        (_, Bracket::None) => 8,
                        (_, _) => 9,
                    };
                    self.out.push(tag(bracket, kind));
                    if self.table.index_width() == 2 {
                        self.out.push((number >> 8) as u8);
                    }
                    self.out.push(number as u8);
                } else {
                    self.out.extend_from_slice(&self.bytes[start..end]);
                    if self.message_id == 0xfb && !self.table.enter(text, kind) {
                        return Err(DecodeError::limit(
                            start,
                            "bytes in the code table",
                            MOST_BYTES,
                        ));
                    }
                }
            }
            _ => self.out.extend_from_slice(&self.bytes[start..end]),
        }
        Ok(())
    }
}

/// Notes whether the pieces that follow belong to the content.
fn follow_content(in_content: &mut bool, piece: Piece) {
    match piece {
        Piece::Parameter(parameter) => *in_content = parameter == Parameter::Content,
        Piece::UserDefinedMark | Piece::End(_) => *in_content = false,
        _ => {}
    }
}
