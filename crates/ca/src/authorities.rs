//! The CAs of the platform, as this one knows them, and their revocation.

use std::collections::HashMap;

use sealbus_control::admin::AuthorityStatus;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::denylist::{Denial, Reason};
use sealbus_seal::{Identity, Serial, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CaService, not_denied, revocation, why};

/// Prefix of the rows. The name of the CA follows.
pub(crate) const AUTHORITY_ROW: &str = "authority/";

/// A CA of the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownAuthority {
    /// Its certificates that were seen, with their ends. The latest is the last.
    certificates: Vec<(Serial, Timestamp)>,
    /// When and why it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<Denial>,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    said: Option<String>,
}

impl CaService {
    /// The row about the CA of this name. [`is_revoked`](Self::is_revoked) reads it.
    pub fn authority_row(name: &str) -> String {
        format!("{AUTHORITY_ROW}{name}")
    }

    /// Whether a row about a CA says that it was revoked.
    pub fn is_revoked(row: &[u8]) -> bool {
        serde_json::from_slice::<KnownAuthority>(row).is_ok_and(|known| known.revoked.is_some())
    }

    /// Notes the certificate (DER) of a CA, so that it can be revoked. If the CA is revoked already, the certificate is
    /// denied at once.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if the certificate is not valid, or not one of a CA of this platform; [`FaultCode::Full`] if it
    /// cannot be denied.
    pub fn note_authority(&mut self, der: &[u8], now: Timestamp) -> Result<(), Fault> {
        let certificate = self.trust.verify_authority(der, now).map_err(|error| {
            let message = format!("the certificate of a CA is not believed: {error}");
            Fault::new(FaultCode::BadRequest, message)
        })?;
        let Identity::Authority { name, .. } = certificate.identity() else {
            return Ok(());
        };
        let (serial, not_after) = (certificate.serial(), certificate.not_after());
        let known = self.authorities.entry(name.to_string()).or_default();
        if known.certificates.iter().any(|(known, _)| *known == serial) {
            return Ok(());
        }
        // A certificate that the list has no room to deny is not noted. It is denied when it is shown again.
        if let Some(denial) = known.revoked {
            self.deny_list
                .deny_serial(serial, not_after, denial)
                .map_err(|error| not_denied(&error))?;
            self.is_unpublished = true;
        }
        known.certificates.retain(|(_, end)| *end >= now);
        known.certificates.push((serial, not_after));
        self.rows.put(Self::authority_row(name.as_str()), &*known);
        Ok(())
    }

    /// Notes the CAs whose Masters are there. A CA whose Master is away may be at work without knowledge of the state.
    /// Denials are then remembered until this CA can renew nothing that they name.
    pub fn are_present(&mut self, present: &[String], now: Timestamp) {
        let is_absent = |(name, known): (&String, &KnownAuthority)| {
            let lives = known.certificates.iter().any(|(_, end)| *end >= now);
            let is_there = name == self.authority.name() || present.contains(name);
            lives && known.revoked.is_none() && !is_there
        };
        self.remembers = self.authorities.iter().any(is_absent);
    }

    /// Revokes a CA, and with it everything that it certified.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`]; [`FaultCode::NotPermitted`] for this CA itself; [`FaultCode::Full`] if the deny list is full.
    pub fn revoke_authority(
        &mut self,
        name: &str,
        said: &str,
        now: Timestamp,
    ) -> Result<AuthorityStatus, Fault> {
        if name == self.authority.name() {
            let message = format!("{name} certifies now, and cannot revoke itself");
            return Err(Fault::new(FaultCode::NotPermitted, message).advise(
                "let another Master lead (`sealbus masters hand-over`), and revoke it there",
            ));
        }
        let Some(known) = self.authorities.get_mut(name) else {
            let message = format!("the platform has no CA {name}");
            return Err(Fault::new(FaultCode::Unknown, message)
                .advise("`sealbus ca authorities` shows all"));
        };
        let denial = Denial {
            at: now,
            reason: Reason::ByOperator,
        };
        // If the list has no room for all, the first ones are denied.
        self.is_unpublished = true;
        for (serial, not_after) in &known.certificates {
            self.deny_list
                .deny_serial(*serial, *not_after, denial)
                .map_err(|error| not_denied(&error))?;
        }
        known.revoked.get_or_insert(denial);
        known.said = revocation::said(said);
        self.rows.put(Self::authority_row(name), &*known);
        let what = format!("revoked: {}", why(denial.reason, known.said.as_deref()));
        let subject = format!("authority {name}");
        self.events.enter(0, &subject, None, None, what, now);
        tracing::warn!(target: "sealbus::certification", authority = %name, "revoked, with everything that it certified");
        let mut all = self.authorities(now).into_iter();
        all.find(|status| status.name == name)
            .ok_or_else(|| Fault::new(FaultCode::Unknown, format!("{name} has no certificate")))
    }

    /// The platform's CAs, by name.
    pub fn authorities(&self, now: Timestamp) -> Vec<AuthorityStatus> {
        let mut living = HashMap::<&str, u64>::new();
        for found in self.issued.values() {
            let record = &found.record;
            if found.revoked.is_none()
                && record.not_after >= now
                && let Identity::Authority { name, .. } = &record.authority
            {
                *living.entry(name.as_str()).or_default() += 1;
            }
        }
        let status = |(name, known): (&String, &KnownAuthority)| {
            let (serial, not_after) = known.certificates.last()?;
            Some(AuthorityStatus {
                name: name.clone(),
                serial: serial.to_string(),
                not_after: not_after.as_unix_seconds() * 1000,
                certifies: name == self.authority.name(),
                living: living.get(name.as_str()).copied().unwrap_or_default(),
                revoked: known
                    .revoked
                    .map(|denial| why(denial.reason, known.said.as_deref())),
            })
        };
        self.authorities.iter().filter_map(status).collect()
    }
}
