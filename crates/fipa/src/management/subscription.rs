//! Subscriptions to the entries of a DF or an AMS, in the form of JADE's DF (FIPA00035 with SL).
//!
//! A subscriber names the search whose results it wants. A notification holds the matching entries that have come or
//! changed. A removed entry is reported as a description with only its name.

use super::Exception;
use super::answer::objects;
use super::frame::name_of;
use crate::sl::{
    ActionExpression, Content, ContentExpression, IdentifyingExpression, ReferentialOperator, Term,
    Text, Wff,
};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The expression to subscribe with, `(iota ?x (result (action df (search …)) ?x))`.
pub fn expression(search: ActionExpression<'_>) -> IdentifyingExpression<'_> {
    const VARIABLE: Text<'static> = Text::Borrowed("x");
    IdentifyingExpression {
        operator: ReferentialOperator::Iota,
        term: Term::Variable(VARIABLE),
        condition: Wff::result(search, Term::Variable(VARIABLE)),
    }
}

/// The action whose result a subscriber asks for. This is the reverse of [`expression`], for any of the three
/// operators.
///
/// # Errors
/// The exception to answer with, if the expression asks for anything else.
pub fn action<'t, 'a>(
    expression: &'t IdentifyingExpression<'a>,
) -> Result<&'t ActionExpression<'a>, Exception> {
    match (&expression.term, &expression.condition) {
        (Term::Variable(asked), Wff::Result(result)) => match result.as_ref() {
            (Term::Action(action), Term::Variable(given)) if asked == given => Ok(action),
            (other, _) => Err(Exception::UnsupportedFunction(name_of(other))),
        },
        _ => Err(Exception::UnrecognisedValue("content".into())),
    }
}

/// The content of a notification, `((= (iota …) (sequence …)))`.
pub fn content<'a>(
    expression: IdentifyingExpression<'a>,
    entries: impl IntoIterator<Item = Term<'a>>,
) -> Content<'a> {
    let entries = entries.into_iter().collect();
    let expression = Term::Identifying(Box::new(expression));
    Content::of(Wff::equals(expression, Term::Sequence(entries)))
}

/// Reads the entries of a notification, each with `read`.
///
/// # Errors
/// The fault in the content.
pub fn entries<T>(
    content: &Content<'_>,
    read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
) -> Result<Vec<T>, Exception> {
    match content.expressions.as_slice() {
        [ContentExpression::Proposition(Wff::Equals(equality))] => objects(&equality.1, read),
        _ => Err(Exception::UnrecognisedValue("content".into())),
    }
}
