//! Writing messages (FIPA00069).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use memchr::memchr;

use super::nibbles::{write_date, write_number};
use super::parse::DEEPEST;
use super::token::{Bracket, tag};
use crate::eights::{append, zeros};
use crate::expression::{append_standard_word, append_word};
use crate::literal::{unquote, write_string};
use crate::parameter::Parameter;
use crate::{
    AclMessage, Aid, Content, DateTime, EncodeError, EncodeProblem, Expression, Number, Origin,
    Performative, is_word,
};

const ENCODING: &str = "the bit-efficient encoding";

/// The form in which the text of `content` is written. Readers differ here. Sealbus reads all three forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextForm {
    /// The bare text, ended by 00. The codecs for JADE read and write text in this form.
    #[default]
    Plain,
    /// In quotes, ended by 00. rock-multiagent reads this form as text. JADE reads it with its quotes.
    Quoted,
    /// Bytes with their length. All readers see the same bytes, but as bytes and not as text.
    ByteLength,
}

/// Appends the message to `out`. Allocates nothing if `out` has room.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_with(message, TextForm::default(), out)
}

/// As [`encode`], with the text of the content in a chosen form.
///
/// # Errors
/// As [`encode`].
pub fn encode_with(
    message: &AclMessage,
    text: TextForm,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    write_message(message, text, out).map_err(|error| {
        out.truncate(start);
        *error
    })
}

/// Appends the message without the bytes of its content, which stand near the end, and returns the bytes that follow
/// the content. So long content need not be copied. `None`: the whole message was appended, because it has no content,
/// or its content cannot be carried unchanged.
///
/// # Errors
/// As [`encode`].
pub fn encode_around_content(
    message: &AclMessage,
    out: &mut Vec<u8>,
) -> Result<Option<&'static [u8]>, EncodeError> {
    let start = out.len();
    write_around_content(message, out).map_err(|error| {
        out.truncate(start);
        *error
    })
}

fn write_around_content(
    message: &AclMessage,
    out: &mut Vec<u8>,
) -> Result<Option<&'static [u8]>, Box<EncodeError>> {
    write_parameters(message, out)?;
    let inside = |error: Box<EncodeError>| error.inside("content");
    match &message.content {
        Some(Content::Bytes(bytes)) => {
            out.push(Parameter::Content as u8);
            write_length(Bracket::None, bytes.len(), out).map_err(inside)?;
            return Ok(Some(&[0x01]));
        }
        Some(Content::Text(text)) if !misleads(text) => {
            if memchr(0, text.as_bytes()).is_some() {
                return Err(inside(zero()));
            }
            out.extend_from_slice(&[Parameter::Content as u8, 0x14]);
            return Ok(Some(&[0x00, 0x01]));
        }
        Some(content) => write_content(content, TextForm::Plain, out).map_err(inside)?,
        None => {}
    }
    out.push(0x01);
    Ok(None)
}

/// The result of the functions below. It is small, so that it is returned in a register.
pub(super) type Written = Result<(), Box<EncodeError>>;

#[cold]
fn failure(field: &'static str, problem: EncodeProblem) -> Box<EncodeError> {
    Box::new(EncodeError::new(field, problem))
}

fn write_message(message: &AclMessage, text: TextForm, out: &mut Vec<u8>) -> Written {
    write_parameters(message, out)?;
    if let Some(content) = &message.content {
        write_content(content, text, out).map_err(|error| error.inside("content"))?;
    }
    out.push(0x01);
    Ok(())
}

/// Writes everything but the content, which comes last, and the end mark.
#[inline]
fn write_parameters(message: &AclMessage, out: &mut Vec<u8>) -> Written {
    out.extend_from_slice(&[0xfa, 0x10]);
    write_act(&message.performative, out)?;
    write_agents(message, out)?;
    write_others::<true>(message, out)
}

/// Writes the sender and the receivers.
#[inline]
pub(super) fn write_agents(message: &AclMessage, out: &mut Vec<u8>) -> Written {
    if let Some(sender) = &message.sender {
        out.push(Parameter::Sender as u8);
        write_aid(sender, DEEPEST, out).map_err(|error| error.inside("sender"))?;
    }
    write_aids(Parameter::Receiver, &message.receivers, out)
}

