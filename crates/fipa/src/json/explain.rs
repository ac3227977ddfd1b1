//! The meaning of each member of a message.

use super::{NAME, decode};
use crate::explain::{Explanation, Pieces, shown};
use crate::parameter::Parameter;
use crate::{Limits, Performative};
use alloc::format;
use alloc::string::String;

const REFERENCE: &str = "acl-message.schema.json, FIPA00061";

pub(super) fn explain(bytes: &[u8], limits: &Limits) -> Explanation {
    // This function only finds the members. The decoder reports the faults in them.
    let error = decode(bytes, limits).err();
    let mut pieces = Pieces::new(bytes);
    let mut depth = 0usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut start = None;
    for (offset, byte) in bytes.iter().enumerate() {
        let mut ends = false;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                if depth == 1 && start.is_none() {
                    start = Some(offset);
                }
            }
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth == 1 {
                    pieces.add(offset..offset + 1, "message", REFERENCE);
                    pieces.depth = 1;
                }
            }
            b'}' | b']' => {
                ends = depth == 1;
                depth = depth.saturating_sub(1);
            }
            b',' => ends = depth == 1,
            _ => {}
        }
        if ends {
            if let Some(start) = start.take() {
                let member = bytes[start..offset].trim_ascii_end();
                pieces.add(start..start + member.len(), meaning(member), REFERENCE);
            }
            if depth == 0 {
                pieces.depth = 0;
                pieces.add(offset..offset + 1, "end of message", REFERENCE);
                break;
            }
        }
    }
    pieces.finish(NAME, error)
}

fn meaning(member: &[u8]) -> String {
    let end = memchr::memchr(b'"', member.get(1..).unwrap_or_default())
        .map_or(member.len(), |end| end + 1);
    let name = member.get(1..end).unwrap_or_default();
    let value = member.get(end + 1..).unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
    if name == b"performative" {
        let act = value
            .strip_prefix(b"\"")
            .and_then(|act| act.strip_suffix(b"\""))
            .unwrap_or_default();
        return match Performative::standard(act) {
            Some(act) => format!("{act}: {}", act.meaning()),
            None => format!("user-defined act {}", shown(act)),
        };
    }
    match Parameter::from_name(name) {
        Some(parameter) => format!("parameter: {} = {}", parameter.name(), shown(value)),
        None => format!("{} = {}", shown(name), shown(value)),
    }
}
