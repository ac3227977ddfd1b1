//! `sealbus.acl`: messages, agent identifiers, and their encodings.

pub(crate) mod aid;
pub(crate) mod expression;
pub(crate) mod message;
pub(crate) mod performative;
pub(crate) mod representation;