/// Writes the parameters after the sender and the receivers; with `ALL`, also `:conversation-id` and `:reply-with`.
#[inline]
pub(super) fn write_others<const ALL: bool>(message: &AclMessage, out: &mut Vec<u8>) -> Written {
    write_optional(Parameter::Ontology, &message.ontology, out)?;
    write_optional(Parameter::Encoding, &message.encoding, out)?;
    if ALL {
        write_optional(Parameter::ConversationId, &message.conversation_id, out)?;
    }
    write_aids(Parameter::ReplyTo, &message.reply_to, out)?;
    if let Some(moment) = &message.reply_by {
        out.push(Parameter::ReplyBy as u8);
        write_date_time(moment, out);
    }
    write_optional(Parameter::InReplyTo, &message.in_reply_to, out)?;
    if ALL {
        write_optional(Parameter::ReplyWith, &message.reply_with, out)?;
    }
    write_optional(Parameter::Language, &message.language, out)?;
    if let Some(protocol) = &message.protocol {
        write_standard_word([Parameter::Protocol as u8, 0x10], protocol, out)
            .map_err(|error| error.inside(Parameter::Protocol.name()))?;
    }
    if !message.user_defined.is_empty() {
        write_user_defined(0x00, &message.user_defined, out)?;
    }
    Ok(())
}

#[inline]
pub(super) fn write_act(performative: &Performative, out: &mut Vec<u8>) -> Written {
    if let Performative::Other(name) = performative {
        // A standard act is the same act however it was spelled.
        if let Some(standard) = Performative::standard(name.as_bytes()) {
            return write_act(&standard, out);
        }
        return write_standard_word([0x00, 0x10], name, out)
            .map_err(|error| error.inside("performative"));
    }
    out.push(performative.code());
    Ok(())
}

#[inline]
fn write_aids(parameter: Parameter, aids: &[Aid], out: &mut Vec<u8>) -> Written {
    if aids.is_empty() {
        return Ok(());
    }
    out.push(parameter as u8);
    write_aid_list(aids, DEEPEST, out).map_err(|error| error.inside(parameter.name()))
}

fn write_aid_list(aids: &[Aid], depth: usize, out: &mut Vec<u8>) -> Written {
    for (index, aid) in aids.iter().enumerate() {
        write_aid(aid, depth, out).map_err(|error| error.inside(format_args!("[{index}]")))?;
    }
    out.push(0x01);
    Ok(())
}

fn write_aid(aid: &Aid, depth: usize, out: &mut Vec<u8>) -> Written {
    let Some(depth) = depth.checked_sub(1) else {
        let limit = DEEPEST;
        return Err(failure("", EncodeProblem::TooLarge { limit }));
    };
    if aid.name.is_empty() {
        return Err(failure("name", EncodeProblem::Empty));
    }
    write_text([0x02, 0x10], &aid.name, out).map_err(|error| error.inside("name"))?;
    if let [first, others @ ..] = aid.addresses.as_slice() {
        write_text([0x02, 0x10], first, out).map_err(|error| error.inside("addresses[0]"))?;
        for (index, address) in others.iter().enumerate() {
            write_tagged_text(0x10, address, out)
                .map_err(|error| error.inside(format_args!("addresses[{}]", index + 1)))?;
        }
        out.push(0x01);
    }
    if !aid.resolvers.is_empty() {
        out.push(0x03);
        write_aid_list(&aid.resolvers, depth, out).map_err(|error| error.inside("resolvers"))?;
    }
    if !aid.user_defined.is_empty() {
        write_user_defined(0x04, &aid.user_defined, out)?;
    }
    out.push(0x01);
    Ok(())
}

#[inline(always)]
pub(super) fn write_optional(
    parameter: Parameter,
    value: &Option<Expression>,
    out: &mut Vec<u8>,
) -> Written {
    match value {
        None => Ok(()),
        Some(value) => write_parameter(parameter, value, out),
    }
}

