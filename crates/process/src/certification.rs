//! Keys made here and certified by the platform: steps 3, 4 and 6 of certification, as the process sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_seal::{
    Certificate, CertificateChain, CertificateError, Credential, Identity, IdentityError, KeyError,
    KeyPair, LongLivedIdentity, MlDsaKeyPair, PlatformName, Serial, SignatureAlgorithm,
};

use super::long_lived::LongLivedKey;
use super::now;
use super::standing::CertificateStanding;
use sealbus_control::attachment::ask;
use sealbus_control::host::Host;
use sealbus_control::{Blob, Fault, Subject};
use tokio::sync::Semaphore;

/// The most keys that are being certified at a time. The others wait here, where no time limit runs.
const AT_ONCE: usize = 256;

/// The reason why a key of this process was not certified.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificationError {
    /// No key could be made.
    #[error("no key could be made: {0}")]
    Key(#[from] KeyError),
    /// The platform did not certify the key.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// The answer is not a valid certificate for this key.
    #[error("the platform sent an unusable certificate: {0}")]
    Unusable(#[from] CertificateError),
    /// The certificate is for another identity.
    #[error("the platform sent a certificate for {found} where {expected} asked for one")]
    SomebodyElse {
        /// The identity that asked.
        expected: String,
        /// The identity in the certificate.
        found: Identity,
    },
    /// The name of the agent is not legal.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The certificate does not name the agent's long-lived identity, or names one that the agent does not have.
    #[error(
        "the platform sent a certificate for {0} with another long-lived identity than that of the agent, or without it; its Master may be of an older version"
    )]
    OtherIdentity(String),
    /// The certificate has expired, by the clock of this machine.
    #[error(
        "the platform sent a certificate that expired at {not_after}: the clock here says {now}; set one of the clocks right"
    )]
    Expired {
        /// The certificate's last valid second.
        not_after: sealbus_seal::Timestamp,
        /// The time on this machine.
        now: sealbus_seal::Timestamp,
    },
}

/// A key and its certificate.
#[derive(Clone)]
pub(super) struct Certified {
    pub(super) credential: Arc<Credential>,
    pub(super) certificate: Certificate,
    /// The serial number of the CA's certificate.
    issuer: Option<Serial>,
    /// The key of the long-lived identity that the certificate names.
    pub(super) identity: Option<LongLivedKey>,
    /// How long the certificate is still valid.
    pub(super) lifetime: Duration,
}

impl Certified {
    /// The standing of a certificate that arrived at `now` on the process's clock.
    pub(super) fn standing(&self, now: Duration) -> CertificateStanding {
        CertificateStanding::new(&self.certificate, self.issuer, now, self.lifetime)
    }
}

/// Makes keys and has them certified.
pub(super) struct Certifier {
    host: Arc<dyn Host>,
    platform: PlatformName,
    /// The algorithm of the platform's signatures.
    signatures: SignatureAlgorithm,
    /// The keys of long-lived identities for agents that are opened without one, by local name.
    identities: Mutex<HashMap<String, LongLivedKey>>,
    /// A chain of the latest authority. All chains under it share one copy of the certificates above the leaf.
    issuers: Mutex<Option<CertificateChain>>,
    places: Semaphore,
}

impl Certifier {
    pub(super) fn new(
        host: Arc<dyn Host>,
        platform: PlatformName,
        signatures: SignatureAlgorithm,
    ) -> Certifier {
        Certifier {
            host,
            platform,
            signatures,
            identities: Mutex::default(),
            issuers: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Sets the long-lived identity for an agent of this name that is opened without one.
    pub(super) fn identify(&self, agent: &str, key: LongLivedKey) {
        self.identities.lock().insert(agent.to_owned(), key);
    }

    pub(super) fn identity_of(&self, agent: &str) -> Option<LongLivedKey> {
        self.identities.lock().get(agent).cloned()
    }

    /// Makes a key and has it certified for `subject`, with this long-lived identity. `who` is the name for logs.
    pub(super) async fn request_certificate(
        &self,
        subject: Subject,
        who: &str,
        identity: Option<LongLivedKey>,
        renewal: bool,
    ) -> Result<Certified, CertificationError> {
        let _place = self.places.acquire().await;
        let key = KeyPair::generate()?;
        let second = self.second_key(&subject)?;
        let public = second.as_ref().map(MlDsaKeyPair::public_key);
        let stated = match (&subject, &identity) {
            (Subject::Agent { name }, Some(identity)) => {
                let (agent, key) = (Identity::agent(&self.platform, name)?, key.public_key());
                let own = identity.pair();
                Some(LongLivedIdentity::state(own, &agent, key, public)?)
            }
            _ => None,
        };
        let request = key.signing_request_with(public, stated.as_ref())?;
        // The six steps are logged once. For renewals, which never end, only the outcome is logged.
        if !renewal {
            tracing::info!(target: "sealbus::certification", step = 3, agent = who,
                key = %key.public_key(), "made a key pair in this process");
            tracing::info!(target: "sealbus::certification", step = 4, agent = who,
                "sent the signing request to the CA by way of the node");
        }
        let certify = ask::Certify {
            subject: subject.clone(),
            request: Blob(request),
        };
        let chain = self.host.ask(certify).await?;
        let chain = self.shared(chain.try_into()?);
        let issuer = chain.issuers().first();
        let issuer = issuer.map(|der| Certificate::parse(der)).transpose()?;
        let issuer = issuer.map(|issuer| issuer.serial());
        let mut credential = Credential::new(key, chain)?;
        if let Some(second) = second {
            credential = credential.with_second(second)?;
        }
        let certificate = credential.certificate()?;
        let fits = match &subject {
            Subject::Agent { .. } => certificate.identity().is_agent_named(who),
            Subject::Process => matches!(certificate.identity(), Identity::Process { .. }),
        };
        if !fits {
            return Err(CertificationError::SomebodyElse {
                expected: who.to_owned(),
                found: certificate.identity().clone(),
            });
        }
        if certificate.long_lived() != identity.as_ref().map(|key| key.pair().public_key()) {
            return Err(CertificationError::OtherIdentity(who.to_owned()));
        }
        let now = now();
        let not_after = certificate.not_after();
        if not_after <= now {
            return Err(CertificationError::Expired { not_after, now });
        }
        if renewal {
            tracing::debug!(target: "sealbus::certification", agent = who,
                serial = %certificate.serial(), until = %not_after, "renewed the certificate");
        } else {
            tracing::info!(target: "sealbus::certification", step = 6, agent = who,
                identity = %certificate.identity(), serial = %certificate.serial(),
                until = %not_after, "received the certificate");
        }
        Ok(Certified {
            lifetime: not_after.since(now),
            credential: Arc::new(credential),
            certificate,
            issuer,
            identity,
        })
    }

    /// A second key for an agent's proofs, if TLS does not know the algorithm of the platform's signatures.
    fn second_key(&self, subject: &Subject) -> Result<Option<MlDsaKeyPair>, KeyError> {
        match (subject, self.signatures) {
            (Subject::Agent { .. }, SignatureAlgorithm::MlDsa65) => {
                MlDsaKeyPair::generate().map(Some)
            }
            _ => Ok(None),
        }
    }

    fn shared(&self, mut chain: CertificateChain) -> CertificateChain {
        let mut issuers = self.issuers.lock();
        match &*issuers {
            Some(known) if known.issuers() == chain.issuers() => chain.share_issuers(known),
            _ => *issuers = Some(chain.clone()),
        }
        chain
    }
}
