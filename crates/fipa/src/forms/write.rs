//! Writing messages and their parts.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::ser::{Error, Serialize, SerializeMap, Serializer};

use crate::bitefficient::DEEPEST;
use crate::{
    AclMessage, Aid, Content, DateTime, EncodeError, EncodeProblem, Expression, Number,
    Performative, base64, is_word,
};

/// How errors name the written value.
pub(crate) const ENCODING: &str = "JSON";

#[derive(serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct MessageForm<'a> {
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
    pub(crate) fn new(message: &'a AclMessage) -> Result<Self, EncodeError> {
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
#[serde(rename = "agent-identifier", rename_all = "kebab-case")]
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
        Self::at_depth(aid, DEEPEST)
    }

    fn at_depth(aid: &'a Aid, depth: usize) -> Result<Self, EncodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            let limit = DEEPEST;
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

/// User-defined parameters as members of an object. Their names must differ.
struct UserDefinedForm<'a>(Vec<(&'a str, ExpressionForm<'a>)>);

impl<'a> UserDefinedForm<'a> {
    fn new(parameters: &'a [(String, Expression)]) -> Result<Self, EncodeError> {
        let mut names = BTreeSet::new();
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
        check(expression, DEEPEST)?;
        Ok(Self(expression))
    }
}

fn check(expression: &Expression, depth: usize) -> Result<(), EncodeError> {
    match expression {
        Expression::Word(word) if !is_word(word.as_bytes()) => {
            Err(EncodeError::new("", EncodeProblem::NotAWord))
        }
        Expression::List(_) if depth == 0 => {
            let limit = DEEPEST;
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
                // Readers that keep numbers in floating point represent numbers up to this bound exactly.
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

/// The name by which a serializer that has date-times knows them.
pub(crate) const DATE_TIME: &str = "date-time";

struct DateTimeForm(String);

impl Serialize for DateTimeForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DATE_TIME, &self.0)
    }
}

macro_rules! serialize {
    ($($type:ty, |$value:ident| $form:expr;)*) => {
        $(
            /// In the form of the [JSON representation](https://docs.rs/sealbus-fipa).
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let $value = self;
                    let form = $form.map_err(S::Error::custom)?;
                    form.serialize(serializer)
                }
            }
        )*
    };
}

serialize! {
    AclMessage, |message| MessageForm::new(message);
    Aid, |aid| AidForm::new(aid);
    Expression, |expression| ExpressionForm::new(expression);
    Content, |content| Ok::<_, EncodeError>(ContentForm(content));
    DateTime, |moment| Ok::<_, EncodeError>(DateTimeForm(moment.to_string()));
    Performative, |act| Ok::<_, EncodeError>(act.as_str());
}
