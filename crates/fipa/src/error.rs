//! The errors of reading and writing messages, and the limits of a reader.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The limits of a decoder. They protect the receiver from hostile input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message in bytes (default 16 MiB; never more than 4 GiB).
    pub message_length: usize,
    /// The deepest nesting of lists, resolvers or XML elements, and the most revisions of an envelope (default 32).
    pub depth: usize,
    /// The most values in one message: parameters, agents, addresses and list items together (default 65 536).
    pub values: usize,
    /// The most agents in one list: receivers, `reply-to`, resolvers (default 4 096).
    pub agents: usize,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        message_length: 16 << 20,
        depth: 32,
        values: 65_536,
        agents: 4_096,
    };

    /// For bytes that have been checked within other limits. Nesting is still limited.
    pub(crate) const NONE: Self = Self {
        message_length: usize::MAX,
        depth: usize::MAX,
        values: usize::MAX,
        agents: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why bytes are not a message or an envelope, and where the problem is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {problem}")]
#[non_exhaustive]
pub struct DecodeError {
    /// The place of the problem, in bytes from the start of the input.
    pub offset: usize,
    /// The problem.
    pub problem: DecodeProblem,
}

/// The fault that a decoder met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeProblem {
    /// Something else was due here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// The entries that were due.
        expected: &'static str,
        /// The bytes that were there.
        found: Found,
    },
    /// A parameter that may stand once only stands twice.
    #[error("the parameter '{parameter}' is given a second time")]
    Duplicate {
        /// The parameter's name.
        parameter: &'static str,
    },
    /// The input is well-formed so far but exceeds a limit of the reader.
    #[error("more than {limit} {what}; raise the reader's Limits if this is legitimate")]
    Limit {
        /// The quantity that exceeds its limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A date-time that does not exist or is malformed.
    #[error("{0}")]
    DateTime(#[from] crate::DateTimeError),
    /// The message uses code tables. Only a decoder that shares the sender's table can read it.
    #[error(
        "the message uses a dynamic code table (id FB or FC); read it with the CodeTable shared with its sender"
    )]
    CodeTable,
    /// The index has no entry in the code table: sender and receiver no longer agree on the table.
    #[error("the code table has no entry {index}; sender and receiver have lost step")]
    NoTableEntry {
        /// The index read.
        index: usize,
    },
    /// The syntax underneath (XML, JSON) is broken.
    #[error("{0}")]
    Syntax(String),
}

/// The input found in place of the expected one.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The input ends here.
    End,
    /// A byte.
    Byte(u8),
    /// Text that is not UTF-8.
    NotUtf8,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the end of the input"),
            Self::Byte(byte @ 0x21..=0x7e) => write!(f, "{byte:02x} ('{}')", char::from(*byte)),
            Self::Byte(byte) => write!(f, "{byte:02x}"),
            Self::NotUtf8 => f.write_str("text that is not UTF-8"),
        }
    }
}

impl DecodeError {
    #[cold]
    pub(crate) fn expected(bytes: &[u8], offset: usize, expected: &'static str) -> Self {
        let found = match bytes.get(offset) {
            Some(byte) => Found::Byte(*byte),
            None => Found::End,
        };
        Self {
            offset: offset.min(bytes.len()),
            problem: DecodeProblem::Unexpected { expected, found },
        }
    }

    #[cold]
    pub(crate) fn not_utf8(offset: usize, expected: &'static str) -> Self {
        Self {
            offset,
            problem: DecodeProblem::Unexpected {
                expected,
                found: Found::NotUtf8,
            },
        }
    }

    #[cold]
    pub(crate) fn too_many_agents(offset: usize, limits: &Limits) -> Self {
        Self::limit(offset, "agents in one list", limits.agents)
    }

    #[cold]
    pub(crate) fn limit(offset: usize, what: &'static str, limit: usize) -> Self {
        Self {
            offset,
            problem: DecodeProblem::Limit { what, limit },
        }
    }

    #[cold]
    pub(crate) fn new(offset: usize, problem: DecodeProblem) -> Self {
        Self { offset, problem }
    }
}

/// Why a message cannot be written in an encoding: the field and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
#[non_exhaustive]
pub struct EncodeError {
    /// The field, such as `receiver[2].name` or `X-hop`.
    pub field: Cow<'static, str>,
    /// The values that this encoding cannot carry.
    pub problem: EncodeProblem,
}

/// The values that an encoding cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeProblem {
    /// An agent, parameter or act without a name.
    #[error("is empty, but must be named")]
    Empty,
    /// The text contains a character that would end or break the text on the wire.
    #[error("holds {what}, which {encoding} cannot carry; send it as bytes or in another encoding")]
    Text {
        /// The kind of character.
        what: &'static str,
        /// The encoding.
        encoding: &'static str,
    },
    /// A text that stands where only a word may.
    #[error(
        "must be a word: printable ASCII without blanks and parentheses, not a number, and not beginning with a digit, '#', '-', '@' or '\"'"
    )]
    NotAWord,
    /// The encoding has no way to say this at all.
    #[error("{what}, which {encoding} cannot carry")]
    Unsupported {
        /// The kind of value.
        what: &'static str,
        /// The encoding.
        encoding: &'static str,
    },
    /// The name of a parameter is taken: by another parameter, or by the encoding itself.
    #[error("the name is taken already in {encoding}")]
    NameTaken {
        /// The encoding.
        encoding: &'static str,
    },
    /// The value is larger than a length field of the encoding can count, or nested deeper than any reader allows.
    #[error("is longer or deeper than {limit}")]
    TooLarge {
        /// The most possible.
        limit: usize,
    },
}

impl EncodeError {
    #[cold]
    pub(crate) fn new(field: impl Into<Cow<'static, str>>, problem: EncodeProblem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// The same error seen from outside: `outer.field`.
    #[cold]
    pub(crate) fn within(mut self, outer: impl fmt::Display) -> Self {
        self.look_from(outer);
        self
    }

    /// As [`EncodeError::within`], for a boxed error, in place.
    #[cold]
    pub(crate) fn inside(mut self: Box<Self>, outer: impl fmt::Display) -> Box<Self> {
        self.look_from(outer);
        self
    }

    fn look_from(&mut self, outer: impl fmt::Display) {
        self.field = match self.field.as_ref() {
            "" => format!("{outer}"),
            inner => format!("{outer}.{inner}"),
        }
        .into();
    }
}
