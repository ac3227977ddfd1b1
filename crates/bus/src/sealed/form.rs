//! The form of a sealed message. Its bytes are an ACL message in the bit-efficient encoding. Everything before the
//! content is visible, and the content holds the rest of the inner message.

use bytes::Bytes;
use sealbus_fipa::{AclMessageRef, bitefficient};
use sealbus_seal::encryption::{Commitment, Encapsulation, EncryptionKeyId, Sealing};

use super::NotSealed;
use crate::limits::OWN_ENCODING;

/// The outer message up to its parameters.
pub(super) const OUTER: &[u8] = b"\xfa\x10\0\x10sealed\0";
/// The end of the outer message, behind the content.
const END: u8 = 0x01;
/// The version of the form with the row's secret, and that of the form with the row's name. Version 1 was an earlier
/// form, and version 2 is that of events.
const WHOLE: u8 = 3;
const SHORT: u8 = 4;
/// The bytes of the message's number.
const NUMBER: usize = 4;
/// The bytes that both forms have behind the row.
const AFTER_ROW: usize = NUMBER + Commitment::LENGTH + Sealing::ADDED;

/// The bytes of the content in addition to the sealed rest of the message, if the message contains its row's secret.
pub const WHOLE_OVERHEAD: usize = 1 + EncryptionKeyId::LENGTH + Encapsulation::LENGTH + AFTER_ROW;
/// As [`WHOLE_OVERHEAD`], if the message contains its row's name.
pub const SHORT_OVERHEAD: usize = 1 + RowId::LENGTH + AFTER_ROW;

/// The name of a row among the rows of its sender: the beginning of the SHA-256 of the encapsulated secret. The name
/// finds the secret but proves nothing; only the right secret opens a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowId([u8; Self::LENGTH]);

impl RowId {
    /// The length in bytes.
    pub const LENGTH: usize = 8;

    /// A name from its bytes.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    pub(super) fn of(encapsulation: &[u8]) -> Self {
        let hash = sealbus_seal::sha256(&[encapsulation]);
        let mut id = [0; Self::LENGTH];
        id.copy_from_slice(&hash[..Self::LENGTH]);
        Self(id)
    }
}

/// How a message names the secret under which it is sealed.
#[derive(Clone, Copy, Debug)]
pub enum RowForm<'a> {
    /// It contains the secret.
    Whole {
        /// The receiver's key.
        key: EncryptionKeyId,
        /// The secret, for the holder of that key.
        encapsulation: &'a [u8],
    },
    /// It names a secret that an earlier message contained.
    Short(RowId),
}

impl RowForm<'_> {
    pub(super) fn id(&self) -> RowId {
        match self {
            Self::Whole { encapsulation, .. } => RowId::of(encapsulation),
            Self::Short(id) => *id,
        }
    }
}

/// The content of a sealed message.
#[derive(Clone, Copy, Debug)]
pub struct SealedEnvelope<'a> {
    /// The secret.
    pub row: RowForm<'a>,
    /// The message's number under the secret.
    pub number: u32,
    /// The author's commitment to the message.
    pub commitment: Commitment,
    pub(super) sealed: &'a [u8],
}

