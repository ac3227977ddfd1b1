//! Certification authorities: the root, and the issuing CA of each CA service instance.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use time::OffsetDateTime;

use crate::authority_key::AuthorityKey;
use crate::certificate::{Certificate, CertificateError, Fingerprint, Serial};
use crate::chain::CertificateChain;
use crate::holding;
use crate::identity::{Identity, IdentityError, PlatformName};
use crate::issuance::Grant;
use crate::key::KeyError;
use crate::proof_key;
use crate::request::SigningRequest;
use crate::timestamp::Timestamp;
use crate::verifying_key::{SignatureAlgorithm, VerifyingKey};

/// Certificates are valid from this long before they are made, so that a peer whose clock is a little slow accepts them
/// at once.
const BACKDATING: Duration = Duration::from_secs(60);

/// The object identifier of the subject attribute UID (RFC 4519 section 2.39).
const UID: [u64; 7] = [0, 9, 2342, 19_200_300, 100, 1, 1];

/// The period in which a certificate is valid, including both end seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Validity {
    /// A period from a minute before `now`, for peers whose clock is slow, until `lifetime` after `now`.
    pub fn starting(now: Timestamp, lifetime: Duration) -> Self {
        Self {
            not_before: now.minus(BACKDATING),
            not_after: now.plus(lifetime),
        }
    }

    /// The same period, but not from before `floor`. A certificate for an identity on the deny list must start no
    /// earlier than [`Trust::denied_before`](crate::Trust::denied_before). Otherwise it is denied from the start.
    #[must_use]
    pub fn not_before_at_least(self, floor: Timestamp) -> Self {
        Self {
            not_before: self.not_before.max(floor),
            not_after: self.not_after.max(floor),
        }
    }

    /// The first valid second.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// The last valid second.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    fn within(self, outer: &Certificate) -> Self {
        Self {
            not_before: self.not_before.max(outer.not_before()),
            not_after: self.not_after.min(outer.not_after()),
        }
    }
}

/// Why an authority could not be made or loaded, or did not sign.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthorityError {
    /// The key could not be made or used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The authority's certificate is unreadable, or does not match its key.
    #[error("the authority's certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// The certificate is not that of an authority.
    #[error("{0} is not a certification authority")]
    NotAnAuthority(Identity),
    /// The authority certifies for another platform.
    #[error("{authority} does not certify {identity}, which belongs to another platform")]
    WrongPlatform {
        /// The authority that was asked to sign.
        authority: Identity,
        /// The identity that the certificate is for.
        identity: Identity,
    },
    /// The authority's own certificate does not cover the whole requested period.
    #[error(
        "the certificate of {authority} is valid from {not_before} to {not_after} only: renew it"
    )]
    OutOfTime {
        /// The authority that was asked to sign.
        authority: Identity,
        /// The start of its validity.
        not_before: Timestamp,
        /// The end of the authority's certificate.
        not_after: Timestamp,
    },
    /// The key of the issuing authority has another algorithm than the root's.
    #[error(
        "the root's key is of the algorithm {wanted}, and that of the CA is of {found}: write signatures = \"{wanted}\" in the manifest of the Master that asks"
    )]
    OtherAlgorithm {
        /// The algorithm of the root's key.
        wanted: SignatureAlgorithm,
        /// The algorithm of the other key.
        found: SignatureAlgorithm,
    },
    /// The authority's name is not legal.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The request has a second key, but its identity is not an agent, or the authority has another algorithm.
    #[error(
        "the signing request for {0} has a second key, which this platform certifies for nobody"
    )]
    SecondKey(Identity),
    /// The long-lived identity in the request did not sign for this agent and key.
    #[error(
        "the signing request for {0} names a long-lived identity whose key did not sign for this agent and this key"
    )]
    LongLivedIdentity(Identity),
    /// The certificate could not be encoded.
    #[error("the certificate could not be made: {0}")]
    Encoding(String),
}

/// The root of a platform's trust. It signs only issuing authorities, so its key can be kept offline.
#[derive(Debug)]
pub struct RootAuthority {
    key: AuthorityKey,
    certificate: CertificateDer<'static>,
    parsed: Certificate,
}

/// The issuing CA of one CA service instance. It has a key of its own.
#[derive(Debug)]
pub struct IssuingAuthority {
    key: AuthorityKey,
    chain: CertificateChain,
    parsed: Certificate,
    issuers: Arc<[CertificateDer<'static>]>,
}

/// A certificate just issued.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate and those above it, for the owner of the key.
    pub chain: CertificateChain,
    /// The contents of the certificate, for the log.
    pub certificate: Certificate,
}

impl RootAuthority {
    /// Makes a root for a platform, with a new Ed25519 key.
    pub fn create(platform: &PlatformName, validity: Validity) -> Result<Self, AuthorityError> {
        let key = AuthorityKey::generate(SignatureAlgorithm::Ed25519)?;
        Self::create_with(key, platform, validity)
    }

