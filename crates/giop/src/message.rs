//! Whole messages.

use crate::cdr::{ByteOrder, Decoder, MarshalError};
use crate::header::{HEADER_LENGTH, Header, Kind, Version};
use crate::reply::{LocateReply, Reply};
use crate::request::{CancelRequest, LocateRequest, Request};

/// The arguments of a request, or the result in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// The whole message: alignment counts from its first byte.
    whole: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> Body<'a> {
    /// Takes the unread bytes as a body. In 1.2 a body begins at a multiple of 8 (CORBA 3.3 part 2, 9.4.2).
    pub(crate) fn rest(
        whole: &'a [u8],
        version: Version,
        mut decoder: Decoder<'a>,
    ) -> Result<Self, MarshalError> {
        if version == Version::V1_2 && decoder.left() > 0 {
            decoder.align(8)?;
        }
        Ok(Self {
            whole,
            at: decoder.at(),
            order: decoder.order(),
        })
    }

    /// A decoder at the first byte of the body.
    pub fn decoder(&self) -> Decoder<'a> {
        Decoder::new(self.whole, self.at, self.order)
    }

    /// The bytes of the body.
    pub fn bytes(&self) -> &'a [u8] {
        &self.whole[self.at..]
    }
}

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A call.
    Request(Request<'a>, Body<'a>),
    /// The answer to a call.
    Reply(Reply, Body<'a>),
    /// The caller does not wait for the answer any more.
    CancelRequest(CancelRequest),
    /// Asks whether an object is here.
    LocateRequest(LocateRequest),
    /// The answer to a `LocateRequest`.
    LocateReply(LocateReply),
    /// The server ends the connection in order.
    CloseConnection,
    /// The other side could not read a message.
    MessageError,
}

impl<'a> Message<'a> {
    /// Reads a whole message, whose parts were joined behind the header of the first.
    ///
    /// # Errors
    /// [`MarshalError`] if the parts of the message before its body cannot be read.
    pub fn decode(header: &Header, whole: &'a [u8]) -> Result<Self, MarshalError> {
        let version = header.version;
        let mut decoder = Decoder::new(whole, HEADER_LENGTH, header.order);
        Ok(match header.kind {
            Kind::Request => {
                let request = Request::decode(version, &mut decoder)?;
                Self::Request(request, Body::rest(whole, version, decoder)?)
            }
            Kind::Reply => {
                let reply = Reply::decode(version, &mut decoder)?;
                Self::Reply(reply, Body::rest(whole, version, decoder)?)
            }
            Kind::CancelRequest => Self::CancelRequest(CancelRequest::decode(&mut decoder)?),
            Kind::LocateRequest => {
                Self::LocateRequest(LocateRequest::decode(version, &mut decoder)?)
            }
            Kind::LocateReply => Self::LocateReply(LocateReply::decode(&mut decoder)?),
            Kind::CloseConnection => Self::CloseConnection,
            // The assembler has joined fragments. A single one is an error of the other side.
            Kind::MessageError | Kind::Fragment => Self::MessageError,
        })
    }
}

fn empty(version: Version, kind: Kind) -> Vec<u8> {
    Header::begin(version, ByteOrder::Big, kind).end_message(HEADER_LENGTH)
}

/// The message that ends a connection in order.
pub fn close_connection(version: Version) -> Vec<u8> {
    empty(version, Kind::CloseConnection)
}

/// The answer to bytes that are no message.
pub fn message_error(version: Version) -> Vec<u8> {
    empty(version, Kind::MessageError)
}
