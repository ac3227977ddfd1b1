//! The values of message parameters (FIPA00070, `Expression`).

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::DateTime;
use crate::eights::{any, append, delimiters, outside_words};

/// The value of a message parameter: a word, string, number, date-time, byte string or a list of
/// expressions (FIPA00070).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expression {
    /// A bare word such as `fipa-sl`. [`is_word`] decides which texts are words.
    Word(String),
    /// A text in quotes.
    String(String),
    /// A number, kept in its written form.
    Number(Number),
    /// A date-time token.
    DateTime(DateTime),
    /// A byte-length-encoded string.
    Bytes(Vec<u8>),
    /// Expressions in parentheses.
    List(Vec<Expression>),
}

impl Expression {
    /// The text of a word or string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Word(text) | Self::String(text) => Some(text),
            Self::Number(number) => Some(number.as_str()),
            _ => None,
        }
    }
}

impl From<&str> for Expression {
    /// A word if the text can be one, otherwise a string.
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Expression {
    /// A word if the text can be one, otherwise a string.
    fn from(text: String) -> Self {
        if is_word(text.as_bytes()) {
            Self::Word(text)
        } else {
            Self::String(text)
        }
    }
}

impl From<i64> for Expression {
    fn from(value: i64) -> Self {
        Self::Number(value.into())
    }
}

impl From<Number> for Expression {
    fn from(value: Number) -> Self {
        Self::Number(value)
    }
}

impl From<DateTime> for Expression {
    fn from(value: DateTime) -> Self {
        Self::DateTime(value)
    }
}

impl From<Vec<Expression>> for Expression {
    fn from(items: Vec<Expression>) -> Self {
        Self::List(items)
    }
}

/// A number as FIPA00070 writes it: an integer or a decimal fraction, with or without exponent, or `0x` and hexadecimal
/// digits. The number is kept character for character, because an identifier may look like a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number(Box<str>);

impl Number {
    /// Reads a number; `None` if the text is not a number.
    ///
    /// A hexadecimal number must fit 64 bits.
    pub fn parse(text: &str) -> Option<Self> {
        Self::is_number(text).then(|| Self(text.into()))
    }

    /// True for a text that [`Number::parse`] accepts.
    pub fn is_number(text: &str) -> bool {
        is_decimal(text.bytes()) || parse_hexadecimal(text.as_bytes()).is_some()
    }

    /// A number that is written in hexadecimal.
    pub fn hexadecimal(value: u64) -> Self {
        Self(format!("{value:#x}").into())
    }

    /// The written form of the number.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value if the number is hexadecimal.
    pub fn as_hexadecimal(&self) -> Option<u64> {
        parse_hexadecimal(self.0.as_bytes())
    }

    /// The value if it is an integer of 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.as_hexadecimal() {
            Some(value) => i64::try_from(value).ok(),
            None => self.0.parse().ok(),
        }
    }

    /// The nearest floating-point value.
    pub fn as_f64(&self) -> f64 {
        match self.as_hexadecimal() {
            Some(value) => value as f64,
            // Rust's parser accepts every text that `is_decimal` accepts.
            None => self.0.parse().unwrap_or(f64::NAN),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value.to_string().into())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn parse_hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text
        .strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))?;
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Whether the characters are an `Integer` or `Float` of FIPA00070.
pub(crate) fn is_decimal(text: impl IntoIterator<Item = u8>) -> bool {
    #[derive(PartialEq)]
    enum Part {
        Start,
        Whole,
        Fraction,
        ExponentStart,
        Exponent,
    }
    // Whether the part before the exponent, and then the exponent, has a digit so far.
    let mut digits = false;
    let mut part = Part::Start;
    let mut signed = false;
    for character in text {
        part = match (character, part) {
            (b'0'..=b'9', part) => {
                digits = true;
                match part {
                    Part::Start => Part::Whole,
                    Part::ExponentStart => Part::Exponent,
                    part => part,
                }
            }
            (b'+' | b'-', part @ (Part::Start | Part::ExponentStart)) if !signed => {
                signed = true;
                part
            }
            (b'.', Part::Start | Part::Whole) => Part::Fraction,
            (b'e' | b'E', Part::Whole | Part::Fraction) if digits => {
                digits = false;
                signed = false;
                Part::ExponentStart
            }
            _ => return false,
        };
    }
    digits
}

/// Whether every reader takes the text for a word when it stands bare. Such a text is not empty, and has only printable
/// ASCII without blanks and parentheses. Its first character is not `#`, `-`, `@`, `"` or a digit. It is not a number
/// or date-time.
///
/// FIPA00070 allows other characters in a `Word`, but JADE drops a message that contains one.
#[inline]
pub fn is_word(text: &[u8]) -> bool {
    may_begin_word(text) && !any(text, outside_words) && !looks_like_number(text)
}

/// Whether the text is a `Word` of FIPA00070, which may contain characters outside ASCII.
#[inline]
pub(crate) fn is_standard_word(text: &[u8]) -> bool {
    may_begin_word(text) && !any(text, delimiters) && !looks_like_number(text)
}

/// Appends two bytes, the text and a zero if [`is_word`] holds for the text. If not, the bytes behind the old end of
/// `out` are undefined.
#[inline]
pub(crate) fn append_word(before: [u8; 2], text: &[u8], out: &mut Vec<u8>) -> bool {
    // The append comes first. The compiler takes code behind `may_begin_word` for rarely run, and does not inline it.
    !append(before, text, out, outside_words) && may_begin_word(text) && !looks_like_number(text)
}

/// As [`append_word`], for a `Word` of FIPA00070.
#[inline]
pub(crate) fn append_standard_word(before: [u8; 2], text: &[u8], out: &mut Vec<u8>) -> bool {
    !append(before, text, out, delimiters) && may_begin_word(text) && !looks_like_number(text)
}

#[inline]
fn may_begin_word(text: &[u8]) -> bool {
    !matches!(
        text.first(),
        None | Some(b'#' | b'-' | b'@' | b'"' | b'0'..=b'9')
    )
}

/// Whether a text that may begin a word is a number or date-time.
#[inline]
fn looks_like_number(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'+' | b'.')) && is_number_or_date_time(text)
}

#[cold]
fn is_number_or_date_time(text: &[u8]) -> bool {
    is_decimal(text.iter().copied()) || DateTime::parse(text).is_ok()
}
