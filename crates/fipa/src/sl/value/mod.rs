//! Values of serde types as terms: the form of an ontology's objects.
//!
//! A struct is a frame with its fields as slots, `(book :title "SL" :price 12.5)`, in their order. A field that is
//! `None` is left out. JADE also leaves out an empty sequence: such a field needs `#[serde(default)]`. A sequence is a
//! `sequence`. A truth value is the word `true` or `false`; the string of the same letters is quoted. An enum whose
//! variants hold structs is the frame of one of them, under the variant's name. JADE's codec reads and writes this
//! form. Readers also take slots by position, in the order of the fields, and symbols in any letter case.

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
