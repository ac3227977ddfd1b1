//! The JSON objects and what they stand for.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::ENCODING;
use crate::bitefficient::MAX_DEPTH;
use crate::{
    AclMessage, Aid, Content, DateTime, DecodeError, DecodeProblem, EncodeError, EncodeProblem,
    Expression, Limits, Number, Performative, base64, is_word,
};

/// Checks nesting and count of values before anything is built.
pub(crate) fn guard(bytes: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    if bytes.len() > limits.message_length {
        let limit = limits.message_length;
        return Err(DecodeError::limit(limit, "bytes", limit));
    }
    // A resolver nests two deep: in its array and its own object.
    let depth_limit = limits
        .depth
        .min(MAX_DEPTH)
        .saturating_mul(2)
        .saturating_add(4);
    let (mut depth, mut values) = (0usize, 0usize);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                // To the end of the string, past escapes.
                at += 1;
                while let Some(next) = memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
                    at += next;
                    if bytes[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
            }
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                if depth > depth_limit {
                    return Err(DecodeError::limit(at, "nested values", depth_limit));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if values > limits.values {
            return Err(DecodeError::limit(at, "values", limits.values));
        }
        at += 1;
    }
    Ok(())
}

/// A JSON error with its place as an offset.
pub(crate) fn syntax_error(bytes: &[u8], error: &serde_json::Error) -> DecodeError {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let offset = (before + error.column().saturating_sub(1)).min(bytes.len());
    let text = error.to_string();
    // The place is said already.
    let text = match text.rfind(" at line ") {
        Some(place) => text[..place].to_owned(),
        None => text,
    };
    DecodeError::new(offset, DecodeProblem::Syntax(text))
}

#[derive(serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct MessageForm<'a> {
    performative: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<AidForm<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    receiver: Vec<AidForm<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reply_to: Vec<AidForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ontology: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_id: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_with: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_reply_to: Option<ExpressionForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_by: Option<String>,
    #[serde(skip_serializing_if = "UserDefinedForm::is_empty")]
    user_defined: UserDefinedForm<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<ContentForm<'a>>,
}

impl<'a> MessageForm<'a> {
    pub(super) fn new(message: &'a AclMessage) -> Result<Self, EncodeError> {
        let expression = |name: &'static str, value: &'a Option<Expression>| match value {
            None => Ok(None),
            Some(value) => ExpressionForm::new(value)
                .map(Some)
                .map_err(|error| error.within(name)),
        };
        if message.performative.as_str().is_empty() {
            return Err(EncodeError::new("performative", EncodeProblem::Empty));
        }
        let sender = message.sender.as_ref();
        Ok(Self {
            performative: message.performative.as_str(),
            sender: sender
                .map(|aid| AidForm::new(aid).map_err(|error| error.within("sender")))
                .transpose()?,
            receiver: AidForm::list("receiver", &message.receivers)?,
            reply_to: AidForm::list("reply-to", &message.reply_to)?,
            language: expression("language", &message.language)?,
            encoding: expression("encoding", &message.encoding)?,
            ontology: expression("ontology", &message.ontology)?,
            protocol: message.protocol.as_deref(),
            conversation_id: expression("conversation-id", &message.conversation_id)?,
            reply_with: expression("reply-with", &message.reply_with)?,
            in_reply_to: expression("in-reply-to", &message.in_reply_to)?,
            reply_by: message.reply_by.map(|moment| moment.to_string()),
            user_defined: UserDefinedForm::new(&message.user_defined)?,
            content: message.content.as_ref().map(ContentForm),
        })
    }
}

/// An AID as an object.
#[derive(serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct AidForm<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    addresses: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resolvers: Vec<AidForm<'a>>,
    #[serde(skip_serializing_if = "UserDefinedForm::is_empty")]
    user_defined: UserDefinedForm<'a>,
}

impl<'a> AidForm<'a> {
    pub(crate) fn new(aid: &'a Aid) -> Result<Self, EncodeError> {
        Self::at_depth(aid, MAX_DEPTH)
    }

    fn at_depth(aid: &'a Aid, depth: usize) -> Result<Self, EncodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            let limit = MAX_DEPTH;
            return Err(EncodeError::new("", EncodeProblem::TooLarge { limit }));
        };
        if aid.name.is_empty() {
            return Err(EncodeError::new("name", EncodeProblem::Empty));
        }
        let resolvers = aid.resolvers.iter().enumerate().map(|(index, resolver)| {
            Self::at_depth(resolver, depth)
                .map_err(|error| error.within(format_args!("resolvers[{index}]")))
        });
        Ok(Self {
            name: &aid.name,
            addresses: &aid.addresses,
            resolvers: resolvers.collect::<Result<_, _>>()?,
            user_defined: UserDefinedForm::new(&aid.user_defined)?,
        })
    }

    pub(crate) fn list(name: &'static str, aids: &'a [Aid]) -> Result<Vec<Self>, EncodeError> {
        let forms = aids.iter().enumerate().map(|(index, aid)| {
            Self::new(aid).map_err(|error| error.within(format_args!("{name}[{index}]")))
        });
        forms.collect()
    }
}

