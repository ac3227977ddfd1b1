//! One technique on each message, with the numbers that refuse what comes twice or out of order. A message is changed in
//! place, and is refused if anybody changed it on its way.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, ParsedPublicKey};
use sealbus_seal::encryption::{
    Encapsulation, EncryptionKey, EncryptionPublicKey, Opening, Sealing,
};
use serde::Deserialize;

use super::NotBelieved;

/// A secret of 32 bytes, which both processes have from the beginning.
pub(crate) type Shared = [u8; 32];

/// The length of an Ed25519 signature.
const SIGNATURE: usize = 64;
/// The length of a code of HMAC-SHA-256.
const CODE: usize = 32;
/// The length of a nonce of AES-GCM.
const NONCE: usize = 12;
/// The purpose of a signature or a secret.
const PURPOSE: &[u8] = b"sealbus bench message v1\0";

/// The technique on each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Technique {
    /// A code under a key that only the two have (HMAC-SHA-256).
    Hmac,
    /// Encryption under a key that only the two have.
    AesGcm,
    /// A signature (Ed25519).
    Ed25519,
    /// Encryption to the receiver's public key, with a new secret for each message (HPKE).
    Hpke,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Asking,
    Answering,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Asking => Self::Answering,
            Self::Answering => Self::Asking,
        }
    }
}

/// The keys of one end, before the two meet.
pub(crate) enum Keys {
    Symmetric {
        technique: Technique,
        shared: Shared,
        /// New for each connection: no two have the same keys.
        salt: Shared,
    },
    Signing(Box<Ed25519KeyPair>),
    Encryption(Box<EncryptionKey>),
}

impl Keys {
    pub(crate) fn new(technique: Technique, shared: Shared) -> Result<Self, NotBelieved> {
        Ok(match technique {
            Technique::Hmac | Technique::AesGcm => {
                let mut salt = Shared::default();
                SystemRandom::new().fill(&mut salt)?;
                Self::Symmetric {
                    technique,
                    shared,
                    salt,
                }
            }
            Technique::Ed25519 => Self::Signing(Box::new(Ed25519KeyPair::generate()?)),
            Technique::Hpke => Self::Encryption(Box::new(EncryptionKey::generate()?)),
        })
    }

    /// The part that the other end must know.
    pub(crate) fn public(&self) -> &[u8] {
        match self {
            Self::Symmetric { salt, .. } => salt,
            Self::Signing(key) => key.public_key().as_ref(),
            Self::Encryption(key) => key.public().as_bytes(),
        }
    }

    /// Joins the own keys with the public part of the other end.
    pub(crate) fn meet(self, end: End, theirs: &[u8]) -> Result<Guard, NotBelieved> {
        let protection = match self {
            Self::Symmetric {
                technique,
                shared,
                salt,
            } => {
                let key = |sender: End| {
                    let (asking, answering): (&[u8], &[u8]) = match end {
                        End::Asking => (&salt, theirs),
                        End::Answering => (theirs, &salt),
                    };
                    let mut context =
                        hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &shared));
                    for part in [PURPOSE, asking, answering, &[sender as u8]] {
                        context.update(part);
                    }
                    context.sign()
                };
                let (ours, theirs) = (key(end), key(end.other()));
                match technique {
                    Technique::AesGcm => {
                        let key = |tag: &hmac::Tag| {
                            UnboundKey::new(&AES_256_GCM, tag.as_ref()).map(LessSafeKey::new)
                        };
                        Protection::Encrypted(Box::new((key(&ours)?, key(&theirs)?)))
                    }
                    _ => {
                        let key = |tag: &hmac::Tag| hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref());
                        Protection::Coded(Box::new((key(&ours), key(&theirs))))
                    }
                }
            }
            Self::Signing(own) => {
                let theirs = ParsedPublicKey::new(&ED25519, theirs)
                    .map_err(|_| NotBelieved("the other end's key is none"))?;
                Protection::Signed(own, Box::new(theirs))
            }
            Self::Encryption(own) => {
                Protection::Sealed(own, Box::new(EncryptionPublicKey::from_bytes(theirs)?))
            }
        };
        Ok(Guard {
            end,
            protection,
            sent: 0,
            taken: 0,
        })
    }
}

/// The own half first, then that of the other end.
enum Protection {
    Coded(Box<(hmac::Key, hmac::Key)>),
    Encrypted(Box<(LessSafeKey, LessSafeKey)>),
    Signed(Box<Ed25519KeyPair>, Box<ParsedPublicKey>),
    Sealed(Box<EncryptionKey>, Box<EncryptionPublicKey>),
}

/// Protects the messages of one end of a connection, and checks those of the other.
pub(crate) struct Guard {
    end: End,
    protection: Protection,
    sent: u64,
    taken: u64,
}

/// The message's place, which neither end writes: both count.
fn place(sender: End, number: u64) -> [u8; NONCE] {
    let mut place = [0; NONCE];
    place[0] = sender as u8;
    place[4..].copy_from_slice(&number.to_be_bytes());
    place
}

fn code(key: &hmac::Key, place: &[u8], message: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(place);
    context.update(message);
    context.sign()
}

fn statement(place: &[u8], message: &[u8]) -> Vec<u8> {
    [PURPOSE, place, message].concat()
}

