//! Text inspection eight bytes at a time. FIPA's texts are a few dozen bytes long. At that length a call to a
//! vectorised search costs more than it saves.

use alloc::vec::Vec;
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Whether `test` finds something in any eight bytes of the text. Some bytes are tested twice.
#[inline(always)]
pub(crate) fn any(text: &[u8], test: impl Fn(u64) -> u64) -> bool {
    let eight = |chunk: &[u8; 8]| test(u64::from_le_bytes(*chunk));
    let found = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let mut found = eight(first) | eight(last);
            // The first eight bytes are done. So are the last, whether they fill a chunk or not.
            let (chunks, _) = text.as_chunks::<8>();
            for chunk in chunks.get(1..).unwrap_or_default() {
                found |= eight(chunk);
            }
            found
        }
        _ => match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
                test(u64::from(first) | u64::from(last) << 32)
            }
            _ => match text {
                [] => 0,
                [first, .., last] => {
                    let middle = text[text.len() / 2];
                    test(u64::from_le_bytes([
                        *first, middle, *last, *first, *first, *first, *first, *first,
                    ]))
                }
                [only] => test(all(*only)),
            },
        },
    };
    found != 0
}

/// Appends two bytes, the text and a zero. Returns whether `test` finds something in the text, as [`any`] does.
///
/// Every append has its price, and so has a call to copy a few bytes. The function therefore tests the text while
/// copying it, in blocks of fixed size. The last block begins with bytes that are already written.
#[inline(always)]
pub(crate) fn append(
    before: [u8; 2],
    text: &[u8],
    out: &mut Vec<u8>,
    test: impl Fn(u64) -> u64,
) -> bool {
    const LONG: usize = 64;
    let eight = |chunk: &[u8; 8]| test(u64::from_le_bytes(*chunk));
    let sixteen = |chunk: &[u8; 16]| {
        let both = u128::from_le_bytes(*chunk);
        test(both as u64) | test((both >> 64) as u64)
    };
    if text.len() > LONG {
        out.extend_from_slice(&before);
        out.extend_from_slice(text);
        out.push(0);
        return any(text, test);
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        let mut found = sixteen(first) | sixteen(last);
        out.extend_from_slice(&before);
        out.extend_from_slice(first);
        let (chunks, _) = text.as_chunks::<16>();
        for chunk in chunks.get(1..).unwrap_or_default() {
            found |= sixteen(chunk);
            out.extend_from_slice(chunk);
        }
        out.truncate(out.len() - (chunks.len() * 16 + 16 - text.len()));
        out.extend_from_slice(last);
        out.push(0);
        return found != 0;
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        let before = u128::from(u16::from_le_bytes(before));
        let front = before | u128::from(u64::from_le_bytes(*first)) << 16;
        out.extend_from_slice(&front.to_le_bytes()[..10]);
        out.truncate(out.len() - (16 - text.len()));
        // Behind the last eight bytes, the zero.
        let back = u128::from(u64::from_le_bytes(*last));
        out.extend_from_slice(&back.to_le_bytes()[..9]);
        return eight(first) | eight(last) != 0;
    }
    // A shorter text fits into eight bytes with the zero behind it.
    let (padded, found) = match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let first = u64::from(u32::from_le_bytes(*first));
            let last = u64::from(u32::from_le_bytes(*last));
            let padded = first | last << ((text.len() - 4) * 8);
            (padded, test(first | last << 32) != 0)
        }
        _ => {
            let padded = text
                .iter()
                .rev()
                .fold(0, |padded, byte| padded << 8 | u64::from(*byte));
            (padded, any(text, test))
        }
    };
    let whole = u128::from(u16::from_le_bytes(before)) | u128::from(padded) << 16;
    out.extend_from_slice(&whole.to_le_bytes()[..10]);
    out.truncate(out.len() - (7 - text.len()));
    found
}

/// Marks the zeros among eight bytes: the lowest set bit is the highest bit of the first zero. Bits above it may be set
/// for bytes that are not zero.
#[inline(always)]
pub(crate) fn zeros(bytes: u64) -> u64 {
    bytes.wrapping_sub(all(0x01)) & !bytes & all(0x80)
}

/// Marks blanks, control characters and parentheses, as [`zeros`] marks zeros.
#[inline(always)]
pub(crate) fn delimiters(bytes: u64) -> u64 {
    // Blanks are below 0x21. The parentheses are 0x28 and 0x29, which differ only in the lowest bit.
    let blanks = bytes.wrapping_sub(all(0x21)) & !bytes;
    let parentheses = (bytes & all(0xfe)) ^ all(0x28);
    let parentheses = parentheses.wrapping_sub(all(0x01)) & !parentheses;
    (blanks | parentheses) & all(0x80)
}

/// Marks bytes that no word may contain, as [`zeros`] marks zeros: [`delimiters`], DEL and every byte outside ASCII.
#[inline(always)]
pub(crate) fn outside_words(bytes: u64) -> u64 {
    (delimiters(bytes) | zeros(bytes ^ all(0x7f)) | bytes) & all(0x80)
}

/// The index of the first byte that a test of this module has marked.
#[inline(always)]
pub(crate) fn first(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// True if any of eight bytes is not ASCII.
#[inline(always)]
pub(crate) fn not_ascii(bytes: u64) -> bool {
    bytes & all(0x80) != 0
}

#[cfg(test)]
mod tests {
    use super::{any, append, delimiters, first, outside_words, zeros};

    #[test]
    fn every_byte_is_looked_at_wherever_it_stands() {
        for length in (0..40).chain([63, 64, 65, 100]) {
            let clean = vec![b'x'; length];
            assert!(!any(&clean, zeros) && !any(&clean, delimiters));
            for at in 0..length {
                for byte in 0..=255 {
                    let mut text = clean.clone();
                    text[at] = byte;
                    assert_eq!(
                        any(&text, zeros),
                        byte == 0,
                        "{byte:02x} at {at} of {length}"
                    );
                    let delimiter = matches!(byte, 0..=0x20 | b'(' | b')');
                    assert_eq!(
                        any(&text, delimiters),
                        delimiter,
                        "{byte:02x} at {at} of {length}"
                    );
                    assert_eq!(
                        any(&text, outside_words),
                        delimiter || byte >= 0x7f,
                        "{byte:02x} at {at} of {length}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_appended_is_the_text_between_two_bytes_and_a_zero() {
        for length in 0..130u8 {
            let text: Vec<u8> = (0..length).map(|byte| byte + b'*').collect();
            let mut out = b"before".to_vec();
            assert!(!append(*b"<>", &text, &mut out, zeros));
            assert_eq!(out, [b"before<>", text.as_slice(), b"\0"].concat());
            for at in 0..text.len() {
                let mut text = text.clone();
                text[at] = 0;
                assert!(append(*b"<>", &text, &mut out, zeros), "{at} of {length}");
            }
        }
    }

    #[test]
    fn the_first_mark_is_the_first_byte() {
        for at in 0..8 {
            for after in 0..=255u8 {
                let mut bytes = [after; 8];
                bytes[..at].fill(0xff);
                bytes[at] = b'(';
                assert_eq!(first(delimiters(u64::from_le_bytes(bytes))), at);
                bytes[at] = 0;
                assert_eq!(first(zeros(u64::from_le_bytes(bytes))), at);
            }
        }
    }
}
