//! Calls, and the other messages of a client.

use std::borrow::Cow;

use crate::cdr::{ByteOrder, Decoder, Encoder, MarshalError, MarshalProblem};
use crate::context::{ServiceContext, TaggedData};
use crate::header::{HEADER_LENGTH, Header, Kind, Version};
use crate::ior::{IiopProfile, Ior};

/// Whether a caller waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The call is oneway.
    None,
    /// The server confirms that it has the call, before the object has carried it out (1.2 alone).
    Early,
    /// The object's answer.
    Wanted,
}

/// How a request names its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object's key at the server.
    Key(Vec<u8>),
    /// A whole profile of the object's reference (1.2 alone).
    Profile(TaggedData),
    /// The index of a profile, and the object's reference (1.2 alone).
    Reference(u32, Ior),
}

impl Target {
    /// The object's key, if the target holds one.
    pub fn key(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Key(key) => Some(Cow::Borrowed(key)),
            Self::Profile(profile) => {
                let profile = IiopProfile::of(profile)?.ok()?;
                Some(Cow::Owned(profile.key))
            }
            Self::Reference(index, ior) => {
                let profile = ior.profiles.get(*index as usize)?;
                Some(Cow::Owned(IiopProfile::of(profile)?.ok()?.key))
            }
        }
    }

    fn decode(version: Version, decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        if version < Version::V1_2 {
            return Ok(Self::Key(decoder.octets()?.to_vec()));
        }
        match decoder.ushort()? {
            0 => Ok(Self::Key(decoder.octets()?.to_vec())),
            1 => Ok(Self::Profile(TaggedData {
                id: decoder.ulong()?,
                data: decoder.octets()?.to_vec(),
            })),
            2 => Ok(Self::Reference(decoder.ulong()?, Ior::decode(decoder)?)),
            _ => Err(decoder.error(MarshalProblem::Wrong(
                "the target is neither a key, a profile nor a reference",
            ))),
        }
    }

    fn encode(&self, version: Version, encoder: &mut Encoder) {
        if version < Version::V1_2 {
            return encoder.octets(&self.key().unwrap_or_default());
        }
        match self {
            Self::Key(key) => {
                encoder.ushort(0);
                encoder.octets(key);
            }
            Self::Profile(profile) => {
                encoder.ushort(1);
                encoder.ulong(profile.id);
                encoder.octets(&profile.data);
            }
            Self::Reference(index, ior) => {
                encoder.ushort(2);
                encoder.ulong(*index);
                ior.encode(encoder);
            }
        }
    }
}

/// A call without its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, by which the reply names it.
    pub id: u32,
    /// Whether the caller waits.
    pub response: Response,
    /// The object.
    pub target: Target,
    /// The operation's name.
    pub operation: Cow<'a, [u8]>,
    /// Data that the caller's ORB sends with the request.
    pub contexts: Vec<ServiceContext>,
    /// The caller. Only 1.0 and 1.1 have this field, and every known ORB leaves it empty.
    pub principal: Cow<'a, [u8]>,
}

impl<'a> Request<'a> {
    /// A call without contexts.
    pub fn new(id: u32, response: Response, key: &[u8], operation: &'static str) -> Self {
        Self {
            id,
            response,
            target: Target::Key(key.to_vec()),
            operation: Cow::Borrowed(operation.as_bytes()),
            contexts: Vec::new(),
            principal: Cow::Borrowed(&[]),
        }
    }

    pub(crate) fn decode(
        version: Version,
        decoder: &mut Decoder<'a>,
    ) -> Result<Self, MarshalError> {
        if version == Version::V1_2 {
            let id = decoder.ulong()?;
            // The lowest bit asks for an early answer. The next one asks for the object's own answer.
            let response = match decoder.octet()? & 3 {
                0 => Response::None,
                1 => Response::Early,
                _ => Response::Wanted,
            };
            decoder.take(3)?;
            return Ok(Self {
                id,
                response,
                target: Target::decode(version, decoder)?,
                operation: Cow::Borrowed(decoder.string()?),
                contexts: TaggedData::decode_all(decoder)?,
                principal: Cow::Borrowed(&[]),
            });
        }
        let contexts = TaggedData::decode_all(decoder)?;
        let id = decoder.ulong()?;
        let response = if decoder.boolean()? {
            Response::Wanted
        } else {
            Response::None
        };
        if version == Version::V1_1 {
            decoder.take(3)?;
        }
        Ok(Self {
            id,
            response,
            target: Target::decode(version, decoder)?,
            operation: Cow::Borrowed(decoder.string()?),
            contexts,
            principal: Cow::Borrowed(decoder.octets()?),
        })
    }

    /// Writes the call with its arguments.
    pub fn encode(
        &self,
        version: Version,
        order: ByteOrder,
        arguments: impl FnOnce(&mut Encoder),
    ) -> Vec<u8> {
        let mut encoder = Header::begin(version, order, Kind::Request);
        if version == Version::V1_2 {
            encoder.ulong(self.id);
            encoder.octet(match self.response {
                Response::None => 0,
                Response::Early => 1,
                Response::Wanted => 3,
            });
            encoder.raw(&[0; 3]);
            self.target.encode(version, &mut encoder);
            encoder.string(&self.operation);
            TaggedData::encode_all(&self.contexts, &mut encoder);
        } else {
            TaggedData::encode_all(&self.contexts, &mut encoder);
            encoder.ulong(self.id);
            encoder.boolean(self.response != Response::None);
            if version == Version::V1_1 {
                encoder.raw(&[0; 3]);
            }
            self.target.encode(version, &mut encoder);
            encoder.string(&self.operation);
            encoder.octets(&self.principal);
        }
        end_with(encoder, version, arguments)
    }
}

/// Writes a body behind a head, and the length of it all into the header.
pub(crate) fn end_with(
    mut encoder: Encoder,
    version: Version,
    body: impl FnOnce(&mut Encoder),
) -> Vec<u8> {
    let head = encoder.bytes().len();
    if version == Version::V1_2 {
        encoder.align(8);
    }
    let begin = encoder.bytes().len();
    body(&mut encoder);
    if encoder.bytes().len() > begin {
        return encoder.end_message(HEADER_LENGTH);
    }
    // Where no body follows, there is no padding either.
    let order = encoder.order();
    let mut bare = Encoder::new(order);
    bare.raw(&encoder.bytes()[..head]);
    bare.end_message(HEADER_LENGTH)
}

/// The caller does not wait for the answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// The number of the request.
    pub id: u32,
}

impl CancelRequest {
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let id = decoder.ulong()?;
        Ok(Self { id })
    }

    /// Writes the message.
    pub fn encode(self, version: Version, order: ByteOrder) -> Vec<u8> {
        let mut encoder = Header::begin(version, order, Kind::CancelRequest);
        encoder.ulong(self.id);
        encoder.end_message(HEADER_LENGTH)
    }
}

/// Asks whether an object is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocateRequest {
    /// Its number, by which the reply names it.
    pub id: u32,
    /// The object.
    pub target: Target,
}

impl LocateRequest {
    pub(crate) fn decode(
        version: Version,
        decoder: &mut Decoder<'_>,
    ) -> Result<Self, MarshalError> {
        Ok(Self {
            id: decoder.ulong()?,
            target: Target::decode(version, decoder)?,
        })
    }

    /// Writes the question.
    pub fn encode(&self, version: Version, order: ByteOrder) -> Vec<u8> {
        let mut encoder = Header::begin(version, order, Kind::LocateRequest);
        encoder.ulong(self.id);
        self.target.encode(version, &mut encoder);
        encoder.end_message(HEADER_LENGTH)
    }
}