    /// Makes a root for a platform with this key.
    pub fn create_with(
        key: AuthorityKey,
        platform: &PlatformName,
        validity: Validity,
    ) -> Result<Self, AuthorityError> {
        let identity = Identity::authority(platform, "root")?;
        let params = authority_params(&identity, validity, 1)?;
        let certificate = params.self_signed(&key).map_err(encoding)?;
        Self::load(key, certificate.der().clone())
    }

    /// Joins a root's key with its certificate.
    pub fn load(
        key: impl Into<AuthorityKey>,
        certificate: CertificateDer<'static>,
    ) -> Result<Self, AuthorityError> {
        let key = key.into();
        let parsed = own_certificate(&key, &certificate)?;
        Ok(Self {
            key,
            certificate,
            parsed,
        })
    }

    /// The root certificate, in DER. [`Trust`](crate::Trust) is built on it.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The root certificate's fingerprint. Tokens carry it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The platform whose root this is.
    pub fn platform(&self) -> &PlatformName {
        self.parsed.identity().platform()
    }

    /// The root's private key.
    pub fn key(&self) -> &AuthorityKey {
        &self.key
    }

    /// Certifies the key of a CA service instance, which may sign only leaf certificates. The key must have the root's
    /// algorithm.
    pub fn certify_authority(
        &self,
        name: &str,
        request: &SigningRequest,
        validity: Validity,
    ) -> Result<CertificateChain, AuthorityError> {
        let identity = Identity::authority(self.platform(), name)?;
        let (wanted, found) = (self.key.algorithm(), request.public_key().algorithm());
        if wanted != found {
            return Err(AuthorityError::OtherAlgorithm { wanted, found });
        }
        let validity = inside(validity, &self.parsed)?;
        let params = authority_params(&identity, validity, 0)?;
        let leaf = sign(&params, request.public_key(), &self.certificate, &self.key)?;
        Ok(CertificateChain::from_parts(&leaf, Arc::new([])))
    }

    /// Makes an issuing authority with a new key of the root's algorithm, for a root and a CA service in one process.
    pub fn create_authority(
        &self,
        name: &str,
        validity: Validity,
    ) -> Result<IssuingAuthority, AuthorityError> {
        let key = AuthorityKey::generate(self.key.algorithm())?;
        let request = SigningRequest::of(&key);
        let chain = self.certify_authority(name, &request, validity)?;
        IssuingAuthority::load(key, chain)
    }

    /// The same issuing authority with the same key and a new certificate. Its earlier signatures stay valid, and its
    /// log goes on.
    pub fn renew_authority(
        &self,
        authority: &IssuingAuthority,
        validity: Validity,
    ) -> Result<IssuingAuthority, AuthorityError> {
        let identity = authority.identity();
        let Identity::Authority { name, .. } = identity else {
            return Err(AuthorityError::NotAnAuthority(identity.clone()));
        };
        let key = authority.key.clone();
        let chain = self.certify_authority(name.as_str(), &SigningRequest::of(&key), validity)?;
        IssuingAuthority::load(key, chain)
    }
}

impl IssuingAuthority {
    /// Joins an issuing authority's key with the chain that its root gave it.
    pub fn load(
        key: impl Into<AuthorityKey>,
        chain: CertificateChain,
    ) -> Result<Self, AuthorityError> {
        let key = key.into();
        let parsed = own_certificate(&key, chain.leaf())?;
        let issuers = chain.to_certificates().into();
        Ok(Self {
            key,
            chain,
            parsed,
            issuers,
        })
    }

    /// The authority's identity: `spiffe://<platform>/authority/<name>`.
    pub fn identity(&self) -> &Identity {
        self.parsed.identity()
    }

