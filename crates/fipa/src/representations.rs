//! The open set of encodings, by their FIPA names.

use crate::{Explanation, Limits, Representation};

/// Every encoding of Sealbus. A new encoding is a module and a line here.
static REPRESENTATIONS: &[&dyn Representation] = &[
    &crate::bitefficient::BitEfficient,
    &crate::string::StringRepresentation,
    #[cfg(feature = "xml")]
    &crate::xml::Xml,
    #[cfg(feature = "json")]
    &crate::json::Json,
];

/// Every encoding.
pub fn representations() -> &'static [&'static dyn Representation] {
    REPRESENTATIONS
}

/// The encoding with this name, FIPA's or the short one, in any letter case.
pub fn representation(name: &str) -> Option<&'static dyn Representation> {
    let mut all = REPRESENTATIONS.iter();
    let found = all.find(|known| {
        known.name().eq_ignore_ascii_case(name) || known.short_name().eq_ignore_ascii_case(name)
    });
    found.copied()
}

/// The encoding of `bytes`, judging by their beginning.
pub fn detect(bytes: &[u8]) -> Option<&'static dyn Representation> {
    REPRESENTATIONS
        .iter()
        .find(|known| known.recognises(bytes))
        .copied()
}

/// Explains a message whose beginning reveals its encoding; `None` if it does not.
pub fn explain(bytes: &[u8], limits: &Limits) -> Option<Explanation> {
    Some(detect(bytes)?.explain(bytes, limits))
}
