//! The platform's port for strangers, over TLS. The server shows its root certificate. A token tells the other end the
//! fingerprint of that certificate. Newcomers join here, and anyone can read the issuance logs.

mod client;
mod log_reader;
mod log_server;
mod pace;
mod tls;
mod word;

pub use client::Enrolment;
pub use client::EnrolmentError;
pub use log_reader::{LogReadError, LogReader};
pub use log_server::{LogServer, MOST_LOGS, is_log_name};
pub use tls::{WaitingStranger, accept, bind, connect, most_strangers};
pub use word::{is_word, read_word, reply, say};

/// Name of the enrolment protocol in the TLS handshake (RFC 7301).
pub const ENROLMENT: &[u8] = b"sealbus-enrolment/1";
/// Name of HTTP in the TLS handshake. The files of issuance logs are read over it.
pub const HTTP: &[u8] = b"http/1.1";
/// Name of the attachment protocol in the TLS handshake.
pub const ATTACHMENT: &[u8] = b"sealbus-attachment/1";
