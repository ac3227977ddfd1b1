//! Look-ups in a message that has been checked.
//!
//! Look-ups cannot fail on bytes that the parser accepted. On other bytes a look-up just finds nothing.

use alloc::borrow::Cow;
use alloc::string::String;

use super::Nibbles;
use super::parse::{Layout, Parser, Step};
use super::scan::{byte_string, find_end};
use super::token::{Atom, Bracket};
use crate::literal::{unquote, unquote_bytes};
use crate::parameter::Parameter;
use crate::view::{AidRef, ContentRef, ExpressionRef, Expressions, NumberRef};
use crate::{DateTime, Performative, string};

/// A checked message.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> View<'a> {
    pub(super) fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    /// The length of the message in bytes, with the end mark.
    pub(crate) fn length(&self) -> usize {
        self.layout.end as usize
    }

    fn at(&self, parameter: Parameter) -> Option<Parser<'a, ()>> {
        let offset = self.layout.offsets.get(parameter)?;
        Some(Parser::checked(self.bytes, offset))
    }

    pub(crate) fn performative(&self) -> Performative {
        match self.bytes.get(2).copied().and_then(Performative::from_code) {
            Some(performative) => performative,
            None => Performative::from(text(self.bytes, 4).map_or("", |(name, _)| name)),
        }
    }

    pub(crate) fn sender(&self) -> Option<AidRef<'a>> {
        AidView::take(&mut self.at(Parameter::Sender)?).map(AidRef::from_bitefficient)
    }

    pub(crate) fn aids(&self, parameter: Parameter) -> AidsView<'a> {
        AidsView(self.at(parameter))
    }

    pub(crate) fn expression(&self, parameter: Parameter) -> Option<ExpressionRef<'a>> {
        self.at(parameter)?.take_expression()
    }

    pub(crate) fn content(&self) -> Option<ContentRef<'a>> {
        let mut parser = self.at(Parameter::Content)?;
        Some(match parser.peek()? {
            0x14 => {
                let start = parser.at + 1;
                let length = memchr::memchr(0, self.bytes.get(start..)?)?;
                let raw = &self.bytes[start..start + length];
                match core::str::from_utf8(raw) {
                    Ok(text) => ContentRef::Text(unquote(text)),
                    // The standard names no character set for text.
                    Err(_) => ContentRef::Bytes(unquote_bytes(raw)),
                }
            }
            0x00..=0x0d => ContentRef::Text(Cow::Borrowed("")),
            _ => match parser.take_expression()? {
                ExpressionRef::Bytes(bytes) => ContentRef::Bytes(Cow::Borrowed(bytes)),
                ExpressionRef::List(items) => {
                    match String::from_utf8(string::expression_text(&items)) {
                        Ok(text) => ContentRef::Text(Cow::Owned(text)),
                        Err(error) => ContentRef::Bytes(Cow::Owned(error.into_bytes())),
                    }
                }
                atom => ContentRef::Text(atom.text()?),
            },
        })
    }

    /// The bytes before the content's mark, those of the content, and those behind it up to the end of the message.
    pub(crate) fn around_content(&self) -> Option<[&'a [u8]; 3]> {
        let mut parser = self.at(Parameter::Content)?;
        let before = self.bytes.get(..parser.at.checked_sub(1)?)?;
        match parser.take_expression()? {
            ExpressionRef::Bytes(content) => {
                let after = self.bytes.get(parser.at..self.layout.end as usize)?;
                Some([before, content, after])
            }
            _ => None,
        }
    }

    pub(crate) fn is_act(&self, name: &str) -> bool {
        match self.bytes.get(2) {
            Some(0) => text(self.bytes, 4).is_some_and(|(found, _)| found == name),
            _ => self.performative().as_str() == name,
        }
    }

    pub(crate) fn reply_by(&self) -> Option<DateTime> {
        self.at(Parameter::ReplyBy)?.date_time().ok()
    }

    #[inline]
    pub(crate) fn has_user_defined(&self) -> bool {
        self.layout.first_user_defined != 0
    }

    pub(crate) fn user_defined(&self) -> UserDefinedView<'a> {
        let first = self.layout.first_user_defined as usize;
        UserDefinedView(match first {
            0 => None,
            _ => Some((Parser::checked(self.bytes, first), Owner::Message)),
        })
    }
}

/// A checked AID.
#[derive(Clone, Copy)]
pub(crate) struct AidView<'a> {
    bytes: &'a [u8],
    name: &'a str,
    /// The places of the AID's parts, 0 for an absent part.
    addresses: u32,
    resolvers: u32,
    user_defined: u32,
}

