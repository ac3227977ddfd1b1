//! Bodies: the content of a message as a value of a declared type.
//!
//! A value of a type that implements [`Body`] can be the content of a message. Writing the body sets the message's
//! language, and reading checks it. For a message that does not fit, reading returns a [`BodyError`] with the place of
//! the mistake.
//!
//! | body | language | ontology |
//! |---|---|---|
//! | [`Json<T>`](Json), `T` any serde type | `application/json` | |
//! | [`Action<T>`](Action), [`Predicate<T>`](Predicate), [`Done<T>`](Done), [`Outcome<T, V>`](Outcome), `T` an [`Element`] | `fipa-sl` | the element's ontology |
//! | [`sl::Content`](crate::acl::sl::Content) | `fipa-sl` | |
//! | `Protobuf<T>`, with the feature `protobuf`, `T` a prost message | `application/protobuf` | the message's full name |
//! | `Vec<u8>` | `application/octet-stream` | |
//! | `String` | none: the content as it is | |
//!
//! ```
//! use sealbus::body::{Json, WithBody};
//! use sealbus::{AclMessage, Performative};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Task {
//!     title: String,
//!     hours: f64,
//! }
//!
//! let task = Task { title: "paint the fence".into(), hours: 2.5 };
//! let message = AclMessage::new(Performative::Request).with_body(&Json(task))?;
//! assert_eq!(message.language.as_ref().and_then(|it| it.as_str()), Some("application/json"));
//!
//! let Json(task) = message.body::<Json<Task>>()?;
//! assert_eq!(task.hours, 2.5);
//!
//! let wrong = message.with_content(r#"{"title": "paint the fence", "hours": "many"}"#);
//! let error = wrong.body::<Json<Task>>().err().map(|error| error.to_string());
//! assert_eq!(error.as_deref(), Some(r#"$.hours: invalid type: string "many", expected f64"#));
//! # Ok::<(), sealbus::body::BodyError>(())
//! ```
//!
//! A message without a language is accepted, because FIPA lets a sender leave it out. Readers pass over fields that a
//! type does not know, so that a newer sender can add some.

mod json;
#[cfg(feature = "protobuf")]
mod protobuf;
mod sl;

use std::borrow::Cow;

use sealbus_fipa::{AclMessage, AclMessageRef, Content, Expression, Limits, Performative};

pub use json::Json;
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;
pub use sl::{Action, Done, Element, Outcome, Predicate};

/// The language of JSON bodies.
pub const JSON: &str = "application/json";
/// The language of bodies in FIPA-SL. Its smaller profiles, such as `fipa-sl0`, are read as well.
pub const SL: &str = "fipa-sl";
/// The language of protobuf bodies.
pub const PROTOBUF: &str = "application/protobuf";
/// The language of bodies that are bytes.
pub const BYTES: &str = "application/octet-stream";

/// The limits of every reader of bodies. They are those of a message, except that a body may have a million values.
pub const LIMITS: Limits = Limits {
    values: 1 << 20,
    ..Limits::DEFAULT
};

/// A value that can be the content of a message.
pub trait Body: Sized {
    /// Writes the value.
    ///
    /// # Errors
    /// [`BodyError::Misfit`] if the language cannot express the value, such as an infinite number in JSON.
    fn write(&self) -> Result<WrittenBody, BodyError>;

    /// Reads the value from a message.
    ///
    /// # Errors
    /// [`BodyError`] with the place that does not fit.
    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError>;
}

/// A body as it stands in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBody {
    /// The content.
    pub content: Content,
    /// The language of the content.
    pub language: Option<String>,
    /// The meaning of its symbols.
    pub ontology: Option<String>,
}

impl WrittenBody {
    /// Makes this value the content of the message. An ontology that belongs to another language is removed.
    pub fn put_into(self, message: &mut AclMessage) {
        let language = self.language.map(Expression::from);
        if self.ontology.is_some() || (message.language.is_some() && message.language != language) {
            message.ontology = self.ontology.map(Expression::from);
        }
        message.content = Some(self.content);
        message.language = language;
    }

    /// The answer to a message, with this content. Content in no declared language gets the language of the message,
    /// unless that language is for programs only: a text does not become JSON, protobuf or plain bytes because the
    /// question was.
    pub fn answer(self, message: &AclMessageRef<'_>, performative: Performative) -> AclMessage {
        let mut answer = message.create_reply(performative);
        let asked_in = answer.language.as_ref().and_then(Expression::as_str);
        let is_written_by_programs = asked_in.is_some_and(|asked_in| {
            let written = [JSON, PROTOBUF, BYTES];
            written.iter().any(|it| is_language(asked_in, it))
        });
        if self.language.is_none() && !is_written_by_programs {
            answer.content = Some(self.content);
        } else {
            self.put_into(&mut answer);
        }
        answer
    }
}

/// Content as it is, in no declared language.
impl From<Content> for WrittenBody {
    fn from(content: Content) -> Self {
        Self {
            content,
            language: None,
            ontology: None,
        }
    }
}

impl From<&str> for WrittenBody {
    fn from(text: &str) -> Self {
        Content::from(text).into()
    }
}

