//! One message on its way between two platforms: envelope and ACL message as the body of a request, and back.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use memchr::memmem;
use sealbus_fipa::envelope::{self, Envelope, EnvelopeRepresentation};
use sealbus_fipa::{
    AclMessage, Content, DecodeError, EncodeError, Limits, Representation, representation,
};
use thiserror::Error;

use super::multipart::{self, MultipartError};

/// The media types that JADE gives to the parts. An envelope in a representation other than XML has `application/` and
/// the representation's name.
const XML_TYPE: &str = "application/xml";
const MESSAGE_TYPE: &str = "application/text";
/// The most bytes that a buffer keeps between two messages.
const KEPT: usize = 64 << 10;

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

/// Why a body is no transmission.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransmissionError {
    /// The body does not have the two parts.
    #[error(transparent)]
    Multipart(#[from] MultipartError),
    /// The envelope's representation is not known.
    #[error("the envelope is '{0}', which is not understood here: send application/xml")]
    EnvelopeRepresentation(String),
    /// The envelope does not decode.
    #[error("the envelope does not decode: {0}")]
    Envelope(DecodeError),
    /// A mandatory parameter is missing.
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

impl TransmissionError {
    /// Whether the body is well formed but of an unsupported kind.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Multipart(MultipartError::MediaType(_))
                | Self::EnvelopeRepresentation(_)
                | Self::Representation(_)
                | Self::CharacterSet(_)
        )
    }
}

/// Reads the body of a request.
///
/// # Errors
/// [`TransmissionError`].
pub fn read(
    content_type: &str,
    body: &[u8],
    limits: &Limits,
) -> Result<Transmission, TransmissionError> {
    let boundary = multipart::boundary(content_type)?;
    let [first, second] = multipart::parts(body, &boundary)?;
    let bytes = &body[first.body];
    let envelope_representation = envelope_representation(&first.content_type, bytes)?;
    let (envelope, _) = envelope_representation
        .decode(bytes, limits)
        .map_err(TransmissionError::Envelope)?;
    if envelope
        .newest(|it| it.intended_receivers.first().or_else(|| it.to.first()))
        .is_none()
    {
        return Err(TransmissionError::Missing("receiver"));
    }
    // The part's own type carries no information: JADE writes application/text on all.
    let name = envelope
        .newest(|it| it.acl_representation.as_ref())
        .ok_or(TransmissionError::Missing("acl-representation"))?;
    let representation = representation(name.trim())
        .ok_or_else(|| TransmissionError::Representation(shorten(name)))?;
    // Line ends may precede a message that is text.
    let payload = body[second.body].trim_ascii_start();
    let is_text = representation.name() != sealbus_fipa::bitefficient::NAME;
    let recoded = match envelope.newest(|it| it.payload_encoding.as_ref()) {
        Some(charset) if is_text => recode(charset.trim(), payload)?,
        _ => None,
    };
    let message = representation
        .decode(recoded.as_deref().unwrap_or(payload), limits)
        .map_err(TransmissionError::Message)?;
    Ok(Transmission {
        envelope,
        envelope_representation,
        message,
        representation,
    })
}

fn envelope_representation(
    content_type: &str,
    bytes: &[u8],
) -> Result<&'static dyn EnvelopeRepresentation, TransmissionError> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let name = media_type
        .strip_prefix("application/")
        .unwrap_or(media_type);
    let by_beginning = match bytes.trim_ascii_start().first() {
        Some(b'<') => "xml",
        // FIPA00088: the first byte of an envelope, or of a revision before it.
        Some(0xFE | 0xFD) => "bitefficient",
        _ => name,
    };
    envelope::representation(name)
        .or_else(|| envelope::representation(by_beginning))
        .ok_or_else(|| TransmissionError::EnvelopeRepresentation(shorten(content_type)))
}

