//! Workload tokens: short-lived statements about agents for servers outside the platform.

use std::collections::BTreeMap;
use std::time::Duration;

use sealbus_control::workload::{WorkloadIssuer, WorkloadToken};
use sealbus_control::{Fault, FaultCode, LogShares};
use sealbus_seal::workload::{JsonWebKey, WorkloadClaims, WorkloadKey, check_audience};
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
    /// The shares of the log for tokens, by the agents that ask for them.
    pub(crate) log: LogShares,
}

/// A key that is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptKey {
    key: JsonWebKey,
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
    /// Loads a stored key.
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

    /// A workload token for an agent, given by its local name. The asking agent must have proved that it asks. If that is
    /// another agent, `actor` is its local name, and it must be trusted to tell for whom it asks.
    ///
    /// The token ends with the agents' certificates at the latest.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] if an agent has no valid certificate, or if there are no such tokens on this platform;
    /// [`FaultCode::BadRequest`] if the audience is none.
    pub fn workload_token(
        &mut self,
        agent: &str,
        actor: Option<&str>,
        audience: &str,
        now: Timestamp,
    ) -> Result<WorkloadToken, Fault> {
        self.workload.issuer()?;
        check_audience(audience).map_err(bad_audience)?;
        let (subject, until) = self.certified(agent, now)?;
        let actor = actor.map(|actor| self.certified(actor, now)).transpose()?;
        let until = actor.as_ref().map_or(until, |actor| until.min(actor.1));
        let expires = now.plus(LIFETIME).min(until);
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
            actor: actor.as_ref().map(|(actor, _)| actor.as_str()),
            audience,
            issued: now,
            expires,
        };
        let token = key.sign(&claims).map_err(|error| internal(&error))?;
        let asker = claims.actor.unwrap_or(claims.subject).to_owned();
        if let Some(left_out) = self.workload.log.admit(asker) {
            tracing::info!(target: "sealbus::certification", agent, audience, left_out, "made a workload token");
        }
        Ok(WorkloadToken {
            token,
            expires: expires.as_unix_seconds() * 1000,
        })
    }

    /// The URI of an agent that is believed now, by its local name, and the end of its certificate.
    fn certified(&self, agent: &str, now: Timestamp) -> Result<(String, Timestamp), Fault> {
        let certificates = self.issued.of_subject(agent);
        let certificates = certificates.filter(|found| self.is_good(found, now));
        let certificate = certificates.max_by_key(|found| found.record.not_after);
        let certificate = certificate.ok_or_else(|| {
            let message = format!("no workload token for {agent}: it has no valid certificate");
            Fault::new(FaultCode::NotPermitted, message)
        })?;
        let record = &certificate.record;
        Ok((record.identity.to_string(), record.not_after))
    }

    /// The issuer and its keys. There is always a key, so that servers know it before the first token comes.
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

fn bad_audience(problem: &str) -> Fault {
    Fault::new(FaultCode::BadRequest, problem)
        .advise("name the server as it names itself, such as https://api.example")
}
