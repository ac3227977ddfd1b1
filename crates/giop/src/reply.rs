//! The answers of a server.

use crate::cdr::{ByteOrder, Decoder, Encoder, MarshalError, MarshalProblem};
use crate::context::{ServiceContext, TaggedData};
use crate::header::{HEADER_LENGTH, Header, Kind, Version};
use crate::ior::Ior;
use crate::request::end_with;

/// The kind of an answer. It determines the kind of the reply's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// The result.
    NoException,
    /// An exception of the interface.
    UserException,
    /// A [`SystemException`](crate::SystemException).
    SystemException,
    /// An [`Ior`]: the object is there for now.
    LocationForward,
    /// An [`Ior`]: the object is there for good (1.2).
    LocationForwardPermanently,
    /// The number of another way to name the object (1.2).
    NeedsAddressingMode,
}

/// An answer without its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request.
    pub id: u32,
    /// The kind of answer.
    pub status: ReplyStatus,
    /// Data that the server's ORB sends with the reply.
    pub contexts: Vec<ServiceContext>,
}

impl Reply {
    /// An answer without contexts.
    pub fn new(id: u32, status: ReplyStatus) -> Self {
        Self {
            id,
            status,
            contexts: Vec::new(),
        }
    }

    pub(crate) fn decode(
        version: Version,
        decoder: &mut Decoder<'_>,
    ) -> Result<Self, MarshalError> {
        let status = |decoder: &mut Decoder<'_>| match decoder.ulong()? {
            0 => Ok(ReplyStatus::NoException),
            1 => Ok(ReplyStatus::UserException),
            2 => Ok(ReplyStatus::SystemException),
            3 => Ok(ReplyStatus::LocationForward),
            4 => Ok(ReplyStatus::LocationForwardPermanently),
            5 => Ok(ReplyStatus::NeedsAddressingMode),
            _ => Err(decoder.error(MarshalProblem::Wrong("a reply of no known status"))),
        };
        if version == Version::V1_2 {
            return Ok(Self {
                id: decoder.ulong()?,
                status: status(decoder)?,
                contexts: TaggedData::decode_all(decoder)?,
            });
        }
        let contexts = TaggedData::decode_all(decoder)?;
        Ok(Self {
            id: decoder.ulong()?,
            status: status(decoder)?,
            contexts,
        })
    }

    /// Writes the answer with its result.
    pub fn encode(
        &self,
        version: Version,
        order: ByteOrder,
        result: impl FnOnce(&mut Encoder),
    ) -> Vec<u8> {
        let mut encoder = Header::begin(version, order, Kind::Reply);
        let status = self.status as u32;
        if version == Version::V1_2 {
            encoder.ulong(self.id);
            encoder.ulong(status);
            TaggedData::encode_all(&self.contexts, &mut encoder);
        } else {
            TaggedData::encode_all(&self.contexts, &mut encoder);
            encoder.ulong(self.id);
            encoder.ulong(status);
        }
        end_with(encoder, version, result)
    }
}

/// Whether an object is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocateStatus {
    /// The object is not here.
    Unknown,
    /// The object is here.
    Here,
    /// The object is elsewhere.
    Forward(Ior),
    /// Another answer, which none of the known ORBs gives.
    Other(u32),
}

/// The answer to the question whether an object is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocateReply {
    /// The number of the question.
    pub id: u32,
    /// The answer.
    pub status: LocateStatus,
}

impl LocateReply {
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let id = decoder.ulong()?;
        let status = match decoder.ulong()? {
            0 => LocateStatus::Unknown,
            1 => LocateStatus::Here,
            // No padding to a multiple of 8 before the reference.
            2 => LocateStatus::Forward(Ior::decode(decoder)?),
            other => LocateStatus::Other(other),
        };
        Ok(Self { id, status })
    }

    /// Writes the answer.
    pub fn encode(&self, version: Version, order: ByteOrder) -> Vec<u8> {
        let mut encoder = Header::begin(version, order, Kind::LocateReply);
        encoder.ulong(self.id);
        match &self.status {
            LocateStatus::Unknown => encoder.ulong(0),
            LocateStatus::Here => encoder.ulong(1),
            LocateStatus::Forward(ior) => {
                encoder.ulong(2);
                ior.encode(&mut encoder);
            }
            LocateStatus::Other(other) => encoder.ulong(*other),
        }
        encoder.end_message(HEADER_LENGTH)
    }
}
