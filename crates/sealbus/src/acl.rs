//! The language that agents speak: messages, agent identifiers and their parts.
//!
//! The crate `sealbus-fipa` also has the encodings.

pub use sealbus_fipa::{
    AclMessage, AclMessageRef, Aid, AidError, Content, DateTime, Expression, Performative, sl,
};
