//! The tokens of FIPA00069.

use crate::parameter::Parameter;

/// The meaning of a run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    MessageId,
    Version,
    /// The code of a standard act, or the mark of a user-defined one.
    Performative,
    Parameter(Parameter),
    UserDefinedMark,
    AidStart,
    AddressesStart,
    ResolversStart,
    AidUserDefinedMark,
    /// The end of a list, AID or the message.
    End(&'static str),
    /// An atom of an expression, with its tag.
    Atom {
        kind: Atom,
        bracket: Bracket,
    },
    ListStart,
    ListEnd,
    DateTime,
    /// The mark of an expression that is given as text.
    TextMark,
    /// The missing value of a `content` parameter.
    NoContent,
}

/// The parentheses around an atom, from its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bracket {
    None,
    Opens,
    Closes,
}

/// The kinds of atoms. The numbers are the lengths of the length fields in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Atom {
    Word,
    String,
    Number,
    Hexadecimal,
    Bytes(u8),
    TableWord,
    TableString,
    TableBytes,
}

impl Atom {
    pub(crate) fn from_tag(tag: u8) -> Option<(Self, Bracket)> {
        let bracket = match tag >> 4 {
            1 => Bracket::None,
            5 => Bracket::Closes,
            7 => Bracket::Opens,
            _ => return None,
        };
        // Among plain atoms 8 is a table entry and 9 a long byte string. In brackets the two are swapped.
        let atom = match (tag & 0x0f, bracket) {
            (0, _) => Self::Word,
            (1, _) => Self::TableWord,
            (2, _) => Self::Number,
            (3, _) => Self::Hexadecimal,
            (4, _) => Self::String,
            (5, _) => Self::TableString,
            (6, _) => Self::Bytes(1),
            (7, _) => Self::Bytes(2),
            (8, Bracket::None) => Self::TableBytes,
            (9, Bracket::None) => Self::Bytes(4),
            (8, _) => Self::Bytes(4),
            (9, _) => Self::TableBytes,
            _ => return None,
        };
        Some((atom, bracket))
    }
}

/// The tag of an atom of this kind. The kind is the low half of the tag.
pub(super) fn tag(bracket: Bracket, kind: u8) -> u8 {
    match bracket {
        Bracket::None => 0x10 | kind,
        Bracket::Closes => 0x50 | kind,
        Bracket::Opens => 0x70 | kind,
    }
}
