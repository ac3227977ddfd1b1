//! Writing messages (FIPA00071).

use super::JADE_ENCODING;
use super::elements::trimmed;
use crate::bitefficient::DEEPEST;
use crate::expression::is_standard_word;
use crate::string::{check_carried, check_expression, expression_view, write_expression};
use crate::{
    AclMessage, Aid, Content, DecodeProblem, EncodeError, EncodeProblem, Expression, ExpressionRef,
    Limits, Performative, base64,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const ENCODING: &str = "XML";

/// Appends the message to `out`.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    write_message(message, out).inspect_err(|_| out.truncate(start))
}

fn write_message(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(b"<fipa-message act=\"");
    write_performative(&message.performative, out)?;
    if let Some(id) = &message.conversation_id {
        out.extend_from_slice(b"\" conversation-id=\"");
        let text = expression_text(id).map_err(|error| error.within("conversation-id"))?;
        escape_attribute(&text, out);
    }
    out.extend_from_slice(b"\">");
    for (name, aids) in [
        ("sender", message.sender.as_slice()),
        ("receiver", &message.receivers),
        ("reply-to", &message.reply_to),
    ] {
        for (index, aid) in aids.iter().enumerate() {
            open(name, out);
            write_aid(aid, Names::Attributes, DEEPEST, out)
                .map_err(|error| error.within(format_args!("{name}[{index}]")))?;
            close(name, out);
        }
    }
    for (name, value) in [
        ("language", &message.language),
        ("encoding", &message.encoding),
        ("ontology", &message.ontology),
    ] {
        write_parameter(name, value.as_ref(), out)?;
    }
    if let Some(protocol) = &message.protocol {
        if !is_standard_word(protocol.as_bytes()) {
            return Err(EncodeError::new("protocol", EncodeProblem::NotAWord));
        }
        write_element("protocol", protocol, out).map_err(|error| error.within("protocol"))?;
    }
    for (name, value) in [
        ("conversation-id", &message.conversation_id),
        ("reply-with", &message.reply_with),
        ("in-reply-to", &message.in_reply_to),
    ] {
        write_parameter(name, value.as_ref(), out)?;
    }
    if let Some(moment) = &message.reply_by {
        out.extend_from_slice(b"<reply-by time=\"");
        moment.write_to(out);
        out.extend_from_slice(b"\"/>");
    }
    write_user_defined(&message.user_defined, message.content.is_some(), out)?;
    match &message.content {
        None => {}
        Some(Content::Text(text)) => {
            write_element("content", text, out).map_err(|error| error.within("content"))?;
        }
        Some(Content::Bytes(bytes)) => {
            write_element(JADE_ENCODING, "Base64", out)?;
            write_element("content", &base64::encode(bytes), out)?;
        }
    }
    out.extend_from_slice(b"</fipa-message>");
    Ok(())
}

fn write_performative(performative: &Performative, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let name = performative.as_str();
    if !is_standard_word(name.as_bytes()) {
        return Err(EncodeError::new("performative", EncodeProblem::NotAWord));
    }
    check_text(name).map_err(|error| error.within("performative"))?;
    escape_attribute(name, out);
    Ok(())
}

pub(crate) fn open(name: &str, out: &mut Vec<u8>) {
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

pub(crate) fn close(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"</");
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

pub(crate) fn write_element(name: &str, text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    open(name, out);
    write_text(text, out)?;
    close(name, out);
    Ok(())
}

fn write_parameter(
    name: &'static str,
    value: Option<&Expression>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(value) = value else { return Ok(()) };
    open(name, out);
    let text = expression_text(value).map_err(|error| error.within(name))?;
    escape_text(&text, out);
    close(name, out);
    Ok(())
}

/// How names and addresses are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// As attributes: in messages.
    Attributes,
    /// As text: in envelopes.
    Text,
}

impl Names {
    fn write(
        self,
        element: &str,
        attribute: &str,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self {
            Self::Attributes => write_empty(element, attribute, name, out),
            // Readers leave out white space at both ends of text.
            Self::Text if trimmed(name) != name => {
                let what = "white space at an end";
                Err(EncodeError::new(
                    "",
                    EncodeProblem::Text {
                        what,
                        encoding: ENCODING,
                    },
                ))
            }
            Self::Text => write_element(element, name, out),
        }
    }
}

/// Appends an empty element with one attribute.
pub(crate) fn write_empty(
    element: &str,
    attribute: &str,
    value: &str,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    out.push(b'<');
    out.extend_from_slice(element.as_bytes());
    out.push(b' ');
    out.extend_from_slice(attribute.as_bytes());
    out.extend_from_slice(b"=\"");
    write_attribute(value, out)?;
    out.extend_from_slice(b"\"/>");
    Ok(())
}

