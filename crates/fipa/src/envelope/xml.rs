//! The XML representation of envelopes (FIPA00085).
//!
//! As in messages there is one `to` and one `intended-receiver` element for each agent, because JADE takes only one
//! agent from each.

use super::{Envelope, EnvelopeParameters, EnvelopeRepresentation, Received};
use crate::bitefficient::DEEPEST;
use crate::literal::write_decimal;
use crate::xml::{
    Element, Elements, Names, close, open, trimmed, write_aid, write_attribute, write_element,
    write_empty, write_text,
};
use crate::{Content, DateTime, DecodeError, DecodeProblem, EncodeError, EncodeProblem, Limits};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The encoding's FIPA name.
pub const NAME: &str = "fipa.mts.env.rep.xml.std";

const ENCODING: &str = "the XML envelope";

/// The encoding as an [`EnvelopeRepresentation`].
#[derive(Debug, Clone, Copy)]
pub struct Xml;

impl EnvelopeRepresentation for Xml {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "xml"
    }

    fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(envelope, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<(Envelope, usize), DecodeError> {
        decode(bytes, limits).map(|envelope| (envelope, bytes.len()))
    }
}

/// Appends the envelope to `out`.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    write_envelope(envelope, out).inspect_err(|_| out.truncate(start))
}

fn write_envelope(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\n<envelope>");
    write_parameters(1, &envelope.base, out).map_err(|error| error.within("base"))?;
    for (index, revision) in envelope.revisions.iter().enumerate() {
        write_parameters(index + 2, revision, out)
            .map_err(|error| error.within(format_args!("revisions[{index}]")))?;
    }
    close("envelope", out);
    Ok(())
}

fn write_parameters(
    index: usize,
    parameters: &EnvelopeParameters,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    out.extend_from_slice(b"<params index=\"");
    write_decimal(index as u64, out);
    out.extend_from_slice(b"\">");
    write_aids("to", &parameters.to, out)?;
    write_aids("from", parameters.from.as_slice(), out)?;
    write_optional("comments", parameters.comments.as_deref(), out)?;
    write_word(
        "acl-representation",
        parameters.acl_representation.as_deref(),
        out,
    )?;
    if let Some(length) = parameters.payload_length {
        open("payload-length", out);
        write_decimal(length, out);
        close("payload-length", out);
    }
    write_word(
        "payload-encoding",
        parameters.payload_encoding.as_deref(),
        out,
    )?;
    if let Some(date) = &parameters.date {
        open("date", out);
        date.write_to(out);
        close("date", out);
    }
    write_aids("intended-receiver", &parameters.intended_receivers, out)?;
    if let Some(received) = &parameters.received {
        write_received(received, out).map_err(|error| error.within("received"))?;
    }
    match &parameters.transport_behaviour {
        None => {}
        Some(Content::Text(text)) => write_optional("transport-behaviour", Some(text), out)?,
        Some(Content::Bytes(_)) => {
            let what = "is bytes";
            let problem = EncodeProblem::Unsupported {
                what,
                encoding: ENCODING,
            };
            return Err(EncodeError::new("transport-behaviour", problem));
        }
    }
    write_user_defined(&parameters.user_defined, out)?;
    close("params", out);
    Ok(())
}

fn write_aids(
    element: &'static str,
    aids: &[crate::Aid],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for (index, aid) in aids.iter().enumerate() {
        open(element, out);
        write_aid(aid, Names::Text, DEEPEST, out)
            .map_err(|error| error.within(format_args!("{element}[{index}]")))?;
        close(element, out);
    }
    Ok(())
}

fn write_optional(
    element: &'static str,
    text: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match text {
        None => Ok(()),
        Some(text) => write_element(element, text, out).map_err(|error| error.within(element)),
    }
}

/// Writes a text whose white space at both ends readers leave out.
fn write_word(
    element: &'static str,
    text: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if text.is_some_and(|text| trimmed(text) != text) {
        let what = "white space at an end";
        let problem = EncodeProblem::Text {
            what,
            encoding: ENCODING,
        };
        return Err(EncodeError::new(element, problem));
    }
    write_optional(element, text, out)
}

