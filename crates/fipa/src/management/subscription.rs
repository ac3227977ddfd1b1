//! Subscriptions to what a DF knows, in the form that JADE's DF gave them (FIPA00035 with SL).
//!
//! One subscribes with the search whose result one wants to be told. A notification holds the
//! entries that match it and have come or changed; an entry that went is told as a description
//! that has only its name.

use super::answer::objects;
use super::frame::name_of;
use super::{DfAgentDescription, Exception};
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

/// The action whose result a subscriber asks for; the reverse of [`expression`],
/// for any of the three operators.
///
/// # Errors
/// The exception to answer when the expression asks for something else.
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
    entries: impl IntoIterator<Item = &'a DfAgentDescription>,
) -> Content<'a> {
    let entries = entries
        .into_iter()
        .map(DfAgentDescription::to_term)
        .collect();
    let expression = Term::Identifying(Box::new(expression));
    Content::of(Wff::equals(expression, Term::Sequence(entries)))
}

/// Reads the entries of a notification.
///
/// # Errors
/// The fault in the content.
pub fn entries(content: &Content<'_>) -> Result<Vec<DfAgentDescription>, Exception> {
    match content.expressions.as_slice() {
        [ContentExpression::Proposition(Wff::Equals(equality))] => {
            objects(&equality.1, DfAgentDescription::from_term)
        }
        _ => Err(Exception::UnrecognisedValue("content".into())),
    }
}
