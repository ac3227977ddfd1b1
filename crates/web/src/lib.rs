//! HTTP/1.1 and HTTPS with others: requests to their servers, and the connections that they open.
//!
//! A server of others may be slow, endless or hostile, and its name may lead anywhere. So each connection goes through the
//! caller's rule for addresses, after the name was resolved; redirections are not followed; each answer has a limit of time
//! and of bytes; and an HTTP connection without TLS is made to this machine alone.
//!
//! | question | place |
//! |---|---|
//! | May it be at that address? | [`reach`], free of I/O |
//! | Which certificates count? | [`trust`] |
//! | How is it asked? | [`Client`] |
//! | Which events does a stream bring? | [`events`], free of I/O |
//! | How does a server show itself? | [`tls`] |
//! | How many connections does it take? | [`accept`] |

mod accept;
mod client;
mod clients;
mod connect;
mod error;
pub mod events;
pub mod reach;
pub mod tls;
pub mod trust;

pub use accept::accept;
pub use client::{Client, whole};
pub use connect::{MayReach, Server};
pub use error::WebError;
