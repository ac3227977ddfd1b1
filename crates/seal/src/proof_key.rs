//! The second key of an agent, for proofs only. It is needed where the platform's signatures have an algorithm that TLS
//! does not know.
//!
//! It is in the standard, non-critical extension subjectAltPublicKeyInfo (X.509, 2019, section 9.8.2).

use rcgen::CustomExtension;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::verifying_key::{VerifyingKey, verifying_key};

/// The extension's object identifier.
pub(crate) const EXTENSION: [u64; 4] = [2, 5, 29, 72];

/// The extension, for a request or a certificate.
pub(crate) fn extension(key: &VerifyingKey) -> CustomExtension {
    CustomExtension::from_oid_content(&EXTENSION, key.to_spki())
}

/// Reads the value of the extension. An Ed25519 key is refused there.
pub(crate) fn decode(value: &[u8]) -> Option<VerifyingKey> {
    let (rest, info) = SubjectPublicKeyInfo::from_der(value).ok()?;
    let key = verifying_key(&info)?;
    let is_second = rest.is_empty() && key.ed25519().is_none();
    // Each key has only one form.
    (is_second && key.to_spki() == value).then_some(key)
}
