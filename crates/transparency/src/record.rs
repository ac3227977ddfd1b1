//! The entries of the issuance log.

use sealbus_seal::{Certificate, Fingerprint, Identity, Serial, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::LogError;

/// One entry of the log: the certificate, its owner, its requester and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuanceRecord {
    /// The certified identity.
    pub identity: Identity,
    /// The certified address, as text.
    pub address: String,
    /// The node that asked; `None` for the operator.
    pub on_behalf_of: Option<Identity>,
    /// The authority that signed.
    pub authority: Identity,
    /// The certificate's serial number.
    pub serial: Serial,
    /// The first valid second.
    pub not_before: Timestamp,
    /// The last valid second.
    pub not_after: Timestamp,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// SHA-256 of the certificate.
    pub certificate: Fingerprint,
    /// The fingerprint of the agent's long-lived identity, if the certificate names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_lived_identity: Option<Fingerprint>,
}

impl IssuanceRecord {
    /// The record of a certificate just issued.
    pub fn of(
        certificate: &Certificate,
        der: &[u8],
        on_behalf_of: Option<&Identity>,
        authority: &Identity,
        issued_at: Timestamp,
    ) -> Self {
        Self {
            identity: certificate.identity().clone(),
            address: certificate
                .address()
                .map(|address| address.to_string())
                .unwrap_or_default(),
            on_behalf_of: on_behalf_of.cloned(),
            authority: authority.clone(),
            serial: certificate.serial(),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
            issued_at,
            certificate: Fingerprint::of(der),
            long_lived_identity: certificate.long_lived_identity(),
        }
    }

    /// Whether this is the record of the certificate with these bytes: it has the certificate's hash, and names its owner. A CA
    /// could hide a certificate from its owner by an entry in another's name.
    pub fn is_of(&self, certificate: &Certificate, der: &[u8]) -> bool {
        self.certificate == Fingerprint::of(der)
            && self.identity == *certificate.identity()
            && self.long_lived_identity == certificate.long_lived_identity()
    }

    /// The leaf: the record as JSON, its fields in the order above, without white space. Store these bytes, for the
    /// tree is built over them.
    pub fn to_leaf(&self) -> Result<Vec<u8>, LogError> {
        serde_json::to_vec(self).map_err(|error| LogError::Encoding(error.to_string()))
    }

    /// Reads a leaf.
    ///
    /// # Errors
    /// A text for people, if the leaf is no record.
    pub fn from_leaf(leaf: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(leaf).map_err(|error| error.to_string())
    }
}
