//! The guards of a JSON reader, and its names for faults.

use alloc::borrow::ToOwned;
use alloc::string::ToString;

use crate::bitefficient::DEEPEST;
use crate::{DecodeError, DecodeProblem, Limits};

/// Checks length, nesting and number of values of a JSON text before anything is built from it. Whether it is JSON is not
/// checked.
///
/// # Errors
/// [`DecodeError`] with the exceeded limit and where it was exceeded.
pub fn guard(bytes: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    if bytes.len() > limits.message_length {
        let limit = limits.message_length;
        return Err(DecodeError::limit(limit, "bytes", limit));
    }
    // A resolver nests two deep: in its array and its own object.
    let depth_limit = limits
        .depth
        .min(DEEPEST)
        .saturating_mul(2)
        .saturating_add(4);
    let (mut depth, mut values) = (0usize, 0usize);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                // To the end of the string, past escapes.
                at += 1;
                while let Some(next) = memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
                    at += next;
                    if bytes[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
            }
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                if depth > depth_limit {
                    return Err(DecodeError::limit(at, "nested values", depth_limit));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if values > limits.values {
            return Err(DecodeError::limit(at, "values", limits.values));
        }
        at += 1;
    }
    Ok(())
}

/// A JSON error with its place as an offset.
pub(crate) fn syntax_error(bytes: &[u8], error: &serde_json::Error) -> DecodeError {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let offset = (before + error.column().saturating_sub(1)).min(bytes.len());
    let text = error.to_string();
    // The error names the place already.
    let text = match text.rfind(" at line ") {
        Some(place) => text[..place].to_owned(),
        None => text,
    };
    DecodeError::new(offset, DecodeProblem::Syntax(text))
}
