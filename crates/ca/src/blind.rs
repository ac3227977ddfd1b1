//! A CA that does not know the platform's state: no Master leads, or the store does not answer. It renews existing
//! certificates, and it revokes. Its acts are kept until a Master that leads has [taken them in](CaService::take_in).

mod stored;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_control::names::MASTER_NODE;
use sealbus_control::{Blob, Fault, FaultCode};
use sealbus_seal::denylist::{
    Denial, DenyList, Reason, SignedDenyList, latest_version, version_at,
};
use sealbus_seal::issuance::{Grant, decide_renewal};
use sealbus_seal::{
    Certificate, CertificateChain, Fingerprint, GRANT, Identity, IssuingAuthority, ProcessId,
    SecurityLevel, Serial, SigningRequest, Timestamp, Trust, Validity, VerifiedIdentity,
};
use sealbus_transparency::IssuanceRecord;
use serde::{Deserialize, Serialize};

use crate::long_lived::{check_same, check_stated};
use crate::revocation::named;
use crate::shares::Shares;
use crate::{CaService, IssuedCertificate, Request, SLACK, internal, not_denied, subject};

/// The most answers that are remembered.
const MOST_ANSWERS: usize = 16_384;

/// An act of a CA that the platform's state lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Unstored {
    /// A certificate was renewed.
    Renewed {
        /// The new chain, in its wire form.
        chain: Blob,
        /// The node that asked.
        node: String,
        /// The process with the key.
        process: String,
        /// When it was renewed.
        at: Timestamp,
    },
    /// An operator revoked.
    Revoked {
        /// The name of an agent or a node, the identity of a process, or a serial number.
        what: String,
        /// The operator's reason.
        said: String,
        /// When the operator revoked.
        at: Timestamp,
    },
}

/// Refuses to renew at [`signed`](SecurityLevel::Signed) and above. There, nobody believes a certificate before the issuance
/// log has it, and a CA that does not know the state cannot enter it.
///
/// # Errors
/// [`FaultCode::Unavailable`].
pub fn check_level(level: SecurityLevel) -> Result<(), Fault> {
    if level < SecurityLevel::Signed {
        return Ok(());
    }
    let message = format!(
        "nothing is renewed at {level} while the platform's state is unknown: no certificate is believed there before the issuance log has it"
    );
    Err(Fault::new(FaultCode::Unavailable, message))
}

/// A request to renew a certificate without knowledge of the state.
pub struct Renewal<'r> {
    /// The request, with the process.
    pub request: Request<'r>,
    /// The certificate that the process holds.
    pub held: &'r CertificateChain,
}

impl Renewal<'_> {
    /// The grant for the new certificate, which [`decide_renewal`] allows. The held certificate must be valid, as far
    /// as `trust` knows.
    fn decide(&self, trust: &Trust, now: Timestamp) -> Result<(Grant, SigningRequest), Fault> {
        let Request {
            node,
            wanted,
            process,
            request,
        } = self.request;
        let refused = |why: &dyn std::fmt::Display| {
            // A Master that leads may decide otherwise.
            let message = format!("no certificate for {} now: {why}", subject(wanted));
            Fault::new(FaultCode::Unavailable, message)
        };
        let process: ProcessId = process
            .unwrap_or_default()
            .parse()
            .map_err(|error: sealbus_seal::IdentityError| refused(&error))?;
        let held = trust
            .verify(self.held, now)
            .map_err(|error| refused(&error))?;
        let grant = decide_renewal(node, &held, wanted, &process, now)
            .map_err(|refusal| refused(&refusal))?;
        let request = SigningRequest::parse(request)
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
        let stated = check_stated(wanted, &request)?;
        let named = held.certificate().long_lived_identity();
        check_same(wanted, named, stated, held.not_after())?;
        Ok((grant, request))
    }
}

/// The renewal, to be kept.
fn renewed(
    chain: &CertificateChain,
    node: &VerifiedIdentity,
    process: Option<&str>,
    at: Timestamp,
) -> Unstored {
    let mut bytes = Vec::new();
    chain.encode(&mut bytes);
    Unstored::Renewed {
        chain: Blob(bytes),
        node: name_of(node),
        process: process.unwrap_or_default().to_owned(),
        at,
    }
}

