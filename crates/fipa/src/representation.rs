//! What every encoding of messages can do.

use crate::{AclMessage, DecodeError, EncodeError, Explanation, Limits};
use alloc::vec::Vec;

/// An encoding of ACL messages.
pub trait Representation: Sync {
    /// The FIPA name, such as `fipa.acl.rep.string.std`, which envelopes carry.
    fn name(&self) -> &'static str;

    /// A word for command lines and configuration files, such as `string`.
    fn short_name(&self) -> &'static str;

    /// True if `bytes` can only be of this encoding among those known, by how they begin.
    fn recognises(&self, bytes: &[u8]) -> bool;

    /// Appends the message to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] names the field that cannot be carried; `out` is then as it was before.
    fn encode(&self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a message.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset and what was expected there.
    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError>;

    /// Takes a message apart byte by byte, as far as it can be read.
    fn explain(&self, bytes: &[u8], limits: &Limits) -> Explanation;
}

/// The FIPA name of the XML encoding, which envelopes carry even where XML itself is left out.
pub(crate) const XML: &str = "fipa.acl.rep.xml.std";
