//! Values of serde types as terms: the form of an ontology's objects.
//!
//! A struct is a frame with its fields as slots, `(book :title "SL" :price 12.5)`, in their order. A field that is
//! `None` is left out. JADE also leaves out an empty sequence: such a field needs `#[serde(default)]`. A sequence is a
//! `sequence`. A truth value is the word `true` or `false`; the string of the same letters is quoted. An enum whose
//! variants hold structs is the frame of one of them, under the variant's name. A variant that holds another value has
//! it as its only argument, as in `(Price 12.5)`. JADE's codec reads and writes this form. Readers also take slots by
//! position, in the order of the fields, and symbols in any letter case.

mod read;
mod write;

use alloc::string::{String, ToString};
use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Serialize, de, ser};

use super::{Term, Wff};

/// Why a value is no term, or a term not such a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ser::Error for ValueError {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self(problem.to_string())
    }
}

impl de::Error for ValueError {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self(problem.to_string())
    }
}

/// Writes a value as a term.
///
/// ```
/// #[derive(serde::Serialize)]
/// struct Book {
///     title: &'static str,
///     price: f64,
///     edition: Option<u8>,
/// }
///
/// let book = Book { title: "Agents talk", price: 12.5, edition: None };
/// let term = sealbus_fipa::sl::to_term(&book)?;
/// assert_eq!(term.to_string(), r#"(Book :title "Agents talk" :price 12.5)"#);
/// # Ok::<(), sealbus_fipa::sl::ValueError>(())
/// ```
///
/// # Errors
/// [`ValueError`] for values that SL cannot express: maps, infinite numbers, integers of more than 64 bits, `None`
/// anywhere but in a field.
pub fn to_term<T: Serialize + ?Sized>(value: &T) -> Result<Term<'static>, ValueError> {
    write::term(value)
}

/// Writes a struct as a predicate. Its slots stand by position, because the standard's grammar has no names there, and
/// JADE reads none.
///
/// # Errors
/// As for [`to_term`]; also for a field that is `None` before others that are not, and for a value that is no struct.
pub fn to_predicate<T: Serialize + ?Sized>(value: &T) -> Result<Wff<'static>, ValueError> {
    match write::by_position(value)? {
        Term::Function(predicate) if predicate.has_arguments() => Ok(Wff::Predicate(predicate)),
        Term::Function(symbol) => Ok(Wff::Symbol(symbol.symbol)),
        _ => Err(ValueError("only a struct is a predicate".to_string())),
    }
}

/// Reads a term as a value.
///
/// # Errors
/// [`ValueError`] if the term is not such a value.
pub fn from_term<T: DeserializeOwned>(term: &Term<'_>) -> Result<T, ValueError> {
    T::deserialize(term)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::Limits;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Amount(f64);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Open;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Step {
        Go { speed: i64 },
        Turn(i64, i64),
        Pay(Amount),
        Stop,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Act {
        Open(Open),
        Price(Amount),
        Note(Option<String>),
        Ready(bool),
        Walk(Step),
    }

    #[test]
    fn variants_of_any_content_are_read_as_they_were_written() {
        for (act, text) in [
            (Act::Open(Open), "(Open)"),
            (Act::Price(Amount(12.5)), "(Price 12.5)"),
            (Act::Note(Some("a b".into())), "(Note \"a b\")"),
            (Act::Note(None), "(Note)"),
            (Act::Ready(true), "(Ready true)"),
            (Act::Walk(Step::Go { speed: 3 }), "(Walk (Go :speed 3))"),
            (Act::Walk(Step::Turn(1, 2)), "(Walk (Turn 1 2))"),
            (Act::Walk(Step::Pay(Amount(0.5))), "(Walk (Pay 0.5))"),
            (Act::Walk(Step::Stop), "(Walk Stop)"),
        ] {
            let term = to_term(&act).unwrap();
            assert_eq!(term.to_string(), text);
            assert_eq!(from_term::<Act>(&term), Ok(act), "{text}");
        }
        // Others write the string `true` as the truth value.
        let note = Term::parse("(Note true)", &Limits::DEFAULT).unwrap();
        let read = from_term::<Act>(&note);
        assert_eq!(read, Ok(Act::Note(Some("true".into()))));
    }
}
