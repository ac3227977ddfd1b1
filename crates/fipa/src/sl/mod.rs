//! FIPA-SL (FIPA00008): the content language of agent management and most FIPA agents.
//!
//! [`Content`] is the `:content` of a message: a tuple of actions, propositions and identifying expressions. It is a
//! typed tree that borrows from the bytes it was read from.
//!
//! ```
//! use sealbus_fipa::Limits;
//! use sealbus_fipa::sl::{Content, ContentExpression, Profile};
//!
//! let text = b"((action (agent-identifier :name j) (deliver box017 (loc 12 19))))";
//! let content = Content::parse(text, &Limits::default())?;
//! assert!(matches!(content.expressions[0], ContentExpression::Action(_)));
//! assert_eq!(content.profile(), Profile::Sl0);
//! assert_eq!(content.to_bytes(), text);
//! # Ok::<(), sealbus_fipa::DecodeError>(())
//! ```
//!
//! Readers are generous where this is harmless: they accept keywords in any case, blanks anywhere, named arguments for
//! predicates, and a proposition symbol in parentheses. The writer is strict: lower-case keywords, one blank, and
//! quotes around every string that another reader might misread.

mod lexer;
mod parser;
mod printer;
mod profile;
mod tree;
#[cfg(feature = "serde")]
mod value;

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;

pub use profile::{Profile, ProfileError, UnknownProfile};
pub use tree::{
    ActionExpression, Arguments, Connective, Content, ContentExpression, Float, FunctionalTerm,
    IdentifyingExpression, ModalOperator, Parameter, Quantifier, ReferentialOperator, Term, Text,
    Wff,
};
#[cfg(feature = "serde")]
pub use value::{ValueError, from_term, to_predicate, to_term};
