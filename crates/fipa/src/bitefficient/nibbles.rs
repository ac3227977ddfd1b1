//! Digits packed two to a byte (FIPA00069: numbers and dates).

use alloc::vec::Vec;
use core::fmt;

use crate::expression::is_decimal;
use crate::{DateTime, DateTimeError, Origin};

const CHARACTERS: [u8; 16] = *b"\x000123456789\0+e-.";

/// The nibble for a character of a number. The caller passes only such characters.
fn nibble(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0' + 1,
        b'+' => 0xc,
        b'e' | b'E' => 0xd,
        b'-' => 0xe,
        b'.' => 0xf,
        _ => 0,
    }
}

/// A number in nibble code, to be read where it is.
#[derive(Debug, Clone, Copy)]
pub struct Nibbles<'a> {
    bytes: &'a [u8],
    hexadecimal: bool,
}

impl<'a> Nibbles<'a> {
    /// The number that begins at `start`, and the offset after it; `None` if there is no number.
    pub(crate) fn parse(bytes: &'a [u8], start: usize, hexadecimal: bool) -> Option<(Self, usize)> {
        let rest = bytes.get(start..)?;
        let last = rest.iter().position(|byte| byte & 0x0f == 0)?;
        let number = Self {
            bytes: &rest[..=last],
            hexadecimal,
        };
        let valid = if hexadecimal {
            number.value().is_some()
        } else {
            is_decimal(number.characters())
        };
        valid.then_some((number, start + last + 1))
    }

    fn characters(&self) -> impl Iterator<Item = u8> + Clone + 'a {
        let nibbles = self.bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
        // A zero nibble ends the number. A zero nibble in its middle makes a character that no number contains.
        let length = match self.bytes.last() {
            Some(0) => self.bytes.len() * 2 - 2,
            Some(_) => self.bytes.len() * 2 - 1,
            None => 0,
        };
        nibbles
            .take(length)
            .map(|nibble| CHARACTERS[usize::from(nibble)])
    }

    /// The value of an integer of 64 bits without sign.
    fn value(&self) -> Option<u64> {
        let mut characters = self.characters().peekable();
        characters.peek()?;
        characters.try_fold(0u64, |value, character| {
            let digit = character
                .is_ascii_digit()
                .then(|| u64::from(character - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
    }
}

impl fmt::Display for Nibbles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hexadecimal {
            return write!(f, "{:#x}", self.value().unwrap_or(0));
        }
        self.characters()
            .try_for_each(|character| fmt::Write::write_char(f, char::from(character)))
    }
}

/// Writes the characters of a number.
pub(crate) fn write_number(characters: &[u8], out: &mut Vec<u8>) {
    let mut pairs = characters.chunks_exact(2);
    out.extend((&mut pairs).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])));
    out.push(
        pairs
            .remainder()
            .first()
            .map_or(0, |last| nibble(*last) << 4),
    );
}

/// Bytes of a date without its tag and designator.
pub(crate) const DATE_LENGTH: usize = 9;

/// Reads the nine bytes of a date.
///
/// One implementation fills the last two bytes with four digits of milliseconds. The standard has three digits and a
/// padding of 0. The padding tells the two forms apart.
pub(crate) fn read_date(
    bytes: &[u8; DATE_LENGTH],
    origin: Origin,
    designator: Option<u8>,
) -> Result<DateTime, DateTimeError> {
    let mut characters = [0u8; 18];
    for (pair, byte) in characters.chunks_exact_mut(2).zip(bytes) {
        pair[0] = CHARACTERS[usize::from(byte >> 4)];
        pair[1] = CHARACTERS[usize::from(byte & 0x0f)];
    }
    if characters[17] != 0 {
        if characters[14] != b'0' {
            return Err(DateTimeError::Form {
                offset: 15,
                expected: "three digits of milliseconds",
            });
        }
        characters.copy_within(15..18, 14);
    }
    let mut digits = [0u8; 17];
    digits.copy_from_slice(&characters[..17]);
    DateTime::from_digits(origin, &digits, designator)
}

/// Writes the nine bytes of a date.
pub(crate) fn write_date(date_time: &DateTime, out: &mut Vec<u8>) {
    let digits = date_time.digits();
    let pairs = digits.chunks_exact(2);
    let last = pairs.remainder();
    out.extend(pairs.map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])));
    out.extend(last.iter().map(|digit| nibble(*digit) << 4));
}