impl Guard {
    /// Protects the next message.
    pub(crate) fn protect(&mut self, message: &mut Vec<u8>) -> Result<(), NotBelieved> {
        let place = place(self.end, self.sent);
        match &self.protection {
            Protection::Coded(keys) => {
                let code = code(&keys.0, &place, message);
                message.extend_from_slice(code.as_ref());
            }
            Protection::Encrypted(keys) => {
                let nonce = Nonce::assume_unique_for_key(place);
                keys.0
                    .seal_in_place_append_tag(nonce, Aad::empty(), message)?;
            }
            Protection::Signed(key, _) => {
                let signature = key.sign(&statement(&place, message));
                message.extend_from_slice(signature.as_ref());
            }
            Protection::Sealed(_, key) => {
                let (encapsulation, mut sealing) = Sealing::begin(key, PURPOSE)?;
                sealing.seal(&place, message)?;
                message.extend_from_slice(encapsulation.as_bytes());
            }
        }
        self.sent += 1;
        Ok(())
    }

    /// Checks the next message of the other end.
    pub(crate) fn check<'a>(&mut self, frame: &'a mut [u8]) -> Result<&'a [u8], NotBelieved> {
        let place = place(self.end.other(), self.taken);
        let short = NotBelieved("the message is shorter than its protection");
        let message: &[u8] = match &self.protection {
            Protection::Coded(keys) => {
                let length = frame.len().checked_sub(CODE).ok_or(short)?;
                let (message, given) = frame.split_at(length);
                let code = code(&keys.1, &place, message);
                aws_lc_rs::constant_time::verify_slices_are_equal(code.as_ref(), given)
                    .map_err(|_| NotBelieved("the message's code is not right"))?;
                message
            }
            Protection::Encrypted(keys) => {
                let nonce = Nonce::assume_unique_for_key(place);
                keys.1
                    .open_in_place(nonce, Aad::empty(), frame)
                    .map_err(|_| NotBelieved("the message does not open"))?
            }
            Protection::Signed(_, key) => {
                let length = frame.len().checked_sub(SIGNATURE).ok_or(short)?;
                let (message, signature) = frame.split_at(length);
                key.verify_sig(&statement(&place, message), signature)
                    .map_err(|_| NotBelieved("the message's signature is not right"))?;
                message
            }
            Protection::Sealed(key, _) => {
                let length = frame
                    .len()
                    .checked_sub(Encapsulation::LENGTH)
                    .ok_or(short)?;
                let (sealed, encapsulation) = frame.split_at_mut(length);
                let encapsulation = Encapsulation::from_bytes(encapsulation)?;
                Opening::begin(key, &encapsulation, PURPOSE)?.open(&place, sealed)?
            }
        };
        self.taken += 1;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Technique; 4] = [
        Technique::Hmac,
        Technique::AesGcm,
        Technique::Ed25519,
        Technique::Hpke,
    ];
    const SHARED: Shared = [7; 32];

    fn pair(technique: Technique) -> (Guard, Guard) {
        let [asking, answering] = [(); 2].map(|()| Keys::new(technique, SHARED).unwrap());
        let (to_asking, to_answering) = (answering.public().to_vec(), asking.public().to_vec());
        (
            asking.meet(End::Asking, &to_asking).unwrap(),
            answering.meet(End::Answering, &to_answering).unwrap(),
        )
    }

    fn protected(guard: &mut Guard, message: &[u8]) -> Vec<u8> {
        let mut frame = message.to_vec();
        guard.protect(&mut frame).unwrap();
        assert_ne!(frame, message);
        frame
    }

    #[test]
    fn messages_come_through_in_both_directions() {
        for technique in ALL {
            let (mut asking, mut answering) = pair(technique);
            for message in [&b"one"[..], b"", b"three"] {
                let mut there = protected(&mut asking, message);
                assert_eq!(answering.check(&mut there).unwrap(), message);
                let mut back = protected(&mut answering, message);
                assert_eq!(asking.check(&mut back).unwrap(), message);
            }
        }
    }

    #[test]
    fn each_changed_byte_is_refused() {
        for technique in ALL {
            let (mut asking, mut answering) = pair(technique);
            let frame = protected(&mut asking, b"the price is seven");
            for at in 0..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                assert!(
                    answering.check(&mut changed).is_err(),
                    "{technique:?}, {at}"
                );
            }
            for length in [0, 1, frame.len() - 1] {
                assert!(answering.check(&mut frame[..length].to_vec()).is_err());
            }
            assert!(answering.check(&mut frame.clone()).is_ok());
        }
    }

    #[test]
    fn what_comes_twice_or_too_early_or_back_is_refused() {
        for technique in ALL {
            let (mut asking, mut answering) = pair(technique);
            let first = protected(&mut asking, b"one");
            let second = protected(&mut asking, b"two");
            assert!(answering.check(&mut second.clone()).is_err());
            assert!(asking.check(&mut first.clone()).is_err());
            answering.check(&mut first.clone()).unwrap();
            assert!(answering.check(&mut first.clone()).is_err());
            assert!(answering.check(&mut second.clone()).is_ok());
        }
    }

    #[test]
    fn a_message_of_another_connection_is_refused() {
        for technique in ALL {
            let (mut asking, _) = pair(technique);
            let (_, mut answering) = pair(technique);
            let mut frame = protected(&mut asking, b"one");
            assert!(answering.check(&mut frame).is_err(), "{technique:?}");
        }
    }

    #[test]
    fn only_encryption_hides_the_message() {
        for technique in ALL {
            let (mut asking, _) = pair(technique);
            let frame = protected(&mut asking, b"the price is seven");
            let hides = !frame.starts_with(b"the price is seven");
            let encrypts = matches!(technique, Technique::AesGcm | Technique::Hpke);
            assert_eq!(hides, encrypts, "{technique:?}");
        }
    }
}