fn name_of(node: &VerifiedIdentity) -> String {
    let name = node.identity().node_name();
    name.map(ToString::to_string).unwrap_or_default()
}

/// The CA of a Master that stands by.
pub struct Blind {
    authority: IssuingAuthority,
    trust: Arc<Trust>,
    lifetime: Duration,
    /// The denials that are not in the platform's state yet.
    deny_list: DenyList,
    published: Option<SignedDenyList>,
    /// When a list was last signed because somebody claimed to hold a later one.
    signed_for_later: Option<Timestamp>,
    shares: Shares,
    /// The latest answer to each process for each subject. A request that comes twice gets it again.
    answers: HashMap<(String, String), Answer>,
}

struct Answer {
    /// The clock of the node when it vouched, in Unix milliseconds.
    vouched: u64,
    request: Fingerprint,
    chain: CertificateChain,
}

impl Blind {
    /// A CA that has done nothing yet. `trust` has the denials that are known here.
    pub fn new(authority: IssuingAuthority, trust: Arc<Trust>, lifetime: Duration) -> Self {
        Self {
            deny_list: DenyList::new(authority.identity().clone()),
            authority,
            trust,
            lifetime,
            published: None,
            signed_for_later: None,
            shares: Shares::default(),
            answers: HashMap::new(),
        }
    }

    /// The trust in which its denials are in force.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// Renews a certificate. The caller must keep the returned act before anybody sees the certificate. `vouched` is the time
    /// at which the node vouched for the request, by the node's clock, in Unix milliseconds.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] with the reason; [`FaultCode::BadRequest`]; [`FaultCode::Full`] for a process that
    /// asks too often.
    pub fn renew(
        &mut self,
        renewal: &Renewal<'_>,
        vouched: u64,
        now: Timestamp,
    ) -> Result<(CertificateChain, Option<Unstored>), Fault> {
        let Request {
            node,
            wanted,
            process,
            request,
        } = renewal.request;
        let (grant, parsed) = renewal.decide(&self.trust, now)?;
        let key = (process.unwrap_or_default().to_owned(), wanted.to_string());
        let asked = Fingerprint::of(request);
        match self.answers.get(&key) {
            Some(latest) if latest.request == asked => return Ok((latest.chain.clone(), None)),
            // Somebody who recorded the request cannot use up the share with it.
            Some(latest) if vouched <= latest.vouched => {
                let message = format!("{} was renewed for a later request already", key.1);
                return Err(Fault::new(FaultCode::Unavailable, message));
            }
            _ => {}
        }
        self.shares
            .take(&key.0, &key.1, self.lifetime, now)
            .map_err(|used| used.fault)?;
        let validity = Validity::starting(now, self.lifetime);
        let issued = self
            .authority
            .issue(&grant, &parsed, validity)
            .map_err(|error| internal(&error))?;
        if self.answers.len() >= MOST_ANSWERS {
            self.answers.clear();
            self.shares.prune(now);
        }
        let answer = Answer {
            vouched,
            request: asked,
            chain: issued.chain.clone(),
        };
        self.answers.insert(key, answer);
        let unstored = renewed(&issued.chain, node, process, now);
        Ok((issued.chain, Some(unstored)))
    }

    /// Revokes an agent or a node, by its name, a process, by its [identity](crate::named_process), or one certificate, by its
    /// serial number. The revocation is in force here when this returns. The caller must keep the returned act before it
    /// confirms the revocation.
    ///
    /// # Errors
    /// [`FaultCode::IllegalName`]; [`FaultCode::Full`].
    pub fn revoke(&mut self, what: &str, said: &str, now: Timestamp) -> Result<Unstored, Fault> {
        let revoked = Unstored::Revoked {
            what: what.to_owned(),
            said: crate::revocation::said(said).unwrap_or_default(),
            at: now,
        };
        self.deny_list.prune(now);
        self.deny(what, now, now)?;
        self.publish(now)?;
        Ok(revoked)
    }

