//! Writing envelopes (FIPA00088).

use super::{BASE, REVISION};
use crate::bitefficient::{
    DEEPEST, NAME as ACL_BIT_EFFICIENT, write_byte_string, write_date_time, write_number,
};
use crate::envelope::{Envelope, EnvelopeParameters, Received};
use crate::literal::write_decimal;
use crate::representation::XML as ACL_XML;
use crate::string::NAME as ACL_STRING;
use crate::{Aid, Content, EncodeError, EncodeProblem, Expression};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const ENCODING: &str = "the bit-efficient envelope";

/// Appends the envelope to `out`.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. Examples are a base without date or acl-representation, and
/// a revision with a date or without a stamp. `out` is then unchanged.
pub fn encode(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    write_envelope(envelope, out).inspect_err(|_| out.truncate(start))
}

fn write_envelope(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    for (index, revision) in envelope.revisions.iter().enumerate().rev() {
        write_part(REVISION, revision, out)
            .map_err(|error| error.within(format_args!("revisions[{index}]")))?;
    }
    write_part(BASE, &envelope.base, out).map_err(|error| error.within("base"))
}

fn missing(field: &'static str) -> EncodeError {
    let what = "is absent, but mandatory here";
    EncodeError::new(
        field,
        EncodeProblem::Unsupported {
            what,
            encoding: ENCODING,
        },
    )
}

fn write_part(
    mark: u8,
    parameters: &EnvelopeParameters,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[mark, 0, 0]);
    if mark == BASE {
        let name = parameters.acl_representation.as_deref();
        write_representation(name.ok_or_else(|| missing("acl-representation"))?, out)?;
        write_date_time(&parameters.date.ok_or_else(|| missing("date"))?, out);
        if let Some(received) = &parameters.received {
            out.push(0x0a);
            write_received(received, out).map_err(|error| error.within("received"))?;
        }
    } else {
        let received = parameters
            .received
            .as_ref()
            .ok_or_else(|| missing("received"))?;
        write_received(received, out).map_err(|error| error.within("received"))?;
        if parameters.date.is_some() {
            let what = "is in a revision";
            let problem = EncodeProblem::Unsupported {
                what,
                encoding: ENCODING,
            };
            return Err(EncodeError::new("date", problem));
        }
        if let Some(name) = &parameters.acl_representation {
            out.push(0x04);
            write_representation(name, out)?;
        }
    }
    write_aids("to", 0x02, &parameters.to, out)?;
    if let Some(from) = &parameters.from {
        out.push(0x03);
        write_aid(from, DEEPEST, out).map_err(|error| error.within("from"))?;
    }
    write_optional("comments", 0x05, parameters.comments.as_deref(), out)?;
    if let Some(length) = parameters.payload_length {
        out.push(0x06);
        let mut digits = Vec::with_capacity(20);
        write_decimal(length, &mut digits);
        write_number(&digits, out);
    }
    write_optional(
        "payload-encoding",
        0x07,
        parameters.payload_encoding.as_deref(),
        out,
    )?;
    write_aids(
        "intended-receiver",
        0x09,
        &parameters.intended_receivers,
        out,
    )?;
    if let Some(value) = &parameters.transport_behaviour {
        out.push(0x0b);
        write_any(value, out).map_err(|error| error.within("transport-behaviour"))?;
    }
    write_user_defined(&parameters.user_defined, out)?;
    out.push(0x01);
    let length = out.len() - start;
    if let Ok(length) = u16::try_from(length) {
        out[start + 1..start + 3].copy_from_slice(&length.to_be_bytes());
    } else {
        // A length of 0 announces a longer field. That field counts itself too.
        let length = u32::try_from(length + 4).map_err(|_| {
            let limit = u32::MAX as usize;
            EncodeError::new("envelope", EncodeProblem::TooLarge { limit })
        })?;
        out.splice(start + 3..start + 3, length.to_be_bytes());
    }
    Ok(())
}

fn write_representation(name: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match name {
        ACL_BIT_EFFICIENT => out.push(0x10),
        ACL_STRING => out.push(0x11),
        ACL_XML => out.push(0x12),
        name => {
            out.push(0);
            write_text(name, out).map_err(|error| error.within("acl-representation"))?;
        }
    }
    Ok(())
}

fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if text.as_bytes().contains(&0) {
        let what = "a zero character";
        return Err(EncodeError::new(
            "",
            EncodeProblem::Text {
                what,
                encoding: ENCODING,
            },
        ));
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

fn write_optional(
    field: &'static str,
    code: u8,
    text: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let Some(text) = text else { return Ok(()) };
    out.push(code);
    write_text(text, out).map_err(|error| error.within(field))
}

fn write_any(value: &Content, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match value {
        Content::Text(text) => {
            out.push(0x14);
            write_text(text, out)
        }
        Content::Bytes(bytes) => write_byte_string(bytes, out),
    }
}

fn write_user_defined(
    parameters: &[(String, String)],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for (name, value) in parameters {
        out.push(0x00);
        write_name(name, out)?;
        write_text(value, out).map_err(|error| error.within(name))?;
    }
    Ok(())
}

/// Writes the name of a user-defined parameter. One encoder writes name and value in one text with a blank between
/// them, so no name may contain a blank.
fn write_name(name: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let field = || format!("name of {name:?}");
    if name.is_empty() {
        return Err(EncodeError::new(field(), EncodeProblem::Empty));
    }
    if name.contains(' ') {
        return Err(EncodeError::new(field(), EncodeProblem::NotAWord));
    }
    write_text(name, out).map_err(|error| error.within(field()))
}

fn write_aids(
    field: &'static str,
    code: u8,
    aids: &[Aid],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if aids.is_empty() {
        return Ok(());
    }
    out.push(code);
    write_aid_list(aids, DEEPEST, out).map_err(|error| error.within(field))
}

fn write_aid_list(aids: &[Aid], depth: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    for (index, aid) in aids.iter().enumerate() {
        write_aid(aid, depth, out).map_err(|error| error.within(format_args!("[{index}]")))?;
    }
    out.push(0x01);
    Ok(())
}

fn write_aid(aid: &Aid, depth: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Some(depth) = depth.checked_sub(1) else {
        let limit = DEEPEST;
        return Err(EncodeError::new("", EncodeProblem::TooLarge { limit }));
    };
    if aid.name.is_empty() {
        return Err(EncodeError::new("name", EncodeProblem::Empty));
    }
    out.push(0x02);
    write_text(&aid.name, out).map_err(|error| error.within("name"))?;
    if !aid.addresses.is_empty() {
        out.push(0x02);
        for (index, address) in aid.addresses.iter().enumerate() {
            // An empty address would look absent, or begin with the end mark.
            if address
                .as_bytes()
                .first()
                .is_none_or(|first| *first == 0x01)
            {
                let field = format!("addresses[{index}]");
                return Err(EncodeError::new(field, EncodeProblem::Empty));
            }
            write_text(address, out)
                .map_err(|error| error.within(format_args!("addresses[{index}]")))?;
        }
        out.push(0x01);
    }
    if !aid.resolvers.is_empty() {
        out.push(0x03);
        write_aid_list(&aid.resolvers, depth, out).map_err(|error| error.within("resolvers"))?;
    }
    for (name, value) in &aid.user_defined {
        out.push(0x05);
        write_name(name, out)?;
        let value = match value {
            Expression::String(text) => Content::Text(text.clone()),
            Expression::Bytes(bytes) => Content::Bytes(bytes.clone()),
            _ => {
                let what = "is neither a string nor bytes";
                let problem = EncodeProblem::Unsupported {
                    what,
                    encoding: ENCODING,
                };
                return Err(EncodeError::new(name.clone(), problem));
            }
        };
        write_any(&value, out).map_err(|error| error.within(name))?;
    }
    out.push(0x01);
    Ok(())
}

fn write_received(received: &Received, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    // One encoder puts a line feed before the URL. Readers remove it.
    if received.by.starts_with('\n') {
        let what = "a line feed at its beginning";
        return Err(EncodeError::new(
            "by",
            EncodeProblem::Text {
                what,
                encoding: ENCODING,
            },
        ));
    }
    write_text(&received.by, out).map_err(|error| error.within("by"))?;
    write_date_time(&received.date, out);
    write_optional("from", 0x02, received.from.as_deref(), out)?;
    write_optional("id", 0x03, received.id.as_deref(), out)?;
    write_optional("via", 0x04, received.via.as_deref(), out)?;
    write_user_defined(&received.user_defined, out)?;
    out.push(0x01);
    Ok(())
}