impl<'a> AidView<'a> {
    /// Steps over an AID.
    fn take(parser: &mut Parser<'a, ()>) -> Option<Self> {
        let bytes = parser.bytes;
        // The AID's mark and the word's tag stand before the name.
        let (name, rest) = text(bytes, parser.at + 2)?;
        parser.at = rest;
        let mut view = Self {
            bytes,
            name,
            addresses: 0,
            resolvers: 0,
            user_defined: 0,
        };
        loop {
            // Checked messages are shorter than 4 GiB.
            let mark = parser.at as u32;
            match parser.peek()? {
                0x01 => {
                    parser.at += 1;
                    return Some(view);
                }
                0x02 => view.addresses = mark + 1,
                0x03 => view.resolvers = mark + 1,
                _ if view.user_defined == 0 => view.user_defined = mark,
                _ => {}
            }
            parser.skip_aid_part()?;
        }
    }

    fn at(&self, offset: u32) -> Option<Parser<'a, ()>> {
        (offset > 0).then(|| Parser::checked(self.bytes, offset as usize))
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) fn addresses(&self) -> WordsView<'a> {
        WordsView(self.at(self.addresses))
    }

    pub(crate) fn resolvers(&self) -> AidsView<'a> {
        AidsView(self.at(self.resolvers))
    }

    pub(crate) fn user_defined(&self) -> UserDefinedView<'a> {
        UserDefinedView(
            self.at(self.user_defined)
                .map(|parser| (parser, Owner::Aid)),
        )
    }
}

/// The AIDs of a list.
#[derive(Clone)]
pub(crate) struct AidsView<'a>(Option<Parser<'a, ()>>);

impl<'a> Iterator for AidsView<'a> {
    type Item = AidRef<'a>;

    fn next(&mut self) -> Option<AidRef<'a>> {
        let parser = self.0.as_mut()?;
        if parser.peek()? == 0x01 {
            return None;
        }
        AidView::take(parser).map(AidRef::from_bitefficient)
    }
}

/// The words of a list.
#[derive(Clone)]
pub(crate) struct WordsView<'a>(Option<Parser<'a, ()>>);

impl<'a> Iterator for WordsView<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let parser = self.0.as_mut()?;
        match parser.peek()? {
            0x10 => parser.take_word(),
            _ => None,
        }
    }
}

/// User-defined parameters of a message or AID.
#[derive(Clone)]
pub(crate) struct UserDefinedView<'a>(Option<(Parser<'a, ()>, Owner)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Message,
    Aid,
}

impl<'a> Iterator for UserDefinedView<'a> {
    type Item = (&'a str, ExpressionRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (parser, owner) = self.0.as_mut()?;
        match owner {
            Owner::Message => {
                while parser.peek()? != 0x00 {
                    if matches!(parser.parameter().ok()?, Step::End) {
                        self.0 = None;
                        return None;
                    }
                }
            }
            Owner::Aid => {
                while parser.peek()? != 0x04 {
                    if parser.peek() == Some(0x01) {
                        self.0 = None;
                        return None;
                    }
                    parser.skip_aid_part()?;
                }
            }
        }
        parser.at += 1;
        let name = parser.take_word()?;
        Some((name, parser.take_expression()?))
    }
}

/// The items of a list.
#[derive(Clone)]
pub(crate) struct ExpressionsView<'a> {
    bytes: &'a [u8],
    /// The tag of the next item.
    at: usize,
    /// Whether the next tag belongs to this list although it has a bracket: it opened this list, or closed the one
    /// before.
    tag_is_ours: bool,
}

impl<'a> Iterator for ExpressionsView<'a> {
    type Item = ExpressionRef<'a>;

    fn next(&mut self) -> Option<ExpressionRef<'a>> {
        let ours = core::mem::take(&mut self.tag_is_ours);
        let tag = *self.bytes.get(self.at)?;
        if tag == 0x60 {
            let items = Self {
                bytes: self.bytes,
                at: self.at + 1,
                tag_is_ours: false,
            };
            self.skip(items.clone());
            return Some(ExpressionRef::List(Expressions::from_bitefficient(items)));
        }
        match Atom::from_tag(tag)? {
            (_, Bracket::Closes) if !ours => None,
            (_, Bracket::Opens) if !ours => {
                let items = Self {
                    tag_is_ours: true,
                    ..self.clone()
                };
                self.skip(items.clone());
                Some(ExpressionRef::List(Expressions::from_bitefficient(items)))
            }
            (kind, _) => {
                let mut parser = Parser::checked(self.bytes, self.at);
                let item = parser.take_atom(kind)?;
                self.at = parser.at;
                Some(item)
            }
        }
    }
}