    /// Restores the revocations that this CA made before it was started anew, and those of others that the state lacks.
    ///
    /// # Errors
    /// As [`revoke`](Self::revoke).
    pub fn restore<'u>(
        &mut self,
        acts: impl IntoIterator<Item = &'u Unstored>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        self.deny_list.prune(now);
        let before = self.deny_list.version();
        let mut denied = Ok(());
        for act in acts {
            if let Unstored::Revoked { what, at, .. } = act {
                denied = denied.and(self.deny(what, *at, now));
            }
        }
        if self.deny_list.version() > before {
            self.publish(now)?;
        }
        denied
    }

    /// Forgets its answers, because one of them could not be kept.
    pub fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// The signed changes of its deny list since the version `known`, or the whole list if that is 0, too old, or of a time before
    /// this CA was started. None if there is no list, or `known` is not older.
    pub fn deny_list_after(&self, known: u64) -> Option<Vec<u8>> {
        let published = self.published.as_ref()?;
        (published.version() > known).then(|| published.since(known))
    }

    /// Takes in the claim that somebody holds the list of this CA in the version `known`. If that version is later than the
    /// present one, the CA published it before it was started anew, and its holders would not take the present one. The CA
    /// believes such a claim once a second. A claim costs nothing, but a list costs a signature and goes to every node.
    ///
    /// # Errors
    /// [`FaultCode::Internal`] if the list cannot be signed.
    pub fn is_held(&mut self, known: u64, now: Timestamp) -> Result<(), Fault> {
        let is_later = |published: &SignedDenyList| published.version() < known;
        let is_believed = known <= latest_version(now) && self.signed_for_later != Some(now);
        if !is_believed || !self.published.as_ref().is_some_and(is_later) {
            return Ok(());
        }
        self.signed_for_later = Some(now);
        self.deny_list.raise_version(known + 1);
        self.deny_list.forget_changes();
        self.publish(now)
    }

    /// Its own identity.
    pub fn identity(&self) -> &Identity {
        self.authority.identity()
    }

    /// Denies what is not denied here yet.
    fn deny(&mut self, what: &str, at: Timestamp, now: Timestamp) -> Result<(), Fault> {
        let denial = Denial {
            at,
            reason: Reason::ByOperator,
        };
        let last = at.plus(GRANT + SLACK);
        if last < now {
            return Ok(());
        }
        // An agent may have a name that is a serial number, too.
        if let Ok(serial) = what.parse::<Serial>() {
            self.deny_list
                .deny_serial(serial, last, denial)
                .map_err(|error| not_denied(&error))?;
        }
        // The certificates of these identities are not known here. All that began until now are denied, and so are their
        // renewals.
        let before = at.plus(Duration::from_secs(1));
        for identity in named(self.trust.platform(), what)? {
            if self.deny_list.denied_before(&identity) < Some(before) {
                self.deny_list
                    .deny_identity_before(identity, before, last, denial)
                    .map_err(|error| not_denied(&error))?;
            }
        }
        Ok(())
    }

    fn publish(&mut self, now: Timestamp) -> Result<(), Fault> {
        // Lists of this CA from times when it led have lower versions.
        self.deny_list.raise_version(version_at(now));
        if self.published.is_none() {
            self.deny_list.forget_changes();
        }
        let signed = self
            .deny_list
            .sign(&self.authority)
            .map_err(|error| internal(&error))?;
        let held = self.published.as_ref().map_or(0, |held| held.version());
        self.trust
            .apply_deny_list_beside(&signed.since(held), now)
            .map_err(|error| internal(&error))?;
        self.published = Some(signed);
        Ok(())
    }
}

impl CaService {
    /// Renews a certificate while the store does not answer. The caller must keep the returned act before anybody sees
    /// the certificate.
    ///
    /// # Errors
    /// As [`Blind::renew`], and [`certify`](Self::certify).
    pub fn renew(
        &mut self,
        renewal: &Renewal<'_>,
        now: Timestamp,
    ) -> Result<(CertificateChain, Unstored), Fault> {
        let Request {
            node,
            wanted,
            process,
            ..
        } = renewal.request;
        let (grant, request) = renewal.decide(&self.trust, now)?;
        let name = subject(wanted);
        self.shares
            .take(process.unwrap_or_default(), &name, self.lifetime, now)
            .map_err(|used| used.fault)?;
        self.check_room(now)?;
        let (chain, serial) = self.issue(&grant, &request, process, self.lifetime, now)?;
        // Another entry may take this one's place in the log before it is stored.
        let chain = chain.without_inclusion();
        let from = name_of(node);
        let what = format!("renewed while the store was away, serial {serial}");
        self.events
            .enter(5, &name, Some(&from), Some(serial), what, now);
        let unstored = renewed(&chain, node, process, now);
        Ok((chain, unstored))
    }

