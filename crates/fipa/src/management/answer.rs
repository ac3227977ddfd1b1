use super::Exception;
use super::frame::members;
use crate::sl::{Content, ContentExpression, Term, Wff};
use alloc::vec;
use alloc::vec::Vec;

/// The objects in a result: the members of a set or sequence, or the single object.
pub(super) fn objects<T>(
    value: &Term<'_>,
    mut read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
) -> Result<Vec<T>, Exception> {
    if value.as_members().is_some() {
        members(value, read)
    } else {
        Ok(vec![read(value)?])
    }
}

/// Reads the descriptions that a search or `get-description` returned from the content of the answer, `((result action
/// (sequence …)))`.
///
/// # Errors
/// The fault in the content.
pub fn results<T>(
    content: &Content<'_>,
    read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
) -> Result<Vec<T>, Exception> {
    match content.expressions.as_slice() {
        [ContentExpression::Proposition(Wff::Result(result))] => objects(&result.1, read),
        _ => Err(Exception::UnrecognisedValue("content".into())),
    }
}
