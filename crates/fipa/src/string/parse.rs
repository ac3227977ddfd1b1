//! The grammar of FIPA00070, walked once over the text.

use super::lex::{Lexer, Token};
use crate::bitefficient::DEEPEST;
use crate::parameter::{Parameter, ParameterOffsets};
use crate::{DateTime, DecodeError, DecodeProblem, Limits};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Open,
    Close,
    Performative,
    Parameter(Parameter),
    UserDefined,
    /// A word of the grammar: `agent-identifier`, `:name`, `set`, …
    Keyword(&'static str),
    Name,
    Address,
    Value,
}

/// An observer is told each token of a message as the parser passes it.
pub(crate) trait Observer {
    fn piece(&mut self, piece: Piece, start: usize, end: usize);
}

/// Ignores all tokens.
impl Observer for () {
    #[inline(always)]
    fn piece(&mut self, _: Piece, _: usize, _: usize) {}
}

/// The places of all parts in a message that has been checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(super) performative: (u32, u32),
    pub(super) offsets: ParameterOffsets,
    pub(super) first_user_defined: u32,
    /// The content is base64 of bytes.
    pub(super) base64: bool,
}

impl Layout {
    pub(crate) fn of(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        Self::observed(bytes, limits, &mut ())
    }

    pub(crate) fn observed(
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl Observer,
    ) -> Result<Self, DecodeError> {
        let limit = limits.message_length.min(u32::MAX as usize);
        if bytes.len() > limit {
            return Err(DecodeError::limit(limit, "bytes", limit));
        }
        Parser::new(bytes, limits, observer).message()
    }
}

/// Checks that `text` is one expression, and returns the number of values in it.
pub(crate) fn check_expression(text: &[u8], limits: &Limits) -> Result<usize, DecodeError> {
    let mut nobody = ();
    let mut parser = Parser::new(text, limits, &mut nobody);
    parser.expression()?;
    parser.end()?;
    Ok(limits.values - parser.values_left)
}

/// The user-defined parameter with which JADE marks base64 content.
pub(super) const JADE_ENCODING: &[u8] = b"X-JADE-Encoding";

struct Parser<'a, 'o, O> {
    lexer: Lexer<'a>,
    values_left: usize,
    limits: Limits,
    observer: &'o mut O,
}

impl<'a, 'o, O: Observer> Parser<'a, 'o, O> {
    fn new(bytes: &'a [u8], limits: &Limits, observer: &'o mut O) -> Self {
        Self {
            lexer: Lexer::new(bytes, 0),
            values_left: limits.values,
            limits: *limits,
            observer,
        }
    }

