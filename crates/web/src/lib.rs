//! HTTP and HTTPS: requests to servers of others and of the platform, and the connections that others open.
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
//! | How many connections does it take? | [`accept_until`] |
//! | How long may a request's head be? | [`answer_http1`] |

mod accept;
mod answers;
mod client;
mod clients;
mod connect;
mod error;
pub mod events;
pub mod reach;
pub mod tls;
pub mod trust;

pub use accept::{Listener, accept_each, accept_until};
pub use answers::{HeadLimits, answer_http1, empty_answer};
pub use client::{Client, whole};
pub use connect::{MayReach, Server, Socket};
pub use error::WebError;
