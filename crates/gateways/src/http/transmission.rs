//! One message on its way between two platforms: envelope and ACL message as the body of a request, and back.

use std::borrow::Cow;

use memchr::memmem;
use sealbus_fipa::envelope::{self, Envelope, EnvelopeRepresentation};
use sealbus_fipa::{AclMessage, DecodeError, EncodeError, Limits};
use thiserror::Error;

use super::multipart::{self, MultipartError};
pub use crate::transmission::{Encoding, PayloadError, Transmission};
use crate::transmission::{describe_payload, read_payload, shorten};

/// The media types that JADE gives to the parts. An envelope in a representation other than XML has `application/` and
/// the representation's name.
const XML_TYPE: &str = "application/xml";
const MESSAGE_TYPE: &str = "application/text";
/// The most bytes that a buffer keeps between two messages.
const KEPT: usize = 64 << 10;

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
    /// The message behind the envelope.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl TransmissionError {
    /// Whether the body is well formed but of an unsupported kind.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Multipart(MultipartError::MediaType(_))
                | Self::EnvelopeRepresentation(_)
                | Self::Payload(PayloadError::Representation(_) | PayloadError::CharacterSet(_))
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
    // Line ends may precede a message that is text. The part's own type carries no information: JADE writes
    // application/text on all.
    let payload = body[second.body].trim_ascii_start();
    let (message, representation) = read_payload(&envelope, payload, limits)?;
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
        describe_payload(&mut envelope, message, encoding.message, &mut self.payload)?;
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
