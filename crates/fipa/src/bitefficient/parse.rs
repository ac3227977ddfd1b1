//! The grammar of FIPA00069, walked once over the bytes.
//!
//! The same walk serves checks, look-ups, byte-by-byte explanations and code tables. They differ in their [`Observer`].

use super::nibbles::{self, DATE_LENGTH, Nibbles};
use super::scan::byte_string;
use super::scan::find_end;
use super::token::{Atom, Bracket, Piece};
use crate::parameter::{Parameter, ParameterOffsets};
use crate::{DateTime, DecodeError, DecodeProblem, Limits, Origin, string};

/// The nesting that is never exceeded, even if the limits allow more. The stack carries this much safely.
pub(crate) const DEEPEST: usize = 256;

/// An observer is told each piece of a message as the parser passes it.
pub(crate) trait Observer {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) -> Result<(), DecodeError>;
}

/// Ignores all pieces.
impl Observer for () {
    #[inline(always)]
    fn piece(&mut self, _: Piece, _: usize, _: usize) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// The places of all parts in a message that has been checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(super) offsets: ParameterOffsets,
    pub(super) first_user_defined: u32,
    pub(super) end: u32,
}

impl Layout {
    pub(crate) fn of(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        Parser::new(bytes, limits, ()).message()
    }
}

/// A position in the bytes, and the parts that may still come.
pub(crate) struct Parser<'a, O> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) values_left: usize,
    limits: Limits,
    /// Bytes of a code table index; 0 without table.
    index_width: usize,
    pub(super) observer: O,
}

impl<'a> Parser<'a, ()> {
    /// A parser for look-ups in bytes that have been checked.
    pub(super) fn checked(bytes: &'a [u8], at: usize) -> Self {
        Self {
            at,
            ..Self::new(bytes, &Limits::NONE, ())
        }
    }
}

