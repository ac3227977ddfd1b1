//! The key schedule of HPKE, and the messages under one secret (RFC 9180 sections 4, 5.1 and 5.2).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::{Encapsulation, EncryptionError, EncryptionKey, EncryptionPublicKey, SharedSecret};

/// The length of a nonce, for every AEAD of HPKE.
const NONCE: usize = 12;
/// The length of the exporter's secret, and of every exported secret.
const EXPORTED: u8 = 32;

/// The algorithms that a context is bound to. The KDF is HKDF-SHA256.
pub struct Suite {
    /// The numbers of the KEM, the KDF and the AEAD in the registry of HPKE.
    pub numbers: [u16; 3],
    /// The AEAD.
    pub aead: &'static Algorithm,
}

/// X-Wing, HKDF-SHA256, AES-256-GCM.
const SUITE: Suite = Suite {
    numbers: [0x647a, 1, 2],
    aead: &AES_256_GCM,
};

impl Suite {
    fn extract(&self, salt: &[u8], label: &[u8], secret: &[u8]) -> SharedSecret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, salt);
        let mut hash = hmac::Context::with_key(&key);
        self.label(&mut hash, label);
        hash.update(secret);
        bytes_of(&hash.sign())
    }

    /// The first 32 bytes of the expansion. No key of HPKE is longer.
    fn expand(
        &self,
        secret: &SharedSecret,
        label: &[u8],
        context: &[u8],
        length: u8,
    ) -> SharedSecret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_slice());
        let mut hash = hmac::Context::with_key(&key);
        hash.update(&[0, length]);
        self.label(&mut hash, label);
        hash.update(context);
        hash.update(&[1]);
        bytes_of(&hash.sign())
    }

    fn label(&self, hash: &mut hmac::Context, label: &[u8]) {
        hash.update(b"HPKE-v1HPKE");
        for number in self.numbers {
            hash.update(&number.to_be_bytes());
        }
        hash.update(label);
    }
}

