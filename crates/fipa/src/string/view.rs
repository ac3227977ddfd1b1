//! Look-ups in a message that has been checked.
//!
//! Look-ups cannot fail on text that the parser accepted. On other text a look-up just finds nothing.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::encode::Owner;
use super::lex::{Lexer, Token};
use super::parse::{AidParameter, JADE_ENCODING, Layout, is_keyword};
use super::write_expression;
use crate::literal::unescape;
use crate::parameter::Parameter;
use crate::view::{AidRef, ContentRef, ExpressionRef, Expressions, NumberRef};
use crate::{DateTime, Number, Performative, base64, is_word};

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

    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    fn at(&self, parameter: Parameter) -> Option<Lexer<'a>> {
        let offset = self.layout.offsets.get(parameter)?;
        Some(Lexer::new(self.bytes, offset))
    }

    pub(crate) fn performative(&self) -> Performative {
        let (start, end) = self.layout.performative;
        Performative::from(text(self.bytes, start as usize, end as usize))
    }

    pub(crate) fn sender(&self) -> Option<AidRef<'a>> {
        AidView::take(&mut self.at(Parameter::Sender)?).map(AidRef::from_string)
    }

    pub(crate) fn aids(&self, parameter: Parameter) -> AidsView<'a> {
        AidsView(self.at(parameter).and_then(AidsView::enter))
    }

    pub(crate) fn expression(&self, parameter: Parameter) -> Option<ExpressionRef<'a>> {
        take_expression(&mut self.at(parameter)?)
    }

    pub(crate) fn content(&self) -> Option<ContentRef<'a>> {
        let bytes = match self.at(Parameter::Content)?.next().ok()? {
            Token::Counted { start, end } => {
                let bytes = &self.bytes[start..end];
                if !self.layout.base64 {
                    return Some(ContentRef::Bytes(Cow::Borrowed(bytes)));
                }
                Cow::Borrowed(bytes)
            }
            Token::Bare { start, end }
            | Token::Quoted {
                start,
                end,
                escapes: false,
            } => Cow::Borrowed(&self.bytes[start..end]),
            Token::Quoted { start, end, .. } => Cow::Owned(unescape(&self.bytes[start..end])),
            _ => return None,
        };
        if self.layout.base64 {
            return Some(ContentRef::Bytes(Cow::Owned(base64::decode(&bytes))));
        }
        // The standard names no character set for text.
        Some(match bytes {
            Cow::Borrowed(bytes) => match core::str::from_utf8(bytes) {
                Ok(text) => ContentRef::Text(Cow::Borrowed(text)),
                Err(_) => ContentRef::Bytes(Cow::Borrowed(bytes)),
            },
            Cow::Owned(bytes) => match String::from_utf8(bytes) {
                Ok(text) => ContentRef::Text(Cow::Owned(text)),
                Err(error) => ContentRef::Bytes(Cow::Owned(error.into_bytes())),
            },
        })
    }

    pub(crate) fn reply_by(&self) -> Option<DateTime> {
        match self.at(Parameter::ReplyBy)?.next().ok()? {
            Token::Bare { start, end } => DateTime::parse(&self.bytes[start..end]).ok(),
            _ => None,
        }
    }

    pub(crate) fn user_defined(&self) -> UserDefinedView<'a> {
        UserDefinedView {
            lexer: match self.layout.first_user_defined {
                0 => None,
                first => Some(Lexer::new(self.bytes, first as usize)),
            },
            owner: Owner::Message,
            hide_jade_encoding: self.layout.base64,
        }
    }
}

fn text(bytes: &[u8], start: usize, end: usize) -> &str {
    bytes
        .get(start..end)
        .and_then(|text| core::str::from_utf8(text).ok())
        .unwrap_or_default()
}

