//! A proof, and its form on the wire.

use std::ops::Range;

use sealbus_seal::{SecurityLevel, Serial, Signature};
use sealbus_transparency::{Hash, LogError, TreeRange, range_proof, range_proof_length};

use crate::error::{Malformed, NotProved, SignError};

/// Most messages of a batch.
pub const MAX_BATCH: usize = 256;

const VERSION: u8 = 1;
/// The fields before the hashes and the signature after them.
const FIXED: usize = 40 + 64;
/// At most this many subtrees lie beside a range of a tree of [`MAX_BATCH`] leaves.
const MOST_OUTSIDE: usize = 2 * MAX_BATCH.ilog2() as usize;

/// Bytes of the longest proof.
pub const MAX_PROOF_LENGTH: usize = FIXED + 32 * MOST_OUTSIDE;

/// The facts that all messages of a batch share, and the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) level: SecurityLevel,
    pub(crate) serial: Serial,
    pub(crate) time: u64,
    pub(crate) first: u64,
    pub(crate) size: u16,
    pub(crate) signature: Signature,
}

/// The proof of one message, or of successive messages of a batch.
///
/// It names the author's certificate and contains neither the messages nor the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub(crate) head: Head,
    pub(crate) start: u16,
    pub(crate) count: u16,
    pub(crate) outside: Vec<Hash>,
}

impl Proof {
    /// The serial number of the author's certificate.
    pub fn serial(&self) -> Serial {
        self.head.serial
    }

    /// The level that the messages were signed for.
    pub fn level(&self) -> SecurityLevel {
        self.head.level
    }

    /// When the author says it signed, in milliseconds since 1970-01-01T00:00:00Z. Only the author vouches for it.
    pub fn time(&self) -> u64 {
        self.head.time
    }

    /// How many messages it is for.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The numbers of the messages. The certificate and the number identify a message.
    pub fn numbers(&self) -> Range<u64> {
        let first = self.head.first + u64::from(self.start);
        first..first + u64::from(self.count)
    }

    /// The proof of one of the messages alone, given the hashes of all the statements that this proof is for.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if there is no such message, or the hashes are too many or too few.
    pub fn of_one(&self, statements: &[Hash], index: usize) -> Result<Self, SignError> {
        let known = self.tree(statements).map_err(SignError::NotInBatch)?;
        let place = u64::from(self.start).saturating_add(index as u64);
        if index >= statements.len() {
            return Err(SignError::NotInBatch(LogError::Beyond {
                wanted: place,
                size: u64::from(self.head.size),
            }));
        }
        let outside = range_proof(&known, u64::from(self.head.size), &(place..place + 1))
            .map_err(SignError::NotInBatch)?;
        Ok(Self {
            head: self.head,
            start: u16::try_from(place).unwrap_or(u16::MAX),
            count: 1,
            outside,
        })
    }

    /// The root of the batch's tree, if these are its statements.
    pub(crate) fn root(&self, statements: &[Hash]) -> Result<Hash, NotProved> {
        let other = NotProved::OtherCount {
            proved: usize::from(self.count),
            found: statements.len(),
        };
        if statements.len() != usize::from(self.count) {
            return Err(other);
        }
        self.tree(statements)
            .and_then(|tree| tree.root())
            .map_err(|_| other)
    }

    fn tree<'a>(&self, statements: &'a [Hash]) -> Result<TreeRange<'a>, LogError> {
        let size = u64::from(self.head.size);
        TreeRange::new(size, u64::from(self.start), statements, &self.outside)
    }

    /// Bytes of the wire form.
    pub fn length(&self) -> usize {
        FIXED + 32 * self.outside.len()
    }

    /// Appends the wire form, as docs/evidence.md describes it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = &self.head;
        out.push(VERSION);
        out.push(head.level.code());
        out.extend_from_slice(head.serial.as_bytes());
        out.extend_from_slice(&head.time.to_be_bytes());
        out.extend_from_slice(&head.first.to_be_bytes());
        for number in [head.size, self.start, self.count] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for hash in &self.outside {
            out.extend_from_slice(hash);
        }
        out.extend_from_slice(head.signature.as_bytes());
    }

    /// Reads a wire form that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`]. Each proof has one form only, and at most [`MAX_PROOF_LENGTH`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let length = |expected| Malformed::Length {
            expected,
            found: bytes.len(),
        };
        let mut fields = Fields(bytes);
        let [version] = fields.take().ok_or(length(FIXED))?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let [code] = fields.take().ok_or(length(FIXED))?;
        let level = SecurityLevel::from_code(code)
            .filter(|level| *level >= SecurityLevel::Signed)
            .ok_or(Malformed::Level(code))?;
        let serial = fields.take().map(Serial::from_bytes);
        let time = fields.take().map(u64::from_be_bytes);
        let first = fields.take().map(u64::from_be_bytes);
        let mut number = || fields.take().map(u16::from_be_bytes);
        let (size, start, count) = (number(), number(), number());
        let read = (|| Some((serial?, time?, first?, size?, start?, count?)))();
        let (serial, time, first, size, start, count) = read.ok_or(length(FIXED))?;
        let range = Malformed::Range { size, start, count };
        let places = u64::from(start)..u64::from(start) + u64::from(count);
        if usize::from(size) > MAX_BATCH {
            return Err(range);
        }
        let outside = range_proof_length(u64::from(size), &places).map_err(|_| range)?;
        if first.checked_add(u64::from(size)).is_none() {
            return Err(Malformed::Numbers);
        }
        let expected = FIXED + 32 * outside;
        if bytes.len() != expected {
            return Err(length(expected));
        }
        let outside = (0..outside).map_while(|_| fields.take()).collect();
        let signature = fields.take().map(Signature::from_bytes);
        let head = Head {
            level,
            serial,
            time,
            first,
            size,
            signature: signature.ok_or(length(expected))?,
        };
        Ok(Self {
            head,
            start,
            count,
            outside,
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
    fn no_proof_is_longer_than_the_limit() {
        let most = (1..=MAX_BATCH as u64)
            .flat_map(|size| {
                (0..size)
                    .flat_map(move |start| (start + 1..=size).map(move |end| (size, start..end)))
            })
            .filter(|(_, range)| range.end - range.start < 4 || range.start % 7 == 0)
            .map(|(size, range)| range_proof_length(size, &range).unwrap())
            .max();
        assert!(most <= Some(MOST_OUTSIDE), "{most:?} > {MOST_OUTSIDE}");
    }
}
