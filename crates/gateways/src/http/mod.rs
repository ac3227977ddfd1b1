//! The FIPA agent message transport over HTTP (FIPA00084).
//!
//! These parts are free of I/O: [`multipart`], [`transmission`], [`response`].

mod address;
pub(crate) mod arrival;
mod bounded_writes;
pub(crate) mod conversation;
pub mod multipart;
pub mod response;
pub(crate) mod server;
pub mod transmission;

pub use address::{HttpAddress, HttpAddressError};

/// The name of this transport (FIPA00084).
pub(crate) const TRANSPORT: &str = "fipa.mts.mtp.http.std";
