//! The open set of encodings, by their FIPA names.

use crate::{AclMessage, DecodeError, EncodeError, Explanation, Limits};

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

/// Every encoding Sealbus has; a further one is a module and a line here.
static REPRESENTATIONS: &[&dyn Representation] = &[
    &crate::bitefficient::BitEfficient,
    &crate::string::StringRepresentation,
    &crate::xml::Xml,
    &crate::json::Json,
];

/// Every encoding.
pub fn representations() -> &'static [&'static dyn Representation] {
    REPRESENTATIONS
}

/// The encoding of this name, FIPA's or the short one, in any letter case.
pub fn representation(name: &str) -> Option<&'static dyn Representation> {
    let mut all = REPRESENTATIONS.iter();
    let found = all.find(|known| {
        known.name().eq_ignore_ascii_case(name) || known.short_name().eq_ignore_ascii_case(name)
    });
    found.copied()
}

/// The encoding that `bytes` are in, by how they begin.
pub fn detect(bytes: &[u8]) -> Option<&'static dyn Representation> {
    REPRESENTATIONS
        .iter()
        .find(|known| known.recognises(bytes))
        .copied()
}
