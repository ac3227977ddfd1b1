//! The interface of every encoding of messages.

use crate::{AclMessage, DecodeError, EncodeError, Explanation, Limits};
use alloc::vec::Vec;

/// An encoding of ACL messages.
pub trait Representation: Sync {
    /// The FIPA name, such as `fipa.acl.rep.string.std`, which envelopes carry.
    fn name(&self) -> &'static str;

    /// A word for command lines and configuration files, such as `string`.
    fn short_name(&self) -> &'static str;

    /// Whether `bytes` can only be in this encoding, of all known ones, judging by their beginning.
    fn recognises(&self, bytes: &[u8]) -> bool;

    /// Appends the message to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
    fn encode(&self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a message.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset and the expected input there.
    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError>;

    /// Explains a message byte by byte, as far as it can be read.
    fn explain(&self, bytes: &[u8], limits: &Limits) -> Explanation;
}

/// The FIPA name of the XML encoding. Envelopes carry the name even if XML itself is left out of the build.
pub(crate) const XML: &str = "fipa.acl.rep.xml.std";
