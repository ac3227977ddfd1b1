//! Values with their types (CORBA 3.3 part 2, 9.3.5.2), as far as agents use them.

use crate::cdr::{Decoder, Encoder, MarshalError, MarshalProblem};

/// The kinds of type codes that are read.
const NULL: u32 = 0;
const VOID: u32 = 1;
const SHORT: u32 = 2;
const LONG: u32 = 3;
const USHORT: u32 = 4;
const ULONG: u32 = 5;
const FLOAT: u32 = 6;
const DOUBLE: u32 = 7;
const BOOLEAN: u32 = 8;
const CHAR: u32 = 9;
const OCTET: u32 = 10;
const STRING: u32 = 18;
const LONGLONG: u32 = 23;
const ULONGLONG: u32 = 24;
const WSTRING: u32 = 27;
const VALUE: u32 = 29;
const VALUE_BOX: u32 = 30;
/// The longest type code, in bytes.
const LONGEST_TYPE: usize = 4 << 10;
/// A value with one repository id, in one piece.
const VALUE_TAG: u32 = 0x7fff_ff02;
const WSTRING_VALUE: &[u8] = b"IDL:omg.org/CORBA/WStringValue:1.0";
const INTEGER: &[u8] = b"RMI:java.lang.Integer:";

/// A value with its type. Bytes of texts are kept unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum Any {
    /// No value.
    Null,
    /// No value, as the result of a call.
    Void,
    /// 16 bits with a sign.
    Short(i16),
    /// 32 bits with a sign.
    Long(i32),
    /// 16 bits.
    UShort(u16),
    /// 32 bits.
    ULong(u32),
    /// A floating point number, by its bits.
    Float(u32),
    /// A longer floating point number, by its bits.
    Double(u64),
    /// True or false.
    Boolean(bool),
    /// A character of the connection's character set.
    Char(u8),
    /// A byte.
    Octet(u8),
    /// 64 bits with a sign.
    LongLong(i64),
    /// 64 bits.
    ULongLong(u64),
    /// A string in the connection's character set.
    String {
        /// The most characters that its type allows; 0 if there is no limit.
        bound: u32,
        /// The text.
        text: Vec<u8>,
    },
    /// A string in UTF-16.
    WString {
        /// The most characters that its type allows; 0 if there is no limit.
        bound: u32,
        /// The text, perhaps with a byte order mark.
        text: Vec<u8>,
    },
    /// An object by value, as ORBs written in Java send strings and numbers.
    Value {
        /// The kind of its type code, a value or a value box.
        kind: u32,
        /// The parameters of its type code. ORBs contradict themselves here: the id of the value counts.
        type_code: Vec<u8>,
        /// Its repository id and content.
        value: TypedValue,
    },
}

/// An object by value.
#[derive(Clone, Debug, PartialEq)]
pub enum TypedValue {
    /// A string in UTF-16, perhaps with a byte order mark.
    Text(Vec<u8>),
    /// A whole number of Java, with its repository id.
    Integer(Vec<u8>, i32),
}

impl Any {
    /// A text in the one form that every known ORB reads, JADE's among them.
    pub fn text(text: &str) -> Self {
        let mut type_code = Encoder::encapsulated(crate::cdr::ByteOrder::Big);
        type_code.string(WSTRING_VALUE);
        type_code.string(b"StringValue");
        type_code.ulong(WSTRING);
        type_code.ulong(0);
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        Self::Value {
            kind: VALUE_BOX,
            type_code: type_code.into_bytes(),
            value: TypedValue::Text(units.flat_map(u16::to_be_bytes).collect()),
        }
    }

