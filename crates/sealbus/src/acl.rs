//! The language agents speak: messages, agent identifiers and their parts.
//!
//! The crate `sealbus-fipa` has the encodings, too.

pub use sealbus_fipa::{
    AclMessage, AclMessageRef, Aid, AidError, Content, DateTime, Expression, Performative, sl,
};