fn write_user_defined(
    parameters: &[(String, String)],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for (name, value) in parameters {
        let field = || format!("name of {name:?}");
        if name.is_empty() {
            return Err(EncodeError::new(field(), EncodeProblem::Empty));
        }
        out.extend_from_slice(b"<user-defined href=\"");
        write_attribute(name, out).map_err(|error| error.within(field()))?;
        out.extend_from_slice(b"\" type=\"string\">");
        write_text(value, out).map_err(|error| error.within(name))?;
        close("user-defined", out);
    }
    Ok(())
}

fn write_received(received: &Received, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    open("received", out);
    write_empty("received-by", "value", &received.by, out).map_err(|error| error.within("by"))?;
    for (element, field, value) in [
        ("received-from", "from", &received.from),
        ("received-id", "id", &received.id),
        ("received-via", "via", &received.via),
    ] {
        if let Some(value) = value {
            write_empty(element, "value", value, out).map_err(|error| error.within(field))?;
        }
    }
    out.extend_from_slice(b"<received-date value=\"");
    received.date.write_to(out);
    out.extend_from_slice(b"\"/>");
    write_user_defined(&received.user_defined, out)?;
    close("received", out);
    Ok(())
}

/// Reads an envelope, which must be the whole document.
///
/// # Errors
/// [`DecodeError`] with the offset of the byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Envelope, DecodeError> {
    let mut elements = Elements::new(bytes, limits)?;
    let root = elements.root()?;
    if root.name() != "envelope" {
        return Err(root.unexpected("<envelope>"));
    }
    let mut parts = Vec::new();
    while let Some(element) = elements.child()? {
        if element.name() != "params" {
            return Err(element.unexpected("<params>"));
        }
        if parts.len() > limits.depth {
            let limit = limits.depth;
            return Err(DecodeError::limit(element.offset(), "revisions", limit));
        }
        let index = match element.attribute("index")? {
            Some(index) => trimmed(&index).parse().ok(),
            None => Some(parts.len() as u64 + 1),
        };
        let index: u64 =
            index.ok_or_else(|| element.missing("a number as the attribute 'index'"))?;
        parts.push((index, read_parameters(&mut elements)?));
    }
    elements.end()?;
    // The lowest index is the base, wherever it stands.
    parts.sort_by_key(|(index, _)| *index);
    let mut parts = parts.into_iter().map(|(_, parameters)| parameters);
    let base = parts.next().ok_or_else(|| root.missing("<params>"))?;
    Ok(Envelope {
        base,
        revisions: parts.collect(),
    })
}

fn read_parameters(elements: &mut Elements<'_>) -> Result<EnvelopeParameters, DecodeError> {
    let mut parameters = EnvelopeParameters::default();
    while let Some(element) = elements.child()? {
        match element.name() {
            "to" => elements.aids(&mut parameters.to)?,
            "from" => {
                let mut aids = parameters.from.take().into_iter().collect::<Vec<_>>();
                elements.aids(&mut aids)?;
                if aids.len() > 1 {
                    return Err(element.duplicate("from"));
                }
                parameters.from = aids.pop();
            }
            "comments" => {
                let text = elements.text()?.into_owned();
                once(&element, "comments", &mut parameters.comments, text)?;
            }
            "acl-representation" => {
                let text = trimmed(&elements.text()?).to_owned();
                once(
                    &element,
                    "acl-representation",
                    &mut parameters.acl_representation,
                    text,
                )?;
            }
            "payload-length" => {
                let text = elements.text()?;
                // JADE writes -1 for a length that it does not know.
                if trimmed(&text).starts_with('-') {
                    continue;
                }
                let length = trimmed(&text).parse();
                let length = length.map_err(|_| element.missing("a number of bytes"))?;
                once(
                    &element,
                    "payload-length",
                    &mut parameters.payload_length,
                    length,
                )?;
            }
            "payload-encoding" => {
                let text = trimmed(&elements.text()?).to_owned();
                once(
                    &element,
                    "payload-encoding",
                    &mut parameters.payload_encoding,
                    text,
                )?;
            }
            "date" => {
                let date = read_date(&element, &elements.text()?)?;
                once(&element, "date", &mut parameters.date, date)?;
            }
            "intended-receiver" => elements.aids(&mut parameters.intended_receivers)?,
            "received" => {
                let received = read_received(elements, &element)?;
                once(&element, "received", &mut parameters.received, received)?;
            }
            "transport-behaviour" => {
                let text = Content::Text(elements.text()?.into_owned());
                once(
                    &element,
                    "transport-behaviour",
                    &mut parameters.transport_behaviour,
                    text,
                )?;
            }
            "user-defined" => parameters
                .user_defined
                .push(read_user_defined(elements, &element)?),
            // The standard removed this element. It is of no use without the keys.
            "encrypted" => elements.skip()?,
            _ => return Err(element.unexpected("a parameter of FIPA's envelope")),
        }
    }
    Ok(parameters)
}

