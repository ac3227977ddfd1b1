//! The character sets of strings (CORBA 3.3 part 2, 7.10). The two ends of a connection agree on one: the server's
//! references list the sets that it understands, and the client's first request names the chosen one.

use thiserror::Error;

use crate::cdr::{ByteOrder, Decoder, Encoder};
use crate::context::{ServiceContext, TaggedData};

/// The number of the service context, and of the component of a profile.
const CODE_SETS: u32 = 1;
const UTF_16: u32 = 0x0001_0109;
/// The most conversions that a server lists.
const MOST: usize = 64;

/// The character set of strings on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CodeSet {
    /// The client has not named one. CORBA's rule is ISO 8859-1, but some ORBs send UTF-8.
    #[default]
    Unnamed,
    /// ISO 8859-1.
    Latin1,
    /// UTF-8, or ASCII, which is a part of it.
    Utf8,
    /// Another set, which this crate does not read.
    Other(u32),
}

/// A string that its connection's character set cannot carry, or that is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// Bytes that are not of the character set.
    #[error("the text is not in the character set of its connection, {0:#010x}")]
    Undecodable(u32),
    /// A character that the other side does not read.
    #[error("the other side reads ISO 8859-1 only, which has no '{0}'")]
    Unencodable(char),
}

impl CodeSet {
    fn of(number: u32) -> Self {
        match number {
            0x0001_0001 => Self::Latin1,
            0x0501_0001 | 0x0001_0020 => Self::Utf8,
            other => Self::Other(other),
        }
    }

    /// CORBA's number for the set.
    pub fn number(self) -> u32 {
        match self {
            Self::Unnamed | Self::Latin1 => 0x0001_0001,
            Self::Utf8 => 0x0501_0001,
            Self::Other(number) => number,
        }
    }

    /// The text of a string.
    ///
    /// # Errors
    /// If its bytes are not in this character set.
    pub fn decode(self, bytes: &[u8]) -> Result<String, TextError> {
        let latin1 = || bytes.iter().copied().map(char::from).collect();
        match (self, str::from_utf8(bytes)) {
            (Self::Unnamed | Self::Utf8, Ok(text)) => Ok(text.to_owned()),
            // ASCII is a part of every set.
            (_, Ok(text)) if text.is_ascii() => Ok(text.to_owned()),
            (Self::Latin1, _) | (Self::Unnamed, Err(_)) => Ok(latin1()),
            (set, _) => Err(TextError::Undecodable(set.number())),
        }
    }

    /// The bytes of a text.
    ///
    /// # Errors
    /// If this character set lacks a character.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, TextError> {
        if text.is_ascii() || self == Self::Utf8 {
            return Ok(text.as_bytes().to_vec());
        }
        let byte = |c: char| u8::try_from(u32::from(c)).map_err(|_| TextError::Unencodable(c));
        text.chars().map(byte).collect()
    }
}

/// The choice of a client, as the service context that goes with its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSets {
    /// The set of strings.
    pub char_set: CodeSet,
}

impl CodeSets {
    /// Finds the choice among the contexts of a request.
    pub fn find(contexts: &[ServiceContext]) -> Option<Self> {
        let context = contexts.iter().find(|it| it.id == CODE_SETS)?;
        let mut decoder = Decoder::encapsulated(&context.data).ok()?;
        let char_set = CodeSet::of(decoder.ulong().ok()?);
        Some(Self { char_set })
    }

    /// The service context.
    pub fn to_context(self) -> ServiceContext {
        let mut encoder = Encoder::encapsulated(ByteOrder::Big);
        encoder.ulong(self.char_set.number());
        encoder.ulong(UTF_16);
        TaggedData {
            id: CODE_SETS,
            data: encoder.into_bytes(),
        }
    }
}

/// The character sets that a server understands, as its references list them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSetComponent {
    /// The server's own set, for strings.
    pub native: CodeSet,
    /// The sets that it can convert.
    pub conversions: Vec<CodeSet>,
}

impl CodeSetComponent {
    pub(crate) fn of(component: &TaggedData) -> Option<Self> {
        if component.id != CODE_SETS {
            return None;
        }
        let mut decoder = Decoder::encapsulated(&component.data).ok()?;
        let native = CodeSet::of(decoder.ulong().ok()?);
        let conversion = |decoder: &mut Decoder<'_>| decoder.ulong().map(CodeSet::of);
        let conversions = decoder.sequence("code sets", MOST, 4, conversion).ok()?;
        Some(Self {
            native,
            conversions,
        })
    }

    /// The component of our own references: UTF-8, or ISO 8859-1 for clients that know nothing else.
    pub fn own() -> TaggedData {
        let mut encoder = Encoder::encapsulated(ByteOrder::Big);
        encoder.ulong(CodeSet::Utf8.number());
        encoder.ulong(1);
        encoder.ulong(CodeSet::Latin1.number());
        encoder.ulong(UTF_16);
        encoder.ulong(0);
        TaggedData {
            id: CODE_SETS,
            data: encoder.into_bytes(),
        }
    }

    /// Whether the server reads this character set.
    pub fn reads(&self, set: CodeSet) -> bool {
        self.native == set || self.conversions.contains(&set)
    }
}
