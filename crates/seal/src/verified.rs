//! A proved identity.

use std::net::IpAddr;
use std::sync::Arc;

use crate::certificate::{Certificate, Fingerprint, Serial};
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::timestamp::Timestamp;
use crate::verifying_key::VerifyingKey;

/// An identity, proved by a chain that leads to a trusted root. Only this crate can make one.
///
/// The identity was valid when the value was made. [`Trust::check`](crate::Trust::check) tells whether it still is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIdentity(pub(crate) Arc<Verified>);

/// The facts of a verified chain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) leaf: Certificate,
    /// The leaf's key.
    pub(crate) key: PublicKey,
    /// The key that signs its proofs.
    pub(crate) proof_key: Option<VerifyingKey>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) issuers: Vec<(Identity, Serial)>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl VerifiedIdentity {
    /// The proved identity.
    pub fn identity(&self) -> &Identity {
        self.0.leaf.identity()
    }

    /// The serial number of the certificate that proves it.
    pub fn serial(&self) -> Serial {
        self.0.leaf.serial()
    }

    /// The address at which it is certified.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.leaf.address()
    }

    /// The certificate that proves it.
    pub fn certificate(&self) -> &Certificate {
        &self.0.leaf
    }

    /// The moment from which the identity is valid.
    pub fn not_before(&self) -> Timestamp {
        self.0.not_before
    }

    /// The moment until which the identity is valid, without the tolerance for clocks.
    pub fn not_after(&self) -> Timestamp {
        self.0.not_after
    }

    /// The key that it proved to hold.
    pub fn public_key(&self) -> &PublicKey {
        &self.0.key
    }

    /// The key that signs its proofs. It has the algorithm of the platform's CAs. `None` if the identity signs no proofs.
    pub fn proof_key(&self) -> Option<&VerifyingKey> {
        self.0.proof_key.as_ref()
    }

    /// Whether both come from one verification. This is much faster than comparing them, and often enough.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The fingerprint of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }
}
