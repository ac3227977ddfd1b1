//! The language of agents: ACL messages, envelopes and FIPA-SL, and their encodings. No I/O.
//!
//! An owned message is an [`AclMessage`]. An [`AclMessageRef`] is a view of a message, either owned or in the bytes it
//! was received as. Each encoding is a module of its own with `encode` and `decode`. [`representations`] lists the
//! encodings by their FIPA names.
//!
//! # Features
//!
//! All features are on by default. Without any, the crate needs only `alloc`, not the standard library. It then has
//! messages, envelopes, and their bit-efficient and String encodings.
//!
//! | feature | adds |
//! |---|---|
//! | `std` | the system's clock in [`DateTime`] |
//! | `xml` | the XML encodings; needs `std` |
//! | `json` | the JSON encodings; needs `serde` |
//! | `sl` | FIPA-SL |
//! | `management` | FIPA's agent management ontology; needs `sl` |
//! | `serde` | `Serialize` and `Deserialize` for messages and their parts, in the form of the JSON encoding and so for self-describing formats |

#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod aid;
mod base64;
pub mod bitefficient;
mod datetime;
mod eights;
pub mod envelope;
mod error;
mod explain;
mod expression;
#[cfg(feature = "serde")]
mod forms;
#[cfg(feature = "json")]
pub mod json;
mod literal;
#[cfg(feature = "management")]
pub mod management;
mod message;
mod parameter;
mod performative;
mod representation;
mod representations;
#[cfg(feature = "sl")]
pub mod sl;
pub mod string;
mod validate;
mod view;
#[cfg(feature = "xml")]
pub mod xml;

pub use aid::{Aid, AidError, split_name};
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
