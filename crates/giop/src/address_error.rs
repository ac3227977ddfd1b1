//! The reasons why a text names no object.

use thiserror::Error;

/// A text that is not the address of an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{}' is not the address of an object ({problem}): it must look like IOR:… or corbaloc::host:9000/key", .text.escape_debug())]
pub struct ObjectAddressError {
    /// The text, shortened.
    pub text: String,
    /// The mistake in it.
    pub problem: &'static str,
}

impl ObjectAddressError {
    pub(crate) fn new(text: &str, problem: &'static str) -> Self {
        Self {
            text: text.chars().take(200).collect(),
            problem,
        }
    }
}
