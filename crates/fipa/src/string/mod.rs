//! The String representation of messages (FIPA00070).
//!
//! Sealbus writes lower-case names, the sender first and the content after the receivers. It reads the forms that the
//! standard allows and JADE's variants: names in any letter case, content as a word, agent names in quotes, and byte
//! content as `:X-JADE-Encoding Base64`.

use alloc::vec::Vec;
mod encode;
mod explain;
mod lex;
mod parse;
mod view;

#[cfg(feature = "xml")]
pub(crate) use encode::check_carried;
pub use encode::encode;
pub(crate) use encode::write_expression;
pub(crate) use parse::{Layout, check_expression};
pub(crate) use view::{
    AddressesView, AidView, AidsView, ExpressionsView, UserDefinedView, View, classify,
    expression_text, expression_view,
};

use crate::{AclMessage, AclMessageRef, DecodeError, EncodeError, Limits, Representation};

/// The encoding's FIPA name.
pub const NAME: &str = "fipa.acl.rep.string.std";

/// Reads a message. Only white space may stand around it.
///
/// # Errors
/// [`DecodeError`] with the offset of the first byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
    decode_ref(bytes, limits).map(|message| message.to_owned())
}

/// Checks a message in one pass without allocating, and returns a view that reads from `bytes`.
///
/// # Errors
/// As [`decode`].
pub fn decode_ref<'a>(bytes: &'a [u8], limits: &Limits) -> Result<AclMessageRef<'a>, DecodeError> {
    let layout = Layout::of(bytes, limits)?;
    Ok(AclMessageRef::from_string(View::new(bytes, layout)))
}

/// The encoding as a [`Representation`].
#[derive(Debug, Clone, Copy)]
pub struct StringRepresentation;

impl Representation for StringRepresentation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "string"
    }

    fn recognises(&self, bytes: &[u8]) -> bool {
        bytes.trim_ascii_start().first() == Some(&b'(')
    }

    fn encode(&self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(message, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
        decode(bytes, limits)
    }

    fn explain(&self, bytes: &[u8], limits: &Limits) -> crate::Explanation {
        explain::explain(bytes, limits)
    }
}
