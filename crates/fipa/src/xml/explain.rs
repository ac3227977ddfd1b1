//! The meaning of each tag and text of a message.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::NAME;
use super::read::decode;
use crate::explain::{Explanation, Pieces, shown};
use crate::parameter::Parameter;
use crate::{Limits, Performative};

const REFERENCE: &str = "FIPA00071";

pub(super) fn explain(bytes: &[u8], limits: &Limits) -> Explanation {
    // This function does not check the meaning of the elements. The decoder reports faults in them.
    let error = decode(bytes, limits).err();
    let mut pieces = Pieces::new(bytes);
    let readable = match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut reader = Reader::from_str(readable);
    let position = |reader: &Reader<&[u8]>| reader.buffer_position() as usize;
    let stop = error.as_ref().map_or(bytes.len(), |error| error.offset);
    loop {
        let start = position(&reader);
        let Ok(event) = reader.read_event() else {
            break;
        };
        let end = position(&reader);
        if start > stop {
            break;
        }
        match event {
            Event::Eof => break,
            Event::Start(tag) => {
                pieces.add(
                    start..end,
                    element(tag.local_name().into_inner(), &tag),
                    REFERENCE,
                );
                pieces.depth += 1;
            }
            Event::Empty(tag) => {
                pieces.add(
                    start..end,
                    element(tag.local_name().into_inner(), &tag),
                    REFERENCE,
                );
            }
            Event::End(tag) => {
                pieces.depth = pieces.depth.saturating_sub(1);
                let meaning = format!("end of {}", tag.local_name().into_inner());
                pieces.add(start..end, meaning, REFERENCE);
            }
            Event::Text(text) if text.trim_ascii().is_empty() => {}
            Event::Text(text) => {
                pieces.add(
                    start..end,
                    format!("text {}", shown(text.as_bytes())),
                    REFERENCE,
                );
            }
            Event::CData(text) => {
                pieces.add(
                    start..end,
                    format!("text {}", shown(text.as_bytes())),
                    REFERENCE,
                );
            }
            Event::GeneralRef(_) => pieces.add(start..end, "a character written as &…;", "XML 1.0"),
            Event::Comment(_) => pieces.add(start..end, "comment", "XML 1.0"),
            Event::Decl(_) => pieces.add(start..end, "XML declaration", "XML 1.0"),
            Event::PI(_) | Event::DocType(_) => {
                pieces.add(start..end, "not of the message", "XML 1.0")
            }
        }
    }
    pieces.finish(NAME, error)
}

fn element(name: &str, tag: &str) -> String {
    let attributes = tag
        .split_once(|c: char| c.is_ascii_whitespace())
        .map_or("", |(_, rest)| rest);
    let attributes = shown(attributes.trim().trim_end_matches('/').trim().as_bytes());
    let meaning = match name {
        "fipa-message" => {
            let act = tag
                .split("act=")
                .nth(1)
                .and_then(|rest| rest.get(1..))
                .unwrap_or_default();
            let act = act.split(['"', '\'']).next().unwrap_or_default();
            match Performative::standard(act.as_bytes()) {
                Some(act) => format!("message; {act}: {}", act.meaning()),
                None => "message with a user-defined act".to_owned(),
            }
        }
        "agent-identifier" => "AID".to_owned(),
        "name" => "name of an agent".to_owned(),
        "addresses" | "resolvers" => name.to_owned(),
        "url" => "address".to_owned(),
        "user-defined" => "user-defined parameter".to_owned(),
        _ if Parameter::from_name(name.as_bytes()).is_some() => format!("parameter: {name}"),
        _ => format!("user-defined parameter {name}"),
    };
    if attributes.is_empty() {
        meaning
    } else {
        format!("{meaning} ({attributes})")
    }
}