impl<'a, O: Observer> Parser<'a, O> {
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits, observer: O) -> Self {
        Self {
            bytes,
            at: 0,
            values_left: limits.values,
            limits: *limits,
            index_width: 0,
            observer,
        }
    }

    /// Also reads messages with code tables. Their indexes have this many bytes.
    pub(crate) fn with_code_table(mut self, index_width: usize) -> Self {
        self.index_width = index_width;
        self
    }

    pub(crate) fn into_observer(self) -> O {
        self.observer
    }

    #[cold]
    fn expected(&self, what: &'static str) -> DecodeError {
        DecodeError::expected(self.bytes, self.at, what)
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn piece(&mut self, piece: Piece, start: usize) -> Result<(), DecodeError> {
        self.observer.piece(piece, start, self.at)
    }

    #[inline]
    fn byte(&mut self, piece: Piece) -> Result<(), DecodeError> {
        self.at += 1;
        self.observer.piece(piece, self.at - 1, self.at)
    }

    #[inline]
    fn count_value(&mut self) -> Result<(), DecodeError> {
        match self.values_left.checked_sub(1) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(DecodeError::limit(self.at, "values", self.limits.values)),
        }
    }

    pub(crate) fn message(&mut self) -> Result<Layout, DecodeError> {
        let mut layout = self.begin()?;
        self.finish(&mut layout)?;
        Ok(layout)
    }

    pub(super) fn check_length(&self) -> Result<(), DecodeError> {
        let limit = self.limits.message_length.min(u32::MAX as usize);
        match self.bytes.len() > limit {
            true => Err(DecodeError::limit(limit, "bytes", limit)),
            false => Ok(()),
        }
    }

    /// Steps over the bytes before the parameters.
    pub(super) fn begin(&mut self) -> Result<Layout, DecodeError> {
        self.check_length()?;
        match self.peek() {
            Some(0xfa) => self.index_width = 0,
            Some(0xfb | 0xfc) if self.index_width > 0 => {}
            Some(0xfb | 0xfc) => return Err(DecodeError::new(self.at, DecodeProblem::CodeTable)),
            _ => return Err(self.expected("the message id FA, FB or FC")),
        }
        self.byte(Piece::MessageId)?;
        match self.peek() {
            Some(0x10..=0x1f) => self.byte(Piece::Version)?,
            _ => return Err(self.expected("a version 1.x (10)")),
        }
        match self.peek() {
            Some(0) => {
                self.byte(Piece::Performative)?;
                self.word("the name of a user-defined act, a word (10)")?;
            }
            Some(0x01..=0x16) => self.byte(Piece::Performative)?,
            _ => return Err(self.expected("the code of an act, 00 to 16")),
        }
        Ok(Layout {
            offsets: ParameterOffsets::default(),
            first_user_defined: 0,
            end: 0,
        })
    }

    /// Steps over the parameters that are left, and the end mark.
    pub(super) fn finish(&mut self, layout: &mut Layout) -> Result<(), DecodeError> {
        while self.note_parameter(layout)? {}
        layout.end = self.at as u32;
        Ok(())
    }

    /// Steps over one parameter, and notes its place. Returns false at the end mark.
    #[inline]
    pub(super) fn note_parameter(&mut self, layout: &mut Layout) -> Result<bool, DecodeError> {
        let start = self.at;
        match self.parameter()? {
            Step::End => return Ok(false),
            Step::UserDefined if layout.first_user_defined == 0 => {
                layout.first_user_defined = start as u32;
            }
            Step::UserDefined => {}
            Step::Standard(parameter) => {
                if !layout.offsets.set(parameter, start + 1) {
                    let parameter = parameter.name();
                    let problem = DecodeProblem::Duplicate { parameter };
                    return Err(DecodeError::new(start, problem));
                }
            }
        }
        Ok(true)
    }

    /// Steps over one parameter, or the end mark.
    pub(super) fn parameter(&mut self) -> Result<Step, DecodeError> {
        let parameter = match self.peek() {
            Some(0x01) => {
                self.byte(Piece::End("message"))?;
                return Ok(Step::End);
            }
            Some(0x00) => {
                self.count_value()?;
                self.byte(Piece::UserDefinedMark)?;
                self.word("the name of a parameter, a word (10)")?;
                self.expression()?;
                return Ok(Step::UserDefined);
            }
            Some(code) => Parameter::from_code(code),
            None => None,
        };
        let Some(parameter) = parameter else {
            return Err(self.expected("a parameter (00, 02 to 0D) or the end of the message (01)"));
        };
        self.byte(Piece::Parameter(parameter))?;
        match parameter {
            Parameter::Sender => self.aid(self.depth())?,
            Parameter::Receiver => self.aids("receiver", self.depth())?,
            Parameter::ReplyTo => self.aids("reply-to", self.depth())?,
            Parameter::ReplyBy => self.date_time().map(drop)?,
            // One encoder writes empty content as no bytes at all.
            Parameter::Content if matches!(self.peek(), Some(0x00..=0x0d)) => {
                self.piece(Piece::NoContent, self.at)?;
            }
            Parameter::Content => self.content()?,
            // A string or number may stand for the word; lists and bytes name no protocol.
            Parameter::Protocol if !matches!(self.peek(), Some(0x10..=0x15)) => {
                return Err(self.expected("the name of a protocol, a word (10)"));
            }
            _ => self.expression()?,
        }
        Ok(Step::Standard(parameter))
    }

    fn depth(&self) -> usize {
        self.limits.depth.min(DEEPEST)
    }

    /// An AID, whose first byte 02 stands for its name.
    pub(super) fn aid(&mut self, depth: usize) -> Result<(), DecodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(DecodeError::limit(
                self.at,
                "levels of resolvers",
                self.depth(),
            ));
        };
        if self.peek() != Some(0x02) {
            return Err(self.expected("an AID (02)"));
        }
        self.count_value()?;
        self.byte(Piece::AidStart)?;
        let name = self.word("the name of an agent, a word (10)")?;
        // A name in the code table shows when it is looked up.
        if name.0 == name.1 && self.bytes.get(name.0 - 1) == Some(&0x10) {
            return Err(DecodeError::expected(
                self.bytes,
                name.0,
                "the name of an agent",
            ));
        }
        let (mut addresses, mut resolvers) = (false, false);
        loop {
            match self.peek() {
                Some(0x01) => return self.byte(Piece::End("AID")),
                Some(0x02) if !core::mem::replace(&mut addresses, true) => {
                    self.byte(Piece::AddressesStart)?;
                    while self.peek() != Some(0x01) {
                        self.count_value()?;
                        self.word("an address, a word (10), or the end of the addresses (01)")?;
                    }
                    self.byte(Piece::End("addresses"))?;
                }
                Some(0x03) if !core::mem::replace(&mut resolvers, true) => {
                    self.byte(Piece::ResolversStart)?;
                    self.aids("resolvers", depth)?;
                }
                Some(0x04) => {
                    self.count_value()?;
                    self.byte(Piece::AidUserDefinedMark)?;
                    self.word("the name of a parameter, a word (10)")?;
                    self.expression()?;
                }
                _ => {
                    return Err(self.expected(
                        "addresses (02) or resolvers (03), each once, a parameter (04), or the end of the AID (01)",
                    ));
                }
            }
        }
    }

    fn aids(&mut self, what: &'static str, depth: usize) -> Result<(), DecodeError> {
        let mut agents = 0;
        while self.peek() != Some(0x01) {
            agents += 1;
            if agents > self.limits.agents {
                return Err(DecodeError::too_many_agents(self.at, &self.limits));
            }
            self.aid(depth)?;
        }
        self.byte(Piece::End(what))
    }

    /// Reads a `BinWord`. Returns the place of its text (none, if the text is in the code table).
    pub(super) fn word(&mut self, expected: &'static str) -> Result<(usize, usize), DecodeError> {
        match self.peek() {
            Some(0x10) => self.atom(Atom::Word, Bracket::None, expected),
            Some(0x11) if self.index_width > 0 => {
                self.atom(Atom::TableWord, Bracket::None, expected)
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// Reads an atom whose tag is at the current position. Returns the place of its text or bytes.
    #[inline]
    fn atom(
        &mut self,
        kind: Atom,
        bracket: Bracket,
        expected: &'static str,
    ) -> Result<(usize, usize), DecodeError> {
        let tag = self.at;
        let start = tag + 1;
        let (start, end) = match kind {
            Atom::Word | Atom::String => {
                let Some((end, ascii)) = find_end(self.bytes, start) else {
                    let bytes = self.bytes;
                    return Err(DecodeError::expected(bytes, bytes.len(), "00 after a text"));
                };
                if !ascii && core::str::from_utf8(&self.bytes[start..end]).is_err() {
                    return Err(DecodeError::not_utf8(start, expected));
                }
                self.at = end + 1;
                (start, end)
            }
            Atom::Number | Atom::Hexadecimal => {
                let hexadecimal = kind == Atom::Hexadecimal;
                let Some((_, end)) = Nibbles::parse(self.bytes, start, hexadecimal) else {
                    return Err(DecodeError::expected(
                        self.bytes,
                        start,
                        "a number in nibbles",
                    ));
                };
                self.at = end;
                (start, end)
            }
            Atom::Bytes(width) => {
                let (start, end) = byte_string(self.bytes, start, usize::from(width))?;
                self.at = end;
                (start, end)
            }
            Atom::TableWord | Atom::TableString | Atom::TableBytes => {
                if self.index_width == 0 {
                    return Err(self.expected("a value that is not in a code table"));
                }
                self.at = start + self.index_width;
                if self.at > self.bytes.len() {
                    let end = self.bytes.len();
                    return Err(DecodeError::expected(self.bytes, end, "a code table index"));
                }
                (start, start)
            }
        };
        self.piece(Piece::Atom { kind, bracket }, tag)?;
        Ok((start, end))
    }

    /// Reads the value of `content`: a `BinString`, or any expression as before the version of 2002.
    fn content(&mut self) -> Result<(), DecodeError> {
        self.count_value()?;
        if self.peek() != Some(0x14) {
            return self.expression();
        }
        // Content need not be UTF-8, and may be long.
        let tag = self.at;
        let Some(length) = memchr::memchr(0, &self.bytes[tag + 1..]) else {
            let end = self.bytes.len();
            return Err(DecodeError::expected(
                self.bytes,
                end,
                "00 after the content",
            ));
        };
        self.at = tag + 1 + length + 1;
        let (kind, bracket) = (Atom::String, Bracket::None);
        self.piece(Piece::Atom { kind, bracket }, tag)
    }

    /// Reads a `BinExpression`. Lists are walked without recursion: their nesting is only counted.
    pub(super) fn expression(&mut self) -> Result<(), DecodeError> {
        if self.peek() == Some(0xff) {
            return self.text_expression();
        }
        let mut depth = 0usize;
        loop {
            self.count_value()?;
            match self.peek() {
                Some(0x60) => {
                    depth += 1;
                    self.byte(Piece::ListStart)?;
                }
                Some(0x40) if depth > 0 => {
                    depth -= 1;
                    self.byte(Piece::ListEnd)?;
                }
                Some(tag) => {
                    let Some((kind, bracket)) = Atom::from_tag(tag) else {
                        return Err(self.expected("an expression"));
                    };
                    match bracket {
                        Bracket::None => {}
                        Bracket::Opens => depth += 1,
                        // An item after the closed list must itself be in a list.
                        Bracket::Closes if depth >= 2 => depth -= 1,
                        Bracket::Closes => return Err(self.expected("an expression")),
                    }
                    self.atom(kind, bracket, "text")?;
                }
                None => return Err(self.expected("an expression")),
            }
            if depth > self.depth() {
                return Err(DecodeError::limit(self.at, "nested lists", self.depth()));
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads `FF` and a string that holds an expression in the form of the String encoding.
    fn text_expression(&mut self) -> Result<(), DecodeError> {
        self.byte(Piece::TextMark)?;
        self.count_value()?;
        let (kind, expected) = match self.peek().and_then(Atom::from_tag) {
            Some((kind @ (Atom::String | Atom::Bytes(_)), Bracket::None)) => (kind, "text"),
            _ => return Err(self.expected("the text of an expression (14, 16, 17 or 19)")),
        };
        let (start, end) = self.atom(kind, Bracket::None, expected)?;
        let values = string::check_expression(&self.bytes[start..end], &self.limits)
            .map_err(|error| DecodeError::new(start + error.offset, error.problem))?;
        match self.values_left.checked_sub(values) {
            Some(left) => self.values_left = left,
            None => return Err(DecodeError::limit(start, "values", self.limits.values)),
        }
        Ok(())
    }

    pub(super) fn date_time(&mut self) -> Result<DateTime, DecodeError> {
        let start = self.at;
        let (date_time, end) = read_date_time(self.bytes, start)?;
        self.at = end;
        self.piece(Piece::DateTime, start)?;
        Ok(date_time)
    }
}

/// The date-time whose tag is at `start`, and the offset after it.
pub(crate) fn read_date_time(bytes: &[u8], start: usize) -> Result<(DateTime, usize), DecodeError> {
    let (origin, designated) = match bytes.get(start) {
        Some(0x20) => (Origin::Calendar, false),
        Some(0x21) => (Origin::After, false),
        Some(0x22) => (Origin::Before, false),
        Some(0x24) => (Origin::Calendar, true),
        Some(0x25) => (Origin::After, true),
        Some(0x26) => (Origin::Before, true),
        _ => {
            return Err(DecodeError::expected(
                bytes,
                start,
                "a date-time (20 to 22, 24 to 26)",
            ));
        }
    };
    let Some(date) = bytes[start + 1..].first_chunk::<DATE_LENGTH>() else {
        return Err(DecodeError::expected(
            bytes,
            bytes.len(),
            "the 9 bytes of a date-time",
        ));
    };
    let mut end = start + 1 + DATE_LENGTH;
    let mut designator = None;
    if designated {
        designator = bytes.get(end).copied();
        if designator.is_none() {
            return Err(DecodeError::expected(
                bytes,
                end,
                "the letter of a date-time",
            ));
        }
        end += 1;
    }
    let date_time = nibbles::read_date(date, origin, designator)
        .map_err(|problem| DecodeError::new(start, problem.into()))?;
    Ok((date_time, end))
}

/// The input that the parser has stepped over.
pub(super) enum Step {
    End,
    UserDefined,
    Standard(Parameter),
}
