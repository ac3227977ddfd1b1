//! Messages that stay in their received bytes.

use alloc::vec::Vec;

use super::View;
use super::parse::{Layout, Parser};
use crate::parameter::{Parameter, ParameterOffsets};
use crate::{AclMessageRef, DecodeError, Limits};

/// A message kept in its received bytes. The bytes are checked once, and views of the message then cost nothing.
///
/// `B` holds the bytes: a `Vec<u8>`, `bytes::Bytes` or a slice.
#[derive(Debug, Clone)]
pub struct EncodedMessage<B> {
    bytes: B,
    layout: ShortLayout,
}

impl<B: AsRef<[u8]>> EncodedMessage<B> {
    /// Checks the message in one pass without allocating.
    ///
    /// # Errors
    /// As [`decode_ref`](super::decode_ref).
    pub fn new(bytes: B, limits: &Limits) -> Result<Self, DecodeError> {
        let layout = ShortLayout::new(&Layout::of(bytes.as_ref(), limits)?);
        Ok(Self { bytes, layout })
    }

    /// The message, to be read from the bytes.
    pub fn message(&self) -> AclMessageRef<'_> {
        let bytes = self.bytes.as_ref();
        AclMessageRef::from_bitefficient(View::new(bytes, self.layout.whole(bytes)))
    }

    /// The length of the message in bytes, including its end mark and excluding any bytes after it.
    pub fn length(&self) -> usize {
        self.layout.end as usize
    }

    /// The bytes, including any that follow the message.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    /// The bytes, including any that follow the message.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }
}

/// The layout of a message whose parameters all begin in its first 64 KiB. Mailboxes hold thousands of these.
#[derive(Debug, Clone, Copy)]
struct ShortLayout {
    offsets: [u16; 12],
    /// [`FAR`]: a parameter begins further on, and the message is walked again for its layout.
    first_user_defined: u16,
    end: u32,
}

const FAR: u16 = u16::MAX;

impl ShortLayout {
    #[inline]
    fn new(layout: &Layout) -> Self {
        let furthest = layout.offsets.0.iter().fold(0, |all, offset| all | offset);
        let is_far = (furthest | layout.first_user_defined) >= u32::from(FAR);
        Self {
            // Cut only where nobody looks.
            offsets: layout.offsets.0.map(|offset| offset as u16),
            first_user_defined: match is_far {
                true => FAR,
                false => layout.first_user_defined as u16,
            },
            end: layout.end,
        }
    }

    #[inline]
    fn whole(&self, bytes: &[u8]) -> Layout {
        let mut offsets = ParameterOffsets::default();
        // The compiler turns this into a few instructions, and `map` into a loop.
        for (whole, short) in offsets.0.iter_mut().zip(&self.offsets) {
            *whole = u32::from(*short);
        }
        let near = Layout {
            offsets,
            first_user_defined: self.first_user_defined.into(),
            end: self.end,
        };
        match self.first_user_defined {
            FAR => Layout::of(bytes, &Limits::NONE).unwrap_or(near),
            _ => near,
        }
    }
}

/// The longest beginning that is remembered, in bytes.
const LONGEST_BEGINNING: usize = 512;

/// Checks many messages in a row. Messages of one agent to another usually begin with the same bytes: the act, the
/// sender and the receivers. A beginning that is the same as that of the message before is not read again.
#[derive(Debug)]
pub struct Checker {
    limits: Limits,
    /// Empty if nothing is remembered.
    beginning: Vec<u8>,
    /// The parser's knowledge after the beginning.
    layout: Option<(Layout, usize)>,
    /// Whether the last message has nothing but content behind the beginning.
    is_plain: bool,
}

/// The parts that a message certainly shares with the last one that the same [`Checker`] found sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// Nothing is known.
    None,
    /// The sender, in the same bytes.
    Sender,
    /// All but the content.
    AllButContent,
}

impl Checker {
    /// A checker of messages within these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            beginning: Vec::new(),
            layout: None,
            is_plain: false,
        }
    }

    /// Checks a message, as [`EncodedMessage::new`] does. Returns with it what it has in common with the last message that
    /// was sound.
    ///
    /// # Errors
    /// As [`decode_ref`](super::decode_ref).
    pub fn check<B: AsRef<[u8]>>(
        &mut self,
        message: B,
    ) -> Result<(EncodedMessage<B>, Likeness), DecodeError> {
        let bytes = message.as_ref();
        let mut parser = Parser::new(bytes, &self.limits, ());
        let known = self.layout.filter(|_| bytes.starts_with(&self.beginning));
        let mut layout = match known {
            Some((layout, values_left)) => {
                parser.check_length()?;
                parser.at = self.beginning.len();
                parser.values_left = values_left;
                layout
            }
            None => {
                self.layout = None;
                let mut layout = parser.begin()?;
                let code = |parameter| Some(parameter as u8);
                while [code(Parameter::Sender), code(Parameter::Receiver)].contains(&parser.peek())
                {
                    parser.note_parameter(&mut layout)?;
                }
                if parser.at <= LONGEST_BEGINNING {
                    self.beginning.clear();
                    self.beginning.extend_from_slice(&bytes[..parser.at]);
                    self.layout = Some((layout, parser.values_left));
                }
                layout
            }
        };
        let is_plain =
            finish_plain(&mut parser, &mut layout).inspect_err(|_| self.layout = None)?;
        let was_plain = core::mem::replace(&mut self.is_plain, is_plain);
        let layout = ShortLayout::new(&layout);
        let likeness = match known {
            Some(_) if is_plain && was_plain => Likeness::AllButContent,
            // A sender in the beginning is the only one: none may follow.
            Some((beginning, _)) if beginning.offsets.get(Parameter::Sender).is_some() => {
                Likeness::Sender
            }
            _ => Likeness::None,
        };
        let message = EncodedMessage {
            bytes: message,
            layout,
        };
        Ok((message, likeness))
    }
}

/// Steps over the parameters that are left, and the end mark. Returns whether content is the only one.
fn finish_plain(parser: &mut Parser<'_, ()>, layout: &mut Layout) -> Result<bool, DecodeError> {
    let is_content = parser.peek() == Some(Parameter::Content as u8);
    if is_content {
        parser.note_parameter(layout)?;
    }
    let after = parser.at;
    parser.finish(layout)?;
    // Only the end mark came behind it.
    Ok(is_content && parser.at == after + 1)
}