fn write_parameter(parameter: Parameter, value: &Expression, out: &mut Vec<u8>) -> Written {
    let written = if let Expression::Word(word) = value {
        write_word([parameter as u8, 0x10], word, out)
    } else {
        out.push(parameter as u8);
        write_expression(value, out)
    };
    written.map_err(|error| error.inside(parameter.name()))
}

fn write_user_defined(mark: u8, parameters: &[(String, Expression)], out: &mut Vec<u8>) -> Written {
    for (name, value) in parameters {
        write_standard_word([mark, 0x10], name, out)
            .map_err(|error| error.inside(format_args!("name of {name:?}")))?;
        let written = match value {
            // Most encoders leave out the quotes here, and only here.
            Expression::String(text) if misleads(text) => write_quoted_string(0x14, text, out),
            Expression::String(text) => write_tagged_text(0x14, text, out),
            value => write_expression(value, out),
        };
        written.map_err(|error| error.inside(name))?;
    }
    Ok(())
}

pub(super) fn write_content(content: &Content, form: TextForm, out: &mut Vec<u8>) -> Written {
    const MARK: u8 = Parameter::Content as u8;
    match (content, form) {
        (Content::Text(text), TextForm::Plain) if !misleads(text) => {
            write_text([MARK, 0x14], text, out)
        }
        (Content::Text(text), TextForm::Plain | TextForm::Quoted) => {
            out.push(MARK);
            write_quoted_string(0x14, text, out)
        }
        (content, _) => {
            out.push(MARK);
            write_bytes(Bracket::None, content.as_bytes(), out)
        }
    }
}

/// Whether readers would take the unquoted text for a quoted one.
pub(super) fn misleads(text: &str) -> bool {
    matches!(text.as_bytes().first(), Some(b'"' | b'#')) && unquote(text).len() != text.len()
}

fn write_quoted_string(tag: u8, text: &str, out: &mut Vec<u8>) -> Written {
    if memchr(0, text.as_bytes()).is_some() {
        return Err(zero());
    }
    out.push(tag);
    write_string(text, out);
    out.push(0);
    Ok(())
}

/// Writes a text behind its tag and the byte before the tag.
#[inline]
fn write_text(before: [u8; 2], text: &str, out: &mut Vec<u8>) -> Written {
    const SHORT: usize = 64;
    if text.len() > SHORT {
        return write_long_text(before, text, out);
    }
    if append(before, text.as_bytes(), out, zeros) {
        Err(zero())
    } else {
        Ok(())
    }
}

