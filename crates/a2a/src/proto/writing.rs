//! ProtoJSON to bytes of protocol buffers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::schema::{Field, Fields, Kind, Label};

/// Writes a message. Members that it does not have, or that are of another type, are left out.
pub(crate) fn write(fields: &Fields, value: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    for Field {
        name,
        number,
        label,
        kind,
    } in fields
    {
        let Some(value) = value.get(*name) else {
            continue;
        };
        match (label, value) {
            (Label::One, value) => field(*number, *kind, value, &mut to),
            (Label::Many, Value::Array(list)) => {
                for value in list {
                    field(*number, *kind, value, &mut to);
                }
            }
            (Label::Map, Value::Object(map)) => entries(*number, *kind, map, &mut to),
            _ => {}
        }
    }
    to
}

fn put(number: u32, bytes: &[u8], to: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

fn put_number(number: u32, value: u64, to: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, to);
    encode_varint(value, to);
}

fn entries(number: u32, kind: Kind, map: &Map<String, Value>, to: &mut Vec<u8>) {
    for (key, value) in map {
        let mut entry = Vec::new();
        put(1, key.as_bytes(), &mut entry);
        field(2, kind, value, &mut entry);
        put(number, &entry, to);
    }
}

fn field(number: u32, kind: Kind, value: &Value, to: &mut Vec<u8>) {
    match (kind, value) {
        (Kind::Any, value) => put(number, &any(value), to),
        (Kind::Text, Value::String(text)) => put(number, text.as_bytes(), to),
        (Kind::Bytes, Value::String(text)) => {
            if let Ok(bytes) = STANDARD.decode(text) {
                put(number, &bytes, to);
            }
        }
        (Kind::Bool, Value::Bool(is_so)) => put_number(number, u64::from(*is_so), to),
        (Kind::Int, Value::Number(value)) => {
            if let Some(value) = value.as_i64() {
                put_number(number, value as u64, to);
            }
        }
        (Kind::Choice(names), Value::String(name)) => {
            if let Some(value) = names.iter().position(|it| it == name) {
                put_number(number, value as u64, to);
            }
        }
        (Kind::Message(fields), value @ Value::Object(_)) => put(number, &write(fields, value), to),
        (Kind::Struct, Value::Object(map)) => put(number, &structure(map), to),
        (Kind::Time, Value::String(text)) => {
            if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
                let mut bytes = Vec::new();
                put_number(1, time.unix_timestamp() as u64, &mut bytes);
                put_number(2, u64::from(time.nanosecond()), &mut bytes);
                put(number, &bytes, to);
            }
        }
        _ => {}
    }
}

fn structure(map: &Map<String, Value>) -> Vec<u8> {
    let mut to = Vec::new();
    entries(1, Kind::Any, map, &mut to);
    to
}

fn any(value: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    match value {
        Value::Null => put_number(1, 0, &mut to),
        Value::Number(number) => {
            encode_key(2, WireType::SixtyFourBit, &mut to);
            to.put_f64_le(number.as_f64().unwrap_or(f64::NAN));
        }
        Value::String(text) => put(3, text.as_bytes(), &mut to),
        Value::Bool(is_so) => put_number(4, u64::from(*is_so), &mut to),
        Value::Object(map) => put(5, &structure(map), &mut to),
        Value::Array(list) => {
            let mut values = Vec::new();
            for value in list {
                put(1, &any(value), &mut values);
            }
            put(6, &values, &mut to);
        }
    }
    to
}