impl<'a> SealedEnvelope<'a> {
    /// Reads the content of a sealed message.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(content: &'a [u8]) -> Result<Self, String> {
        let (version, rest) = content.split_first().ok_or_else(malformed)?;
        let (row, rest) = match *version {
            WHOLE => {
                let (key, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
                let (encapsulation, rest) = rest
                    .split_at_checked(Encapsulation::LENGTH)
                    .ok_or_else(malformed)?;
                let key = EncryptionKeyId::from_bytes(*key);
                (RowForm::Whole { key, encapsulation }, rest)
            }
            SHORT => {
                let (id, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
                (RowForm::Short(RowId(*id)), rest)
            }
            version => {
                return Err(format!(
                    "it has version {version}, and this process knows {WHOLE} and {SHORT}"
                ));
            }
        };
        let (number, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (commitment, sealed) = rest.split_first_chunk().ok_or_else(malformed)?;
        if sealed.len() < Sealing::ADDED {
            return Err(malformed());
        }
        Ok(Self {
            row,
            number: u32::from_be_bytes(*number),
            commitment: Commitment::from_bytes(*commitment),
            sealed,
        })
    }

    fn length(&self) -> usize {
        self.sealed.len() - Sealing::ADDED
            + match self.row {
                RowForm::Whole { .. } => WHOLE_OVERHEAD,
                RowForm::Short(_) => SHORT_OVERHEAD,
            }
    }

    /// Appends the content to an outer message that is otherwise complete, and ends it.
    pub(super) fn end_message(&self, out: &mut Vec<u8>) -> Result<(), NotSealed> {
        bitefficient::begin_content(self.length(), out)?;
        match &self.row {
            RowForm::Whole { key, encapsulation } => {
                out.push(WHOLE);
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(encapsulation);
            }
            RowForm::Short(id) => {
                out.push(SHORT);
                out.extend_from_slice(id.as_bytes());
            }
        }
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(self.commitment.as_bytes());
        out.extend_from_slice(self.sealed);
        out.push(END);
        Ok(())
    }
}

fn malformed() -> String {
    "it has not the form of a sealed message".to_owned()
}

/// Appends the other data that the sealed bytes are bound to: `out` already holds the beginning of the outer message.
/// Both forms of a message are bound to the same data, in which the secret's name stands for the secret.
pub(super) fn associate(id: RowId, number: u32, commitment: &Commitment, out: &mut Vec<u8>) {
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(commitment.as_bytes());
}

/// A sealed message in its parts.
pub(super) struct Outer<'a> {
    /// The message up to its content.
    before: &'a [u8],
    /// The parameters in it.
    pub(super) leading: &'a [u8],
    pub(super) envelope: SealedEnvelope<'a>,
}

impl<'a> Outer<'a> {
    /// Reads a message in the bit-efficient encoding. The content must be last, as every process writes it.
    pub(super) fn read(message: &AclMessageRef<'a>) -> Result<Self, String> {
        let [before, content, after] = message.around_content().ok_or_else(malformed)?;
        let leading = before.strip_prefix(OUTER).ok_or_else(malformed)?;
        if after != [END] {
            return Err(malformed());
        }
        Ok(Self {
            before,
            leading,
            envelope: SealedEnvelope::parse(content)?,
        })
    }

    pub(super) fn associated(&self, id: RowId) -> Vec<u8> {
        let SealedEnvelope {
            number, commitment, ..
        } = &self.envelope;
        let room = self.before.len() + RowId::LENGTH + NUMBER + Commitment::LENGTH;
        let mut associated = Vec::with_capacity(room);
        associated.extend_from_slice(self.before);
        associate(id, *number, commitment, &mut associated);
        associated
    }
}

/// The name of the row of a message that does not contain its secret; `None` for every other message.
pub(super) fn short_in(payload: &[u8]) -> Option<RowId> {
    // The first bytes tell all other messages apart.
    payload.strip_prefix(OUTER)?;
    let message = bitefficient::decode_ref(payload, &OWN_ENCODING).ok()?;
    match Outer::read(&message).ok()?.envelope.row {
        RowForm::Short(id) => Some(id),
        RowForm::Whole { .. } => None,
    }
}

/// The same message with the secret of its row.
pub(super) fn with_secret(
    payload: &[u8],
    key: EncryptionKeyId,
    encapsulation: &[u8],
) -> Result<Bytes, NotSealed> {
    let message = bitefficient::decode_ref(payload, &OWN_ENCODING);
    let message = message.map_err(|error| NotSealed(error.to_string()))?;
    let outer = Outer::read(&message).map_err(NotSealed)?;
    let envelope = SealedEnvelope {
        row: RowForm::Whole { key, encapsulation },
        ..outer.envelope
    };
    let mut whole = Vec::with_capacity(payload.len() + WHOLE_OVERHEAD);
    whole.extend_from_slice(outer.before);
    envelope.end_message(&mut whole)?;
    Ok(whole.into())
}

/// The first bytes of the data that a secret is bound to.
const CONTEXT: &[u8] = b"sealbus sealed message v2\0";
/// The purpose of the secret from which the salts of a row's commitments are derived.
pub(super) const SALTS: &[u8] = b"sealbus salts v1";

/// The sender and the receiver: a secret is worthless for other pairs.
pub(super) fn context(sender: &str, receiver: &str) -> Vec<u8> {
    let mut context = CONTEXT.to_vec();
    for name in [sender, receiver] {
        context.extend_from_slice(&(name.len() as u64).to_be_bytes());
        context.extend_from_slice(name.as_bytes());
    }
    context
}