fn bytes_of(tag: &hmac::Tag) -> SharedSecret {
    let mut bytes = SharedSecret::default();
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// The messages under one secret, on either side, in mode base.
pub struct EncryptionContext {
    key: LessSafeKey,
    first_nonce: Zeroizing<[u8; NONCE]>,
    exporter: SharedSecret,
    /// The number of the next message.
    number: u64,
}

impl EncryptionContext {
    /// The messages under the shared secret of a KEM. Both sides must have the same `info`.
    ///
    /// # Errors
    /// If the AEAD does not accept the key.
    pub fn new(suite: &Suite, secret: &SharedSecret, info: &[u8]) -> Result<Self, EncryptionError> {
        // Mode base: no secret was agreed in advance.
        let mut context = vec![0];
        context.extend_from_slice(suite.extract(&[], b"psk_id_hash", &[]).as_slice());
        context.extend_from_slice(suite.extract(&[], b"info_hash", info).as_slice());
        let secret = suite.extract(secret.as_slice(), b"secret", &[]);
        let length = suite.aead.key_len();
        let expanded = |label, length| suite.expand(&secret, label, &context, length);
        let key = expanded(b"key", length as u8);
        let nonce = expanded(b"base_nonce", NONCE as u8);
        let exporter = suite.expand(&secret, b"exp", &context, EXPORTED);
        let mut first_nonce = Zeroizing::new([0; NONCE]);
        first_nonce.copy_from_slice(&nonce[..NONCE]);
        Ok(Self {
            key: UnboundKey::new(suite.aead, &key[..length])
                .map(LessSafeKey::new)
                .map_err(|_| EncryptionError::NoKey)?,
            first_nonce,
            exporter,
            number: 0,
        })
    }

    /// A further secret that both sides share, for this purpose (RFC 9180 section 5.3).
    pub fn export(&self, suite: &Suite, purpose: &[u8]) -> SharedSecret {
        suite.expand(&self.exporter, b"sec", purpose, EXPORTED)
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = *self.first_nonce;
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// The number of the message after the next one.
    fn next(&self) -> Result<u64, EncryptionError> {
        self.number.checked_add(1).ok_or(EncryptionError::Exhausted)
    }

    #[cfg(test)]
    pub(super) fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// Seals the next message in place, as [`Sealing::seal`] does.
    ///
    /// # Errors
    /// If there were too many messages.
    pub fn seal(
        &mut self,
        associated: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<(), EncryptionError> {
        let next = self.next()?;
        self.key
            .seal_in_place_append_tag(self.nonce(self.number), Aad::from(associated), message)
            .map_err(|_| EncryptionError::Exhausted)?;
        self.number = next;
        Ok(())
    }

    /// Opens the next message in place, as [`Opening::open`] does.
    ///
    /// # Errors
    /// If it was not sealed with this secret, number and `associated`.
    pub fn open<'a>(
        &mut self,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], EncryptionError> {
        let next = self.next()?;
        let opened = self.open_at(self.number, associated, sealed)?;
        self.number = next;
        Ok(opened)
    }

    fn open_at<'a>(
        &self,
        number: u64,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], EncryptionError> {
        self.key
            .open_in_place(self.nonce(number), Aad::from(associated), sealed)
            .map(|opened| &*opened)
            .map_err(|_| EncryptionError::NotOpened { number })
    }
}

/// The sender's side: seals messages to one receiver.
pub struct Sealing(EncryptionContext);

/// The receiver's side: opens the messages of one [`Sealing`], each once and in order.
pub struct Opening {
    secret: SharedSecret,
    messages: EncryptionContext,
}

impl Sealing {
    /// The bytes that sealing adds to a message.
    pub const ADDED: usize = 16;

    /// Makes a secret that only the owner of `receiver` shares. Both sides must have the same `info`.
    pub fn begin(
        receiver: &EncryptionPublicKey,
        info: &[u8],
    ) -> Result<(Encapsulation, Self), EncryptionError> {
        let (encapsulation, secret) = receiver.encapsulate()?;
        Ok((
            encapsulation,
            Self(EncryptionContext::new(&SUITE, &secret, info)?),
        ))
    }

    /// The number of the next message, from 0.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// A further secret that both sides share, for this purpose.
    pub fn export(&self, purpose: &[u8]) -> SharedSecret {
        self.0.export(&SUITE, purpose)
    }

    /// Seals the next message in place. `associated` is not encrypted, and the receiver must have the same bytes.
    pub fn seal(
        &mut self,
        associated: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<(), EncryptionError> {
        self.0.seal(associated, message)
    }
}

impl Opening {
    /// Takes the secret that the sender encapsulated. A wrong encapsulation may show only when a message does not open.
    pub fn begin(
        key: &EncryptionKey,
        encapsulation: &Encapsulation,
        info: &[u8],
    ) -> Result<Self, EncryptionError> {
        Self::with_secret(key.decapsulate(encapsulation)?, info)
    }

    /// As [`begin`](Self::begin), with the [secret](Self::secret) of another opening.
    ///
    /// # Errors
    /// If the AEAD does not accept the key.
    pub fn with_secret(secret: SharedSecret, info: &[u8]) -> Result<Self, EncryptionError> {
        Ok(Self {
            messages: EncryptionContext::new(&SUITE, &secret, info)?,
            secret,
        })
    }

    /// The secret. Whoever has it can open all messages under it.
    pub fn secret(&self) -> &SharedSecret {
        &self.secret
    }

    /// A further secret that both sides share, for this purpose.
    pub fn export(&self, purpose: &[u8]) -> SharedSecret {
        self.messages.export(&SUITE, purpose)
    }

    /// Opens the message with this number in place, even if it was opened before. The caller must know whether a
    /// message was repeated.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_at<'a>(
        &self,
        number: u64,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], EncryptionError> {
        self.messages.open_at(number, associated, sealed)
    }

    /// Opens the next message in place. After an error the same message is still due, and `sealed` is of no more use.
    pub fn open<'a>(
        &mut self,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], EncryptionError> {
        self.messages.open(associated, sealed)
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealing(message {})", self.0.number)
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening(message {})", self.messages.number)
    }
}
