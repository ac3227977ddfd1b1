//! Certificates as credentials of MLS (RFC 9420, section 5.3).
//!
//! MLS itself only learns which agent and which key a certificate names. The chain up to the platform's CA and the deny
//! lists are checked beside it, by [`verify`], where a member is let in and where a group is joined.

use std::sync::Arc;
use std::time::Duration;

use mls_rs::Client;
use mls_rs::client_builder::{
    BaseConfig, WithCryptoProvider, WithIdentityProvider, WithKeyPackageRepo, WithMlsRules,
};
use mls_rs::crypto::{SignaturePublicKey, SignatureSecretKey};
use mls_rs::error::IntoAnyError;
use mls_rs::identity::x509::{
    CertificateChain as Certificates, DerCertificate, X509CredentialValidator,
    X509IdentityExtractor, X509IdentityProvider,
};
use mls_rs::identity::{Credential as MlsCredential, SigningIdentity};
use mls_rs::mls_rules::{CommitOptions, DefaultMlsRules, EncryptionOptions};
use mls_rs::time::MlsTime;
use sealbus_seal::{
    Certificate, CertificateChain, CertificateError, Credential, Identity, Timestamp, Trust,
    VerifiedIdentity,
};
use thiserror::Error;

use crate::crypto::{Provider, SUITE};
use crate::error::GroupError;
use crate::packages::Packages;

/// The agent that a certificate names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named;

/// The certificate of a member cannot be read.
#[derive(Debug, Error)]
pub(crate) enum NamedError {
    #[error("a credential has no certificate")]
    Empty,
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl IntoAnyError for NamedError {
    fn into_dyn_error(self) -> Result<Box<dyn std::error::Error + Send + Sync>, Self> {
        Ok(Box::new(self))
    }
}

fn leaf(chain: &Certificates) -> Result<Certificate, NamedError> {
    let leaf = chain.leaf().ok_or(NamedError::Empty)?;
    Ok(Certificate::parse(leaf)?)
}

impl X509IdentityExtractor for Named {
    type Error = NamedError;

    fn identity(&self, chain: &Certificates) -> Result<Vec<u8>, NamedError> {
        Ok(name(leaf(chain)?.identity()))
    }

    fn valid_successor(
        &self,
        former: &Certificates,
        next: &Certificates,
    ) -> Result<bool, NamedError> {
        Ok(leaf(former)?.identity() == leaf(next)?.identity())
    }
}

impl X509CredentialValidator for Named {
    type Error = NamedError;

    fn validate_chain(
        &self,
        chain: &Certificates,
        _: Option<MlsTime>,
    ) -> Result<SignaturePublicKey, NamedError> {
        let key = leaf(chain)?.public_key().as_bytes().to_vec();
        Ok(key.into())
    }
}

/// The name of a member in a group.
pub(crate) fn name(identity: &Identity) -> Vec<u8> {
    identity.to_string().into_bytes()
}

pub(crate) type Identities = X509IdentityProvider<Named, Named>;

pub(crate) fn identities() -> Identities {
    X509IdentityProvider::new(Named, Named)
}

pub(crate) type Config = WithMlsRules<
    DefaultMlsRules,
    WithKeyPackageRepo<
        Packages,
        WithIdentityProvider<Identities, WithCryptoProvider<Provider, BaseConfig>>,
    >,
>;

/// The owner of a certificate as a client of MLS.
pub(crate) fn client(
    credential: &Arc<Credential>,
    packages: Packages,
    lifetime: Duration,
) -> Client<Config> {
    let certificates = credential.chain().to_certificates();
    let certificates = certificates
        .iter()
        .map(|der| DerCertificate::new(der.to_vec()))
        .collect::<Vec<_>>();
    let key = credential.key().public_key().as_bytes().to_vec();
    let identity = SigningIdentity::new(
        MlsCredential::X509(certificates.into()),
        SignaturePublicKey::new(key),
    );
    // Members and sizes of commits are nobody's business.
    let mut encryption = EncryptionOptions::default();
    encryption.encrypt_control_messages = true;
    let commits = CommitOptions::new()
        .with_path_required(false)
        .with_ratchet_tree_extension(true)
        .with_single_welcome_message(true)
        .with_allow_external_commit(false);
    Client::builder()
        .crypto_provider(Provider::of(credential.clone()))
        .identity_provider(identities())
        .key_package_repo(packages)
        .mls_rules(
            DefaultMlsRules::new()
                .with_commit_options(commits)
                .with_encryption_options(encryption),
        )
        .key_package_lifetime(lifetime)
        // The private key stays in the credential.
        .signing_identity(identity, SignatureSecretKey::new(Vec::new()), SUITE)
        .build()
}

/// Checks the certificate of a member with the platform's CA and the deny lists. Returns the proved identity of an agent.
pub(crate) fn verify(
    identity: &SigningIdentity,
    trust: &Trust,
    now: Timestamp,
) -> Result<VerifiedIdentity, GroupError> {
    let malformed = || GroupError::Malformed("the credential of an agent");
    let MlsCredential::X509(certificates) = &identity.credential else {
        return Err(malformed());
    };
    let certificates = certificates.iter();
    let chain = CertificateChain::new(certificates.map(|der| der.to_vec().into()).collect())?;
    let verified = trust.verify(&chain, now)?;
    match identity.signature_key.as_bytes() == verified.public_key().as_bytes() {
        true => Ok(verified),
        false => Err(malformed()),
    }
}

pub(crate) fn time(now: Timestamp) -> MlsTime {
    MlsTime::from_duration_since_epoch(Duration::from_secs(now.as_unix_seconds()))
}
