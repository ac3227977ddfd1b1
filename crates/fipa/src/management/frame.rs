//! Reading and writing the slots of an object.

use super::Exception;
use crate::sl::{Arguments, Parameter, Term};
use crate::{Aid, DateTime};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The values of an object's slots, in the order of its slot names.
pub(super) struct Frame<'t, 'a, const N: usize> {
    object: &'static str,
    names: [&'static str; N],
    values: [Option<&'t Term<'a>>; N],
}

impl<'t, 'a, const N: usize> Frame<'t, 'a, N> {
    /// Reads the frame called `object`, with slots by name or by position.
    pub(super) fn read(
        term: &'t Term<'a>,
        object: &'static str,
        names: [&'static str; N],
    ) -> Result<Self, Exception> {
        let frame = match term {
            Term::Function(frame) if frame.symbol.eq_ignore_ascii_case(object) => frame,
            other => return Err(Exception::UnexpectedArgument(name_of(other))),
        };
        let mut values = [None; N];
        match &frame.arguments {
            Arguments::Positional(terms) => {
                if terms.len() > N {
                    return Err(Exception::UnexpectedArgumentCount);
                }
                for (value, term) in values.iter_mut().zip(terms) {
                    *value = Some(term);
                }
            }
            Arguments::Named(parameters) => {
                for Parameter { name, value } in parameters {
                    match names
                        .iter()
                        .position(|slot| slot.eq_ignore_ascii_case(name))
                    {
                        Some(slot) if values[slot].is_none() => values[slot] = Some(value),
                        None if is_user_defined(name) => {}
                        _ => {
                            return Err(Exception::UnexpectedParameter {
                                object: object.into(),
                                slot: name.clone().into_owned(),
                            });
                        }
                    }
                }
            }
        }
        Ok(Self {
            object,
            names,
            values,
        })
    }

    /// A slot's value, read by `read`; `None` if the slot is absent.
    ///
    /// A value of a wrong kind is an unrecognised value of this slot. A fault inside a value of the right kind is
    /// reported as such.
    pub(super) fn optional<T>(
        &self,
        slot: usize,
        read: impl FnOnce(&'t Term<'a>) -> Result<T, Exception>,
    ) -> Result<Option<T>, Exception> {
        let Some(value) = self.values[slot] else {
            return Ok(None);
        };
        read(value).map(Some).map_err(|exception| match exception {
            Exception::UnexpectedArgument(_) => {
                Exception::unrecognised(self.object, self.names[slot])
            }
            other => other,
        })
    }

    /// A mandatory slot's value.
    pub(super) fn mandatory<T>(
        &self,
        slot: usize,
        read: impl FnOnce(&'t Term<'a>) -> Result<T, Exception>,
    ) -> Result<T, Exception> {
        self.optional(slot, read)?
            .ok_or_else(|| Exception::missing(self.object, self.names[slot]))
    }

    /// The members of a slot that holds a set or a sequence. Empty if the slot is absent.
    pub(super) fn members<T>(
        &self,
        slot: usize,
        read: impl FnMut(&'t Term<'a>) -> Result<T, Exception>,
    ) -> Result<Vec<T>, Exception> {
        let members = self.optional(slot, |value| members(value, read))?;
        Ok(members.unwrap_or_default())
    }
}

/// Names that FIPA leaves to users.
pub(super) fn is_user_defined(name: &str) -> bool {
    name.get(..2)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case("x-"))
}

/// The name of a term in an exception.
pub(super) fn name_of(term: &Term<'_>) -> String {
    match term {
        Term::Function(function) => function.symbol.clone().into_owned(),
        Term::Set(_) => "set".into(),
        Term::Sequence(_) => "sequence".into(),
        Term::Action(_) => "action".into(),
        Term::Text(text) => text.clone().into_owned(),
        other => other.to_string(),
    }
}

fn other_type<T>(term: &Term<'_>) -> Result<T, Exception> {
    Err(Exception::UnexpectedArgument(name_of(term)))
}

/// The members of a set or sequence. Readers accept either for the other.
pub(super) fn members<'t, 'a, T>(
    term: &'t Term<'a>,
    read: impl FnMut(&'t Term<'a>) -> Result<T, Exception>,
) -> Result<Vec<T>, Exception> {
    match term.as_members() {
        Some(members) => members.iter().map(read).collect(),
        None => other_type(term),
    }
}

/// Reads a word or string. Also reads numbers, for peers that do not quote a string of digits.
pub(super) fn string(term: &Term<'_>) -> Result<String, Exception> {
    match term {
        Term::Integer(number) => Ok(number.to_string()),
        term => term
            .as_text()
            .map_or_else(|| other_type(term), |text| Ok(text.to_owned())),
    }
}

pub(super) fn integer(term: &Term<'_>) -> Result<i64, Exception> {
    match term {
        Term::Integer(number) => Ok(*number),
        term => other_type(term),
    }
}

pub(super) fn date_time(term: &Term<'_>) -> Result<DateTime, Exception> {
    match term {
        Term::DateTime(date_time) => Ok(*date_time),
        // JADE's own codec quotes dates in some versions.
        term => match term.as_text().and_then(|text| text.parse().ok()) {
            Some(date_time) => Ok(date_time),
            None => other_type(term),
        },
    }
}

/// Collects the slots that have a value.
#[derive(Default)]
pub(super) struct Slots<'a>(Vec<Parameter<'a>>);

impl<'a> Slots<'a> {
    pub(super) fn with(mut self, name: &'static str, value: Option<Term<'a>>) -> Self {
        self.0
            .extend(value.map(|value| Parameter::new(name, value)));
        self
    }

    pub(super) fn with_string(self, name: &'static str, value: Option<&'a str>) -> Self {
        self.with(name, value.map(Term::text))
    }

    pub(super) fn with_aid(self, name: &'static str, value: Option<&'a Aid>) -> Self {
        self.with(name, value.map(Aid::to_term))
    }

    /// A set, left out when it is empty.
    pub(super) fn with_set<T>(
        self,
        name: &'static str,
        members: &'a [T],
        write: impl FnMut(&'a T) -> Term<'a>,
    ) -> Self {
        let set = || Term::Set(members.iter().map(write).collect());
        self.with(name, (!members.is_empty()).then(set))
    }

    /// A set of strings, left out when it is empty.
    pub(super) fn with_strings(self, name: &'static str, members: &'a [String]) -> Self {
        self.with_set(name, members, Term::text)
    }

    pub(super) fn into_frame(self, object: &'static str) -> Term<'a> {
        Term::frame(object, self.0)
    }
}
