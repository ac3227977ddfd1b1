//! HPKE (RFC 9180) in mode base, for single messages: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.

use aws_lc_rs::aead::AES_128_GCM;
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::error::Unspecified;
use mls_rs::crypto::{HpkeCiphertext, HpkePublicKey, HpkeSecretKey};
use sealbus_seal::encryption::{EncryptionContext, SharedSecret, Suite};
use zeroize::Zeroizing;

use crate::primitives::{self, CryptoError};

/// The length of each key (RFC 7748).
pub(crate) const KEY: usize = 32;
/// The algorithms of the whole.
const SUITE: Suite = Suite {
    numbers: [0x20, 1, 1],
    aead: &AES_128_GCM,
};

/// The beginning of each label in the KEM (RFC 9180, section 4.1).
const OF_KEM: &[u8] = b"HPKE-v1KEM\x00\x20";
/// The length of each secret of the KEM, before the label.
const LENGTH: &[u8] = &[0, KEY as u8];

/// `LabeledExtract` and `LabeledExpand` of the KEM. All its secrets have the length of a key.
fn labeled(
    extracted: (&[u8], &[u8]),
    expanded: (&[u8], &[u8]),
) -> Result<SharedSecret, CryptoError> {
    let secret = primitives::extract(&[], &[OF_KEM, extracted.0, extracted.1]);
    let info = [LENGTH, OF_KEM, expanded.0, expanded.1];
    let expanded = primitives::expand(&secret, &info, KEY)?;
    let mut secret = SharedSecret::default();
    secret.copy_from_slice(&expanded);
    Ok(secret)
}

fn private_key(bytes: &[u8]) -> Result<PrivateKey, CryptoError> {
    PrivateKey::from_private_key(&X25519, bytes).map_err(|_| CryptoError::Unspecified)
}

/// `DeriveKeyPair`.
pub(crate) fn derive(seed: &[u8]) -> Result<(HpkeSecretKey, HpkePublicKey), CryptoError> {
    let secret = labeled((b"dkp_prk", seed), (b"sk", &[]))?;
    let public = private_key(secret.as_slice())?.compute_public_key()?;
    Ok((secret.to_vec().into(), public.as_ref().to_vec().into()))
}

/// The secret that both sides share. `sent` and `receiver` are public keys.
fn shared(
    own: &PrivateKey,
    other: &[u8],
    sent: &[u8],
    receiver: &[u8],
) -> Result<SharedSecret, CryptoError> {
    let other = UnparsedPublicKey::new(&X25519, other);
    let context = [sent, receiver].concat();
    agreement::agree(own, other, Unspecified.into(), |secret| {
        labeled((b"eae_prk", secret), (b"shared_secret", &context))
    })
}

pub(crate) fn seal(
    receiver: &[u8],
    info: &[u8],
    associated: &[u8],
    message: &[u8],
) -> Result<HpkeCiphertext, CryptoError> {
    let own = PrivateKey::generate(&X25519)?;
    let sent = own.compute_public_key()?;
    let shared = shared(&own, receiver, sent.as_ref(), receiver)?;
    let mut ciphertext = message.to_vec();
    EncryptionContext::new(&SUITE, &shared, info)?.seal(associated, &mut ciphertext)?;
    Ok(HpkeCiphertext {
        kem_output: sent.as_ref().to_vec(),
        ciphertext,
    })
}

pub(crate) fn open(
    sealed: &HpkeCiphertext,
    (secret, public): (&[u8], &[u8]),
    info: &[u8],
    associated: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    let own = private_key(secret)?;
    let shared = shared(&own, &sealed.kem_output, &sealed.kem_output, public)?;
    let mut opened = Zeroizing::new(sealed.ciphertext.clone());
    let length = EncryptionContext::new(&SUITE, &shared, info)?
        .open(associated, &mut opened)?
        .len();
    opened.truncate(length);
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        digits
            .as_bytes()
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    /// RFC 9180, appendix A.1.1.
    #[test]
    fn the_answers_are_those_of_the_rfc() {
        let seed = bytes("6db9df30aa07dd42ee5e8181afdb977e538f5e1fec8a06223f33f7013e525037");
        let (secret, public) = derive(&seed).unwrap();
        assert_eq!(
            &*secret,
            &*bytes("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
        );
        assert_eq!(
            &*public,
            &*bytes("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
        );
        let sealed = HpkeCiphertext {
            kem_output: bytes("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"),
            ciphertext: bytes(
                "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
            ),
        };
        let opened = open(
            &sealed,
            (&secret, &public),
            b"Ode on a Grecian Urn",
            b"Count-0",
        );
        assert_eq!(&**opened.unwrap(), b"Beauty is truth, truth beauty");
    }

    #[test]
    fn only_the_owner_of_the_key_opens_what_was_sealed() {
        let (secret, public) = derive(b"the owner").unwrap();
        let (other, other_public) = derive(b"another").unwrap();
        let sealed = seal(&public, b"info", b"associated", b"secret").unwrap();
        let opened = open(&sealed, (&secret, &public), b"info", b"associated");
        assert_eq!(&**opened.unwrap(), b"secret");
        assert!(open(&sealed, (&other, &other_public), b"info", b"associated").is_err());
        assert!(open(&sealed, (&secret, &public), b"other", b"associated").is_err());
        assert!(open(&sealed, (&secret, &public), b"info", b"other").is_err());
        // A key of low order.
        assert!(seal(&[0; KEY], b"info", b"", b"secret").is_err());
    }
}