    /// The contents of the authority's own certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.parsed
    }

    /// The authority's certificate and those above it, without the root.
    pub fn chain(&self) -> &CertificateChain {
        &self.chain
    }

    /// The authority's private key.
    pub fn key(&self) -> &AuthorityKey {
        &self.key
    }

    /// The authority's name, the last part of its identity.
    pub fn name(&self) -> &str {
        match self.identity() {
            Identity::Authority { name, .. } => name.as_str(),
            // `load` accepts no other certificates.
            _ => "",
        }
    }

    /// Certifies the request's key for the identity in the grant, even if the request asks for another.
    ///
    /// The subject is `UID=<agent name>,CN=<IP address>`. The alternative names are the IP address and the SPIFFE URI.
    /// The key may be used for signatures by both clients and servers. If the grant is to a process, the certificate
    /// names it ([`Holding`](crate::Holding)). If the request names a [`LongLivedIdentity`](crate::LongLivedIdentity),
    /// the certificate names it, too. The validity ends no later than that of the authority's own certificate.
    pub fn issue(
        &self,
        grant: &Grant,
        request: &SigningRequest,
        validity: Validity,
    ) -> Result<Issued, AuthorityError> {
        let identity = grant.identity();
        if identity.platform() != self.identity().platform() {
            return Err(AuthorityError::WrongPlatform {
                authority: self.identity().clone(),
                identity: identity.clone(),
            });
        }
        if matches!(identity, Identity::Authority { .. }) {
            return Err(AuthorityError::NotAnAuthority(self.identity().clone()));
        }
        let certified = request.public_key().ed25519();
        let certified = certified.ok_or(CertificateError::Algorithm)?;
        let mut validity = inside(validity, &self.parsed)?;
        if let Some(renewed) = grant.renews() {
            validity.not_after = validity.not_after.min(renewed.until());
        }
        let mut params = leaf_params(identity, grant.address(), validity)?;
        if let Some(holding) = grant.holding() {
            let value = holding.encode();
            let extension = CustomExtension::from_oid_content(&holding::EXTENSION, value);
            params.custom_extensions.push(extension);
        }
        if let Some(second) = request.second() {
            if !matches!(identity, Identity::Agent { .. })
                || second.algorithm() != self.key.algorithm()
            {
                return Err(AuthorityError::SecondKey(identity.clone()));
            }
            params.custom_extensions.push(proof_key::extension(second));
        }
        if let Some(stated) = request.long_lived() {
            if !stated.is_of(identity, certified, request.second()) {
                return Err(AuthorityError::LongLivedIdentity(identity.clone()));
            }
            params.custom_extensions.push(stated.extension());
        }
        let issuer = self.chain.leaf();
        let leaf = sign(
            &params,
            request.public_key(),
            &CertificateDer::from(issuer),
            &self.key,
        )?;
        let certificate = Certificate::parse(&leaf)?;
        Ok(Issued {
            chain: CertificateChain::from_parts(&leaf, Arc::clone(&self.issuers)),
            certificate,
        })
    }
}

fn own_certificate(key: &AuthorityKey, der: &[u8]) -> Result<Certificate, AuthorityError> {
    let parsed = Certificate::parse(der)?;
    if !parsed.is_authority() {
        return Err(AuthorityError::NotAnAuthority(parsed.identity().clone()));
    }
    if *parsed.public_key() != key.public_key() {
        return Err(CertificateError::KeyMismatch(parsed.identity().clone()).into());
    }
    Ok(parsed)
}

fn inside(validity: Validity, authority: &Certificate) -> Result<Validity, AuthorityError> {
    let inner = validity.within(authority);
    if inner.not_before > inner.not_after {
        return Err(AuthorityError::OutOfTime {
            authority: authority.identity().clone(),
            not_before: authority.not_before(),
            not_after: authority.not_after(),
        });
    }
    Ok(inner)
}

fn sign(
    params: &CertificateParams,
    public_key: &VerifyingKey,
    issuer: &CertificateDer<'_>,
    key: &AuthorityKey,
) -> Result<CertificateDer<'static>, AuthorityError> {
    let issuer = Issuer::from_ca_cert_der(issuer, key).map_err(encoding)?;
    Ok(params
        .signed_by(public_key, &issuer)
        .map_err(encoding)?
        .der()
        .clone())
}

fn common_params(
    identity: &Identity,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.not_before = date_time(validity.not_before)?;
    params.not_after = date_time(validity.not_after)?;
    params.serial_number = Some(SerialNumber::from_slice(Serial::random()?.as_bytes()));
    params.subject_alt_names = vec![SanType::URI(
        identity.to_string().try_into().map_err(encoding)?,
    )];
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn authority_params(
    identity: &Identity,
    validity: Validity,
    authorities_below: u8,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = common_params(identity, validity)?;
    params
        .distinguished_name
        .push(DnType::CommonName, identity.to_string());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(authorities_below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    // The certificate has no name constraints. Libraries disagree about constraints on URIs, some take the IP address
    // in CN for a DNS name, and Java cannot read a certificate that forbids all e-mail addresses. `Trust` itself checks
    // the platform, and rejects every certificate with a DNS name.
    Ok(params)
}

fn leaf_params(
    identity: &Identity,
    address: IpAddr,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = common_params(identity, validity)?;
    params
        .subject_alt_names
        .insert(0, SanType::IpAddress(address));
    // The order matters: RFC 4514 prints the last attribute first, and brokers know the agent by that text.
    params
        .distinguished_name
        .push(DnType::CommonName, address.to_string());
    params
        .distinguished_name
        .push(DnType::CustomDnType(UID.to_vec()), identity.subject_uid());
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn date_time(time: Timestamp) -> Result<OffsetDateTime, AuthorityError> {
    i64::try_from(time.as_unix_seconds())
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .ok_or_else(|| AuthorityError::Encoding(format!("{time} is out of range")))
}

fn encoding(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Encoding(error.to_string())
}
