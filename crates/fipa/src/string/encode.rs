//! Writing messages (FIPA00070).

use super::parse::{AidParameter, JADE_ENCODING};
use crate::expression::is_standard_word;
use crate::literal::{write_counted, write_quoted, write_string};
use crate::parameter::Parameter;
use crate::{
    AclMessage, Aid, Content, EncodeError, EncodeProblem, Expression, Performative, is_word,
};
use alloc::format;
use alloc::vec::Vec;

const ENCODING: &str = "the String encoding";

/// Appends the message to `out`. Allocates nothing if `out` has room.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    write_message(message, out).inspect_err(|_| out.truncate(start))
}

fn write_message(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(b'(');
    write_performative(&message.performative, out)?;
    if let Some(sender) = &message.sender {
        out.extend_from_slice(b"\n :sender ");
        write_aid(sender, out).map_err(|error| error.within("sender"))?;
    }
    for (name, aids) in [
        ("receiver", &message.receivers),
        ("reply-to", &message.reply_to),
    ] {
        if !aids.is_empty() {
            start_parameter(name, out);
            write_aids("(set", aids, out).map_err(|error| error.within(name))?;
        }
    }
    for (name, value) in [
        ("language", &message.language),
        ("encoding", &message.encoding),
        ("ontology", &message.ontology),
        ("reply-with", &message.reply_with),
        ("in-reply-to", &message.in_reply_to),
    ] {
        write_parameter(name, value.as_ref(), out)?;
    }
    if let Some(moment) = &message.reply_by {
        out.extend_from_slice(b"\n :reply-by ");
        moment.write_to(out);
    }
    if let Some(protocol) = &message.protocol {
        out.extend_from_slice(b"\n :protocol ");
        write_protocol(protocol, out).map_err(|error| error.within("protocol"))?;
    }
    write_parameter("conversation-id", message.conversation_id.as_ref(), out)?;
    for (name, value) in &message.user_defined {
        out.push(b'\n');
        let reserves_jade_encoding = message.content.is_some();
        write_user_defined(Owner::Message, name, value, reserves_jade_encoding, out)?;
    }
    if let Some(content) = &message.content {
        out.extend_from_slice(b"\n :content ");
        write_content(content, out);
    }
    out.push(b')');
    Ok(())
}

fn start_parameter(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n :");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
}

fn write_performative(performative: &Performative, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write_word(performative.as_str(), out).map_err(|error| error.within("performative"))
}

fn write_word(word: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !is_word(word.as_bytes()) {
        return Err(EncodeError::new("", EncodeProblem::NotAWord));
    }
    out.extend_from_slice(word.as_bytes());
    Ok(())
}

fn write_protocol(protocol: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if is_word(protocol.as_bytes()) || !is_standard_word(protocol.as_bytes()) {
        return write_word(protocol, out);
    }
    check_string(protocol, ENCODING)?;
    write_string(protocol, out);
    Ok(())
}

fn write_aids(open: &str, aids: &[Aid], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(open.as_bytes());
    for (index, aid) in aids.iter().enumerate() {
        out.push(b' ');
        write_aid(aid, out).map_err(|error| error.within(format_args!("[{index}]")))?;
    }
    out.push(b')');
    Ok(())
}

fn write_aid(aid: &Aid, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if aid.name.is_empty() {
        return Err(EncodeError::new("name", EncodeProblem::Empty));
    }
    out.extend_from_slice(b"(agent-identifier :name ");
    write_name(&aid.name, out);
    if !aid.addresses.is_empty() {
        out.extend_from_slice(b" :addresses (sequence");
        for address in &aid.addresses {
            out.push(b' ');
            write_name(address, out);
        }
        out.push(b')');
    }
    if !aid.resolvers.is_empty() {
        out.extend_from_slice(b" :resolvers ");
        write_aids("(sequence", &aid.resolvers, out).map_err(|error| error.within("resolvers"))?;
    }
    for (name, value) in &aid.user_defined {
        write_user_defined(Owner::Aid, name, value, false, out)?;
    }
    out.push(b')');
    Ok(())
}

