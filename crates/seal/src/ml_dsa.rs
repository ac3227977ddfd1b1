//! ML-DSA-65 keys (FIPS 204).

use std::fmt;

use aws_lc_rs::signature::{KeyPair as _, ML_DSA_65_SIGNING, PqdsaKeyPair};
use zeroize::Zeroizing;

use crate::key::{KeyError, pem_of, pkcs8_of};
use crate::verifying_key::{SignatureAlgorithm, VerifyingKey};

/// An ML-DSA-65 private key and its public key.
pub struct MlDsaKeyPair {
    pair: PqdsaKeyPair,
    public: VerifyingKey,
}

impl MlDsaKeyPair {
    /// Makes a new key pair.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let pair =
            PqdsaKeyPair::generate(&ML_DSA_65_SIGNING).map_err(|_| KeyError::NoRandomness)?;
        Self::of(pair)
    }

    fn of(pair: PqdsaKeyPair) -> Result<Self, KeyError> {
        let bytes = pair.public_key().as_ref();
        let public = VerifyingKey::from_bytes(SignatureAlgorithm::MlDsa65, bytes);
        let public = public.ok_or(KeyError::Unusable)?;
        Ok(Self { pair, public })
    }

    /// The public key.
    pub fn public_key(&self) -> &VerifyingKey {
        &self.public
    }

    /// Signs a message.
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if the library does not sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut signature = vec![0; SignatureAlgorithm::MlDsa65.signature_length()];
        let signed = self.pair.sign(message, &mut signature);
        match signed {
            Ok(length) if length == signature.len() => Ok(signature),
            _ => Err(KeyError::Unusable),
        }
    }

    /// The key's seed as PKCS#8 PEM (RFC 9881 section 6). Keep the file readable by its owner only (mode 0600).
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if the library does not write the key.
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        let der = self.pair.to_pkcs8v1().map_err(|_| KeyError::Unusable)?;
        Ok(pem_of(der.as_ref()))
    }

    /// Reads the PEM text that [`to_pkcs8_pem`](Self::to_pkcs8_pem) wrote.
    ///
    /// # Errors
    /// [`KeyError::NotPkcs8`].
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, KeyError> {
        let der = pkcs8_of(pem)?;
        let pair = PqdsaKeyPair::from_pkcs8(&ML_DSA_65_SIGNING, &der)
            .map_err(|_| KeyError::NotPkcs8("another algorithm or encoding".to_owned()))?;
        Self::of(pair)
    }
}

impl fmt::Debug for MlDsaKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MlDsaKeyPair({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyPair;

    #[test]
    fn pem_round_trips_and_signs_alike() {
        let key = MlDsaKeyPair::generate().unwrap();
        let pem = key.to_pkcs8_pem().unwrap();
        let again = MlDsaKeyPair::from_pkcs8_pem(&pem).unwrap();
        assert_eq!(again.public_key(), key.public_key());
        let signature = again.sign(b"hello").unwrap();
        assert!(key.public_key().verifies(b"hello", &signature));
        assert!(!key.public_key().verifies(b"hullo", &signature));
        let other = MlDsaKeyPair::generate().unwrap();
        assert!(!other.public_key().verifies(b"hello", &signature));
        // Neither kind of key is read as the other.
        let classical = KeyPair::generate().unwrap();
        assert!(MlDsaKeyPair::from_pkcs8_pem(&classical.to_pkcs8_pem()).is_err());
        assert!(KeyPair::from_pkcs8_pem(&pem).is_err());
        let classical = VerifyingKey::from(*classical.public_key());
        assert!(!classical.verifies(b"hello", &signature));
        assert!(!key.public_key().verifies(b"hello", &signature[..64]));
    }
}
