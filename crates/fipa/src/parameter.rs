//! The parameters that a message of the standard can have.

/// A parameter of a message, numbered as in the bit-efficient encoding (FIPA00069).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Parameter {
    Sender = 0x02,
    Receiver = 0x03,
    Content = 0x04,
    ReplyWith = 0x05,
    ReplyBy = 0x06,
    InReplyTo = 0x07,
    ReplyTo = 0x08,
    Language = 0x09,
    Encoding = 0x0a,
    Ontology = 0x0b,
    Protocol = 0x0c,
    ConversationId = 0x0d,
}

impl Parameter {
    pub(crate) const ALL: [Self; 12] = [
        Self::Sender,
        Self::Receiver,
        Self::Content,
        Self::ReplyWith,
        Self::ReplyBy,
        Self::InReplyTo,
        Self::ReplyTo,
        Self::Language,
        Self::Encoding,
        Self::Ontology,
        Self::Protocol,
        Self::ConversationId,
    ];

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(2)?).copied()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Content => "content",
            Self::ReplyWith => "reply-with",
            Self::ReplyBy => "reply-by",
            Self::InReplyTo => "in-reply-to",
            Self::ReplyTo => "reply-to",
            Self::Language => "language",
            Self::Encoding => "encoding",
            Self::Ontology => "ontology",
            Self::Protocol => "protocol",
            Self::ConversationId => "conversation-id",
        }
    }

    /// The parameter of this name, in any letter case.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        let mut lower = [0u8; 15];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        Some(match &*lower {
            b"sender" => Self::Sender,
            b"receiver" => Self::Receiver,
            b"content" => Self::Content,
            b"reply-with" => Self::ReplyWith,
            b"reply-by" => Self::ReplyBy,
            b"in-reply-to" => Self::InReplyTo,
            b"reply-to" => Self::ReplyTo,
            b"language" => Self::Language,
            b"encoding" => Self::Encoding,
            b"ontology" => Self::Ontology,
            b"protocol" => Self::Protocol,
            b"conversation-id" => Self::ConversationId,
            _ => return None,
        })
    }
}

/// The places of the parameters of an encoded message: an offset for each, 0 if the parameter is absent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParameterOffsets(pub(crate) [u32; 12]);

impl ParameterOffsets {
    pub(crate) fn get(&self, parameter: Parameter) -> Option<usize> {
        match self.0[parameter as usize - 2] {
            0 => None,
            offset => Some(offset as usize),
        }
    }

    /// Remembers an offset. Returns false if the parameter already had an offset.
    pub(crate) fn set(&mut self, parameter: Parameter, offset: usize) -> bool {
        let slot = &mut self.0[parameter as usize - 2];
        let first = *slot == 0;
        // Decoders refuse messages of 4 GiB and more.
        *slot = offset as u32;
        first
    }
}