impl ExpressionsView<'_> {
    /// Moves past the list of `items`, by counting brackets.
    fn skip(&mut self, items: Self) {
        let mut depth = 1usize;
        let mut at = items.at;
        let mut ours = items.tag_is_ours;
        while let Some(tag) = self.bytes.get(at) {
            match tag {
                0x60 => depth += 1,
                0x40 => depth -= 1,
                _ => match Atom::from_tag(*tag) {
                    Some((_, Bracket::Opens)) if !ours => depth += 1,
                    Some((_, Bracket::Closes)) if depth == 1 => {
                        // The tag closes the list and begins our next item.
                        self.at = at;
                        self.tag_is_ours = true;
                        return;
                    }
                    Some((_, Bracket::Closes)) => depth -= 1,
                    _ => {}
                },
            }
            ours = false;
            if matches!(tag, 0x40 | 0x60) {
                at += 1;
            } else {
                let mut parser = Parser::checked(self.bytes, at);
                let kind = Atom::from_tag(*tag).map(|(kind, _)| kind);
                if kind.and_then(|kind| parser.take_atom(kind)).is_none() {
                    break;
                }
                at = parser.at;
            }
            if depth == 0 {
                self.at = at;
                return;
            }
        }
        self.at = self.bytes.len();
    }
}

impl Clone for Parser<'_, ()> {
    fn clone(&self) -> Self {
        Self::checked(self.bytes, self.at)
    }
}

impl<'a> Parser<'a, ()> {
    fn take_word(&mut self) -> Option<&'a str> {
        let (word, rest) = text(self.bytes, self.at + 1)?;
        self.at = rest;
        Some(word)
    }

    /// Steps over the addresses, resolvers or user-defined parameter whose mark is at the current position.
    fn skip_aid_part(&mut self) -> Option<()> {
        let mark = self.peek()?;
        self.at += 1;
        match mark {
            0x02 => {
                while self.peek()? != 0x01 {
                    self.at = find_end(self.bytes, self.at + 1)?.0 + 1;
                }
                self.at += 1;
            }
            0x03 => {
                while self.peek()? != 0x01 {
                    self.aid(super::parse::DEEPEST).ok()?;
                }
                self.at += 1;
            }
            _ => {
                self.take_word()?;
                self.expression().ok()?;
            }
        }
        Some(())
    }

    pub(super) fn take_expression(&mut self) -> Option<ExpressionRef<'a>> {
        let start = self.at;
        let tag = self.peek()?;
        match Atom::from_tag(tag) {
            Some((kind, Bracket::None)) => self.take_atom(kind),
            None if tag == 0xff => {
                let atom = self.bytes.get(start + 1).copied().and_then(Atom::from_tag);
                self.at += 1;
                let text = match atom? {
                    (Atom::String, _) => {
                        let (text, rest) = text(self.bytes, self.at + 1)?;
                        self.at = rest;
                        text.as_bytes()
                    }
                    (Atom::Bytes(width), _) => {
                        let range =
                            byte_string(self.bytes, self.at + 1, usize::from(width)).ok()?;
                        self.at = range.1;
                        &self.bytes[range.0..range.1]
                    }
                    _ => return None,
                };
                string::expression_view(text)
            }
            _ => {
                let opens = tag != 0x60;
                let items = ExpressionsView {
                    bytes: self.bytes,
                    at: start + usize::from(!opens),
                    tag_is_ours: opens,
                };
                self.expression().ok()?;
                Some(ExpressionRef::List(Expressions::from_bitefficient(items)))
            }
        }
    }

    fn take_atom(&mut self, kind: Atom) -> Option<ExpressionRef<'a>> {
        let start = self.at + 1;
        Some(match kind {
            Atom::Word => {
                let word = self.take_word()?;
                string::classify(word)
            }
            Atom::String => {
                let (text, rest) = text(self.bytes, start)?;
                self.at = rest;
                ExpressionRef::String(unquote(text))
            }
            Atom::Number | Atom::Hexadecimal => {
                let hexadecimal = kind == Atom::Hexadecimal;
                let (number, rest) = Nibbles::parse(self.bytes, start, hexadecimal)?;
                self.at = rest;
                ExpressionRef::Number(NumberRef::Nibbles(number))
            }
            Atom::Bytes(width) => {
                let (start, end) = byte_string(self.bytes, start, usize::from(width)).ok()?;
                self.at = end;
                ExpressionRef::Bytes(&self.bytes[start..end])
            }
            Atom::TableWord | Atom::TableString | Atom::TableBytes => return None,
        })
    }
}

/// The text that begins at `start`, and the offset after its 00.
fn text(bytes: &[u8], start: usize) -> Option<(&str, usize)> {
    let (end, _) = find_end(bytes, start)?;
    let text = core::str::from_utf8(&bytes[start..end]).ok()?;
    Some((text, end + 1))
}
