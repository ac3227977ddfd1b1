//! The keys of authorities, which may lie in a token of their own.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::key::{KeyError, KeyPair, PublicKey, Signature};

/// A private key outside this process: its holder signs, and nobody gets the key.
pub trait KeyHolder: fmt::Debug + Send + Sync {
    /// The public half.
    fn public_key(&self) -> &PublicKey;

    /// Signs a message. The holder may be asked over a network, and the caller waits.
    ///
    /// # Errors
    /// [`KeyError::NotSigned`] with the holder's reason.
    fn sign(&self, message: &[u8]) -> Result<Signature, KeyError>;

    /// The key's name, by which it is found again.
    fn name(&self) -> &str;
}

/// The private key of an authority.
#[derive(Clone, Debug)]
pub enum AuthorityKey {
    /// It is in this process.
    Here(Arc<KeyPair>),
    /// Another one holds it.
    Held(Arc<dyn KeyHolder>),
}

impl AuthorityKey {
    /// Makes a key in this process.
    ///
    /// # Errors
    /// As [`KeyPair::generate`].
    pub fn generate() -> Result<Self, KeyError> {
        Ok(KeyPair::generate()?.into())
    }

    /// The public half.
    pub fn public_key(&self) -> &PublicKey {
        match self {
            Self::Here(key) => key.public_key(),
            Self::Held(holder) => holder.public_key(),
        }
    }

    /// Signs a message.
    ///
    /// # Errors
    /// If the key, or its holder, does not sign.
    pub fn sign(&self, message: &[u8]) -> Result<Signature, KeyError> {
        match self {
            Self::Here(key) => key.sign(message),
            Self::Held(holder) => holder.sign(message),
        }
    }

    /// The text to be kept: the key itself as PKCS#8 PEM, or the name under which its holder knows it. Keep the file
    /// readable by its owner only (mode 0600).
    pub fn to_text(&self) -> Zeroizing<String> {
        match self {
            Self::Here(key) => key.to_pkcs8_pem(),
            Self::Held(holder) => Zeroizing::new(format!("{}\n", holder.name())),
        }
    }
}

impl From<KeyPair> for AuthorityKey {
    fn from(key: KeyPair) -> Self {
        Self::Here(Arc::new(key))
    }
}

impl rcgen::PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        self.public_key().as_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

impl rcgen::SigningKey for AuthorityKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        AuthorityKey::sign(self, message)
            .map(|signature| signature.as_bytes().to_vec())
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
