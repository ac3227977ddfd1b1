//! The XML representation of messages (FIPA00071).
//!
//! Sealbus writes one `receiver` and one `reply-to` element for each agent, because JADE takes only one agent from
//! each. It writes the conversation-id both as element and as attribute. It reads these and the other forms in use,
//! which `docs/encodings.md` lists.

use alloc::vec::Vec;
mod aid;
mod elements;
mod explain;
mod read;
mod write;

pub(crate) use elements::{Element, Elements, trimmed};
pub use read::decode;
pub use write::encode;
pub(crate) use write::{
    Names, close, open, write_aid, write_attribute, write_element, write_empty, write_text,
};

use crate::{AclMessage, DecodeError, EncodeError, Limits, Representation};

/// The encoding's FIPA name.
pub const NAME: &str = crate::representation::XML;

/// The element with which JADE marks base64 content.
const JADE_ENCODING: &str = "X-JADE-Encoding";

/// The encoding as a [`Representation`].
#[derive(Debug, Clone, Copy)]
pub struct Xml;

impl Representation for Xml {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "xml"
    }

    fn recognises(&self, bytes: &[u8]) -> bool {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        bytes.trim_ascii_start().first() == Some(&b'<')
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