impl From<String> for WrittenBody {
    fn from(text: String) -> Self {
        Content::from(text).into()
    }
}

impl From<Vec<u8>> for WrittenBody {
    fn from(bytes: Vec<u8>) -> Self {
        Content::from(bytes).into()
    }
}

/// Why the content of a message differs from the declared type. The answer to such a message is `not-understood`, with
/// this as the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// There is no content.
    #[error("$: the message has no content")]
    Missing,
    /// The content is in another language.
    #[error("$: expected the language {expected}, got {found}")]
    Language {
        /// The language of the declared type.
        expected: &'static str,
        /// The language of the message.
        found: String,
    },
    /// The content is of another ontology.
    #[error("$: expected the ontology {expected}, got {found}")]
    Ontology {
        /// The ontology of the declared type.
        expected: String,
        /// The ontology of the message.
        found: String,
    },
    /// A value is not of its declared type.
    #[error("{place}: {problem}")]
    Misfit {
        /// Where the value stands, such as `$.bids[2].cost`; `$` is the whole body.
        place: String,
        /// The problem.
        problem: String,
    },
}

impl BodyError {
    /// A problem of the whole body.
    fn whole(problem: impl ToString) -> Self {
        Self::Misfit {
            place: "$".to_owned(),
            problem: problem.to_string(),
        }
    }

    /// Where the mistake is, such as `$.bids[2].cost`; `$` is the whole body.
    pub fn place(&self) -> &str {
        match self {
            Self::Misfit { place, .. } => place,
            _ => "$",
        }
    }
}

/// Messages to which bodies can be given, and from which they can be read.
pub trait WithBody: Sized {
    /// The same message with this body, and with the body's language and ontology.
    ///
    /// # Errors
    /// Those of [`Body::write`].
    fn with_body<B: Body>(self, body: &B) -> Result<Self, BodyError>;

    /// The body, if it is of this type.
    ///
    /// # Errors
    /// Those of [`Body::read`].
    fn body<B: Body>(&self) -> Result<B, BodyError>;
}

impl WithBody for AclMessage {
    fn with_body<B: Body>(mut self, body: &B) -> Result<Self, BodyError> {
        let written = body.write()?;
        written.put_into(&mut self);
        Ok(self)
    }

    fn body<B: Body>(&self) -> Result<B, BodyError> {
        B::read(&self.view())
    }
}

impl Body for String {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(WrittenBody {
            content: Content::Text(self.clone()),
            language: None,
            ontology: None,
        })
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        match message.content_text() {
            Some(text) => Ok(text.into_owned()),
            None if message.content().is_none() => Err(BodyError::Missing),
            None => Err(BodyError::whole("expected text, got bytes")),
        }
    }
}

impl Body for Vec<u8> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(WrittenBody {
            content: Content::Bytes(self.clone()),
            language: Some(BYTES.to_owned()),
            ontology: None,
        })
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        Ok(content_in(message, BYTES)?.into_owned())
    }
}

/// The content of a message in this language.
fn content_in<'a>(
    message: &AclMessageRef<'a>,
    language: &'static str,
) -> Result<Cow<'a, [u8]>, BodyError> {
    if let Some(found) = message.language() {
        let text = found.text();
        if !text
            .as_deref()
            .is_some_and(|text| is_language(text, language))
        {
            return Err(BodyError::Language {
                expected: language,
                found: text.map_or_else(|| "no text".to_owned(), |text| shortened(&text)),
            });
        }
    }
    message.content_bytes().ok_or(BodyError::Missing)
}

/// Whether a message is in this language. Parameters such as `charset` after a semicolon are not compared.
fn is_language(found: &str, language: &str) -> bool {
    let name = found.split(';').next().unwrap_or(found).trim();
    // FIPA has three smaller profiles of SL.
    let base = match language {
        SL => name.strip_suffix(['0', '1', '2']).unwrap_or(name),
        _ => name,
    };
    base.eq_ignore_ascii_case(language)
}

/// A path of serde's as a place in a body.
fn place(path: &str) -> String {
    match path {
        "." => "$".to_owned(),
        path if path.starts_with('[') => format!("${}", shortened(path)),
        path => format!("$.{}", shortened(path)),
    }
}

/// Checks that the message's ontology is this one, or missing.
fn check_ontology(message: &AclMessageRef<'_>, expected: &str) -> Result<(), BodyError> {
    let Some(found) = message.ontology() else {
        return Ok(());
    };
    let text = found.text();
    if text.as_deref() == Some(expected) {
        return Ok(());
    }
    Err(BodyError::Ontology {
        expected: expected.to_owned(),
        found: text.map_or_else(|| "no text".to_owned(), |text| shortened(&text)),
    })
}

/// The JSON text of a message, within the limits. It is not parsed yet.
///
/// # Errors
/// [`BodyError`] if the message is not in JSON, or nests deeper or has more values than [`LIMITS`] allow.
pub fn json_content<'a>(message: &AclMessageRef<'a>) -> Result<Cow<'a, [u8]>, BodyError> {
    let content = content_in(message, JSON)?;
    sealbus_fipa::json::guard(&content, &LIMITS).map_err(BodyError::whole)?;
    Ok(content)
}

/// A foreign text, short enough for an error.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
