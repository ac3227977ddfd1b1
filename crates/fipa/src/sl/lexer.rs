use alloc::borrow::Cow;

use super::tree::{Float, Term, Text};
use crate::expression::is_decimal;
use crate::literal;
use crate::{DecodeError, DecodeProblem};

/// Whether a byte ends a word: white space, control characters and parentheses.
fn ends_word(byte: u8) -> bool {
    byte <= 0x20 || byte == b'(' || byte == b')'
}

/// Whether a byte may begin a word by FIPA00008. `+` and `.` may, but see [`number`].
fn begins_word(byte: u8) -> bool {
    !ends_word(byte) && !matches!(byte, b'"' | b'#' | b'0'..=b'9' | b':' | b'-' | b'?')
}

/// The smallest piece of SL.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    /// An unquoted string: may be a keyword.
    Word(&'a str),
    /// A quoted or byte-length encoded string, or a number, or a date-time: never a keyword.
    Constant(Term<'a>),
    Variable(Text<'a>),
    ParameterName(Text<'a>),
    End,
}

/// Cuts bytes into tokens, each byte once.
#[derive(Clone)]
pub(super) struct Lexer<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, position: 0 }
    }

    pub(super) fn input(&self) -> &'a [u8] {
        self.input
    }

    /// The next token and the offset it begins at.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), DecodeError> {
        while self
            .input
            .get(self.position)
            .is_some_and(|byte| *byte <= 0x20)
        {
            self.position += 1;
        }
        let start = self.position;
        let Some(&first) = self.input.get(start) else {
            return Ok((start, Token::End));
        };
        let token = match first {
            b'(' => self.single(Token::Open),
            b')' => self.single(Token::Close),
            b'"' => Token::Constant(Term::Text(self.literal()?)),
            b'#' => Token::Constant(self.byte_length_encoded()?),
            b'?' => Token::Variable(self.named("a variable name after '?'")?),
            b':' => Token::ParameterName(self.named("a parameter name after ':'")?),
            b'0'..=b'9' | b'-' => {
                let text = self.run()?;
                let constant = number(text, start)?;
                Token::Constant(constant.ok_or_else(|| self.unexpected(start, NO_WORD))?)
            }
            b'+' | b'.' => {
                let text = self.run()?;
                match number(text, start)? {
                    Some(constant) => Token::Constant(constant),
                    None => Token::Word(text),
                }
            }
            _ => Token::Word(self.run()?),
        };
        Ok((start, token))
    }

    fn single(&mut self, token: Token<'a>) -> Token<'a> {
        self.position += 1;
        token
    }

    /// Bytes up to a blank or parenthesis.
    fn run(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.position;
        let rest = &self.input[start..];
        let length = rest
            .iter()
            .position(|byte| ends_word(*byte))
            .unwrap_or(rest.len());
        self.position += length;
        text(&rest[..length], start)
    }

    #[cold]
    fn unexpected(&self, offset: usize, expected: &'static str) -> DecodeError {
        DecodeError::expected(self.input, offset, expected)
    }

    /// The string that follows `?` or `:`.
    fn named(&mut self, expected: &'static str) -> Result<Text<'a>, DecodeError> {
        self.position += 1;
        let start = self.position;
        match self.input.get(start) {
            Some(b'"') => self.literal(),
            Some(b'#') => match self.byte_length_encoded()? {
                Term::Text(text) => Ok(text),
                Term::Bytes(Cow::Borrowed(bytes)) => Ok(Cow::Borrowed(text(bytes, start)?)),
                _ => Err(self.unexpected(start, expected)),
            },
            Some(byte) if begins_word(*byte) => Ok(Cow::Borrowed(self.run()?)),
            _ => Err(self.unexpected(start, expected)),
        }
    }

    /// Reads `"…"`, in which `\"` stands for a quote and every other backslash for itself.
    fn literal(&mut self) -> Result<Text<'a>, DecodeError> {
        let start = self.position + 1;
        let (end, escapes) = literal::literal_end(self.input, start)
            .ok_or_else(|| self.unexpected(self.input.len(), "the closing quote of a string"))?;
        self.position = end + 1;
        let raw = text(&self.input[start..end], start)?;
        Ok(if escapes {
            Cow::Owned(raw.replace("\\\"", "\""))
        } else {
            Cow::Borrowed(raw)
        })
    }

    /// Reads `#3"abc`: a length in bytes, a quote, and that many bytes.
    fn byte_length_encoded(&mut self) -> Result<Term<'a>, DecodeError> {
        let start = self.position;
        let (begin, length) = literal::counted(&self.input[start..])
            .ok_or_else(|| self.unexpected(start + 1, "a length and '\"'"))?;
        let begin = start + begin;
        let bytes = begin
            .checked_add(length)
            .and_then(|end| self.input.get(begin..end))
            .ok_or_else(|| self.unexpected(self.input.len(), "the rest of a byte string"))?;
        self.position = begin + length;
        // Text that ends in a backslash cannot be written in quotes, so this is its only form.
        if bytes.last() == Some(&b'\\')
            && let Ok(text) = core::str::from_utf8(bytes)
        {
            return Ok(Term::Text(Cow::Borrowed(text)));
        }
        Ok(Term::Bytes(Cow::Borrowed(bytes)))
    }
}

const NO_WORD: &str = "a number or date-time (quote a string that begins with a digit or '-')";

fn text(bytes: &[u8], start: usize) -> Result<&str, DecodeError> {
    core::str::from_utf8(bytes).map_err(|error| {
        let expected = "UTF-8 (send other bytes as #N\")";
        DecodeError::not_utf8(start + error.valid_up_to(), expected)
    })
}

/// Reads a number or date-time; `None` if the text has the form of neither.
fn number(text: &str, offset: usize) -> Result<Option<Term<'static>>, DecodeError> {
    let out_of_range = || {
        let problem = DecodeProblem::Syntax("the number does not fit into 64 bits".into());
        DecodeError::new(offset, problem)
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && digits == unsigned.len() {
        return text
            .parse()
            .map(|it| Some(Term::Integer(it)))
            .map_err(|_| out_of_range());
    }
    if let Some(hexadecimal) = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
        && !hexadecimal.is_empty()
        && hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        let magnitude = i128::from_str_radix(hexadecimal, 16).map_err(|_| out_of_range())?;
        let value = if text.starts_with('-') {
            -magnitude
        } else {
            magnitude
        };
        return i64::try_from(value)
            .map(|it| Some(Term::Integer(it)))
            .map_err(|_| out_of_range());
    }
    if digits == 8 && matches!(unsigned.as_bytes().get(8), Some(b'T' | b't')) {
        let date_time = text.parse();
        let problem = |error| DecodeError::new(offset, DecodeProblem::DateTime(error));
        return Ok(Some(Term::DateTime(date_time.map_err(problem)?)));
    }
    if is_decimal(text.bytes()) {
        let value: f64 = text.parse().map_err(|_| out_of_range())?;
        return Float::new(value)
            .map(|it| Some(Term::Float(it)))
            .ok_or_else(out_of_range);
    }
    Ok(None)
}

/// Whether every reader takes these characters, unquoted, for one word. Narrower than the standard: JADE's words end at
/// 0x7E, and `+` or `.` may begin a number.
pub(super) fn is_plain_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(&first) = bytes.first() else {
        return false;
    };
    // JADE takes `False` for the truth value and writes it back as `false`.
    let truth_value = ["true", "false"]
        .into_iter()
        .any(|value| text.eq_ignore_ascii_case(value) && text != value);
    begins_word(first)
        && !truth_value
        && !matches!(first, b'+' | b'.')
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'"'))
}
