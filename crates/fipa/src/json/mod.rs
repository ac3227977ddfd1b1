//! The JSON representation of messages, defined by Sealbus, for the web and for language-model tools.
//!
//! Its schema is [`SCHEMA`]. Values that JSON has stand for themselves. A JSON string is a word if it can be one, and
//! otherwise a string. An integer is a number, and an array is a list. Any other value is an object with one member
//! that names the kind: `{"string": "abc"}` (a string that could be a word), `{"number": "2.50"}`, `{"date-time":
//! "20260304T050607089Z"}`, `{"base64": "AAEC"}`.

use alloc::vec::Vec;
mod explain;
mod guard;

pub use guard::guard;
pub(crate) use guard::syntax_error;

use crate::aid::longest_list;
use crate::forms::{MessageForm, MessageRead};
use crate::{AclMessage, DecodeError, EncodeError, EncodeProblem, Limits, Representation};

/// The encoding's name; FIPA has none for it.
pub const NAME: &str = "sealbus.acl.rep.json";

/// The JSON Schema of a message.
pub const SCHEMA: &str = include_str!("../../schema/acl-message.schema.json");

/// Appends the message to `out`, without blanks or line ends.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(message: &AclMessage, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let form = MessageForm::new(message)?;
    // A value whose keys are all texts can always be written.
    let text =
        serde_json::to_vec(&form).map_err(|_| EncodeError::new("message", EncodeProblem::Empty))?;
    out.extend_from_slice(&text);
    Ok(())
}

/// Reads a message. Only white space may stand around it.
///
/// # Errors
/// [`DecodeError`] with the offset of the byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
    guard(bytes, limits)?;
    match serde_json::from_slice::<MessageRead>(bytes) {
        Ok(message) => {
            let message = AclMessage::from(message);
            let lists = [
                message.sender.as_slice(),
                &message.receivers,
                &message.reply_to,
            ];
            if lists
                .into_iter()
                .any(|list| longest_list(list) > limits.agents)
            {
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
