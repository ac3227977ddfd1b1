//! The keys of authorities, which may be kept in a token.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::key::{KeyError, KeyPair, PublicKey, Signature};
use crate::ml_dsa::MlDsaKeyPair;
use crate::verifying_key::{SignatureAlgorithm, VerifyingKey};

/// A private key outside this process. Its holder signs, and nobody gets the key.
pub trait KeyHolder: fmt::Debug + Send + Sync {
    /// The public half.
    fn public_key(&self) -> &PublicKey;

    /// Signs a message. The holder may be on a network, so the caller may have to wait.
    ///
    /// # Errors
    /// [`KeyError::NotSigned`] with the holder's reason.
    fn sign(&self, message: &[u8]) -> Result<Signature, KeyError>;

    /// The name under which the key is found again.
    fn name(&self) -> &str;
}

/// The private key of an authority.
#[derive(Clone, Debug)]
pub enum AuthorityKey {
    /// An Ed25519 key in this process.
    Here(Arc<KeyPair>),
    /// An ML-DSA-65 key in this process.
    MlDsa65(Arc<MlDsaKeyPair>),
    /// A key that another program or device holds.
    Held(Arc<dyn KeyHolder>),
}

impl AuthorityKey {
    /// Makes a key in this process.
    ///
    /// # Errors
    /// As [`KeyPair::generate`].
    pub fn generate(algorithm: SignatureAlgorithm) -> Result<Self, KeyError> {
        Ok(match algorithm {
            SignatureAlgorithm::Ed25519 => KeyPair::generate()?.into(),
            SignatureAlgorithm::MlDsa65 => MlDsaKeyPair::generate()?.into(),
        })
    }

    /// Reads a key of either algorithm, for use in this process, from its text.
    ///
    /// # Errors
    /// [`KeyError::NotPkcs8`].
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, KeyError> {
        match KeyPair::from_pkcs8_pem(pem) {
            Ok(key) => Ok(key.into()),
            Err(error) => {
                MlDsaKeyPair::from_pkcs8_pem(pem).map_or(Err(error), |key| Ok(key.into()))
            }
        }
    }

    /// The public half.
    pub fn public_key(&self) -> VerifyingKey {
        match self {
            Self::Here(key) => (*key.public_key()).into(),
            Self::MlDsa65(key) => key.public_key().clone(),
            Self::Held(holder) => (*holder.public_key()).into(),
        }
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            Self::Here(_) | Self::Held(_) => SignatureAlgorithm::Ed25519,
            Self::MlDsa65(_) => SignatureAlgorithm::MlDsa65,
        }
    }

    /// Signs a message.
    ///
    /// # Errors
    /// [`KeyError`] if the key or its holder does not sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self {
            Self::Here(key) => key.sign(message).map(|made| made.as_bytes().to_vec()),
            Self::MlDsa65(key) => key.sign(message),
            Self::Held(holder) => holder.sign(message).map(|made| made.as_bytes().to_vec()),
        }
    }

    /// The text to be kept: the key itself as PKCS#8 PEM, or the name under which its holder knows it. Keep the file
    /// readable by its owner only (mode 0600).
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if the library does not write the key.
    pub fn to_text(&self) -> Result<Zeroizing<String>, KeyError> {
        Ok(match self {
            Self::Here(key) => key.to_pkcs8_pem(),
            Self::MlDsa65(key) => key.to_pkcs8_pem()?,
            Self::Held(holder) => Zeroizing::new(format!("{}\n", holder.name())),
        })
    }
}

impl From<KeyPair> for AuthorityKey {
    fn from(key: KeyPair) -> Self {
        Self::Here(Arc::new(key))
    }
}

impl From<MlDsaKeyPair> for AuthorityKey {
    fn from(key: MlDsaKeyPair) -> Self {
        Self::MlDsa65(Arc::new(key))
    }
}

impl rcgen::PublicKeyData for AuthorityKey {
    fn der_bytes(&self) -> &[u8] {
        match self {
            Self::Here(key) => key.public_key().as_bytes(),
            Self::MlDsa65(key) => key.public_key().as_bytes(),
            Self::Held(holder) => holder.public_key().as_bytes(),
        }
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        match AuthorityKey::algorithm(self) {
            SignatureAlgorithm::Ed25519 => &rcgen::PKCS_ED25519,
            SignatureAlgorithm::MlDsa65 => &rcgen::PKCS_ML_DSA_65,
        }
    }
}

impl rcgen::SigningKey for AuthorityKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        AuthorityKey::sign(self, message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
