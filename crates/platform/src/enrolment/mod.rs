//! Joining a platform over TLS: the server shows its root certificate, whose fingerprint the one who
//! joins has from a token.

mod client;
mod server;
mod tls;

pub(crate) use client::Enrolment;
pub use client::EnrolmentError;
pub(crate) use server::serve;
pub(crate) use tls::{accept, bind, connect};

/// Name of the enrolment protocol in the TLS handshake (RFC 7301).
pub(crate) const ENROLMENT: &[u8] = b"sealbus-enrolment/1";
/// Name of the attachment protocol in the TLS handshake.
pub(crate) const ATTACHMENT: &[u8] = b"sealbus-attachment/1";