/// User-defined parameters as members of an object, whose names must differ.
struct UserDefinedForm<'a>(Vec<(&'a str, ExpressionForm<'a>)>);

impl<'a> UserDefinedForm<'a> {
    fn new(parameters: &'a [(String, Expression)]) -> Result<Self, EncodeError> {
        let mut names = HashSet::new();
        let forms = parameters.iter().map(|(name, value)| {
            if name.is_empty() || !names.insert(name) {
                let problem = match name.as_str() {
                    "" => EncodeProblem::Empty,
                    _ => EncodeProblem::NameTaken { encoding: ENCODING },
                };
                return Err(EncodeError::new(format!("name of {name:?}"), problem));
            }
            let form = ExpressionForm::new(value).map_err(|error| error.within(name))?;
            Ok((name.as_str(), form))
        });
        forms.collect::<Result<_, _>>().map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for UserDefinedForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Content as a string or object.
pub(crate) struct ContentForm<'a>(pub(crate) &'a Content);

impl Serialize for ContentForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Content::Text(text) => serializer.serialize_str(text),
            Content::Bytes(bytes) => tagged(serializer, "base64", &base64::encode(bytes)),
        }
    }
}

fn tagged<S: Serializer>(serializer: S, kind: &str, value: &str) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(kind, value)?;
    map.end()
}

/// An expression that has been checked.
struct ExpressionForm<'a>(&'a Expression);

impl<'a> ExpressionForm<'a> {
    fn new(expression: &'a Expression) -> Result<Self, EncodeError> {
        check(expression, MAX_DEPTH)?;
        Ok(Self(expression))
    }
}

fn check(expression: &Expression, depth: usize) -> Result<(), EncodeError> {
    match expression {
        Expression::Word(word) if !is_word(word.as_bytes()) => {
            Err(EncodeError::new("", EncodeProblem::NotAWord))
        }
        Expression::List(_) if depth == 0 => {
            let limit = MAX_DEPTH;
            Err(EncodeError::new("", EncodeProblem::TooLarge { limit }))
        }
        Expression::List(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            check(item, depth - 1).map_err(|error| error.within(format_args!("[{index}]")))
        }),
        _ => Ok(()),
    }
}

impl Serialize for ExpressionForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Expression::Word(word) => serializer.serialize_str(word),
            Expression::String(text) if is_word(text.as_bytes()) => {
                tagged(serializer, "string", text)
            }
            Expression::String(text) => serializer.serialize_str(text),
            Expression::Number(number) => {
                // Readers that keep numbers in floating point know these exactly, and no others.
                const EXACT: u64 = 1 << 53;
                let value = number.as_str().parse::<i64>().ok();
                let same =
                    |value: &i64| value.unsigned_abs() <= EXACT && Number::from(*value) == *number;
                match value.filter(same) {
                    Some(value) => serializer.serialize_i64(value),
                    None => tagged(serializer, "number", number.as_str()),
                }
            }
            Expression::DateTime(moment) => tagged(serializer, "date-time", &moment.to_string()),
            Expression::Bytes(bytes) => tagged(serializer, "base64", &base64::encode(bytes)),
            Expression::List(items) => serializer.collect_seq(items.iter().map(ExpressionForm)),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct MessageRead {
    performative: NonEmpty,
    sender: Option<AidRead>,
    #[serde(default)]
    receiver: Vec<AidRead>,
    #[serde(default)]
    reply_to: Vec<AidRead>,
    language: Option<ExpressionRead>,
    encoding: Option<ExpressionRead>,
    ontology: Option<ExpressionRead>,
    protocol: Option<String>,
    conversation_id: Option<ExpressionRead>,
    reply_with: Option<ExpressionRead>,
    in_reply_to: Option<ExpressionRead>,
    reply_by: Option<DateTimeRead>,
    #[serde(default)]
    user_defined: UserDefinedRead,
    content: Option<ContentRead>,
}

impl From<MessageRead> for AclMessage {
    fn from(read: MessageRead) -> Self {
        let expression = |value: Option<ExpressionRead>| value.map(|value| value.0);
        Self {
            performative: Performative::from(read.performative.0.as_str()),
            sender: read.sender.map(Aid::from),
            receivers: read.receiver.into_iter().map(Aid::from).collect(),
            reply_to: read.reply_to.into_iter().map(Aid::from).collect(),
            content: read.content.map(|content| content.0),
            language: expression(read.language),
            encoding: expression(read.encoding),
            ontology: expression(read.ontology),
            protocol: read.protocol,
            conversation_id: expression(read.conversation_id),
            reply_with: expression(read.reply_with),
            in_reply_to: expression(read.in_reply_to),
            reply_by: read.reply_by.map(|moment| moment.0),
            user_defined: read.user_defined.0,
        }
    }
}