/// Writes a name or address: bare if every reader accepts that, otherwise as a string without escapes.
fn write_name(name: &str, out: &mut Vec<u8>) {
    if is_word(name.as_bytes()) {
        out.extend_from_slice(name.as_bytes());
    } else if name.contains(['"', '\\']) {
        write_counted(name.as_bytes(), out);
    } else {
        write_string(name, out);
    }
}

fn write_parameter(
    name: &'static str,
    value: Option<&Expression>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(value) = value else { return Ok(()) };
    check_carried(value, ENCODING).map_err(|error| error.within(name))?;
    start_parameter(name, out);
    write_expression(value, out);
    Ok(())
}

fn write_user_defined(
    owner: Owner,
    name: &str,
    value: &Expression,
    reserves_jade_encoding: bool,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let field = || format!("name of {name:?}");
    if !is_word(name.as_bytes()) {
        return Err(EncodeError::new(field(), EncodeProblem::NotAWord));
    }
    if !name
        .get(..2)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case("X-"))
    {
        let problem = if owner.has(name.as_bytes()) {
            EncodeProblem::NameTaken { encoding: ENCODING }
        } else {
            EncodeProblem::Unsupported {
                what: "does not begin with X-",
                encoding: ENCODING,
            }
        };
        return Err(EncodeError::new(field(), problem));
    }
    if reserves_jade_encoding && name.as_bytes().eq_ignore_ascii_case(JADE_ENCODING) {
        let problem = EncodeProblem::NameTaken { encoding: ENCODING };
        return Err(EncodeError::new(field(), problem));
    }
    check_carried(value, ENCODING).map_err(|error| error.within(name))?;
    out.extend_from_slice(b" :");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    write_expression(value, out);
    Ok(())
}

fn write_content(content: &Content, out: &mut Vec<u8>) {
    match content {
        // The content stands last, so that no quote follows and a backslash may end it.
        Content::Text(text) => write_quoted(text, out),
        Content::Bytes(bytes) => write_counted(bytes, out),
    }
}

/// Finds parts that the text of an expression cannot carry, for encodings that use such text: invalid words, and
/// strings that end in a backslash.
pub(crate) fn check_carried(
    expression: &Expression,
    encoding: &'static str,
) -> Result<(), EncodeError> {
    match expression {
        Expression::Word(word) if !is_word(word.as_bytes()) => {
            Err(EncodeError::new("", EncodeProblem::NotAWord))
        }
        Expression::String(text) => check_string(text, encoding),
        Expression::List(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            check_carried(item, encoding).map_err(|error| error.within(format_args!("[{index}]")))
        }),
        _ => Ok(()),
    }
}

fn check_string(text: &str, encoding: &'static str) -> Result<(), EncodeError> {
    if !text.ends_with('\\') {
        return Ok(());
    }
    let problem = EncodeProblem::Text {
        what: "a backslash at its end",
        encoding,
    };
    Err(EncodeError::new("", problem))
}

/// Appends an expression. A value that the standard cannot express is written in the nearest form.
pub(crate) fn write_expression(expression: &Expression, out: &mut Vec<u8>) {
    match expression {
        Expression::Word(word) => out.extend_from_slice(word.as_bytes()),
        Expression::String(text) => write_string(text, out),
        Expression::Number(number) => out.extend_from_slice(number.as_str().as_bytes()),
        Expression::DateTime(moment) => moment.write_to(out),
        Expression::Bytes(bytes) => write_counted(bytes, out),
        Expression::List(items) => {
            out.push(b'(');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b' ');
                }
                write_expression(item, out);
            }
            out.push(b')');
        }
    }
}

/// The object whose parameters are read. It decides the standard's names for them.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Message,
    Aid,
}

impl Owner {
    /// True for the names of the standard's own parameters.
    pub(super) fn has(self, name: &[u8]) -> bool {
        match self {
            Self::Message => Parameter::from_name(name).is_some(),
            Self::Aid => AidParameter::from_name(name).is_some(),
        }
    }
}