fn once<T>(
    element: &Element<'_>,
    parameter: &'static str,
    slot: &mut Option<T>,
    value: T,
) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(element.duplicate(parameter)),
    }
}

/// JADE writes a `Z` where the `T` belongs.
fn read_date(element: &Element<'_>, text: &str) -> Result<DateTime, DecodeError> {
    let text = trimmed(text).as_bytes();
    let mut token = [0u8; DateTime::MAX_LENGTH];
    let date = match token.get_mut(..text.len()) {
        Some(token) => {
            token.copy_from_slice(text);
            if let Some(middle @ b'Z') = token.get_mut(8) {
                *middle = b'T';
            }
            DateTime::parse(token)
        }
        None => DateTime::parse(text),
    };
    date.map_err(|problem| DecodeError::new(element.offset(), DecodeProblem::DateTime(problem)))
}

fn read_user_defined(
    elements: &mut Elements<'_>,
    element: &Element<'_>,
) -> Result<(String, String), DecodeError> {
    let name = element.attribute("href")?.filter(|name| !name.is_empty());
    let name = name
        .ok_or_else(|| element.missing("the attribute 'href'"))?
        .into_owned();
    Ok((name, elements.text()?.into_owned()))
}

/// Reads a value from an attribute, text, or a `url` element. Older standards had each of these.
fn read_value(elements: &mut Elements<'_>, element: &Element<'_>) -> Result<String, DecodeError> {
    if let Some(value) = element.attribute("value")? {
        let value = value.into_owned();
        elements.skip()?;
        return Ok(value);
    }
    elements.text_or_url()
}

fn read_received(
    elements: &mut Elements<'_>,
    start: &Element<'_>,
) -> Result<Received, DecodeError> {
    let (mut by, mut date, mut from, mut id, mut via) = (None, None, None, None, None);
    let mut user_defined = Vec::new();
    while let Some(element) = elements.child()? {
        match element.name() {
            "received-by" => once(
                &element,
                "received-by",
                &mut by,
                read_value(elements, &element)?,
            )?,
            "received-date" => {
                let text = read_value(elements, &element)?;
                once(
                    &element,
                    "received-date",
                    &mut date,
                    read_date(&element, &text)?,
                )?;
            }
            "received-from" => {
                once(
                    &element,
                    "received-from",
                    &mut from,
                    read_value(elements, &element)?,
                )?;
            }
            "received-id" => once(
                &element,
                "received-id",
                &mut id,
                read_value(elements, &element)?,
            )?,
            "received-via" => {
                once(
                    &element,
                    "received-via",
                    &mut via,
                    read_value(elements, &element)?,
                )?;
            }
            "user-defined" => user_defined.push(read_user_defined(elements, &element)?),
            _ => return Err(element.unexpected("a part of FIPA's stamp")),
        }
    }
    Ok(Received {
        by: by.ok_or_else(|| start.missing("<received-by>"))?,
        date: date.ok_or_else(|| start.missing("<received-date>"))?,
        from,
        id,
        via,
        user_defined,
    })
}
