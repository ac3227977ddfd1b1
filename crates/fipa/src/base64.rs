//! Byte content as text, for text-only encodings.

#[cfg(any(feature = "xml", feature = "serde"))]
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Reads with and without padding, as encoders differ.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// True if [`decode`] can read the text.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    let mut symbols = 0usize;
    let mut padding = 0usize;
    for byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => symbols += 1,
            b'=' => padding += 1,
            byte if byte.is_ascii_whitespace() => {}
            _ => return false,
        }
    }
    match symbols % 4 {
        0 => padding == 0,
        1 => false,
        rest => padding == 0 || padding == 4 - rest,
    }
}

/// The bytes behind base64 text. White space in the text is skipped. Empty if the text is not valid.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let decoded = if text.iter().any(u8::is_ascii_whitespace) {
        let compact: Vec<u8> = text
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        ENGINE.decode(compact)
    } else {
        ENGINE.decode(text)
    };
    decoded.unwrap_or_default()
}

#[cfg(any(feature = "xml", feature = "serde"))]
/// The bytes as base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}
