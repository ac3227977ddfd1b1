//! Requests to tools on behalf of callers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::body::BodyError;
use sealbus::tool::Asking;
use sealbus::{Aid, Voice};
use serde_json::Value;

use crate::said::Said;
use crate::schema::Language;

/// The reason why a tool cannot take an input.
#[derive(Debug, thiserror::Error)]
pub enum BadInput {
    /// The tool takes only text.
    #[error("it must be a text")]
    NoText,
    /// The tool takes only bytes.
    #[error("it must be bytes in base64")]
    NoBytes,
    /// The body cannot be written.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// A request to an agent with this input, in the language that its tool takes.
///
/// # Errors
/// [`BadInput`].
pub fn ask<'a>(
    voice: &'a Voice,
    agent: &Aid,
    input: Value,
    language: Language,
) -> Result<Asking<'a>, BadInput> {
    let agent = agent.clone();
    Ok(match (language, input) {
        (Language::Json, input) => voice.ask(agent, &Said::new(input))?,
        (Language::Text, Value::String(text)) => voice.ask(agent, &text)?,
        (Language::Text, _) => return Err(BadInput::NoText),
        (Language::Bytes, Value::String(text)) => {
            let bytes = STANDARD.decode(text).map_err(|_| BadInput::NoBytes)?;
            voice.ask(agent, &bytes)?
        }
        (Language::Bytes, _) => return Err(BadInput::NoBytes),
    })
}
