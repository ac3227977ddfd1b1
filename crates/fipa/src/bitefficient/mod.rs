//! The bit-efficient representation of messages (FIPA00069).
//!
//! Sealbus writes the sender first and the content last, so that a reader learns early which agent a message claims as
//! its sender. Readers take the parameters in any order, but each only once. Text that the standard leaves open is read
//! in every form known in the wild. `docs/encodings.md` explains which form is written.

use alloc::vec::Vec;
mod alike;
mod codetable;
mod encode;
mod encoded;
mod explain;
mod nibbles;
mod parse;
mod parts;
mod scan;
mod token;
mod view;

pub use alike::Rest;
pub use codetable::CodeTable;
pub use encode::{TextForm, encode, encode_around_content, encode_with};
pub(crate) use encode::{write_byte_string, write_date_time};
pub use encoded::{Checker, EncodedMessage, Likeness};
pub use nibbles::Nibbles;
pub(crate) use nibbles::write_number;
pub(crate) use parse::DEEPEST;
pub(crate) use parse::read_date_time;
pub use parts::{begin_content, encode_parts, join_in_place, join_parts, room_before_rest};
pub(crate) use scan::{byte_string, find_end};
pub(crate) use view::{AidView, AidsView, ExpressionsView, UserDefinedView, View, WordsView};

use crate::{AclMessage, AclMessageRef, DecodeError, Limits};
use parse::Layout;

/// The encoding's FIPA name.
pub const NAME: &str = "fipa.acl.rep.bitefficient.std";

/// Reads a message. Bytes after its end mark are ignored.
///
/// # Errors
/// [`DecodeError`] with the offset of the first byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
    decode_ref(bytes, limits).map(|message| message.to_owned())
}

/// Checks a message in one pass without allocating, and returns a view that reads from `bytes`. Bytes after its end
/// mark are ignored.
///
/// # Errors
/// [`DecodeError`] with the offset of the first byte that does not fit, or the exceeded limit.
pub fn decode_ref<'a>(bytes: &'a [u8], limits: &Limits) -> Result<AclMessageRef<'a>, DecodeError> {
    let layout = Layout::of(bytes, limits)?;
    Ok(AclMessageRef::from_bitefficient(View::new(bytes, layout)))
}

/// The encoding as a [`Representation`](crate::Representation).
#[derive(Debug, Clone, Copy)]
pub struct BitEfficient;

impl crate::Representation for BitEfficient {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "bitefficient"
    }

    fn recognises(&self, bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(0xfa..=0xfc))
    }

    fn encode(&self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), crate::EncodeError> {
        encode(message, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
        decode(bytes, limits)
    }

    fn explain(&self, bytes: &[u8], limits: &Limits) -> crate::Explanation {
        explain::explain(bytes, limits)
    }
}
