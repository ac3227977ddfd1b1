//! Data with a number for its kind: the service contexts of requests and replies, and the components of object
//! references.

use crate::cdr::{Decoder, Encoder, MarshalError};

/// The most contexts or components in one list.
const MOST: usize = 64;

/// Data with a number for its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaggedData {
    /// The number.
    pub id: u32,
    /// The data, mostly an encapsulation.
    pub data: Vec<u8>,
}

/// Data that an ORB sends with a request or reply (CORBA 3.3 part 2, 9.7). Sealbus uses only
/// [`CodeSets`](crate::CodeSets).
pub type ServiceContext = TaggedData;

impl TaggedData {
    pub(crate) fn decode_all(decoder: &mut Decoder<'_>) -> Result<Vec<Self>, MarshalError> {
        decoder.sequence("service contexts or components", MOST, 8, |decoder| {
            Ok(Self {
                id: decoder.ulong()?,
                data: decoder.octets()?.to_vec(),
            })
        })
    }

    pub(crate) fn encode_all(all: &[Self], encoder: &mut Encoder) {
        encoder.sequence(all, |encoder, it| {
            encoder.ulong(it.id);
            encoder.octets(&it.data);
        });
    }
}
