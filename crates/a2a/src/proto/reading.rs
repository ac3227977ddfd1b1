//! Bytes of protocol buffers to ProtoJSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::DecodeError;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::{Map, Number, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::schema::{Field, Fields, Kind, Label};

/// Most values in a body, in any form. In memory, each takes many times its bytes in the body.
pub(crate) const MOST_VALUES: usize = 65_536;
/// Messages in each other, at most.
const DEEPEST: usize = 100;

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum BadBytes {
    /// They are cut off, or of no such encoding.
    #[error(transparent)]
    Encoding(#[from] DecodeError),
    /// A field is of another type.
    #[error("a field has another type")]
    Type,
    /// A text is not UTF-8, a number is none, or a time is none.
    #[error("a field has a wrong value")]
    Content,
    /// There is more than a message may hold.
    #[error("it has more than 65536 values, or too many in each other")]
    TooMuch,
}

/// Reads a message. Unknown fields are passed over.
pub(super) fn read(fields: &Fields, bytes: &[u8]) -> Result<Map<String, Value>, BadBytes> {
    let mut reader = Reader { left: MOST_VALUES };
    reader.message(fields, bytes, DEEPEST)
}

struct Reader {
    left: usize,
}

/// The bytes of a field with a length.
fn chunk<'a>(bytes: &mut &'a [u8], wire: WireType) -> Result<&'a [u8], BadBytes> {
    if wire != WireType::LengthDelimited {
        return Err(BadBytes::Type);
    }
    let length = usize::try_from(decode_varint(bytes)?).map_err(|_| BadBytes::Content)?;
    let (chunk, rest) = bytes.split_at_checked(length).ok_or(BadBytes::Content)?;
    *bytes = rest;
    Ok(chunk)
}

fn text(bytes: &[u8]) -> Result<String, BadBytes> {
    let text = std::str::from_utf8(bytes).map_err(|_| BadBytes::Content)?;
    Ok(text.to_owned())
}

fn varint(bytes: &mut &[u8], wire: WireType) -> Result<u64, BadBytes> {
    if wire != WireType::Varint {
        return Err(BadBytes::Type);
    }
    Ok(decode_varint(bytes)?)
}

/// Passes over an unknown field.
fn skip(number: u32, wire: WireType, bytes: &mut &[u8]) -> Result<(), BadBytes> {
    Ok(skip_field(wire, number, bytes, DecodeContext::default())?)
}

