//! Tokens of FIPA00070.

use crate::DecodeError;
use crate::eights::{delimiters, first};
use crate::literal::{counted, literal_end, literal_end_after_backslash};

/// A token; the offsets are those of its text without quotes or length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Open,
    Close,
    /// A run of characters without blanks and parentheses: a word, number or date-time.
    Bare {
        start: usize,
        end: usize,
    },
    /// A literal in quotes; `escapes` if there are any to undo.
    Quoted {
        start: usize,
        end: usize,
        escapes: bool,
    },
    /// A byte-length-encoded string.
    Counted {
        start: usize,
        end: usize,
    },
    /// The end of the input.
    End,
}

/// The end of the bare token that begins at `start`: before white space, a control character or a parenthesis, or at
/// the end.
#[inline]
fn bare_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let marks = delimiters(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return at + first(marks);
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest
        .iter()
        .position(|byte| matches!(byte, 0..=0x20 | b'(' | b')'));
    at + end.unwrap_or(rest.len())
}

/// A position in the text.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Moves to the next token, past white space, and returns its first byte.
    #[inline]
    pub(crate) fn skip_blanks(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if byte > 0x20 {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes the next token if it is this parenthesis.
    #[inline]
    pub(crate) fn take(&mut self, parenthesis: u8) -> bool {
        let found = self.skip_blanks() == Some(parenthesis);
        self.at += usize::from(found);
        found
    }

    /// Takes the next token if it is a bare one, and returns its place. Otherwise the position stays.
    #[inline]
    pub(crate) fn bare(&mut self) -> Option<(usize, usize)> {
        match self.skip_blanks()? {
            b'(' | b')' | b'"' => None,
            b'#' if counted(&self.bytes[self.at..]).is_some() => None,
            _ => {
                let start = self.at;
                self.at = bare_end(self.bytes, start);
                Some((start, self.at))
            }
        }
    }

    /// Takes the next token.
    pub(crate) fn next(&mut self) -> Result<Token, DecodeError> {
        let Some(first) = self.skip_blanks() else {
            return Ok(Token::End);
        };
        let start = self.at;
        Ok(match first {
            b'(' => {
                self.at += 1;
                Token::Open
            }
            b')' => {
                self.at += 1;
                Token::Close
            }
            b'"' => {
                let start = start + 1;
                let found = literal_end(self.bytes, start)
                    .or_else(|| literal_end_after_backslash(self.bytes, start));
                let Some((end, escapes)) = found else {
                    let end = self.bytes.len();
                    return Err(DecodeError::expected(
                        self.bytes,
                        end,
                        "'\"' after a string",
                    ));
                };
                self.at = end + 1;
                Token::Quoted {
                    start,
                    end,
                    escapes,
                }
            }
            b'#' if counted(&self.bytes[start..]).is_some() => {
                // The value is computed again here, because a pattern guard cannot keep it.
                let (skip, length) = counted(&self.bytes[start..]).unwrap_or_default();
                let start = start + skip;
                let Some(end) = start
                    .checked_add(length)
                    .filter(|end| *end <= self.bytes.len())
                else {
                    let end = self.bytes.len();
                    let expected = "as many bytes as the string's length says";
                    return Err(DecodeError::expected(self.bytes, end, expected));
                };
                self.at = end;
                Token::Counted { start, end }
            }
            _ => {
                let end = bare_end(self.bytes, start);
                self.at = end;
                Token::Bare { start, end }
            }
        })
    }

    /// The token after this position, without moving.
    pub(crate) fn peek(&self) -> Result<Token, DecodeError> {
        self.clone().next()
    }
}