/// Steps over a value: an atom or everything up to the matching parenthesis.
fn skip_value(lexer: &mut Lexer<'_>) -> Option<()> {
    let mut depth = 0usize;
    loop {
        if lexer.bare().is_some() {
            if depth == 0 {
                return Some(());
            }
            continue;
        }
        match lexer.next().ok()? {
            Token::Open => depth += 1,
            Token::Close => depth = depth.checked_sub(1)?,
            Token::End => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(());
        }
    }
}

/// Classifies a bare token: a word, number, date-time, or else a string that should have been in quotes.
pub(crate) fn classify(text: &str) -> ExpressionRef<'_> {
    if is_word(text.as_bytes()) {
        return ExpressionRef::Word(text);
    }
    if Number::is_number(text) {
        return ExpressionRef::Number(NumberRef::Text(text));
    }
    match DateTime::parse(text.as_bytes()) {
        // With a small `t`, writing would not return the text that was read.
        Ok(date_time) if text.find(|c: char| c.is_ascii_alphabetic()) == text.find('T') => {
            ExpressionRef::DateTime(date_time)
        }
        _ => ExpressionRef::String(Cow::Borrowed(text)),
    }
}

fn take_expression<'a>(lexer: &mut Lexer<'a>) -> Option<ExpressionRef<'a>> {
    lexer.skip_blanks();
    let at = lexer.at;
    let bytes = lexer.bytes;
    Some(match lexer.next().ok()? {
        Token::Bare { start, end } => classify(text(bytes, start, end)),
        Token::Quoted {
            start,
            end,
            escapes: false,
        } => ExpressionRef::String(Cow::Borrowed(text(bytes, start, end))),
        Token::Quoted { start, end, .. } => {
            let text = String::from_utf8(unescape(&bytes[start..end])).unwrap_or_default();
            ExpressionRef::String(Cow::Owned(text))
        }
        Token::Counted { start, end } => ExpressionRef::Bytes(&bytes[start..end]),
        Token::Open => {
            let items = ExpressionsView(Lexer::new(bytes, at + 1));
            lexer.at = at;
            skip_value(lexer)?;
            ExpressionRef::List(Expressions::from_string(items))
        }
        Token::Close | Token::End => return None,
    })
}

/// The expression that `text` is.
pub(crate) fn expression_view(text: &[u8]) -> Option<ExpressionRef<'_>> {
    take_expression(&mut Lexer::new(text, 0))
}

/// A list in the form of this encoding. Byte strings in it need not be UTF-8.
pub(crate) fn expression_text(items: &Expressions<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write_expression(&ExpressionRef::List(items.clone()).to_owned(), &mut out);
    out
}

/// A checked AID.
#[derive(Clone, Copy)]
pub(crate) struct AidView<'a> {
    name: &'a str,
    /// After `agent-identifier`.
    parameters: Lexer<'a>,
    /// The places of the values of these parameters, 0 for an absent parameter.
    addresses: u32,
    resolvers: u32,
    has_user_defined: bool,
}

impl<'a> AidView<'a> {
    /// Steps over an AID.
    fn take(lexer: &mut Lexer<'a>) -> Option<Self> {
        if !lexer.take(b'(') {
            return None;
        }
        // `agent-identifier`
        lexer.bare()?;
        let mut view = Self {
            name: "",
            parameters: *lexer,
            addresses: 0,
            resolvers: 0,
            has_user_defined: false,
        };
        loop {
            let Some((start, end)) = lexer.bare() else {
                return lexer.take(b')').then_some(view);
            };
            // Behind the colon.
            let name = lexer.bytes.get(start + 1..end)?;
            match AidParameter::from_name(name) {
                Some(AidParameter::Name) => {
                    view.name = take_name(lexer)?;
                    continue;
                }
                // The parser refuses texts of 4 GiB and more.
                Some(AidParameter::Addresses) => view.addresses = lexer.at as u32,
                Some(AidParameter::Resolvers) => view.resolvers = lexer.at as u32,
                None => view.has_user_defined = true,
            }
            skip_value(lexer)?;
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    fn at(&self, offset: u32) -> Option<Lexer<'a>> {
        (offset > 0).then(|| Lexer::new(self.parameters.bytes, offset as usize))
    }

    pub(crate) fn addresses(&self) -> AddressesView<'a> {
        AddressesView(self.at(self.addresses).and_then(|mut lexer| {
            lexer.take(b'(');
            // `sequence`
            lexer.bare()?;
            Some(lexer)
        }))
    }