/// Writes an AID. `resolvers` stands once for each resolver, as `receiver` does.
pub(crate) fn write_aid(
    aid: &Aid,
    names: Names,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(depth) = depth.checked_sub(1) else {
        let limit = DEEPEST;
        return Err(EncodeError::new("", EncodeProblem::TooLarge { limit }));
    };
    if aid.name.is_empty() {
        return Err(EncodeError::new("name", EncodeProblem::Empty));
    }
    open("agent-identifier", out);
    names
        .write("name", "id", &aid.name, out)
        .map_err(|error| error.within("name"))?;
    if !aid.addresses.is_empty() {
        open("addresses", out);
        for (index, address) in aid.addresses.iter().enumerate() {
            names
                .write("url", "href", address, out)
                .map_err(|error| error.within(format_args!("addresses[{index}]")))?;
        }
        close("addresses", out);
    }
    for (index, resolver) in aid.resolvers.iter().enumerate() {
        open("resolvers", out);
        write_aid(resolver, names, depth, out)
            .map_err(|error| error.within(format_args!("resolvers[{index}]")))?;
        close("resolvers", out);
    }
    write_user_defined(&aid.user_defined, false, out)?;
    close("agent-identifier", out);
    Ok(())
}

fn write_user_defined(
    parameters: &[(String, Expression)],
    reserves_jade_encoding: bool,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for (name, value) in parameters {
        let field = || format!("name of {name:?}");
        if name.is_empty() {
            return Err(EncodeError::new(field(), EncodeProblem::Empty));
        }
        if reserves_jade_encoding && name.eq_ignore_ascii_case(JADE_ENCODING) {
            let problem = EncodeProblem::NameTaken { encoding: ENCODING };
            return Err(EncodeError::new(field(), problem));
        }
        out.extend_from_slice(b"<user-defined href=\"");
        write_attribute(name, out).map_err(|error| error.within(field()))?;
        out.extend_from_slice(b"\">");
        let text = expression_text(value).map_err(|error| error.within(name))?;
        escape_text(&text, out);
        close("user-defined", out);
    }
    Ok(())
}

/// Whether readers take the text, without quotes, for that very string.
fn is_read_as_string(text: &str) -> bool {
    match check_expression(text.as_bytes(), &Limits::DEFAULT) {
        Ok(_) => matches!(
            expression_view(text.as_bytes()),
            Some(ExpressionRef::String(read)) if read == text
        ),
        Err(error) => !matches!(error.problem, DecodeProblem::Limit { .. }),
    }
}

/// The text of an expression. Readers take it for the same expression again.
fn expression_text(expression: &Expression) -> Result<String, EncodeError> {
    if let Expression::String(text) = expression
        && is_read_as_string(text)
    {
        check_text(text)?;
        return Ok(text.clone());
    }
    check_carried(expression, ENCODING)?;
    let mut text = Vec::new();
    write_expression(expression, &mut text);
    let text = String::from_utf8(text).map_err(|_| {
        let what = "bytes that are not UTF-8";
        EncodeError::new(
            "",
            EncodeProblem::Text {
                what,
                encoding: ENCODING,
            },
        )
    })?;
    check_text(&text)?;
    Ok(text)
}

/// Finds characters that XML does not allow, escaped or not.
fn check_text(text: &str) -> Result<(), EncodeError> {
    // Only control characters and the byte EF can belong to such a character. Most text has neither, which this loop
    // finds out many bytes at a time.
    let suspect =
        |byte: u8| (byte < 0x20) & !matches!(byte, b'\t' | b'\n' | b'\r') | (byte == 0xef);
    if !text
        .bytes()
        .fold(false, |found, byte| found | suspect(byte))
    {
        return Ok(());
    }
    let forbidden = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    if !text.chars().any(forbidden) {
        return Ok(());
    }
    let what = "a character that XML does not allow";
    Err(EncodeError::new(
        "",
        EncodeProblem::Text {
            what,
            encoding: ENCODING,
        },
    ))
}

/// Appends text between tags.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    check_text(text)?;
    escape_text(text, out);
    Ok(())
}

/// Appends the value of an attribute, without its quotes.
pub(crate) fn write_attribute(value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    check_text(value)?;
    escape_attribute(value, out);
    Ok(())
}

/// A carriage return would be read as a line feed.
fn escape_text(text: &str, out: &mut Vec<u8>) {
    escape(text, out, |byte| match byte {
        b'&' => b"&amp;",
        b'<' => b"&lt;",
        b'>' => b"&gt;",
        b'\r' => b"&#13;",
        _ => b"",
    });
}

/// White space would be read as blanks.
fn escape_attribute(text: &str, out: &mut Vec<u8>) {
    escape(text, out, |byte| match byte {
        b'&' => b"&amp;",
        b'<' => b"&lt;",
        b'"' => b"&quot;",
        b'\r' => b"&#13;",
        b'\n' => b"&#10;",
        b'\t' => b"&#9;",
        _ => b"",
    });
}

/// Appends the text. Bytes for which `escaped` has a replacement are replaced.
fn escape(text: &str, out: &mut Vec<u8>, escaped: impl Fn(u8) -> &'static [u8]) {
    // Every byte that either function escapes. The search handles many bytes at a time.
    let may_need = |byte: u8| {
        (byte == b'&') | (byte == b'<') | (byte == b'>') | (byte == b'"') | (byte < 0x20)
    };
    for chunk in text.as_bytes().chunks(64) {
        if !chunk
            .iter()
            .fold(false, |found, byte| found | may_need(*byte))
        {
            out.extend_from_slice(chunk);
            continue;
        }
        for byte in chunk {
            match escaped(*byte) {
                b"" => out.push(*byte),
                escaped => out.extend_from_slice(escaped),
            }
        }
    }
}
