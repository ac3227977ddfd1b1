//! The CA service. It decides with [`sealbus_seal::issuance`], signs, and enters each certificate in the issuance log,
//! the list of certificates and the certification events.
//!
//! The service does no I/O. Its caller writes the changed rows to the store before a certificate leaves.

mod authorities;
mod blind;
mod callers;
mod certificates;
mod events;
mod loading;
mod long_lived;
mod nodes;
mod own_certificate;
mod publication;
mod revocation;
mod shares;
#[cfg(test)]
mod tests;
mod workload;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::denylist::{Denial, DenyList, DenyListError, Reason, SignedDenyList};
use sealbus_seal::issuance::{Grant, Placements, decide};
use sealbus_seal::{
    AuthorityError, CertificateChain, GRANT, Identity, IssuingAuthority, Name, Renewed, Serial,
    SigningRequest, Timestamp, Trust, Validity, VerifiedIdentity,
};
use sealbus_transparency::{Inclusion, IssuanceRecord, LogError, LogWriter};
use serde::{Deserialize, Serialize};

use sealbus_control::admin::{CertificateStatus, CertificatesPage, Page};
use sealbus_control::names::MASTER_NODE;
use sealbus_control::{Fault, FaultCode};
use sealbus_store::{Row, Rows};

use authorities::{AUTHORITY_ROW, KnownAuthority};
pub use blind::{Blind, Renewal, Unstored, check_level};
use certificates::Certificates;
pub use events::CertificationLog;
pub use loading::CaServiceError;
pub use own_certificate::{Ending, Outlook};
pub use revocation::{TakenBack, named_process};
use shares::Shares;
use workload::Workload;

const CERTIFICATE_ROW: &str = "certificate/";
/// The entries of issuance logs that are not in files yet. The name of the CA and the place in its log follow.
const LEAF_ROW: &str = "leaf/";
/// How many entries of another CA's log are in the log of a later CA. The name of the other CA follows.
const TAKEN_UP_ROW: &str = "taken-up/";
const DENY_LIST_ROW: &str = "deny-list/";
/// The public keys of workload tokens.
const WORKLOAD_KEY_ROW: &str = "workload-key/";

/// How long an expired certificate is still shown.
const SHOWN_AFTER_EXPIRY: Duration = Duration::from_secs(600);
/// How much longer than a grant a revocation is remembered, for clocks that are slow.
const SLACK: Duration = Duration::from_secs(3600);
/// Lifetime of a node's own certificate. A node that is away longer needs a new token.
pub const NODE_CERTIFICATE: Duration = Duration::from_secs(30 * 86_400);

/// A certificate that was issued and has not expired long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// The issuance log's facts about the certificate.
    pub record: IssuanceRecord,
    /// The CA whose log has the certificate: the one that signed it, or one that came after it.
    pub log: String,
    /// The certificate's place in that log.
    pub index: u64,
    /// The process to which the certificate was issued, for a certificate of a process or an agent.
    pub process: Option<String>,
    /// The certificate that it renews, if that was done without knowledge of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<Renewed>,
    /// When and why the certificate was revoked.
    pub revoked: Option<Denial>,
    /// The reason that the revoking operator gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

impl IssuedCertificate {
    /// How many entries of the deny list the revocation of this certificate takes. The few certificates of nodes use
    /// the entries that are kept free.
    fn room(&self) -> usize {
        match self.revoked.is_none() && self.is_held() {
            true => 1 + usize::from(self.renews.is_some()),
            false => 0,
        }
    }

    fn is_held(&self) -> bool {
        let identity = &self.record.identity;
        matches!(identity, Identity::Agent { .. } | Identity::Process { .. })
    }

    /// The certificate with which the renewals without knowledge of the state began: the one that this certificate goes
    /// back to, or itself.
    fn origin(&self) -> Renewed {
        self.renews.unwrap_or(Renewed {
            serial: self.record.serial,
            not_before: self.record.not_before,
        })
    }

    /// Until when this certificate may be believed or, if another CA `may_renew` it, its renewals.
    fn end(&self, may_renew: bool) -> Timestamp {
        let itself = self.record.not_after;
        match may_renew && self.is_held() && self.process.is_some() {
            true => itself.max(self.origin().until()),
            false => itself,
        }
    }

