//! Signing requests: an agent sends one to have its key certified.

use rcgen::{CertificateParams, DistinguishedName};
use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer;

use crate::authority_key::AuthorityKey;
use crate::certificate::{Fingerprint, REQUEST};
use crate::key::{KeyError, KeyPair};
use crate::long_lived::{self, LongLivedIdentity};
use crate::pem::read_pem;
use crate::proof_key;
use crate::verifying_key::{VerifyingKey, verifying_key};

/// The largest signing request that is read, in bytes. Requests of Sealbus have about 130; those of CAs with ML-DSA-65,
/// about 5400.
pub const LONGEST_REQUEST: usize = 8192;

/// The digits of a key's hash in the name of its authority: 80 bits, so that nobody finds a key with the name of
/// another one. With more, the subject of the certificate would exceed 64 characters, the limit of X.520, on platforms
/// with ordinary names.
const AUTHORITY_DIGITS: usize = 20;

/// A PKCS#10 signing request (RFC 2986) whose sender has proved that it holds the private key.
///
/// The request yields the public key and, if there are any, the second key for proofs and the agent's
/// [`LongLivedIdentity`]. The CA ignores all names, usages and any `CA:TRUE` in the request, and decides them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    public_key: VerifyingKey,
    second: Option<VerifyingKey>,
    long_lived: Option<LongLivedIdentity>,
}

/// Why a signing request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SigningRequestError {
    /// Longer than [`LONGEST_REQUEST`].
    #[error("the signing request has {0} bytes, and the limit is {LONGEST_REQUEST}")]
    TooLong(usize),
    /// The bytes are not a PKCS#10 request in DER.
    #[error("the signing request is not PKCS#10 in DER: {0}")]
    Malformed(String),
    /// The algorithm of the key is not known here.
    #[error("the signing request is for a key of another algorithm; make an Ed25519 key")]
    Algorithm,
    /// The extension with the second key or the long-lived identity is invalid, or occurs twice.
    #[error("the second key or the long-lived identity in the signing request cannot be read")]
    Extension,
    /// The request is not signed by the key that it asks to certify.
    #[error("the signing request is not signed by its own key: possession is not proved")]
    NotProved,
}

impl SigningRequest {
    /// The bytes of a request that another program wrote as text (RFC 7468, section 7). They must be valid for
    /// [`parse`](Self::parse).
    ///
    /// # Errors
    /// As `parse`.
    pub fn from_pem(text: &[u8]) -> Result<Vec<u8>, SigningRequestError> {
        // In base64, three bytes take four, and each line has an end.
        if text.len() > 2 * LONGEST_REQUEST {
            return Err(SigningRequestError::TooLong(text.len()));
        }
        let text = std::str::from_utf8(text)
            .map_err(|_| SigningRequestError::Malformed("it is no text in PEM".to_owned()))?;
        let mut der = read_pem(REQUEST, text).map_err(SigningRequestError::Malformed)?;
        Self::parse(&der)?;
        Ok(std::mem::take(&mut *der))
    }

    /// Reads a request and checks the proof of possession.
    pub fn parse(der: &[u8]) -> Result<Self, SigningRequestError> {
        if der.len() > LONGEST_REQUEST {
            return Err(SigningRequestError::TooLong(der.len()));
        }
        let (rest, request) = X509CertificationRequest::from_der(der)
            .map_err(|error| SigningRequestError::Malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(SigningRequestError::Malformed(format!(
                "{} bytes too many",
                rest.len()
            )));
        }
        let info = &request.certification_request_info;
        let public_key = verifying_key(&info.subject_pki).ok_or(SigningRequestError::Algorithm)?;
        if info.subject_pki.algorithm.algorithm != request.signature_algorithm.algorithm {
            return Err(SigningRequestError::Algorithm);
        }
        if !public_key.verifies(info.raw, request.signature_value.as_ref()) {
            return Err(SigningRequestError::NotProved);
        }
        Ok(Self {
            public_key,
            second: wanted(&request, &proof_key::EXTENSION, proof_key::decode)?,
            long_lived: wanted(&request, &long_lived::EXTENSION, LongLivedIdentity::decode)?,
        })
    }

    /// The request for a key that this process holds, which proves possession.
    pub(crate) fn of(key: &AuthorityKey) -> Self {
        Self {
            public_key: key.public_key(),
            second: None,
            long_lived: None,
        }
    }

    /// The key to certify.
    pub fn public_key(&self) -> &VerifyingKey {
        &self.public_key
    }

    /// The second key to certify, for proofs only. Each proof names its author and the certificate, so nobody can use
    /// this key to sign for others. The request therefore need not prove that its sender holds it.
    pub fn second(&self) -> Option<&VerifyingKey> {
        self.second.as_ref()
    }

    /// The long-lived identity that the certificate shall name. It is not checked.
    pub fn long_lived(&self) -> Option<&LongLivedIdentity> {
        self.long_lived.as_ref()
    }

    /// The name of the issuing authority that has this key: `ca-` and the beginning of the key's SHA-256. Several
    /// Masters make authorities without asking each other, and no two get the same name.
    pub fn authority_name(&self) -> String {
        let hash = Fingerprint::of(self.public_key.as_bytes()).to_string();
        format!("ca-{}", &hash[..AUTHORITY_DIGITS])
    }
}

/// The value of an extension that the request asks for.
fn wanted<T>(
    request: &X509CertificationRequest<'_>,
    oid: &[u64],
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, SigningRequestError> {
    let is_wanted = |found: &Oid<'_>| {
        found
            .iter()
            .is_some_and(|arcs| arcs.eq(oid.iter().copied()))
    };
    let mut found = None;
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() else {
            continue;
        };
        for extension in wanted.extensions.iter().filter(|it| is_wanted(&it.oid)) {
            let value = decode(extension.value).ok_or(SigningRequestError::Extension)?;
            if found.replace(value).is_some() {
                return Err(SigningRequestError::Extension);
            }
        }
    }
    Ok(found)
}

impl KeyPair {
    /// A signing request for this key, in DER. It names no identity, because the CA knows whose request it is.
    pub fn signing_request(&self) -> Result<Vec<u8>, KeyError> {
        request_of(self, None, None)
    }

    /// As [`signing_request`](Self::signing_request), for a certificate with a second key or a long-lived identity.
    ///
    /// # Errors
    /// As [`signing_request`](Self::signing_request).
    pub fn signing_request_with(
        &self,
        second: Option<&VerifyingKey>,
        stated: Option<&LongLivedIdentity>,
    ) -> Result<Vec<u8>, KeyError> {
        request_of(self, second, stated)
    }
}

impl AuthorityKey {
    /// As [`KeyPair::signing_request`].
    ///
    /// # Errors
    /// [`KeyError`] if the key or its holder does not sign.
    pub fn signing_request(&self) -> Result<Vec<u8>, KeyError> {
        request_of(self, None, None)
    }
}

fn request_of(
    key: &impl rcgen::SigningKey,
    second: Option<&VerifyingKey>,
    stated: Option<&LongLivedIdentity>,
) -> Result<Vec<u8>, KeyError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let stated = stated.map(LongLivedIdentity::extension);
    params.custom_extensions = (second.map(proof_key::extension).into_iter())
        .chain(stated)
        .collect();
    let request = params
        .serialize_request(key)
        .map_err(|_| KeyError::Unusable)?;
    Ok(request.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_authority_has_80_bits_of_its_keys_hash() {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let hash = Fingerprint::of(request.public_key().as_bytes()).to_string();
        assert_eq!(request.authority_name(), format!("ca-{}", &hash[..80 / 4]));
    }
}