    /// Takes in a certificate that a CA of this platform renewed while it did not know the state. The certificate enters the
    /// issuance log, and can be revoked from now on. A certificate that is known already is left as it is.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if no CA of this platform signed it, or it is no renewal.
    pub fn take_in(
        &mut self,
        chain: &CertificateChain,
        node: &str,
        process: &str,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Certificate, Fault> {
        let bad = |why: &dyn std::fmt::Display| {
            let message = format!("a certificate that another CA renewed is not believed: {why}");
            Fault::new(FaultCode::BadRequest, message)
        };
        let verified = self
            .trust
            .verify_as_of(chain, at)
            .map_err(|error| bad(&error))?;
        let certificate = verified.certificate().clone();
        if certificate.renews().is_none() {
            return Err(bad(&"it does not say what it renews"));
        }
        let serial = certificate.serial();
        if self.issued.get(&serial).is_some() {
            return Ok(certificate);
        }
        let issuer = match chain.issuers().first() {
            Some(der) => Certificate::parse(der).map_err(|error| internal(&error))?,
            None => return Err(bad(&"its CA is not shown")),
        };
        let asked = Identity::node(self.trust.platform(), node).ok();
        let record = IssuanceRecord::of(
            &certificate,
            chain.leaf(),
            asked.as_ref(),
            issuer.identity(),
            at,
        );
        self.enter(record, Some(process), certificate.renews().copied())?;
        let subject = subject(certificate.identity());
        let what = format!(
            "renewed at {at} by {} while the store was away, serial {serial}",
            issuer.identity()
        );
        self.events
            .enter(5, &subject, Some(node), Some(serial), what, now);
        // A revocation of the owner as a whole may have been taken in before.
        let (identity, from) = (certificate.identity(), certificate.not_before());
        if let Some(denial) = self.deny_list.denied(identity, serial, from) {
            self.revoke(&[serial], denial.reason, None, now)?;
        }
        Ok(certificate)
    }

    /// Notes that the act in this row was taken in. The next commit deletes the row, and writes the row `noted` in its place if
    /// there is a name.
    pub fn is_taken_in(&mut self, row: String, noted: Option<String>, now: Timestamp) {
        self.rows.delete(row);
        if let Some(noted) = noted {
            self.rows.put(noted, &now);
        }
    }

    /// Renews a certificate of the Master itself while the store does not answer. As [`certify_own`](Self::certify_own), but
    /// the caller must keep the returned act.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the process has no certificate for the identity that may be renewed.
    pub fn renew_own(
        &mut self,
        identity: Identity,
        address: IpAddr,
        process: &str,
        request: &[u8],
        now: Timestamp,
    ) -> Result<(CertificateChain, Unstored), Fault> {
        let of_process = self.issued.of_process(process);
        let latest = of_process
            .filter(|found| found.record.identity == identity && found.revoked.is_none())
            .max_by_key(|found| found.record.not_after);
        let renewed = latest.map(IssuedCertificate::origin);
        let name = subject(&identity);
        let Some(renewed) = renewed.filter(|renewed| now < renewed.until()) else {
            let message = format!("{name} is not certified now: the store does not answer");
            return Err(Fault::new(FaultCode::Unavailable, message));
        };
        let request = SigningRequest::parse(request)
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
        let grant = Grant::by_operator(identity, address).renewing(renewed);
        let (chain, serial) = self.issue(&grant, &request, Some(process), self.lifetime, now)?;
        let chain = chain.without_inclusion();
        let what = format!("renewed while the store was away, serial {serial}");
        self.events.enter(5, &name, None, Some(serial), what, now);
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        let unstored = Unstored::Renewed {
            chain: Blob(bytes),
            node: MASTER_NODE.to_owned(),
            process: process.to_owned(),
            at: now,
        };
        Ok((chain, unstored))
    }
}