    /// The certificate's place in the order they were issued.
    fn place(&self) -> (Timestamp, &str, u64) {
        (self.record.issued_at, &self.log, self.index)
    }

    fn is_older_than(&self, other: &Self) -> bool {
        match self.log == other.log {
            true => self.index < other.index,
            false => self.record.issued_at < other.record.issued_at,
        }
    }

    /// The status shown to operators.
    pub fn status(&self) -> CertificateStatus {
        let record = &self.record;
        let node = record.on_behalf_of.as_ref();
        CertificateStatus {
            serial: record.serial.to_string(),
            identity: record.identity.to_string(),
            address: record.address.clone(),
            node: node
                .and_then(|node| node.node_name())
                .map(ToString::to_string),
            not_before: record.not_before.as_unix_seconds() * 1000,
            not_after: record.not_after.as_unix_seconds() * 1000,
            log: self.log.clone(),
            index: self.index,
            revoked: self
                .revoked
                .map(|denial| why(denial.reason, self.said.as_deref())),
        }
    }
}

/// The CA service of one issuing authority.
pub struct CaService {
    authority: IssuingAuthority,
    trust: Arc<Trust>,
    lifetime: Duration,
    log: LogWriter,
    deny_list: DenyList,
    /// The latest signed deny list, which processes get.
    published: SignedDenyList,
    /// Whether the deny list has entries that the published one lacks.
    is_unpublished: bool,
    /// The rows of the deny list: the whole of an older version, and the changes since.
    kept: Vec<String>,
    /// The entries that certificates of agents and processes may yet need there.
    revocable: usize,
    /// Bytes of the deny list for certificates that are alive or denied.
    room: usize,
    pruned: Timestamp,
    /// Whether another CA may renew certificates without knowing that they are denied.
    remembers: bool,
    issued: Certificates,
    authorities: BTreeMap<String, KnownAuthority>,
    shares: Shares,
    workload: Workload,
    events: CertificationLog,
    rows: Rows,
}

/// The identity to certify, and the requester.
pub struct Request<'r> {
    /// The node that vouches for the identity.
    pub node: &'r VerifiedIdentity,
    /// The identity to certify.
    pub wanted: &'r Identity,
    /// The process that will hold the key.
    pub process: Option<&'r str>,
    /// The signing request in DER.
    pub request: &'r [u8],
}

impl CaService {
    /// Prefix of the rows that say which part of an issuance log is in files. The name of the CA follows.
    pub const LOG_ROW: &'static str = "issuance-log/";

    /// Prefix of the rows of the deny list: the whole of an older version comes first, and then the changes since.
    pub const DENY_LIST_ROW: &'static str = DENY_LIST_ROW;

    /// Prefixes of this service's rows.
    pub const ROWS: [&'static str; 8] = [
        CERTIFICATE_ROW,
        LEAF_ROW,
        Self::LOG_ROW,
        TAKEN_UP_ROW,
        DENY_LIST_ROW,
        WORKLOAD_KEY_ROW,
        CertificationLog::ROW,
        AUTHORITY_ROW,
    ];

    /// Takes the changed rows.
    pub fn take_rows(&mut self) -> Vec<Row> {
        let mut rows = self.rows.take();
        rows.extend(self.events.take_rows());
        rows
    }

    /// The certification events.
    pub fn events(&mut self) -> &mut CertificationLog {
        &mut self.events
    }

    /// The trust of this service: its own root with its own deny list in force.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// The authority that signs.
    pub fn authority(&self) -> &IssuingAuthority {
        &self.authority
    }

    /// The version of the published deny list.
    pub fn deny_list_version(&self) -> u64 {
        self.published.version()
    }

    /// The signed changes of the published deny list since an older version, or the whole list if that version is 0 or
    /// too old.
    pub fn deny_list_since(&self, version: u64) -> Vec<u8> {
        self.published.since(version)
    }

    /// How many certificates were issued in all.
    pub fn issued_in_all(&self) -> u64 {
        self.log.size()
    }

