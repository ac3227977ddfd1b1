//! What messages and their parts look like as maps, sequences and texts: the form that the JSON
//! encoding and `serde` share.

mod read;
mod write;

#[cfg(feature = "json")]
pub(crate) use read::{AidRead, ContentRead, DateTimeRead, Members, MessageRead};
#[cfg(feature = "json")]
pub(crate) use write::{AidForm, ContentForm, ENCODING, MessageForm};