/// The text in UTF-8, which the decoders read; `None` if it is already UTF-8.
fn recode(charset: &str, payload: &[u8]) -> Result<Option<Vec<u8>>, TransmissionError> {
    let is = |names: &[&str]| names.iter().any(|name| charset.eq_ignore_ascii_case(name));
    if charset.is_empty() || is(&["utf-8", "utf8", "us-ascii", "ascii"]) {
        Ok(None)
    } else if is(&["iso-8859-1", "iso8859_1", "latin1"]) {
        let text: String = payload.iter().copied().map(char::from).collect();
        Ok(Some(text.into_bytes()))
    } else {
        Err(TransmissionError::CharacterSet(shorten(charset)))
    }
}

fn shorten(text: &str) -> String {
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

/// Writes transmissions, with reused buffers.
pub struct Writer {
    boundary: String,
    /// Finds the boundary in a part.
    finder: memmem::Finder<'static>,
    envelope: Vec<u8>,
    payload: Vec<u8>,
}

impl Writer {
    /// A writer whose first boundary is `boundary`. If the boundary occurs in a part, a longer one is used.
    pub fn new(boundary: String) -> Self {
        Self {
            finder: memmem::Finder::new(boundary.as_bytes()).into_owned(),
            boundary,
            envelope: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// A request with this envelope and message, without its first lines, which depend on the address used. It has the
    /// lines of the head that describe the body, the empty line, and the body. The parts of the envelope that describe
    /// the payload are filled in.
    ///
    /// # Errors
    /// If the representations cannot carry envelope or message.
    pub fn request(
        &mut self,
        mut envelope: Envelope,
        message: &AclMessage,
        encoding: Encoding,
    ) -> Result<Vec<u8>, EncodeError> {
        self.payload.clear();
        self.envelope.clear();
        encode_message(message, encoding, &mut self.payload)?;
        envelope.base.acl_representation = Some(encoding.message.name().to_owned());
        envelope.base.payload_length = Some(self.payload.len() as u64);
        if encoding.message.name() != sealbus_fipa::bitefficient::NAME && !self.payload.is_ascii() {
            envelope.base.payload_encoding = Some("UTF-8".to_owned());
        }
        encoding.envelope.encode(&envelope, &mut self.envelope)?;
        let boundary = self.free_boundary();
        let own_type;
        let envelope_type = if encoding.envelope.name() == envelope::xml::NAME {
            XML_TYPE
        } else {
            own_type = format!("application/{}", encoding.envelope.name());
            &own_type
        };
        let body = multipart::Body::new(
            &boundary,
            (envelope_type, &self.envelope),
            (MESSAGE_TYPE, &self.payload),
        );
        let length = body.length();
        let head = format!(
            "Cache-Control: no-cache\r\nMime-Version: 1.0\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: Keep-Alive\r\n\r\n",
            multipart::content_type(&boundary),
        );
        let mut request = Vec::with_capacity(head.len() + length);
        request.extend_from_slice(head.as_bytes());
        body.write(&mut request);
        self.shrink();
        Ok(request)
    }

    /// A boundary that occurs in neither part.
    fn free_boundary(&self) -> Cow<'_, str> {
        let parts = [self.envelope.as_slice(), &self.payload];
        if parts.iter().all(|part| self.finder.find(part).is_none()) {
            return Cow::Borrowed(&self.boundary);
        }
        let mut boundary = self.boundary.clone();
        while parts
            .iter()
            .any(|part| memmem::find(part, boundary.as_bytes()).is_some())
        {
            boundary.push('x');
        }
        Cow::Owned(boundary)
    }

    /// Frees the room of one large message.
    fn shrink(&mut self) {
        for buffer in [&mut self.envelope, &mut self.payload] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}

/// Encodes an ACL message.
fn encode_message(
    message: &AclMessage,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match &message.content {
        // JADE reads bytes within text in this form only.
        Some(Content::Bytes(bytes)) if encoding.message.name() == sealbus_fipa::string::NAME => {
            let mut text = message.clone();
            text.content = Some(BASE64.encode(bytes).into());
            encoding.message.encode(&text, out)?;
            let after_performative = 1 + message.performative.as_str().len();
            let mark = b"\n :X-JADE-Encoding Base64".iter().copied();
            out.splice(after_performative..after_performative, mark);
            Ok(())
        }
        _ => encoding.message.encode(message, out),
    }
}