/// An AID as it was read.
#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct AidRead {
    name: NonEmpty,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    resolvers: Vec<AidRead>,
    #[serde(default)]
    user_defined: UserDefinedRead,
}

impl From<AidRead> for Aid {
    fn from(read: AidRead) -> Self {
        Self {
            name: read.name.0,
            addresses: read.addresses,
            resolvers: read.resolvers.into_iter().map(Aid::from).collect(),
            user_defined: read.user_defined.0,
        }
    }
}

struct NonEmpty(String);

impl<'de> Deserialize<'de> for NonEmpty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(de::Error::custom("expected a name that is not empty"));
        }
        Ok(Self(text))
    }
}

/// A date-time as it was read.
pub(crate) struct DateTimeRead(pub(crate) DateTime);

impl<'de> Deserialize<'de> for DateTimeRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateTime::parse(text.as_bytes())
            .map(Self)
            .map_err(de::Error::custom)
    }
}

#[derive(Default)]
struct UserDefinedRead(Vec<(String, Expression)>);

impl<'de> Deserialize<'de> for UserDefinedRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Members::<ExpressionRead>::deserialize(deserializer)?.0;
        let members = members.into_iter().map(|(name, value)| (name, value.0));
        Ok(Self(members.collect()))
    }
}

/// The members of an object in their order; their names must differ.
pub(crate) struct Members<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of user-defined parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<NonEmpty, T>()? {
                    if !names.insert(name.0.clone()) {
                        return Err(de::Error::custom(format_args!(
                            "the parameter '{}' is given a second time",
                            name.0.escape_debug()
                        )));
                    }
                    members.push((name.0, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

/// Content as it was read.
pub(crate) struct ContentRead(pub(crate) Content);

impl<'de> Deserialize<'de> for ContentRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBytes;
        impl<'de> Visitor<'de> for TextOrBytes {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, or an object with the member 'base64'")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::from(text))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Content, E> {
                Ok(Content::from(text))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content, A::Error> {
                match read_tagged(map)? {
                    Expression::Bytes(bytes) => Ok(Content::Bytes(bytes)),
                    _ => Err(de::Error::custom("expected the member 'base64'")),
                }
            }
        }
        deserializer.deserialize_any(TextOrBytes).map(Self)
    }
}

struct ExpressionRead(Expression);

impl<'de> Deserialize<'de> for ExpressionRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyExpression).map(Self)
    }
}

struct AnyExpression;

impl<'de> Visitor<'de> for AnyExpression {
    type Value = Expression;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number, array, or an object with one member")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Expression, E> {
        Ok(Expression::from(text))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Expression, E> {
        Ok(Expression::from(text))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Expression, E> {
        Ok(Expression::from(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Expression, E> {
        number(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Expression, E> {
        number(&format!("{value:?}"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Expression, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<ExpressionRead>()? {
            list.push(item.0);
        }
        Ok(Expression::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Expression, A::Error> {
        read_tagged(map)
    }
}

fn number<E: de::Error>(text: &str) -> Result<Expression, E> {
    Number::parse(text)
        .map(Expression::Number)
        .ok_or_else(|| E::custom("expected a FIPA number"))
}

/// An object whose one member names the kind of expression.
fn read_tagged<'de, A: MapAccess<'de>>(mut map: A) -> Result<Expression, A::Error> {
    const KINDS: &str = "one member: 'word', 'string', 'number', 'date-time' or 'base64'";
    let Some((kind, value)) = map.next_entry::<String, String>()? else {
        return Err(de::Error::custom(format_args!("expected {KINDS}")));
    };
    let expression = match kind.as_str() {
        "word" if is_word(value.as_bytes()) => Expression::Word(value),
        "word" => return Err(de::Error::custom("expected a FIPA word")),
        "string" => Expression::String(value),
        "number" => number(&value)?,
        "date-time" => {
            Expression::DateTime(DateTime::parse(value.as_bytes()).map_err(de::Error::custom)?)
        }
        "base64" if base64::is_valid(value.as_bytes()) => {
            Expression::Bytes(base64::decode(value.as_bytes()))
        }
        "base64" => return Err(de::Error::custom("expected base64")),
        _ => return Err(de::Error::custom(format_args!("expected {KINDS}"))),
    };
    if map.next_key::<String>()?.is_some() {
        return Err(de::Error::custom(format_args!("expected only {KINDS}")));
    }
    Ok(expression)
}
