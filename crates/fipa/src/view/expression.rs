//! The values of parameters, read in place.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::ToString;
use core::fmt;

use crate::{DateTime, Expression, Number, bitefficient, string};

/// An expression to be read where it is.
#[derive(Debug, Clone)]
pub enum ExpressionRef<'a> {
    /// A bare word.
    Word(&'a str),
    /// A text in quotes. It is owned only if escapes had to be undone.
    String(Cow<'a, str>),
    /// A number.
    Number(NumberRef<'a>),
    /// A date-time token.
    DateTime(DateTime),
    /// A byte string.
    Bytes(&'a [u8]),
    /// Expressions in parentheses.
    List(Expressions<'a>),
}

impl<'a> ExpressionRef<'a> {
    /// The text of a word, string, number or date-time. Allocates for the latter two when they are
    /// read from the bit-efficient encoding, and for strings with escapes.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Word(word) => Some(Cow::Borrowed(word)),
            Self::String(text) => Some(text.clone()),
            Self::Number(number) => Some(number.text()),
            Self::DateTime(date_time) => Some(Cow::Owned(date_time.to_string())),
            Self::Bytes(_) | Self::List(_) => None,
        }
    }

    /// A copy that owns everything.
    pub fn to_owned(&self) -> Expression {
        match self {
            Self::Word(word) => Expression::Word((*word).to_owned()),
            Self::String(text) => Expression::String(text.clone().into_owned()),
            Self::Number(number) => Expression::Number(number.to_owned()),
            Self::DateTime(date_time) => Expression::DateTime(*date_time),
            Self::Bytes(bytes) => Expression::Bytes(bytes.to_vec()),
            Self::List(items) => {
                Expression::List(items.clone().map(|item| item.to_owned()).collect())
            }
        }
    }
}

impl<'a> From<&'a Expression> for ExpressionRef<'a> {
    fn from(expression: &'a Expression) -> Self {
        match expression {
            Expression::Word(word) => Self::Word(word),
            Expression::String(text) => Self::String(Cow::Borrowed(text)),
            Expression::Number(number) => Self::Number(NumberRef::Text(number.as_str())),
            Expression::DateTime(date_time) => Self::DateTime(*date_time),
            Expression::Bytes(bytes) => Self::Bytes(bytes),
            Expression::List(items) => {
                Self::List(Expressions(ExpressionsSource::Owned(items.iter())))
            }
        }
    }
}

/// A number to be read where it is.
#[derive(Debug, Clone, Copy)]
pub enum NumberRef<'a> {
    /// Written in text.
    Text(&'a str),
    /// Written in the nibble code of the bit-efficient encoding.
    Nibbles(bitefficient::Nibbles<'a>),
}

impl<'a> NumberRef<'a> {
    /// The digits as text. Allocates when they come from the bit-efficient encoding.
    pub fn text(&self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Nibbles(nibbles) => Cow::Owned(nibbles.to_string()),
        }
    }

    /// A copy that owns its digits.
    pub fn to_owned(&self) -> Number {
        Number::parse(&self.text()).unwrap_or_else(|| Number::from(0))
    }
}

/// The items of a list.
#[derive(Clone)]
pub struct Expressions<'a>(ExpressionsSource<'a>);

#[derive(Clone)]
enum ExpressionsSource<'a> {
    Owned(core::slice::Iter<'a, Expression>),
    BitEfficient(bitefficient::ExpressionsView<'a>),
    String(string::ExpressionsView<'a>),
}

impl<'a> Expressions<'a> {
    pub(crate) fn from_bitefficient(view: bitefficient::ExpressionsView<'a>) -> Self {
        Self(ExpressionsSource::BitEfficient(view))
    }

    pub(crate) fn from_string(view: string::ExpressionsView<'a>) -> Self {
        Self(ExpressionsSource::String(view))
    }
}

impl<'a> Iterator for Expressions<'a> {
    type Item = ExpressionRef<'a>;

    fn next(&mut self) -> Option<ExpressionRef<'a>> {
        match &mut self.0 {
            ExpressionsSource::Owned(items) => items.next().map(ExpressionRef::from),
            ExpressionsSource::BitEfficient(view) => view.next(),
            ExpressionsSource::String(view) => view.next(),
        }
    }
}

impl fmt::Debug for Expressions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
