//! The JSON representation of messages, Sealbus' own, for the web and for language-model tools.
//!
//! Its schema is [`SCHEMA`]. Values that JSON knows stand for themselves: a string is a word if it
//! can be one and otherwise a string, an integer is a number, an array is a list. Everything else
//! is an object with one member that names the kind: `{"string": "abc"}` (a string that could be a
//! word), `{"number": "2.50"}`, `{"date-time": "20260304T050607089Z"}`, `{"base64": "AAEC"}`.

mod explain;
mod forms;

pub(crate) use forms::{
    AidForm, AidRead, ContentForm, ContentRead, DateTimeRead, Members, guard, syntax_error,
};

use crate::{AclMessage, DecodeError, EncodeError, EncodeProblem, Limits, Representation};
use forms::{MessageForm, MessageRead};

/// The encoding's name; FIPA has none for it.
pub const NAME: &str = "sealbus.acl.rep.json";

/// The JSON Schema of a message.
pub const SCHEMA: &str = include_str!("../../schema/acl-message.schema.json");

pub(crate) const ENCODING: &str = "JSON";

/// Appends the message to `out`, without blanks or line ends.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried; `out` is then as it was before.
pub fn encode(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let form = MessageForm::new(message)?;
    let start = out.len();
    serde_json::to_writer(&mut *out, &form).map_err(|_| {
        out.truncate(start);
        // Only a writer that fails makes it fail, and a vector does not.
        EncodeError::new("message", EncodeProblem::Empty)
    })
}

/// Reads a message, which must be all there is but for white space.
///
/// # Errors
/// [`DecodeError`] with the offset of what does not fit, or the limit exceeded.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
    guard(bytes, limits)?;
    match serde_json::from_slice::<MessageRead>(bytes) {
        Ok(message) => {
            let message = AclMessage::from(message);
            let most = message.receivers.len().max(message.reply_to.len());
            if most > limits.agents {
                return Err(DecodeError::too_many_agents(0, limits));
            }
            Ok(message)
        }
        Err(error) => Err(syntax_error(bytes, &error)),
    }
}

/// The encoding as a [`Representation`].
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl Representation for Json {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "json"
    }

    fn recognises(&self, bytes: &[u8]) -> bool {
        bytes.trim_ascii_start().first() == Some(&b'{')
    }

    fn encode(&self, message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(message, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
        decode(bytes, limits)
    }

    fn explain(&self, bytes: &[u8], limits: &Limits) -> crate::Explanation {
        explain::explain(bytes, limits)
    }
}
