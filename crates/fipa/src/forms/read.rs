//! Reading messages and their parts.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{
    AclMessage, Aid, Content, DateTime, Expression, Number, Performative, base64, is_word,
};

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct MessageRead {
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

/// An AID that was read.
#[derive(serde::Deserialize)]
#[serde(
    rename = "agent-identifier",
    rename_all = "kebab-case",
    deny_unknown_fields
)]
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

/// A date-time that was read.
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

/// The members of an object in their order. Their names must differ.
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
                let mut names = BTreeSet::new();
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

/// Content that was read.
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

/// Reads an object whose single member names the kind of expression.
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

macro_rules! deserialize {
    ($($type:ty, $read:ty, |$value:ident| $made:expr;)*) => {
        $(
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let $value = <$read>::deserialize(deserializer)?;
                    Ok($made)
                }
            }
        )*
    };
}

deserialize! {
    AclMessage, MessageRead, |message| message.into();
    Aid, AidRead, |aid| aid.into();
    Expression, ExpressionRead, |expression| expression.0;
    Content, ContentRead, |content| content.0;
    DateTime, DateTimeRead, |moment| moment.0;
    Performative, NonEmpty, |act| Performative::from(act.0.as_str());
}
