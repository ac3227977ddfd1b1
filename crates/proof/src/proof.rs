//! The proof of one message, and its wire form.

use sealbus_seal::{Fingerprint, PlatformName, SecurityLevel, Serial};
use sealbus_transparency::{Hash, inclusion_length, inclusion_root};

use crate::delegation::{BatchKeyDelegation, LONGEST_DELEGATION};
use crate::error::{Malformed, NotProved};
use crate::key::LONGEST;
use crate::statement::{AuthorEntry, BatchStatement};

/// Most messages of a batch, of all its authors.
pub const MOST_MESSAGES: usize = 1024;

const VERSION: u8 = 2;
/// The fields besides delegation, hashes and signature.
const FIXED: usize = 42;
/// The hashes of the longest path in a tree of [`MOST_MESSAGES`] leaves.
const LONGEST_PATH: usize = MOST_MESSAGES.ilog2() as usize;

/// Bytes of the longest proof.
pub const LONGEST_PROOF: usize =
    FIXED + LONGEST_DELEGATION + 2 * 32 * LONGEST_PATH + LONGEST.signature_length();

/// The proof of one message of a batch.
///
/// It names the author's certificate and contains neither the message nor the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub(crate) level: SecurityLevel,
    pub(crate) delegation: BatchKeyDelegation,
    pub(crate) time: u64,
    /// The authors of the batch, and the place of this one among them.
    pub(crate) authors: u16,
    pub(crate) author: u16,
    pub(crate) serial: Serial,
    pub(crate) first: u64,
    /// The author's messages in the batch, and the place of this one among them.
    pub(crate) count: u16,
    pub(crate) place: u16,
    /// The path in the tree of the author's statements, from the leaf to the root (RFC 9162 section 2.1.3).
    pub(crate) beside: Vec<Hash>,
    /// The path in the tree of the authors.
    pub(crate) above: Vec<Hash>,
    pub(crate) signature: Box<[u8]>,
}

impl Proof {
    /// The serial number of the author's certificate.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The level that the message was signed for.
    pub fn level(&self) -> SecurityLevel {
        self.level
    }

    /// When the author's process says it signed, in milliseconds since 1970-01-01T00:00:00Z. Only the author vouches for
    /// it.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The number of the message. The certificate and the number identify a message.
    pub fn number(&self) -> u64 {
        self.first + u64::from(self.place)
    }

    /// The author's delegation to the key that signed.
    pub fn delegation(&self) -> &BatchKeyDelegation {
        &self.delegation
    }

    /// The statement that the key must have signed, if the author with this certificate made the statement.
    pub(crate) fn signed(
        &self,
        platform: &PlatformName,
        certificate: Fingerprint,
        statement: &Hash,
    ) -> Result<Vec<u8>, NotProved> {
        let root = |leaf: &Hash, place: u16, of: u16, path: &[Hash]| {
            inclusion_root(leaf, u64::from(place), u64::from(of), path)
                .map_err(|_| NotProved::WrongSignature)
        };
        let entry = AuthorEntry {
            serial: self.serial,
            certificate,
            first: self.first,
            count: self.count,
        };
        let messages = root(statement, self.place, self.count, &self.beside)?;
        let batch = BatchStatement {
            platform,
            level: self.level,
            key: &self.delegation.key,
            time: self.time,
            authors: u64::from(self.authors),
            root: root(
                &entry.leaf_over(&messages),
                self.author,
                self.authors,
                &self.above,
            )?,
        };
        Ok(batch.encode())
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        let hashes = self.beside.len() + self.above.len();
        FIXED + self.delegation.length() + 32 * hashes + self.signature.len()
    }

    /// Appends the wire form, as docs/evidence.md describes it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(self.level.code());
        self.delegation.encode(out);
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.authors.to_be_bytes());
        out.extend_from_slice(&self.author.to_be_bytes());
        out.extend_from_slice(self.serial.as_bytes());
        out.extend_from_slice(&self.first.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&self.place.to_be_bytes());
        for hash in self.beside.iter().chain(&self.above) {
            out.extend_from_slice(hash);
        }
        out.extend_from_slice(&self.signature);
    }

    /// Reads a wire form that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`]. Each proof has one form only, and at most [`LONGEST_PROOF`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let length = |expected| Malformed::Length {
            expected,
            found: bytes.len(),
        };
        let [version, code, rest @ ..] = bytes else {
            return Err(length(FIXED));
        };
        if *version != VERSION {
            return Err(Malformed::Version(*version));
        }
        let level = SecurityLevel::from_code(*code)
            .filter(|level| *level >= SecurityLevel::Signed)
            .ok_or(Malformed::Level(*code))?;
        let (delegation, rest) = BatchKeyDelegation::decode_prefix(rest)?;
        let fixed = FIXED + delegation.length() + delegation.key.algorithm().signature_length();
        let mut fields = Fields(rest);
        let time = fields.take().map(u64::from_be_bytes);
        let authors = fields.take().map(u16::from_be_bytes);
        let author = fields.take().map(u16::from_be_bytes);
        let serial = fields.take().map(Serial::from_bytes);
        let first = fields.take().map(u64::from_be_bytes);
        let count = fields.take().map(u16::from_be_bytes);
        let place = fields.take().map(u16::from_be_bytes);
        let read = (|| Some((time?, authors?, author?, serial?, first?, count?, place?)))();
        let (time, authors, author, serial, first, count, place) = read.ok_or(length(fixed))?;
        // Each of the other authors has a message.
        if usize::from(authors) + usize::from(count) > MOST_MESSAGES + 1 {
            return Err(Malformed::TooLarge { authors, count });
        }
        let path = |place: u16, of: u16| {
            inclusion_length(u64::from(of), u64::from(place))
                .map_err(|_| Malformed::Place { place, of })
        };
        let (beside, above) = (path(place, count)?, path(author, authors)?);
        if first.checked_add(u64::from(count)).is_none() {
            return Err(Malformed::Numbers);
        }
        let expected = fixed + 32 * (beside + above);
        if bytes.len() != expected {
            return Err(length(expected));
        }
        let mut hashes = |count| (0..count).map_while(|_| fields.take()).collect();
        Ok(Self {
            level,
            delegation,
            time,
            authors,
            author,
            serial,
            first,
            count,
            place,
            beside: hashes(beside),
            above: hashes(above),
            signature: fields.0.into(),
        })
    }
}

/// The bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_longer_than_the_limit() {
        let lengths = (1..=MOST_MESSAGES as u64)
            .flat_map(|size| (0..size).map(move |place| inclusion_length(size, place).unwrap()));
        assert_eq!(lengths.max(), Some(LONGEST_PATH));
    }
}
