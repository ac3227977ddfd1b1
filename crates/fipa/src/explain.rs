//! Byte-by-byte explanations of messages. They help people to find the reason why two platforms do not understand each
//! other.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::DecodeError;

/// A message taken apart.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The name of the encoding.
    pub encoding: &'static str,
    /// The bytes explained.
    pub bytes: Vec<u8>,
    /// The meaning of each run of bytes, in order. White space of text encodings is omitted.
    pub pieces: Vec<ExplainedPiece>,
    /// Why the explanation stops before the end, if it does.
    pub error: Option<DecodeError>,
}

/// A run of bytes and its meaning.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedPiece {
    /// The place of the piece in the message.
    pub range: Range<usize>,
    /// How deep it is nested, for indenting.
    pub depth: usize,
    /// The kind and value of the piece.
    pub meaning: String,
    /// The standard and the name of the rule in it.
    pub reference: &'static str,
}

/// Collects the pieces of one message.
pub(crate) struct Pieces<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) depth: usize,
    pieces: Vec<ExplainedPiece>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            depth: 0,
            pieces: Vec::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        range: Range<usize>,
        meaning: impl Into<String>,
        reference: &'static str,
    ) {
        self.pieces.push(ExplainedPiece {
            range,
            depth: self.depth,
            meaning: meaning.into(),
            reference,
        });
    }

    pub(crate) fn finish(self, encoding: &'static str, error: Option<DecodeError>) -> Explanation {
        Explanation {
            encoding,
            bytes: self.bytes.to_vec(),
            pieces: self.pieces,
            error,
        }
    }
}

/// The text, short enough for a line, with control characters visible.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 48;
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// Bytes on a line.
const PER_LINE: usize = 16;

impl fmt::Display for Explanation {
    /// Writes a line for each piece: offset, bytes, meaning and reference. A piece takes further lines if its bytes
    /// need them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} bytes", self.encoding, self.bytes.len())?;
        for piece in &self.pieces {
            let mut lines = self.bytes[piece.range.clone()].chunks(PER_LINE);
            let first = Hex(lines.next().unwrap_or_default());
            let indent = piece.depth * 2;
            writeln!(
                f,
                "{:04x}  {first:<width$}  {:indent$}{}  [{}]",
                piece.range.start,
                "",
                piece.meaning,
                piece.reference,
                width = PER_LINE * 3 - 1,
            )?;
            for (index, line) in lines.enumerate() {
                // A long content would bury the rest.
                if index == 3 {
                    writeln!(f, "      … {} bytes in all", piece.range.len())?;
                    break;
                }
                writeln!(
                    f,
                    "{:04x}  {}",
                    piece.range.start + (index + 1) * PER_LINE,
                    Hex(line)
                )?;
            }
        }
        let end = self.pieces.last().map_or(0, |piece| piece.range.end);
        match &self.error {
            Some(error) => writeln!(f, "stops at {error}"),
            None if end < self.bytes.len() => {
                writeln!(
                    f,
                    "{:04x}  {} bytes follow that are not of the message",
                    end,
                    self.bytes.len() - end
                )
            }
            None => Ok(()),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::with_capacity(self.0.len() * 3);
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 {
                line.push(' ');
            }
            line.push_str(&format!("{byte:02x}"));
        }
        f.pad(&line)
    }
}
