//! One message on its way between two platforms: the envelope, and the ACL message in one of its encodings. Free of I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sealbus_fipa::envelope::{self, Envelope, EnvelopeRepresentation};
use sealbus_fipa::{
    AclMessage, Content, DecodeError, EncodeError, Limits, Representation, representation,
};
use thiserror::Error;

/// A received transmission.
pub struct Transmission {
    /// The part for the transport.
    pub envelope: Envelope,
    /// How the envelope was written.
    pub envelope_representation: &'static dyn EnvelopeRepresentation,
    /// The part for the agent.
    pub message: AclMessage,
    /// How the message was written.
    pub representation: &'static dyn Representation,
}

impl std::fmt::Debug for Transmission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transmission")
            .field("envelope", &self.envelope)
            .field("message", &self.message)
            .field("representation", &self.representation.name())
            .finish_non_exhaustive()
    }
}

/// Why the bytes behind an envelope are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// A mandatory parameter of the envelope is missing.
    #[error("the envelope has no {0}")]
    Missing(&'static str),
    /// The message's representation is not known.
    #[error("the message is in '{0}', which is not understood here: send fipa.acl.rep.string.std")]
    Representation(String),
    /// The character set of the message is not known.
    #[error("the message is in the character set '{0}': send UTF-8, US-ASCII or ISO-8859-1")]
    CharacterSet(String),
    /// The message does not decode.
    #[error("the message does not decode: {0}")]
    Message(DecodeError),
}

/// Reads the message that an envelope describes.
///
/// # Errors
/// [`PayloadError`].
pub(crate) fn read_payload(
    envelope: &Envelope,
    payload: &[u8],
    limits: &Limits,
) -> Result<(AclMessage, &'static dyn Representation), PayloadError> {
    if envelope
        .newest(|it| it.intended_receivers.first().or_else(|| it.to.first()))
        .is_none()
    {
        return Err(PayloadError::Missing("receiver"));
    }
    let name = envelope
        .newest(|it| it.acl_representation.as_ref())
        .ok_or(PayloadError::Missing("acl-representation"))?;
    let representation =
        representation(name.trim()).ok_or_else(|| PayloadError::Representation(shorten(name)))?;
    let is_text = representation.name() != sealbus_fipa::bitefficient::NAME;
    let recoded = match envelope.newest(|it| it.payload_encoding.as_ref()) {
        Some(charset) if is_text => recode(charset.trim(), payload)?,
        _ => None,
    };
    let message = representation
        .decode(recoded.as_deref().unwrap_or(payload), limits)
        .map_err(PayloadError::Message)?;
    Ok((message, representation))
}

/// Appends the encoded message to `payload`, which must be empty, and describes it in its envelope.
///
/// # Errors
/// If the representation cannot carry the message.
pub(crate) fn describe_payload(
    envelope: &mut Envelope,
    message: &AclMessage,
    representation: &dyn Representation,
    payload: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    encode_message(message, representation, payload)?;
    envelope.base.acl_representation = Some(representation.name().to_owned());
    envelope.base.payload_length = Some(payload.len() as u64);
    if representation.name() != sealbus_fipa::bitefficient::NAME && !payload.is_ascii() {
        envelope.base.payload_encoding = Some("UTF-8".to_owned());
    }
    Ok(())
}

/// The text in UTF-8, which the decoders read; `None` if it is already UTF-8.
fn recode(charset: &str, payload: &[u8]) -> Result<Option<Vec<u8>>, PayloadError> {
    let is = |names: &[&str]| names.iter().any(|name| charset.eq_ignore_ascii_case(name));
    if charset.is_empty() || is(&["utf-8", "utf8", "us-ascii", "ascii"]) {
        Ok(None)
    } else if is(&["iso-8859-1", "iso8859_1", "latin1"]) {
        let text: String = payload.iter().copied().map(char::from).collect();
        Ok(Some(text.into_bytes()))
    } else {
        Err(PayloadError::CharacterSet(shorten(charset)))
    }
}

/// The beginning of a text, for errors.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

/// How messages to a platform are written.
#[derive(Clone, Copy)]
pub struct Encoding {
    /// The envelope.
    pub envelope: &'static dyn EnvelopeRepresentation,
    /// The message.
    pub message: &'static dyn Representation,
}

impl Default for Encoding {
    /// XML envelopes and messages in the string encoding, which every platform reads.
    fn default() -> Self {
        Self {
            envelope: &envelope::xml::Xml,
            message: &sealbus_fipa::string::StringRepresentation,
        }
    }
}

impl std::fmt::Debug for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} in {}",
            self.message.short_name(),
            self.envelope.short_name()
        )
    }
}

/// Encodes an ACL message.
fn encode_message(
    message: &AclMessage,
    representation: &dyn Representation,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match &message.content {
        // JADE reads bytes within text in this form only.
        Some(Content::Bytes(bytes)) if representation.name() == sealbus_fipa::string::NAME => {
            let mut text = message.clone();
            text.content = Some(BASE64.encode(bytes).into());
            representation.encode(&text, out)?;
            let after_performative = 1 + message.performative.as_str().len();
            let mark = b"\n :X-JADE-Encoding Base64".iter().copied();
            out.splice(after_performative..after_performative, mark);
            Ok(())
        }
        _ => representation.encode(message, out),
    }
}
