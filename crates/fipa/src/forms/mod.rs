//! Messages and their parts as maps, sequences and texts. The JSON encoding and `serde` share this form.

mod read;
mod write;

#[cfg(feature = "json")]
pub(crate) use read::{AidRead, ContentRead, DateTimeRead, Members, MessageRead};
#[cfg(feature = "sl")]
pub(crate) use write::DATE_TIME;
#[cfg(feature = "json")]
pub(crate) use write::{AidForm, ContentForm, ENCODING, MessageForm};
