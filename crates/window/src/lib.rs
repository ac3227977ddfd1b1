//! Watching a running platform: its counters as rates, messages and refusals as they come, recordings of them, and the
//! window, a page that shows all this in a browser.
//!
//! This crate reads everything through an operator's connection to the Master. Before its first request, the connection
//! gives up all rights but reading. If the operator allows it, the page also kills, moves and revokes agents. Each such
//! act has a connection of its own.
//!
//! The window is a process of its own. Its page is built from plain modules without a build step. The page talks to
//! this process over HTTP on loopback and over TLS elsewhere. A link opens the page once. A key in a header (never a
//! cookie) stands for the session. `Host` and `Origin` must be the window's own. The page's content comes as one stream
//! of JSON lines. A slow reader slows only its own stream: nothing waits in a queue, and the platform counts the
//! messages that pass in between.

#![forbid(unsafe_code)]

mod act;
mod board;
mod door;
mod feed;
mod page;
mod place;
mod question;
mod recording;
mod remedy;
mod rights;
mod seen;
mod server;
mod session;

pub use board::{AgentRow, Board, ChannelRow, Look, ProcessRow, is_agent};
pub use place::{PlaceError, TlsFiles, WindowAddress};
pub use recording::{Recorder, RecordingError, read_from};
pub use rights::Rights;
pub use seen::{Seen, fresh};
pub use server::{Source, Window};