/// As [`write_text`], for long texts. Vectorised functions check and copy them.
fn write_long_text(before: [u8; 2], text: &str, out: &mut Vec<u8>) -> Written {
    if memchr(0, text.as_bytes()).is_some() {
        return Err(zero());
    }
    out.reserve(text.len() + 3);
    out.extend_from_slice(&before);
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

/// Writes a text behind its tag.
fn write_tagged_text(tag: u8, text: &str, out: &mut Vec<u8>) -> Written {
    if memchr(0, text.as_bytes()).is_some() {
        return Err(zero());
    }
    out.push(tag);
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

#[cold]
fn zero() -> Box<EncodeError> {
    let what = "a zero character";
    failure(
        "",
        EncodeProblem::Text {
            what,
            encoding: ENCODING,
        },
    )
}

/// Writes a word after its tag and the byte before that. No word contains a zero.
#[inline]
fn write_word(before: [u8; 2], word: &str, out: &mut Vec<u8>) -> Written {
    if append_word(before, word.as_bytes(), out) {
        Ok(())
    } else {
        Err(failure("", EncodeProblem::NotAWord))
    }
}

/// As [`write_word`], for a word of the standard, which may contain characters outside ASCII.
#[inline]
fn write_standard_word(before: [u8; 2], word: &str, out: &mut Vec<u8>) -> Written {
    if append_standard_word(before, word.as_bytes(), out) {
        Ok(())
    } else {
        Err(failure("", EncodeProblem::NotAWord))
    }
}

/// Writes a date-time with its tag.
pub(crate) fn write_date_time(moment: &DateTime, out: &mut Vec<u8>) {
    let tag = match moment.origin() {
        Origin::Calendar => 0x20,
        Origin::After => 0x21,
        Origin::Before => 0x22,
    };
    match moment.designator() {
        Some(letter) => {
            out.push(tag | 0x04);
            write_date(moment, out);
            out.push(letter);
        }
        None => {
            out.push(tag);
            write_date(moment, out);
        }
    }
}

fn write_expression(expression: &Expression, out: &mut Vec<u8>) -> Written {
    match expression {
        Expression::List(items) => {
            write_list(items, Bracket::None, DEEPEST, out)?;
            out.push(0x40);
            Ok(())
        }
        atom => write_atom(Bracket::None, atom, out),
    }
}

/// Writes a list without its closing bracket, which the tag of the next item may carry.
fn write_list(items: &[Expression], before: Bracket, depth: usize, out: &mut Vec<u8>) -> Written {
    let Some(depth) = depth.checked_sub(1) else {
        let limit = DEEPEST;
        return Err(failure("", EncodeProblem::TooLarge { limit }));
    };
    if before == Bracket::Closes {
        out.push(0x40);
    }
    let mut before = Bracket::Opens;
    for (index, item) in items.iter().enumerate() {
        let written = match item {
            Expression::List(items) => {
                if before == Bracket::Opens {
                    out.push(0x60);
                    before = Bracket::None;
                }
                write_list(items, before, depth, out)
            }
            atom => write_atom(before, atom, out),
        };
        written.map_err(|error| error.inside(format_args!("[{index}]")))?;
        before = match item {
            Expression::List(_) => Bracket::Closes,
            _ => Bracket::None,
        };
    }
    match before {
        Bracket::Opens => out.push(0x60),
        Bracket::Closes => out.push(0x40),
        Bracket::None => {}
    }
    Ok(())
}

fn write_atom(bracket: Bracket, expression: &Expression, out: &mut Vec<u8>) -> Written {
    match expression {
        Expression::Word(word) if is_word(word.as_bytes()) => {
            write_tagged_text(tag(bracket, 0), word, out)
        }
        Expression::Word(_) => Err(failure("", EncodeProblem::NotAWord)),
        Expression::String(text) => write_quoted_string(tag(bracket, 4), text, out),
        Expression::Number(number) => {
            let text = number.as_str();
            match number.as_hexadecimal() {
                Some(value) if Number::hexadecimal(value) == *number => {
                    out.push(tag(bracket, 3));
                    let mut digits = Vec::with_capacity(20);
                    crate::literal::write_decimal(value, &mut digits);
                    write_number(&digits, out);
                }
                None if !text.contains('E') => {
                    out.push(tag(bracket, 2));
                    write_number(text.as_bytes(), out);
                }
                // The nibble code has no capital letters and no leading zeros after `0x`. As a word such a number is
                // carried unchanged, and readers can tell it from all real words.
                _ => return write_tagged_text(tag(bracket, 0), text, out),
            }
            Ok(())
        }
        Expression::DateTime(moment) => {
            // The grammar has no date-time here. As a word it can be told from all other words.
            out.push(tag(bracket, 0));
            moment.write_to(out);
            out.push(0);
            Ok(())
        }
        Expression::Bytes(bytes) => write_bytes(bracket, bytes, out),
        // Another function writes lists. No other case is left.
        Expression::List(_) => Ok(()),
    }
}

/// Writes a byte string with its tag and length.
pub(crate) fn write_byte_string(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write_bytes(Bracket::None, bytes, out).map_err(|error| *error)
}

fn write_bytes(bracket: Bracket, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    write_length(bracket, bytes.len(), out)?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes the tag and the length that stand before this many bytes.
pub(super) fn write_length(bracket: Bracket, length: usize, out: &mut Vec<u8>) -> Written {
    if let Ok(length) = u8::try_from(length) {
        out.extend_from_slice(&[tag(bracket, 6), length]);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(tag(bracket, 7));
        out.extend_from_slice(&length.to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        // The long form's kind is 9 without a bracket and 8 with one.
        let kind = if bracket == Bracket::None { 9 } else { 8 };
        out.push(tag(bracket, kind));
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        let limit = u32::MAX as usize;
        return Err(failure("", EncodeProblem::TooLarge { limit }));
    }
    Ok(())
}