    /// Certifies an agent or process at the request of a node, if the Master placed it there.
    ///
    /// # Errors
    /// [`FaultCode::NotPlaced`] with the reason; the attempt is entered in the events. [`FaultCode::Full`] if the
    /// process has asked too often, or the deny list would have no room for revoking the certificate.
    pub fn certify(
        &mut self,
        request: &Request<'_>,
        placements: &dyn Placements,
        now: Timestamp,
    ) -> Result<CertificateChain, Fault> {
        let node = request.node.identity().node_name().map(ToString::to_string);
        let subject = subject(request.wanted);
        let event = |service: &mut Self, step, serial, what| {
            let node = node.as_deref();
            service
                .events
                .enter(step, &subject, node, serial, what, now);
        };
        let process = request.process.unwrap_or_default();
        if let Err(used) = self.shares.take(process, &subject, self.lifetime, now) {
            if used.is_first {
                event(self, 0, None, format!("refused: {}", used.fault));
            }
            return Err(used.fault);
        }
        let parsed = SigningRequest::parse(request.request).map_err(|error| {
            event(self, 0, None, format!("refused: {error}"));
            Fault::new(
                FaultCode::BadRequest,
                format!("the signing request for {subject}: {error}"),
            )
        })?;
        event(
            self,
            3,
            None,
            "its key pair was made in its own process, which proved to hold it".to_owned(),
        );
        event(
            self,
            4,
            None,
            "its signing request came, vouched for by its node".to_owned(),
        );
        let grant = decide(request.node, request.wanted, placements).map_err(|refusal| {
            tracing::warn!(
                target: "sealbus::certification",
                step = 5, agent = %subject, node = node.as_deref(), %refusal, "refused"
            );
            event(self, 0, None, format!("refused: {refusal}"));
            Fault::new(
                FaultCode::NotPlaced,
                format!("no certificate for {subject}: {refusal}"),
            )
        })?;
        self.check_room(now).inspect_err(|fault| {
            tracing::error!(target: "sealbus::certification", agent = %subject, %fault, "refused");
            event(self, 0, None, format!("refused: {fault}"));
        })?;
        let issued = self.issue(&grant, &parsed, request.process, self.lifetime, now);
        let (chain, serial) =
            issued.inspect_err(|fault| event(self, 0, None, format!("refused: {fault}")))?;
        let valid = format!(
            "certified for {} s, serial {serial}",
            self.lifetime.as_secs()
        );
        event(self, 5, Some(serial), valid);
        Ok(chain)
    }

