//! Functions that find the ends of texts and byte strings.

use crate::DecodeError;
use crate::eights::{first, not_ascii, zeros};

/// The offset of the first zero byte at or after `start`, and whether all bytes before it are ASCII.
pub(crate) fn find_end(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let mut rest = bytes.get(start..)?;
    let mut at = start;
    let mut seen = 0u64;
    while let Some(chunk) = rest.first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let marks = zeros(word);
        if marks != 0 {
            let end = first(marks);
            seen |= word & ((1u64 << (end * 8)) - 1);
            return Some((at + end, !not_ascii(seen)));
        }
        seen |= word;
        at += 8;
        rest = &rest[8..];
    }
    let mut ascii = !not_ascii(seen);
    for byte in rest {
        if *byte == 0 {
            return Some((at, ascii));
        }
        ascii &= byte.is_ascii();
        at += 1;
    }
    None
}

/// The place of the bytes in a byte string whose length field, of `width` bytes, begins at `start`.
pub(crate) fn byte_string(
    bytes: &[u8],
    start: usize,
    width: usize,
) -> Result<(usize, usize), DecodeError> {
    let Some(field) = bytes.get(start..start + width) else {
        return Err(DecodeError::expected(
            bytes,
            bytes.len(),
            "the length of a byte string",
        ));
    };
    let length = field
        .iter()
        .fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    let start = start + width;
    if bytes.len() - start < length {
        return Err(DecodeError::expected(
            bytes,
            bytes.len(),
            "as many bytes as the byte string's length says",
        ));
    }
    Ok((start, start + length))
}