    /// The value as text, if it is a string or a whole number. `string` reads strings in the connection's character
    /// set.
    pub fn to_text(&self, string: impl FnOnce(&[u8]) -> Option<String>) -> Option<String> {
        match self {
            Self::String { text, .. } => string(text),
            Self::WString { text, .. } => of_utf16(text),
            Self::Value { value, .. } => match value {
                TypedValue::Text(text) => of_utf16(text),
                TypedValue::Integer(_, number) => Some(number.to_string()),
            },
            Self::Short(number) => Some(number.to_string()),
            Self::Long(number) => Some(number.to_string()),
            Self::UShort(number) => Some(number.to_string()),
            Self::ULong(number) => Some(number.to_string()),
            Self::LongLong(number) => Some(number.to_string()),
            Self::ULongLong(number) => Some(number.to_string()),
            Self::Octet(number) => Some(number.to_string()),
            Self::Boolean(value) => Some(value.to_string()),
            Self::Float(bits) => Some(f32::from_bits(*bits).to_string()),
            Self::Double(bits) => Some(f64::from_bits(*bits).to_string()),
            Self::Char(byte) => string(&[*byte]),
            Self::Null | Self::Void => None,
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`MarshalError`]. A value of another type cannot be skipped, because its length is not known.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let kind = decoder.ulong()?;
        Ok(match kind {
            NULL => Self::Null,
            VOID => Self::Void,
            SHORT => Self::Short(decoder.short()?),
            LONG => Self::Long(decoder.long()?),
            USHORT => Self::UShort(decoder.ushort()?),
            ULONG => Self::ULong(decoder.ulong()?),
            FLOAT => Self::Float(decoder.ulong()?),
            DOUBLE => Self::Double(decoder.ulonglong()?),
            BOOLEAN => Self::Boolean(decoder.boolean()?),
            CHAR => Self::Char(decoder.octet()?),
            OCTET => Self::Octet(decoder.octet()?),
            LONGLONG => Self::LongLong(decoder.ulonglong()?.cast_signed()),
            ULONGLONG => Self::ULongLong(decoder.ulonglong()?),
            STRING => Self::String {
                bound: decoder.ulong()?,
                text: decoder.string()?.to_vec(),
            },
            WSTRING => Self::WString {
                bound: decoder.ulong()?,
                text: decoder.octets()?.to_vec(),
            },
            VALUE | VALUE_BOX => {
                let type_code = decoder.octets()?;
                if type_code.len() > LONGEST_TYPE {
                    return Err(decoder.error(MarshalProblem::TooMany {
                        what: "bytes of a type code",
                        count: type_code.len(),
                        most: LONGEST_TYPE,
                    }));
                }
                Self::Value {
                    kind,
                    type_code: type_code.to_vec(),
                    value: TypedValue::decode(decoder)?,
                }
            }
            other => {
                let name = format!("with the number {other}");
                return Err(decoder.error(MarshalProblem::Unread(name)));
            }
        })
    }

    /// Writes the value.
    pub fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Null => encoder.ulong(NULL),
            Self::Void => encoder.ulong(VOID),
            Self::Short(it) => {
                encoder.ulong(SHORT);
                encoder.short(*it);
            }
            Self::Long(it) => {
                encoder.ulong(LONG);
                encoder.long(*it);
            }
            Self::UShort(it) => {
                encoder.ulong(USHORT);
                encoder.ushort(*it);
            }
            Self::ULong(it) => {
                encoder.ulong(ULONG);
                encoder.ulong(*it);
            }
            Self::Float(it) => {
                encoder.ulong(FLOAT);
                encoder.ulong(*it);
            }
            Self::Double(it) => {
                encoder.ulong(DOUBLE);
                encoder.ulonglong(*it);
            }
            Self::Boolean(it) => {
                encoder.ulong(BOOLEAN);
                encoder.boolean(*it);
            }
            Self::Char(it) => {
                encoder.ulong(CHAR);
                encoder.octet(*it);
            }
            Self::Octet(it) => {
                encoder.ulong(OCTET);
                encoder.octet(*it);
            }
            Self::LongLong(it) => {
                encoder.ulong(LONGLONG);
                encoder.ulonglong(it.cast_unsigned());
            }
            Self::ULongLong(it) => {
                encoder.ulong(ULONGLONG);
                encoder.ulonglong(*it);
            }
            Self::String { bound, text } => {
                encoder.ulong(STRING);
                encoder.ulong(*bound);
                encoder.string(text);
            }
            Self::WString { bound, text } => {
                encoder.ulong(WSTRING);
                encoder.ulong(*bound);
                encoder.octets(text);
            }
            Self::Value {
                kind,
                type_code,
                value,
            } => {
                encoder.ulong(*kind);
                encoder.octets(type_code);
                value.encode(encoder);
            }
        }
    }
}

impl TypedValue {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        if decoder.ulong()? != VALUE_TAG {
            let problem = "a value that is shared, in chunks, or of no single type";
            return Err(decoder.error(MarshalProblem::Wrong(problem)));
        }
        let id = decoder.string()?;
        if id == WSTRING_VALUE {
            Ok(Self::Text(decoder.octets()?.to_vec()))
        } else if id.starts_with(INTEGER) {
            Ok(Self::Integer(id.to_vec(), decoder.long()?))
        } else {
            let name: String = String::from_utf8_lossy(id).chars().take(100).collect();
            Err(decoder.error(MarshalProblem::Unread(name)))
        }
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.ulong(VALUE_TAG);
        match self {
            Self::Text(text) => {
                encoder.string(WSTRING_VALUE);
                encoder.octets(text);
            }
            Self::Integer(id, number) => {
                encoder.string(id);
                encoder.long(*number);
            }
        }
    }
}

/// UTF-16 with or without a byte order mark; without one the high byte is first.
fn of_utf16(bytes: &[u8]) -> Option<String> {
    let (bytes, unit): (_, fn([u8; 2]) -> u16) = match bytes {
        [0xff, 0xfe, rest @ ..] => (rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => (rest, u16::from_be_bytes),
        whole => (whole, u16::from_be_bytes),
    };
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let units: Vec<_> = pairs.iter().copied().map(unit).collect();
    String::from_utf16(&units).ok()
}
