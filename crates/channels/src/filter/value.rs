//! The values of expressions during evaluation.

use std::borrow::Cow;
use std::cmp::Ordering;

use sealbus_fipa::ExpressionRef;
use thiserror::Error;

use super::Literal;

/// The reason why a filter could not be evaluated for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// The message has no such property.
    #[error("the message has no property that the filter asks for")]
    NoProperty,
    /// The content is not text.
    #[error("the content of the message is not text")]
    ContentNotText,
    /// An operator or function got a value that it does not take.
    #[error("an operator or function of the filter got a value of the wrong type")]
    Type,
    /// An index outside its list.
    #[error("an index lies outside its list")]
    Index,
    /// A number outside 64 bits, or a division by zero.
    #[error("a calculation has no result")]
    Arithmetic,
    /// A text cannot be read as a number.
    #[error("a text that should be a number is not one")]
    Conversion,
    /// The value of a key is longer than [`LONGEST_KEY`](super::LONGEST_KEY).
    #[error("the value of the key is longer than {} bytes", super::LONGEST_KEY)]
    LongKey,
    /// The evaluation reached [`HIGHEST_COST`](super::HIGHEST_COST).
    #[error("evaluating the filter costs too much for this message")]
    Cost,
}

/// A value. Texts are borrowed from the message or the expression where possible.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    /// All user-defined parameters. An expression can only look up names in them.
    Properties,
}

impl<'a> Value<'a> {
    pub(super) fn of_literal(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(value) => Self::Bool(*value),
            Literal::Int(value) => Self::Int(*value),
            Literal::MinimumWithoutSign => Self::Int(i64::MIN),
            Literal::Uint(value) => Self::Uint(*value),
            Literal::Double(value) => Self::Double(*value),
            Literal::Text(text) => Self::Text(Cow::Borrowed(text)),
        }
    }

    /// The value of a user-defined parameter. `pay` is called for each item of a list, and for the digits of a number.
    pub(super) fn of_property(
        value: ExpressionRef<'a>,
        pay: &mut dyn FnMut(usize) -> Result<(), EvaluationError>,
    ) -> Result<Self, EvaluationError> {
        Ok(match value {
            ExpressionRef::Word("true") => Self::Bool(true),
            ExpressionRef::Word("false") => Self::Bool(false),
            ExpressionRef::Word(text) => Self::Text(Cow::Borrowed(text)),
            ExpressionRef::String(text) => Self::Text(text),
            ExpressionRef::Number(number) => {
                let number = number.to_owned();
                pay(number.as_str().len() / 64)?;
                match number.as_i64() {
                    Some(value) => Self::Int(value),
                    None => Self::Double(number.as_f64()),
                }
            }
            ExpressionRef::DateTime(date_time) => Self::Text(Cow::Owned(date_time.to_string())),
            ExpressionRef::Bytes(_) => return Err(EvaluationError::Type),
            // The depth of a decoded message is limited.
            ExpressionRef::List(items) => {
                let item = |item| {
                    pay(1)?;
                    Self::of_property(item, pay)
                };
                Self::List(items.map(item).collect::<Result<_, _>>()?)
            }
        })
    }

    pub(super) fn as_bool(&self) -> Result<bool, EvaluationError> {
        match self {
            Self::Bool(value) => Ok(*value),
            _ => Err(EvaluationError::Type),
        }
    }

    pub(super) fn as_text(&self) -> Result<&str, EvaluationError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(EvaluationError::Type),
        }
    }

    /// Whether both values are equal. Numbers are compared by value across types; other values only within their type.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::Text(one), Self::Text(two)) => one == two,
            (Self::List(one), Self::List(two)) => {
                one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.equals(two))
            }
            _ => self.compare_numbers(other) == Some(Some(Ordering::Equal)),
        }
    }

    /// The order of two values. The inner `None`: one is NaN.
    pub(super) fn compare(&self, other: &Self) -> Result<Option<Ordering>, EvaluationError> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Ok(Some(one.cmp(two))),
            (Self::Text(one), Self::Text(two)) => Ok(Some(one.cmp(two))),
            _ => self.compare_numbers(other).ok_or(EvaluationError::Type),
        }
    }

    /// `None`: one of them is not a number.
    fn compare_numbers(&self, other: &Self) -> Option<Option<Ordering>> {
        let integer = |value: &Self| match value {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            _ => None,
        };
        Some(match (integer(self), integer(other), self, other) {
            (Some(one), Some(two), _, _) => Some(one.cmp(&two)),
            (Some(one), None, _, Self::Double(two)) => {
                compare_double(*two, one).map(Ordering::reverse)
            }
            (None, Some(two), Self::Double(one), _) => compare_double(*one, two),
            (None, None, Self::Double(one), Self::Double(two)) => one.partial_cmp(two),
            _ => return None,
        })
    }
}

/// Compares exactly, even where the integer has more digits than a double keeps.
fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // A double beyond this bound is beyond every 64-bit number. Within the bound, the whole part is exact.
    if double.abs() >= 1e30 {
        return Some(if double > 0.0 {
            Ordering::Greater
        } else {
            Ordering::Less
        });
    }
    let whole = double.trunc();
    Some(
        (whole as i128)
            .cmp(&integer)
            .then(double.partial_cmp(&whole)?),
    )
}
