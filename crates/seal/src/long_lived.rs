//! Long-lived identities: the key of an agent's owner states for each certificate that it belongs to the same agent.
//!
//! The statement is in a non-critical extension of the certificate. Anybody can check it without trusting the CA, which
//! cannot make it.

use rcgen::CustomExtension;

use crate::certificate::Fingerprint;
use crate::identity::Identity;
use crate::key::{KeyError, KeyPair, PublicKey, Signature};
use crate::verifying_key::VerifyingKey;

/// The extension's object identifier.
pub(crate) const EXTENSION: [u64; 15] = [
    1, 2, 840, 113_556, 1, 8000, 2554, 42964, 34295, 20436, 19583, 42606, 4_912_364, 344_408, 2,
];
/// The head of an OCTET STRING of 96 bytes in DER.
const HEAD: [u8; 2] = [0x04, 96];
const CONTEXT: &[u8] = b"sealbus long-lived identity v1\0";

/// The statement of a long-lived identity that a certified key belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongLivedIdentity {
    key: PublicKey,
    signature: Signature,
}

impl LongLivedIdentity {
    /// States, with the key of the long-lived identity, that `certified` and the `second` key are keys of `agent`.
    ///
    /// # Errors
    /// If the key does not sign.
    pub fn state(
        key: &KeyPair,
        agent: &Identity,
        certified: &PublicKey,
        second: Option<&VerifyingKey>,
    ) -> Result<Self, KeyError> {
        Ok(Self {
            key: *key.public_key(),
            signature: key.sign(&statement(agent, certified, second))?,
        })
    }

    /// The public key of the long-lived identity.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Whether it states that `certified` and the `second` key are keys of `agent`. False for an identity that is not
    /// an agent's.
    #[must_use]
    pub fn is_of(
        &self,
        agent: &Identity,
        certified: &PublicKey,
        second: Option<&VerifyingKey>,
    ) -> bool {
        let is_agent = matches!(agent, Identity::Agent { .. });
        let said = statement(agent, certified, second);
        is_agent && self.key.verifies(&said, &self.signature)
    }

    /// The value of the extension.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&HEAD[..], self.key.as_bytes(), self.signature.as_bytes()].concat()
    }

    /// The extension, for a request or a certificate.
    pub(crate) fn extension(&self) -> CustomExtension {
        CustomExtension::from_oid_content(&EXTENSION, self.encode())
    }

    /// Reads the value of the extension, which has only one form.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let rest = value.strip_prefix(&HEAD)?;
        let (key, signature) = rest.split_first_chunk()?;
        Some(Self {
            key: PublicKey::from_bytes(*key),
            signature: Signature::from_bytes(signature.try_into().ok()?),
        })
    }
}

fn statement(agent: &Identity, certified: &PublicKey, second: Option<&VerifyingKey>) -> Vec<u8> {
    let mut out = CONTEXT.to_vec();
    let mut field = |bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    field(agent.to_string().as_bytes());
    field(&certified.to_spki());
    if let Some(second) = second {
        field(&second.to_spki());
    }
    out
}

impl PublicKey {
    /// The SHA-256 of the key in DER (`SubjectPublicKeyInfo`), by which people know a long-lived identity.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.to_spki())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::PlatformName;
    use crate::ml_dsa::MlDsaKeyPair;

    fn agent(name: &str) -> Identity {
        Identity::agent(&PlatformName::new("factory").unwrap(), name).unwrap()
    }

    #[test]
    fn it_speaks_of_one_agent_and_one_key() {
        let [own, certified, other] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let seller = agent("seller");
        let stated = LongLivedIdentity::state(&own, &seller, certified.public_key(), None).unwrap();
        assert!(stated.is_of(&seller, certified.public_key(), None));
        assert!(!stated.is_of(&agent("buyer"), certified.public_key(), None));
        assert!(!stated.is_of(&seller, other.public_key(), None));
        let second = MlDsaKeyPair::generate().unwrap();
        let second = Some(second.public_key());
        assert!(!stated.is_of(&seller, certified.public_key(), second));
        let both = LongLivedIdentity::state(&own, &seller, certified.public_key(), second).unwrap();
        assert!(both.is_of(&seller, certified.public_key(), second));
        assert!(!both.is_of(&seller, certified.public_key(), None));
        let elsewhere = Identity::agent(&PlatformName::new("market").unwrap(), "seller").unwrap();
        assert!(!stated.is_of(&elsewhere, certified.public_key(), None));
        let node = Identity::node(&PlatformName::new("factory").unwrap(), "seller").unwrap();
        let stated = LongLivedIdentity::state(&own, &node, certified.public_key(), None).unwrap();
        assert!(!stated.is_of(&node, certified.public_key(), None));
    }

    proptest! {
        #[test]
        fn a_changed_bit_is_found(place in 0usize..98, bit in 0u8..8) {
            let [own, certified] = [(); 2].map(|()| KeyPair::generate().unwrap());
            let stated = LongLivedIdentity::state(&own, &agent("seller"), certified.public_key(), None).unwrap();
            let mut value = stated.encode();
            prop_assert_eq!(LongLivedIdentity::decode(&value), Some(stated));
            value[place] ^= 1 << bit;
            let read = LongLivedIdentity::decode(&value);
            prop_assert!(read.is_none_or(|read| !read.is_of(&agent("seller"), certified.public_key(), None)));
        }

        #[test]
        fn other_bytes_are_refused_or_written_as_they_were(bytes: Vec<u8>, body: [u8; 32], rest: [u8; 32], last: [u8; 32]) {
            for value in [bytes, [&HEAD[..], &body, &rest, &last].concat()] {
                if let Some(read) = LongLivedIdentity::decode(&value) {
                    prop_assert_eq!(read.encode(), value);
                }
            }
        }
    }
}
