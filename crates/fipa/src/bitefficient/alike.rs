//! Messages of one agent to another mostly begin alike, with the act, the sender and the receivers. A writer that still has
//! such a beginning recognises it in the next message without encoding it again.

use alloc::vec::Vec;

use memchr::memchr;

use super::encode::misleads;
use super::token::{Bracket, tag};
use crate::eights::{any, zeros};
use crate::parameter::Parameter;
use crate::{AclMessage, Aid, Content, Expression, is_word};

/// The encoding of a message behind its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest<'a> {
    /// The byte before the content: the last one of its length, unless the content is text.
    before: Option<u8>,
    content: &'a [u8],
    end: &'static [u8],
}

impl<'a> Rest<'a> {
    /// The encoding of the message as [`encode`](super::encode) writes it, without `beginning`, with which it begins.
    ///
    /// `None` if it does not begin with `beginning`, or if only an encoder can tell. This function recognises parameters
    /// that are words or agents with a name alone, and content that is text or less than 64 KiB of bytes. `beginning` ends
    /// where the text of the content begins, or one byte before its bytes, so that contents of different lengths have it in
    /// common.
    pub fn behind(message: &'a AclMessage, beginning: &[u8]) -> Option<Self> {
        const MARK: u8 = Parameter::Content as u8;
        let mark = behind_parameters(message, beginning)?;
        match message.content.as_ref()? {
            Content::Text(text) => {
                let is_alike = *mark == [MARK, 0x14];
                let is_plain = !misleads(text) && !has_zero(text.as_bytes());
                (is_alike && is_plain).then_some(Self {
                    before: None,
                    content: text.as_bytes(),
                    end: &[0x00, 0x01],
                })
            }
            Content::Bytes(bytes) => {
                let [high, low] = u16::try_from(bytes.len()).ok()?.to_be_bytes();
                let is_alike = match high {
                    0 => *mark == [MARK, tag(Bracket::None, 6)],
                    _ => *mark == [MARK, tag(Bracket::None, 7), high],
                };
                is_alike.then_some(Self {
                    before: Some(low),
                    content: bytes,
                    end: &[0x01],
                })
            }
        }
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        usize::from(self.before.is_some()) + self.content.len() + self.end.len()
    }

    /// Appends the encoding to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend(self.before);
        out.extend_from_slice(self.content);
        out.extend_from_slice(self.end);
    }
}

/// The bytes behind the parameters of the message, if `bytes` begin with them, in the encoder's order.
fn behind_parameters<'a>(message: &AclMessage, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let AclMessage {
        performative,
        sender,
        receivers,
        reply_to,
        content: _,
        language,
        encoding,
        ontology,
        protocol,
        conversation_id,
        reply_with,
        in_reply_to,
        reply_by,
        user_defined,
    } = message;
    let [0xfa, 0x10, act, bytes @ ..] = bytes else {
        return None;
    };
    let is_usual = reply_to.is_empty() && reply_by.is_none() && user_defined.is_empty();
    // 0 stands for an act with a name of its own.
    if !is_usual || *act == 0 || *act != performative.code() {
        return None;
    }
    let mut bytes = bytes;
    if let Some(sender) = sender {
        bytes = behind_agent(sender, bytes.strip_prefix(&[Parameter::Sender as u8])?)?;
    }
    if !receivers.is_empty() {
        bytes = bytes.strip_prefix(&[Parameter::Receiver as u8])?;
        for receiver in receivers {
            bytes = behind_agent(receiver, bytes)?;
        }
        bytes = bytes.strip_prefix(&[0x01])?;
    }
    for (parameter, value) in [
        (Parameter::Ontology, ontology),
        (Parameter::Encoding, encoding),
        (Parameter::ConversationId, conversation_id),
        (Parameter::InReplyTo, in_reply_to),
        (Parameter::ReplyWith, reply_with),
        (Parameter::Language, language),
    ] {
        bytes = match value {
            None => bytes,
            Some(Expression::Word(word)) => behind_word(parameter, word, bytes)?,
            Some(_) => return None,
        };
    }
    match protocol {
        None => Some(bytes),
        Some(protocol) => behind_word(Parameter::Protocol, protocol, bytes),
    }
}

fn behind_agent<'a>(agent: &Aid, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let Aid {
        name,
        addresses,
        resolvers,
        user_defined,
    } = agent;
    let is_bare = addresses.is_empty() && resolvers.is_empty() && user_defined.is_empty();
    if !is_bare || name.is_empty() || has_zero(name.as_bytes()) {
        return None;
    }
    behind_text([0x02, 0x10], name, bytes)?.strip_prefix(&[0x01])
}

fn behind_word<'a>(parameter: Parameter, word: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let behind = behind_text([parameter as u8, 0x10], word, bytes)?;
    is_word(word.as_bytes()).then_some(behind)
}

/// The bytes behind two bytes, a text and a zero.
fn behind_text<'a>(before: [u8; 2], text: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    bytes
        .strip_prefix(&before)?
        .strip_prefix(text.as_bytes())?
        .strip_prefix(&[0])
}

/// Texts with a zero cannot be encoded.
fn has_zero(text: &[u8]) -> bool {
    const SHORT: usize = 64;
    match text.len() <= SHORT {
        true => any(text, zeros),
        false => memchr(0, text).is_some(),
    }
}
