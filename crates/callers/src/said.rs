//! The content of an agent's message, as a JSON value.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::acl::AclMessageRef;
use sealbus::body::{Body, BodyError, JSON, Json, WrittenBody};
use sealbus::{AclMessage, Content};
use serde_json::Value;

use crate::schema::Language;

/// The content of a message from or to an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    value: Value,
    /// The unchanged content, if it is text.
    text: Option<String>,
    /// The ontology of the message.
    ontology: Option<String>,
}

impl Said {
    /// A value to send.
    pub fn new(value: Value) -> Self {
        Self {
            value,
            text: None,
            ontology: None,
        }
    }

    /// The value, from an agent that sends bodies in `language`. Some agents call a text JSON because the question was
    /// in JSON.
    pub fn value(self, language: Language) -> Value {
        match (language, self.text) {
            (Language::Text, Some(text)) => Value::String(text),
            _ => self.value,
        }
    }

    /// The ontology of the message.
    pub fn ontology(&self) -> Option<&str> {
        self.ontology.as_deref()
    }

    /// The content of a message.
    pub fn in_message(message: &AclMessage) -> Self {
        let text = message.content.as_ref().and_then(Content::as_text);
        Self {
            value: Self::value_in(message),
            text: text.map(str::to_owned),
            ontology: message
                .ontology
                .as_ref()
                .and_then(|it| it.as_str())
                .map(str::to_owned),
        }
    }

    /// The content of any message: JSON as its value, other text as a text, bytes as a text in base64; null if there is
    /// none. Content that is declared as JSON and is not JSON becomes a text.
    pub fn value_in(message: &AclMessage) -> Value {
        let is_json = message.language.as_ref().and_then(|it| it.as_str()) == Some(JSON);
        match &message.content {
            None => Value::Null,
            Some(Content::Text(text)) if is_json => {
                serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())
            }
            Some(Content::Text(text)) => text.as_str().into(),
            Some(Content::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        }
    }
}

impl Body for Said {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Json(self.value.clone()).write()
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        Ok(Self::in_message(&message.to_owned()))
    }
}