impl Reader {
    fn message(
        &mut self,
        fields: &Fields,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, BadBytes> {
        let mut read = Map::new();
        self.merge(fields, bytes, depth, &mut read)?;
        Ok(read)
    }

    /// Adds what the bytes say. A message that comes in pieces is the sum of them.
    fn merge(
        &mut self,
        fields: &Fields,
        mut bytes: &[u8],
        depth: usize,
        read: &mut Map<String, Value>,
    ) -> Result<(), BadBytes> {
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes)?;
            let Some(field) = fields.iter().find(|field| field.number == number) else {
                skip(number, wire, &mut bytes)?;
                continue;
            };
            let Field { name, kind, .. } = field;
            match field.label {
                Label::One => {
                    if let (Kind::Message(fields), Some(Value::Object(before))) =
                        (kind, read.get_mut(*name))
                    {
                        let depth = self.count(depth)?;
                        self.merge(fields, chunk(&mut bytes, wire)?, depth, before)?;
                        continue;
                    }
                    let value = self.value(*kind, wire, &mut bytes, depth)?;
                    read.insert((*name).to_owned(), value);
                }
                Label::Many => {
                    let value = self.value(*kind, wire, &mut bytes, depth)?;
                    let list = read
                        .entry(*name)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(list) = list {
                        list.push(value);
                    }
                }
                Label::Map => {
                    let (key, value) = self.entry(*kind, chunk(&mut bytes, wire)?, depth)?;
                    let map = read
                        .entry(*name)
                        .or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(map) = map {
                        map.insert(key, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a value. Returns the depth within it.
    fn count(&mut self, depth: usize) -> Result<usize, BadBytes> {
        self.left = self.left.checked_sub(1).ok_or(BadBytes::TooMuch)?;
        depth.checked_sub(1).ok_or(BadBytes::TooMuch)
    }

    fn value(
        &mut self,
        kind: Kind,
        wire: WireType,
        bytes: &mut &[u8],
        depth: usize,
    ) -> Result<Value, BadBytes> {
        let depth = self.count(depth)?;
        Ok(match kind {
            Kind::Text => text(chunk(bytes, wire)?)?.into(),
            Kind::Bytes => STANDARD.encode(chunk(bytes, wire)?).into(),
            Kind::Bool => (varint(bytes, wire)? != 0).into(),
            // `int32` is the low half of what is on the wire.
            Kind::Int => (varint(bytes, wire)? as i32).into(),
            Kind::Choice(names) => {
                let number = varint(bytes, wire)? as i32;
                let name = usize::try_from(number).ok().and_then(|it| names.get(it));
                name.map_or_else(|| number.into(), |name| (*name).into())
            }
            Kind::Message(fields) => self.message(fields, chunk(bytes, wire)?, depth)?.into(),
            Kind::Struct => self.structure(chunk(bytes, wire)?, depth)?.into(),
            Kind::Any => self.any(chunk(bytes, wire)?, depth)?,
            Kind::Time => time(chunk(bytes, wire)?)?.into(),
        })
    }

    /// An entry of a map.
    fn entry(
        &mut self,
        kind: Kind,
        mut bytes: &[u8],
        depth: usize,
    ) -> Result<(String, Value), BadBytes> {
        let (mut key, mut value) = (String::new(), None);
        while !bytes.is_empty() {
            match decode_key(&mut bytes)? {
                (1, wire) => key = text(chunk(&mut bytes, wire)?)?,
                (2, wire) => value = Some(self.value(kind, wire, &mut bytes, depth)?),
                (number, wire) => skip(number, wire, &mut bytes)?,
            }
        }
        let value = value.unwrap_or_else(|| match kind {
            Kind::Text => Value::String(String::new()),
            Kind::Message(_) => Value::Object(Map::new()),
            _ => Value::Null,
        });
        Ok((key, value))
    }

    fn structure(
        &mut self,
        mut bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, BadBytes> {
        let mut read = Map::new();
        while !bytes.is_empty() {
            match decode_key(&mut bytes)? {
                (1, wire) => {
                    let (key, value) = self.entry(Kind::Any, chunk(&mut bytes, wire)?, depth)?;
                    read.insert(key, value);
                }
                (number, wire) => skip(number, wire, &mut bytes)?,
            }
        }
        Ok(read)
    }

    fn any(&mut self, mut bytes: &[u8], depth: usize) -> Result<Value, BadBytes> {
        let mut read = Value::Null;
        while !bytes.is_empty() {
            read = match decode_key(&mut bytes)? {
                (1, wire) => {
                    varint(&mut bytes, wire)?;
                    Value::Null
                }
                (2, WireType::SixtyFourBit) => {
                    let number = bytes.try_get_f64_le().map_err(|_| BadBytes::Content)?;
                    Number::from_f64(number).ok_or(BadBytes::Content)?.into()
                }
                (3, wire) => text(chunk(&mut bytes, wire)?)?.into(),
                (4, wire) => (varint(&mut bytes, wire)? != 0).into(),
                (5, wire) => {
                    let depth = self.count(depth)?;
                    self.structure(chunk(&mut bytes, wire)?, depth)?.into()
                }
                (6, wire) => {
                    let depth = self.count(depth)?;
                    self.list(chunk(&mut bytes, wire)?, depth)?.into()
                }
                (number, wire) => {
                    skip(number, wire, &mut bytes)?;
                    continue;
                }
            }
        }
        Ok(read)
    }

    fn list(&mut self, mut bytes: &[u8], depth: usize) -> Result<Vec<Value>, BadBytes> {
        let mut read = Vec::new();
        while !bytes.is_empty() {
            match decode_key(&mut bytes)? {
                (1, wire) => read.push(self.value(Kind::Any, wire, &mut bytes, depth)?),
                (number, wire) => skip(number, wire, &mut bytes)?,
            }
        }
        Ok(read)
    }
}

/// `google.protobuf.Timestamp`, in RFC 3339.
fn time(mut bytes: &[u8]) -> Result<String, BadBytes> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    while !bytes.is_empty() {
        match decode_key(&mut bytes)? {
            (1, wire) => seconds = varint(&mut bytes, wire)? as i64,
            (2, wire) => nanoseconds = varint(&mut bytes, wire)? as i32,
            (number, wire) => skip(number, wire, &mut bytes)?,
        }
    }
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    let nanoseconds = u32::try_from(nanoseconds).map_err(|_| BadBytes::Content)?;
    let time = time.and_then(|time| time.replace_nanosecond(nanoseconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok())
        .ok_or(BadBytes::Content)
}
