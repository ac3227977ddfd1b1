//! Joining a platform over TLS. The server shows its root certificate, and the newcomer has that certificate's
//! fingerprint from a token.

mod client;
mod lines;
mod tls;

pub use client::Enrolment;
pub use client::EnrolmentError;
pub use tls::{WaitingStranger, accept, bind, connect, most_strangers};

/// Name of the enrolment protocol in the TLS handshake (RFC 7301).
pub const ENROLMENT: &[u8] = b"sealbus-enrolment/1";
/// Name of the attachment protocol in the TLS handshake.
pub const ATTACHMENT: &[u8] = b"sealbus-attachment/1";
