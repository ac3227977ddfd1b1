//! Identity: keys, certificates, the rules of a CA, and proofs of identity on connections. No I/O.
//!
//! No function here opens a socket or file, or reads a clock. Functions take bytes and a [`Timestamp`] and return bytes
//! and decisions. Randomness comes from aws-lc-rs, the only cryptographic library in the tree.
//!
//! The life of a certificate:
//!
//! 1. An agent makes a [`KeyPair`] in its own process and a
//!    [`signing_request`](KeyPair::signing_request).
//! 2. Its node forwards the request. The CA parses the request as a [`SigningRequest`] and asks [`issuance`] whether
//!    that node may speak for that agent. The CA then gets a [`Grant`](issuance::Grant). Without a grant an
//!    [`IssuingAuthority`] signs only on an operator's explicit order.
//! 3. The certificate goes back to the agent, which joins it with its key as a [`Credential`].
//! 4. On a connection the agent proves itself with a [`binding`]. The peer checks the binding against its [`Trust`] and
//!    gets a [`VerifiedIdentity`], which cannot be made in any other way.
//!
//! [`encryption`] seals messages to an agent, so that only the agent's process reads them. [`workload`] makes tokens for
//! servers outside the platform.

mod authority;
mod authority_key;
pub mod binding;
mod certificate;
mod chain;
mod denial;
pub mod denylist;
pub mod encryption;
mod holding;
mod identity;
pub mod issuance;
mod key;
mod level;
mod long_lived;
mod ml_dsa;
mod pem;
pub mod permission;
mod proof_key;
mod request;
mod serial;
mod term;
mod timestamp;
pub mod tls;
pub mod token;
mod trust;
mod verified;
mod verify_error;
mod verifying_key;
pub mod workload;

pub use authority::{AuthorityError, Issued, IssuingAuthority, RootAuthority, Validity};
pub use authority_key::{AuthorityKey, KeyHolder};
pub use certificate::{
    Certificate, CertificateError, Fingerprint, LONGEST_CERTIFICATE, LONGEST_INCLUSION,
    MOST_CERTIFICATES, NotAFingerprint, NotASerial, Serial, certificate_pem, request_pem,
};
pub use chain::{CertificateChain, Credential, LONGEST_CHAIN};
pub use holding::{GRANT, Holding, Renewed};
pub use identity::{
    Identity, IdentityError, IdentityKind, LONGEST_NAME, Name, PlatformName, ProcessId,
};
pub use key::{KeyError, KeyPair, PublicKey, Signature, random, random_hex};
pub use level::{SecurityLevel, UnknownSecurityLevel};
pub use long_lived::LongLivedIdentity;
pub use ml_dsa::MlDsaKeyPair;
pub use request::{LONGEST_REQUEST, SigningRequest, SigningRequestError};
pub use term::{Heard, NotATerm, Term};
pub use timestamp::{CLOCK_SKEW, Timestamp};
pub use trust::{Trust, TrustError};
pub use verified::VerifiedIdentity;
pub use verify_error::VerifyError;
pub use verifying_key::{SignatureAlgorithm, UnknownSignatureAlgorithm, VerifyingKey};

/// SHA-256.
pub(crate) type Hash = [u8; 32];

/// SHA-256 of the concatenation of `parts`.
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    sha256_of(parts.iter().copied())
}

fn sha256_of<'a>(parts: impl Iterator<Item = &'a [u8]> + Clone) -> [u8; 32] {
    use aws_lc_rs::digest::{Context, SHA256, digest};
    let mut joined = [0; 512];
    let length: usize = parts.clone().map(<[u8]>::len).sum();
    let hash = match joined.get_mut(..length) {
        // One call to the library costs less than one for each part.
        Some(joined) => {
            let mut rest = &mut *joined;
            for part in parts {
                let (first, after) = rest.split_at_mut(part.len());
                first.copy_from_slice(part);
                rest = after;
            }
            digest(&SHA256, joined)
        }
        None => {
            let mut context = Context::new(&SHA256);
            for part in parts {
                context.update(part);
            }
            context.finish()
        }
    };
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.as_ref());
    bytes
}
