//! The FIPA agent message transport over IIOP (FIPA00075): an object with the one operation `message`, at an address
//! `IOR:…` or `corbaloc:…`.
//!
//! [`transmission`] and the two sides of a connection are free of I/O.

mod conversation;
mod own;
pub(crate) mod server;
mod serving;
pub mod transmission;

pub(crate) use conversation::{IiopConversation, code_set};
pub(crate) use own::OwnObject;

/// The name of this transport (FIPA00075).
pub(crate) const TRANSPORT: &str = "fipa.mts.mtp.iiop.std";
