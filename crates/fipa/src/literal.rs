//! Texts in quotes or with a length in front, as FIPA00070 writes strings.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

use memchr::{memchr, memmem, memrchr};

/// The text behind `"…"` or `#N"…`, if the whole of `text` has one of these forms. Otherwise `text` itself.
pub(crate) fn unquote(text: &str) -> Cow<'_, str> {
    match inside(text.as_bytes()) {
        None => Cow::Borrowed(text),
        Some((place, false)) => Cow::Borrowed(&text[place]),
        Some((place, true)) => Cow::Owned(text[place].replace("\\\"", "\"")),
    }
}

/// As [`unquote`], for text that need not be UTF-8.
pub(crate) fn unquote_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    match inside(text) {
        None => Cow::Borrowed(text),
        Some((place, false)) => Cow::Borrowed(&text[place]),
        Some((place, true)) => Cow::Owned(unescape(&text[place])),
    }
}

/// The place of the text behind `"…"` or `#N"…`, if the whole of `text` has one of these forms, and whether it contains
/// escapes.
fn inside(text: &[u8]) -> Option<(Range<usize>, bool)> {
    match text.first()? {
        b'"' => inside_quotes(text).map(|escapes| (1..text.len() - 1, escapes)),
        b'#' => counted(text)
            .filter(|(start, length)| text.len() - start == *length)
            .map(|(start, _)| (start..text.len(), false)),
        _ => None,
    }
}

/// Undoes `\"`.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(quote) = memmem::find(rest, b"\\\"") {
        out.extend_from_slice(&rest[..quote]);
        out.push(b'"');
        rest = &rest[quote + 2..];
    }
    out.extend_from_slice(rest);
    out
}

/// Whether `text`, which begins with a quote, is one literal from end to end. If so, returns whether it contains
/// escapes.
fn inside_quotes(text: &[u8]) -> Option<bool> {
    let (end, escapes) = literal_end(text, 1)?;
    (end + 1 == text.len()).then_some(escapes)
}

/// The offset of the closing quote of the literal that began before `start`, and whether it contains escapes.
///
/// `\"` is the only escape; a backslash elsewhere stands for itself.
pub(crate) fn literal_end(text: &[u8], start: usize) -> Option<(usize, bool)> {
    let mut at = start;
    let mut escapes = false;
    loop {
        at += memchr(b'"', text.get(at..)?)?;
        if at == start || text[at - 1] != b'\\' {
            return Some((at, escapes));
        }
        escapes = true;
        at += 1;
    }
}

/// As [`literal_end`], for a literal that ends in no unescaped quote. JADE's lexer takes the longest literal, so the
/// last quote of the text ends it, as in `"C:\temp\"`.
#[cold]
pub(crate) fn literal_end_after_backslash(text: &[u8], start: usize) -> Option<(usize, bool)> {
    let inside = text.get(start..)?;
    let end = memrchr(b'"', inside)?;
    let escapes = memchr(b'"', &inside[..end]).is_some();
    Some((start + end, escapes))
}

/// For a text that begins `#N"`: the offset at which the counted bytes begin, and their number.
pub(crate) fn counted(text: &[u8]) -> Option<(usize, usize)> {
    if text.first() != Some(&b'#') {
        return None;
    }
    let digits = text[1..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let length = text[1..1 + digits]
        .iter()
        .try_fold(0usize, |length, digit| {
            length
                .checked_mul(10)?
                .checked_add(usize::from(digit - b'0'))
        })?;
    (digits > 0 && text.get(1 + digits) == Some(&b'"')).then_some((digits + 2, length))
}

/// Appends `text` as a FIPA string: in quotes, or with its length if it ends in a backslash, which quotes cannot carry.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    if text.ends_with('\\') {
        write_counted(text.as_bytes(), out);
        return;
    }
    write_quoted(text, out);
}

/// Appends `text` in quotes. If it ends in a backslash, readers know its end only if no further
/// quote follows in the message.
pub(crate) fn write_quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` with its quotes escaped.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(quote) = memchr(b'"', rest) {
        out.extend_from_slice(&rest[..quote]);
        out.extend_from_slice(b"\\\"");
        rest = &rest[quote + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends `#N"` and the bytes.
pub(crate) fn write_counted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'#');
    write_decimal(bytes.len() as u64, out);
    out.push(b'"');
    out.extend_from_slice(bytes);
}

/// Appends a number in decimal digits, without allocating.
pub(crate) fn write_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