    fn bytes(&self) -> &'a [u8] {
        self.lexer.bytes
    }

    #[cold]
    fn expected(&self, offset: usize, what: &'static str) -> DecodeError {
        DecodeError::expected(self.bytes(), offset, what)
    }

    fn depth(&self) -> usize {
        self.limits.depth.min(DEEPEST)
    }

    fn count_value(&mut self) -> Result<(), DecodeError> {
        match self.values_left.checked_sub(1) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => {
                let limit = self.limits.values;
                Err(DecodeError::limit(self.lexer.at, "values", limit))
            }
        }
    }

    /// Takes the next token, which must be this parenthesis.
    fn take(&mut self, parenthesis: u8, expected: &'static str) -> Result<(), DecodeError> {
        if !self.lexer.take(parenthesis) {
            return Err(self.expected(self.lexer.at, expected));
        }
        let piece = if parenthesis == b'(' {
            Piece::Open
        } else {
            Piece::Close
        };
        self.observer.piece(piece, self.lexer.at - 1, self.lexer.at);
        Ok(())
    }

    /// Takes the next token, which must be bare.
    fn bare(&mut self, expected: &'static str) -> Result<(usize, usize), DecodeError> {
        self.lexer.skip_blanks();
        let at = self.lexer.at;
        let Some((start, end)) = self.lexer.bare() else {
            return Err(self.expected(at, expected));
        };
        self.utf8(start, end, expected)?;
        Ok((start, end))
    }

    fn utf8(&self, start: usize, end: usize, expected: &'static str) -> Result<(), DecodeError> {
        let text = &self.bytes()[start..end];
        if text.is_ascii() || core::str::from_utf8(text).is_ok() {
            Ok(())
        } else {
            Err(DecodeError::not_utf8(start, expected))
        }
    }

    /// Takes a keyword if it is there.
    fn keyword(&mut self, keyword: &'static str) -> bool {
        let mut ahead = self.lexer;
        let Some((start, end)) = ahead.bare() else {
            return false;
        };
        let found = self.bytes()[start..end].eq_ignore_ascii_case(keyword.as_bytes());
        if found {
            self.observer.piece(Piece::Keyword(keyword), start, end);
            self.lexer = ahead;
        }
        found
    }

    fn message(&mut self) -> Result<Layout, DecodeError> {
        self.take(b'(', "'(' before a message")?;
        let (start, end) = self.bare("the name of an act")?;
        self.observer.piece(Piece::Performative, start, end);
        let mut layout = Layout {
            performative: (start as u32, end as u32),
            offsets: ParameterOffsets::default(),
            first_user_defined: 0,
            base64: false,
        };
        while let Some((start, end)) = self.parameter("a parameter (:…) or ')'")? {
            let name = &self.bytes()[start + 1..end];
            let Some(parameter) = Parameter::from_name(name) else {
                self.observer.piece(Piece::UserDefined, start, end);
                self.expression()?;
                if layout.first_user_defined == 0 {
                    layout.first_user_defined = start as u32;
                }
                if name.eq_ignore_ascii_case(JADE_ENCODING) {
                    layout.base64 = self.is_base64(end);
                }
                continue;
            };
            self.observer.piece(Piece::Parameter(parameter), start, end);
            self.lexer.skip_blanks();
            if !layout.offsets.set(parameter, self.lexer.at) {
                let parameter = parameter.name();
                return Err(DecodeError::new(
                    start,
                    DecodeProblem::Duplicate { parameter },
                ));
            }
            self.value(parameter)?;
        }
        self.end()?;
        // Without content there is nothing in base64, and the parameter is one like any other.
        layout.base64 &= layout.offsets.get(Parameter::Content).is_some();
        if layout.base64 {
            self.check_base64(&layout)?;
        }
        Ok(layout)
    }

    /// Nothing but white space may follow.
    fn end(&mut self) -> Result<(), DecodeError> {
        match self.lexer.skip_blanks() {
            None => Ok(()),
            Some(_) => Err(self.expected(self.lexer.at, "the end")),
        }
    }

    fn value(&mut self, parameter: Parameter) -> Result<(), DecodeError> {
        match parameter {
            Parameter::Sender => self.aid(self.depth()),
            Parameter::Receiver | Parameter::ReplyTo => self.aids("set", self.depth()),
            Parameter::ReplyBy => self.date_time(),
            Parameter::Content => self.content(),
            Parameter::Protocol => self.protocol(),
            _ => self.expression(),
        }
    }

    /// Reads `( set AID* )`, the same with `sequence`, or a single AID.
    fn aids(&mut self, keyword: &'static str, depth: usize) -> Result<(), DecodeError> {
        let mut ahead = self.lexer;
        if !ahead.take(b'(') {
            return Err(self.expected(ahead.at, "'(' before agents"));
        }
        if is_keyword(ahead, "agent-identifier") {
            return self.aid(depth);
        }
        self.take(b'(', "'('")?;
        if !self.keyword(keyword) && !self.keyword("set") && !self.keyword("sequence") {
            return Err(self.expected(self.lexer.at, "'set', 'sequence' or 'agent-identifier'"));
        }
        let mut agents = 0;
        while self.lexer.skip_blanks() != Some(b')') {
            agents += 1;
            if agents > self.limits.agents {
                return Err(DecodeError::too_many_agents(self.lexer.at, &self.limits));
            }
            self.aid(depth)?;
        }
        self.take(b')', "')'")
    }

    fn aid(&mut self, depth: usize) -> Result<(), DecodeError> {
        self.count_value()?;
        let Some(depth) = depth.checked_sub(1) else {
            let at = self.lexer.at;
            return Err(DecodeError::limit(at, "levels of resolvers", self.depth()));
        };
        self.take(b'(', "'(' before an agent identifier")?;
        if !self.keyword("agent-identifier") {
            self.lexer.skip_blanks();
            return Err(self.expected(self.lexer.at, "'agent-identifier'"));
        }
        let first = self.lexer.at;
        let (mut name, mut addresses, mut resolvers) = (false, false, false);
        while let Some((start, end)) =
            self.parameter("a parameter of an agent identifier (:…) or ')'")?
        {
            let once = |first: &mut bool, parameter| match core::mem::replace(first, true) {
                false => Ok(()),
                true => Err(DecodeError::new(
                    start,
                    DecodeProblem::Duplicate { parameter },
                )),
            };
            match AidParameter::from_name(&self.bytes()[start + 1..end]) {
                Some(AidParameter::Name) => {
                    self.observer.piece(Piece::Keyword(":name"), start, end);
                    once(&mut name, "name")?;
                    self.name(Piece::Name)?;
                }
                Some(AidParameter::Addresses) => {
                    self.observer
                        .piece(Piece::Keyword(":addresses"), start, end);
                    once(&mut addresses, "addresses")?;
                    self.addresses()?;
                }
                Some(AidParameter::Resolvers) => {
                    self.observer
                        .piece(Piece::Keyword(":resolvers"), start, end);
                    once(&mut resolvers, "resolvers")?;
                    self.aids("sequence", depth)?;
                }
                None => {
                    self.observer.piece(Piece::UserDefined, start, end);
                    self.expression()?;
                }
            }
        }
        if name {
            Ok(())
        } else {
            Err(self.expected(first, "':name' of an agent"))
        }
    }

    fn addresses(&mut self) -> Result<(), DecodeError> {
        self.take(b'(', "'(' before addresses")?;
        if !self.keyword("sequence") && !self.keyword("set") {
            return Err(self.expected(self.lexer.at, "'sequence'"));
        }
        while self.lexer.skip_blanks() != Some(b')') {
            self.count_value()?;
            self.name(Piece::Address)?;
        }
        self.take(b')', "')'")
    }

    /// The next parameter with its colon, or `None` after the parenthesis that ends the parameters.
    fn parameter(&mut self, expected: &'static str) -> Result<Option<(usize, usize)>, DecodeError> {
        match self.lexer.skip_blanks() {
            Some(b')') => {
                self.take(b')', "')'")?;
                return Ok(None);
            }
            Some(b':') => {}
            _ => return Err(self.expected(self.lexer.at, expected)),
        }
        let (start, end) = self.bare(expected)?;
        if end == start + 1 {
            return Err(self.expected(end, expected));
        }
        Ok(Some((start, end)))
    }

    /// Reads a name or address: a word, or a string without escapes.
    fn name(&mut self, piece: Piece) -> Result<(), DecodeError> {
        let expected = "a word, or a string without escapes, that is not empty";
        self.lexer.skip_blanks();
        let at = self.lexer.at;
        if let Some((start, end)) = self.lexer.bare() {
            self.observer.piece(piece, start, end);
            return self.utf8(start, end, expected);
        }
        match self.lexer.next()? {
            Token::Quoted {
                start,
                end,
                escapes: false,
            }
            | Token::Counted { start, end }
                if start < end || piece == Piece::Address =>
            {
                self.observer.piece(piece, at, self.lexer.at);
                self.utf8(start, end, expected)
            }
            _ => Err(self.expected(at, expected)),
        }
    }

    fn date_time(&mut self) -> Result<(), DecodeError> {
        let (start, end) = self.bare("a date-time")?;
        self.observer.piece(Piece::Value, start, end);
        match DateTime::parse(&self.bytes()[start..end]) {
            Ok(_) => Ok(()),
            Err(problem) => Err(DecodeError::new(start, problem.into())),
        }
    }

    /// Reads a word, or a string or number in its place. Lists and bytes name no protocol.
    fn protocol(&mut self) -> Result<(), DecodeError> {
        let first = self.lexer.skip_blanks();
        let is_counted = first == Some(b'#') && matches!(self.lexer.peek()?, Token::Counted { .. });
        if first == Some(b'(') || is_counted {
            return Err(self.expected(self.lexer.at, "the name of a protocol, a word"));
        }
        self.expression()
    }

    fn content(&mut self) -> Result<(), DecodeError> {
        self.count_value()?;
        self.lexer.skip_blanks();
        let start = self.lexer.at;
        match self.lexer.next()? {
            Token::Bare { start, end } => self.utf8(start, end, "the content")?,
            // Content need not be UTF-8.
            Token::Quoted { .. } | Token::Counted { .. } => {}
            _ => return Err(self.expected(start, "the content, a string")),
        }
        self.observer.piece(Piece::Value, start, self.lexer.at);
        Ok(())
    }

    /// Reads an expression. Lists are walked without recursion: their nesting is only counted.
    fn expression(&mut self) -> Result<(), DecodeError> {
        let mut depth = 0usize;
        loop {
            self.count_value()?;
            self.lexer.skip_blanks();
            let at = self.lexer.at;
            let token = self.lexer.next()?;
            let piece = match token {
                Token::Open => {
                    depth += 1;
                    if depth > self.depth() {
                        return Err(DecodeError::limit(at, "nested lists", self.depth()));
                    }
                    Piece::Open
                }
                Token::Close if depth > 0 => {
                    depth -= 1;
                    Piece::Close
                }
                Token::Close | Token::End => return Err(self.expected(at, "an expression")),
                Token::Bare { start, end } | Token::Quoted { start, end, .. } => {
                    self.utf8(start, end, "an expression")?;
                    Piece::Value
                }
                Token::Counted { .. } => Piece::Value,
            };
            self.observer.piece(piece, at, self.lexer.at);
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Whether the value that begins at `at` says base64.
    fn is_base64(&self, at: usize) -> bool {
        let token = Lexer::new(self.bytes(), at).next();
        let Ok(Token::Bare { start, end } | Token::Quoted { start, end, .. }) = token else {
            return false;
        };
        self.bytes()[start..end].eq_ignore_ascii_case(b"base64")
    }

    fn check_base64(&self, layout: &Layout) -> Result<(), DecodeError> {
        let Some(at) = layout.offsets.get(Parameter::Content) else {
            return Ok(());
        };
        match Lexer::new(self.bytes(), at).next()? {
            Token::Bare { start, end }
            | Token::Quoted { start, end, .. }
            | Token::Counted { start, end }
                if crate::base64::is_valid(&self.bytes()[start..end]) =>
            {
                Ok(())
            }
            _ => Err(self.expected(at, "content in base64, as X-JADE-Encoding says")),
        }
    }
}

/// A parameter that the standard has for agent identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AidParameter {
    Name,
    Addresses,
    Resolvers,
}

impl AidParameter {
    /// The parameter of this name, in any letter case.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"name") {
            Some(Self::Name)
        } else if name.eq_ignore_ascii_case(b"addresses") {
            Some(Self::Addresses)
        } else if name.eq_ignore_ascii_case(b"resolvers") {
            Some(Self::Resolvers)
        } else {
            None
        }
    }
}

pub(super) fn is_keyword(mut lexer: Lexer<'_>, keyword: &str) -> bool {
    let found = lexer.bare();
    found.is_some_and(|(start, end)| {
        lexer.bytes[start..end].eq_ignore_ascii_case(keyword.as_bytes())
    })
}
