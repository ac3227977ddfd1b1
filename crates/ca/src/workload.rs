//! Workload tokens: short-lived statements about agents for servers outside the platform.

use std::collections::BTreeMap;
use std::time::Duration;

use sealbus_control::workload::{WorkloadIssuer, WorkloadToken};
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::workload::{MAX_AUDIENCE_LENGTH, PublishedKey, WorkloadClaims, WorkloadKey};
use sealbus_seal::{Identity, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{CaService, IssuedCertificate, WORKLOAD_KEY_ROW, internal};

/// How long a token is good. Servers outside do not hear of revocations, so a revoked agent is believed for so long at most.
const LIFETIME: Duration = Duration::from_secs(300);
/// How long a key signs.
const KEY_AGE: Duration = Duration::from_secs(24 * 3600);
/// How long a key stays published after it signed for the last time: for a token's lifetime, and for slow clocks.
const PUBLISHED_AFTER: Duration = Duration::from_secs(600);

/// The issuer's keys. The private key is in memory alone: each CA service that begins makes one of its own. The public keys
/// are in the store, so that tokens outlive the service that made them.
#[derive(Default)]
pub(crate) struct Workload {
    /// The URL by which tokens name the issuer. Without one there are no tokens.
    issuer: Option<String>,
    key: Option<WorkloadKey>,
    published: BTreeMap<String, KeptKey>,
}

/// A key that is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptKey {
    key: PublishedKey,
    /// When it was made.
    made: Timestamp,
}

impl KeptKey {
    fn signs(&self, now: Timestamp) -> bool {
        // A clock that was set back must not let a key sign for longer.
        self.made <= now && now < self.made.plus(KEY_AGE)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.made.plus(KEY_AGE).plus(PUBLISHED_AFTER) < now
    }
}

impl Workload {
    /// Takes back a stored key.
    pub(crate) fn restore(&mut self, kept: KeptKey) {
        self.published.insert(kept.key.kid.clone(), kept);
    }

    fn issuer(&self) -> Result<&str, Fault> {
        self.issuer.as_deref().ok_or_else(no_tokens)
    }
}

impl CaService {
    /// From now on agents get workload tokens, which name their issuer by this URL.
    pub fn issue_workload_tokens(&mut self, issuer: Option<String>) {
        self.workload.issuer = issuer;
    }

    /// A workload token for an agent, given by its local name, which must have proved that it asks.
    ///
    /// The token ends with the agent's certificate at the latest.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if the agent has no valid certificate, or if there are no such tokens on this platform;
    /// [`FaultCode::BadRequest`] if the audience is none.
    pub fn workload_token(
        &mut self,
        agent: &str,
        audience: &str,
        now: Timestamp,
    ) -> Result<WorkloadToken, Fault> {
        self.workload.issuer()?;
        check_audience(audience)?;
        let certificates = self.issued.of_subject(agent);
        let certificates = certificates.filter(|found| self.is_good(found, now));
        let certificate = certificates.max_by_key(|found| found.record.not_after);
        let Some(certificate) = certificate else {
            let message = format!("no workload token for {agent}: it has no valid certificate");
            return Err(Fault::new(FaultCode::NotPermitted, message));
        };
        let subject = certificate.record.identity.to_string();
        let expires = now.plus(LIFETIME).min(certificate.record.not_after);
        self.ready_key(now)?;
        let Workload {
            issuer: Some(issuer),
            key: Some(key),
            ..
        } = &self.workload
        else {
            return Err(no_tokens());
        };
        let claims = WorkloadClaims {
            issuer,
            subject: &subject,
            audience,
            issued: now,
            expires,
        };
        let token = key.sign(&claims).map_err(|error| internal(&error))?;
        tracing::info!(target: "sealbus::certification", agent, audience, "made a workload token");
        Ok(WorkloadToken {
            token,
            expires: expires.as_unix_seconds() * 1000,
        })
    }

    /// The issuer and its keys. There is always one, so that those who check tokens know it before the first token comes.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if there are no such tokens on this platform.
    pub fn workload_issuer(&mut self, now: Timestamp) -> Result<WorkloadIssuer, Fault> {
        self.workload.issuer()?;
        self.ready_key(now)?;
        let published = self.workload.published.values();
        let published = published.filter(|kept| !kept.is_over(now));
        Ok(WorkloadIssuer {
            issuer: self.workload.issuer()?.to_owned(),
            keys: published.map(|kept| kept.key.clone()).collect(),
        })
    }

    /// Whether this is the certificate of an agent that is believed now.
    fn is_good(&self, certificate: &IssuedCertificate, now: Timestamp) -> bool {
        let record = &certificate.record;
        let floor = self.trust.denied_before(&record.identity);
        matches!(record.identity, Identity::Agent { .. })
            && certificate.revoked.is_none()
            && (record.not_before..record.not_after).contains(&now)
            && floor.is_none_or(|floor| record.not_before >= floor)
    }

    /// Makes a key if none may sign now, and forgets those that are over.
    fn ready_key(&mut self, now: Timestamp) -> Result<(), Fault> {
        let published = &self.workload.published;
        let signs = |key: &WorkloadKey| {
            let kept = published.get(&key.public().kid);
            kept.is_some_and(|kept| kept.signs(now))
        };
        if self.workload.key.as_ref().is_some_and(signs) {
            return Ok(());
        }
        let over = published.values().filter(|kept| kept.is_over(now));
        let over: Vec<String> = over.map(|kept| kept.key.kid.clone()).collect();
        for id in over {
            self.workload.published.remove(&id);
            self.rows.delete(row(&id));
        }
        let key = WorkloadKey::generate().map_err(|error| internal(&error))?;
        let kept = KeptKey {
            key: key.public().clone(),
            made: now,
        };
        let id = kept.key.kid.clone();
        self.rows.put(row(&id), &kept);
        self.workload.published.insert(id, kept);
        self.workload.key = Some(key);
        Ok(())
    }
}

fn no_tokens() -> Fault {
    let problem = "this platform makes no workload tokens";
    Fault::new(FaultCode::NotPermitted, problem).advise("set `workload-issuer` in [platform]")
}

fn row(id: &str) -> String {
    format!("{WORKLOAD_KEY_ROW}{id}")
}

fn check_audience(audience: &str) -> Result<(), Fault> {
    let problem = if audience.is_empty() {
        "the audience of a workload token is empty"
    } else if audience.len() > MAX_AUDIENCE_LENGTH {
        "the audience of a workload token is too long"
    } else if audience.chars().any(char::is_control) {
        "the audience of a workload token has control characters"
    } else {
        return Ok(());
    };
    Err(Fault::new(FaultCode::BadRequest, problem)
        .advise("name the server as it names itself, such as https://api.example"))
}
