//! The bit-efficient representation of envelopes (FIPA00088).
//!
//! Revisions stand before the base, the newest first. The payload follows the base.

use alloc::vec::Vec;
mod read;
mod write;

pub use read::decode;
pub use write::encode;

use super::{Envelope, EnvelopeRepresentation};
use crate::{DecodeError, EncodeError, Limits};

/// The encoding's FIPA name.
pub const NAME: &str = "fipa.mts.env.rep.bitefficient.std";

const BASE: u8 = 0xfe;
const REVISION: u8 = 0xfd;

/// The encoding as an [`EnvelopeRepresentation`].
#[derive(Debug, Clone, Copy)]
pub struct BitEfficient;

impl EnvelopeRepresentation for BitEfficient {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "bitefficient"
    }

    fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(envelope, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<(Envelope, usize), DecodeError> {
        decode(bytes, limits)
    }
}