    /// Certifies on the platform's own behalf: the Master's own process and agents.
    ///
    /// # Errors
    /// If the request is not valid or the authority cannot sign.
    pub fn certify_own(
        &mut self,
        identity: Identity,
        address: std::net::IpAddr,
        process: Option<&str>,
        request: &[u8],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<CertificateChain, Fault> {
        let subject = subject(&identity);
        let parsed = SigningRequest::parse(request).map_err(|error| {
            Fault::new(
                FaultCode::BadRequest,
                format!("the signing request for {subject}: {error}"),
            )
        })?;
        let node = identity.node_name().map(ToString::to_string);
        let grant = Grant::by_operator(identity, address);
        let (chain, serial) = self.issue(&grant, &parsed, process, lifetime, now)?;
        let what = format!("certified for {} s, serial {serial}", lifetime.as_secs());
        self.events
            .enter(5, &subject, node.as_deref(), Some(serial), what, now);
        Ok(chain)
    }

    fn issue(
        &mut self,
        grant: &Grant,
        request: &SigningRequest,
        process: Option<&str>,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(CertificateChain, Serial), Fault> {
        self.check_long_lived(grant.identity(), request, now)?;
        let grant = &held_by(grant, process);
        let mut validity = Validity::starting(now, lifetime);
        if let Some(floor) = self.trust.denied_before(grant.identity()) {
            validity = validity.not_before_at_least(floor);
        }
        let issued = self
            .authority
            .issue(grant, request, validity)
            .map_err(|error: AuthorityError| internal(&error))?;
        let renews = issued.certificate.renews().copied();
        let (chain, record) = Inclusion::attach(
            issued,
            grant.on_behalf_of(),
            self.log.tree(),
            &self.authority,
            now,
        )
        .map_err(|error: LogError| internal(&error))?;
        let serial = self.enter(record, process, renews)?;
        Ok((chain, serial))
    }

    /// Forgets expired certificates. The issuance log keeps everything.
    pub fn prune(&mut self, now: Timestamp) {
        self.pruned = now;
        self.shares.prune(now);
        // Without the latest one, nothing would be left to deny when its holder is revoked.
        let renewable = match self.remembers {
            true => self.issued.latest_renewable(now),
            false => HashSet::new(),
        };
        self.forget(&renewable, now);
        // A denied certificate may be renewed elsewhere for as long as its grant lasts.
        let over = match self.remembers {
            true => now.minus(GRANT),
            false => now,
        };
        self.deny_list.prune(over);
    }

    /// Forgets expired certificates but `kept`.
    fn forget(&mut self, kept: &HashSet<Serial>, now: Timestamp) {
        let is_over = |found: &IssuedCertificate| {
            let record = &found.record;
            record.not_after.plus(SHOWN_AFTER_EXPIRY) < now && !kept.contains(&record.serial)
        };
        for gone in self.issued.take(is_over) {
            self.revocable -= gone.room();
            self.rows.delete(certificate_row(gone.record.serial));
        }
    }

    /// A page of the certificates, in the order they were issued: those of an agent or a node, or all.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if no page ended so.
    pub fn certificates(
        &self,
        all: bool,
        of: Option<&str>,
        page: &Page,
        now: Timestamp,
    ) -> Result<CertificatesPage, Fault> {
        self.issued.page(all, of, page, now)
    }

    /// The latest living certificate of an agent, by its local name.
    pub fn living(&self, agent: &str, now: Timestamp) -> Option<&IssuanceRecord> {
        let of_agent = self.issued.of_subject(agent).filter(|found| {
            matches!(found.record.identity, Identity::Agent { .. })
                && found.revoked.is_none()
                && found.record.not_after >= now
        });
        let latest = of_agent.reduce(|one, two| match one.is_older_than(two) {
            true => two,
            false => one,
        });
        latest.map(|found| &found.record)
    }
}

/// The grant to the process with the key, so that the certificate names the process.
fn held_by(grant: &Grant, process: Option<&str>) -> Grant {
    let grant = grant.clone();
    let is_held = matches!(
        grant.identity(),
        Identity::Agent { .. } | Identity::Process { .. }
    );
    let process = process.and_then(|process| process.parse().ok());
    let node = match (grant.on_behalf_of(), grant.identity()) {
        (Some(node), _) => node.node_name().cloned(),
        (None, Identity::Process { node, .. }) => Some(node.clone()),
        (None, _) => Name::new("node", MASTER_NODE).ok(),
    };
    match (process, node) {
        (Some(process), Some(node)) if is_held => grant.to_process(process, node),
        _ => grant,
    }
}

fn certificate_row(serial: Serial) -> String {
    format!("{CERTIFICATE_ROW}{serial}")
}

fn leaf_row(log: &str, index: u64) -> String {
    format!("{LEAF_ROW}{log}/{index:016x}")
}

/// The name of an identity in events: an agent's local name, or a node's name.
fn subject(identity: &Identity) -> String {
    match identity {
        Identity::Agent { name, .. } | Identity::Node { name, .. } => name.to_string(),
        Identity::Process { process, .. } => format!("process {process}"),
        Identity::Authority { name, .. } => format!("authority {name}"),
    }
}

fn why(reason: Reason, said: Option<&str>) -> String {
    match said {
        Some(said) => format!("{reason}: {said}"),
        None => reason.to_string(),
    }
}

/// The fault of a denial that failed. If the deny list lacks room, the denial is tried again later.
fn not_denied(error: &DenyListError) -> Fault {
    match error {
        DenyListError::Full { .. } => Fault::new(FaultCode::Full, error.to_string()),
        error => internal(error),
    }
}

fn internal(error: &dyn std::error::Error) -> Fault {
    Fault::new(FaultCode::Internal, error.to_string())
}