    pub(crate) fn resolvers(&self) -> AidsView<'a> {
        AidsView(self.at(self.resolvers).and_then(AidsView::enter))
    }

    pub(crate) fn user_defined(&self) -> UserDefinedView<'a> {
        UserDefinedView {
            lexer: self.has_user_defined.then_some(self.parameters),
            owner: Owner::Aid,
            hide_jade_encoding: false,
        }
    }
}

fn take_name<'a>(lexer: &mut Lexer<'a>) -> Option<&'a str> {
    if let Some((start, end)) = lexer.bare() {
        return Some(text(lexer.bytes, start, end));
    }
    match lexer.next().ok()? {
        Token::Quoted { start, end, .. } | Token::Counted { start, end } => {
            Some(text(lexer.bytes, start, end))
        }
        _ => None,
    }
}

/// The AIDs of a set or sequence.
#[derive(Clone)]
pub(crate) struct AidsView<'a>(Option<Lexer<'a>>);

impl<'a> AidsView<'a> {
    /// Enters the parentheses around the AIDs, if there are any.
    fn enter(at: Lexer<'a>) -> Option<Lexer<'a>> {
        let mut inside = at;
        inside.take(b'(');
        if is_keyword(inside, "agent-identifier") {
            return Some(at);
        }
        // `set` or `sequence`
        inside.bare()?;
        Some(inside)
    }
}

impl<'a> Iterator for AidsView<'a> {
    type Item = AidRef<'a>;

    fn next(&mut self) -> Option<AidRef<'a>> {
        let lexer = self.0.as_mut()?;
        // A single AID without a set is followed by the next parameter or the end of its owner.
        if lexer.skip_blanks() != Some(b'(') {
            self.0 = None;
            return None;
        }
        AidView::take(lexer).map(AidRef::from_string)
    }
}

/// The addresses of an AID.
#[derive(Clone)]
pub(crate) struct AddressesView<'a>(Option<Lexer<'a>>);

impl<'a> Iterator for AddressesView<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let name = take_name(self.0.as_mut()?);
        if name.is_none() {
            self.0 = None;
        }
        name
    }
}

/// User-defined parameters of a message or AID.
#[derive(Clone)]
pub(crate) struct UserDefinedView<'a> {
    lexer: Option<Lexer<'a>>,
    owner: Owner,
    hide_jade_encoding: bool,
}

impl<'a> Iterator for UserDefinedView<'a> {
    type Item = (&'a str, ExpressionRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let lexer = self.lexer.as_mut()?;
        loop {
            let Some((start, end)) = lexer.bare() else {
                self.lexer = None;
                return None;
            };
            let name = text(lexer.bytes, start + 1, end);
            if self.owner.has(name.as_bytes())
                || (self.hide_jade_encoding && name.as_bytes().eq_ignore_ascii_case(JADE_ENCODING))
            {
                skip_value(lexer)?;
                continue;
            }
            return Some((name, take_expression(lexer)?));
        }
    }
}

/// The items of a list.
#[derive(Clone)]
pub(crate) struct ExpressionsView<'a>(Lexer<'a>);

impl<'a> Iterator for ExpressionsView<'a> {
    type Item = ExpressionRef<'a>;

    fn next(&mut self) -> Option<ExpressionRef<'a>> {
        match self.0.peek().ok()? {
            Token::Close | Token::End => None,
            _ => take_expression(&mut self.0),
        }
    }
}
