//! The language agents speak: ACL messages, envelopes and FIPA-SL, and their encodings. No I/O.
//!
//! A message is an [`AclMessage`] when it is owned, and an [`AclMessageRef`] when it is only looked
//! at, whether in an owned message or in the bytes it was received as. Each encoding is a module of
//! its own with `encode` and `decode`; [`representations`] lists them by their FIPA names.

mod aid;
mod base64;
pub mod bitefficient;
mod datetime;
mod eights;
pub mod envelope;
mod error;
mod explain;
mod expression;
pub mod json;
mod literal;
pub mod management;
mod message;
mod parameter;
mod performative;
mod representation;
mod representations;
pub mod sl;
pub mod string;
mod validate;
mod view;
pub mod xml;

pub use aid::{Aid, AidError};
pub use datetime::{DateTime, DateTimeError, Origin};
pub use error::{DecodeError, DecodeProblem, EncodeError, EncodeProblem, Found, Limits};
pub use explain::{ExplainedPiece, Explanation};
pub use expression::{Expression, Number, is_word};
pub use message::{AclMessage, Content};
pub use performative::Performative;
pub use representation::Representation;
pub use representations::{detect, explain, representation, representations};
pub use validate::{Expectations, Finding, Severity, validate};
pub use view::{
    AclMessageRef, Addresses, AidRef, Aids, ContentRef, ExpressionRef, Expressions, NumberRef,
    UserDefined,
};

/// The examples of the README, which are tested as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
