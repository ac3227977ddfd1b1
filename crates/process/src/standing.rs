//! The standing of a certificate of this process: its serial number, its renewal time, and its revocation.

use std::time::Duration;

use sealbus_seal::denylist::DenyList;
use sealbus_seal::{CLOCK_SKEW, Certificate, Identity, Renewed, Serial, Timestamp};

use super::renewal::{after_failure, after_issue, jitter};

/// The standing of the certificate of the process or of one of its agents. Its times are those of the process's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct CertificateStanding {
    serial: Serial,
    /// The serial number of the CA certificate under which it was signed.
    issuer: Option<Serial>,
    /// The certificate that it renews, if it was renewed without knowledge of the platform's state.
    renews: Option<Renewed>,
    not_before: Timestamp,
    not_after: Timestamp,
    /// When to renew it.
    pub(super) due: Duration,
    /// When it expires.
    pub(super) expires: Duration,
    /// The number of failed attempts to renew it, in a row.
    failures: u32,
}

impl CertificateStanding {
    /// The standing of a certificate that came at `now` and lives for `lifetime` from then on.
    pub(super) fn new(
        certificate: &Certificate,
        issuer: Option<Serial>,
        now: Duration,
        lifetime: Duration,
    ) -> CertificateStanding {
        CertificateStanding {
            serial: certificate.serial(),
            issuer,
            renews: certificate.renews().copied(),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
            due: now + after_issue(lifetime, jitter()),
            expires: now + lifetime,
            failures: 0,
        }
    }

    /// Whether it is valid at `now`, by the wall clock.
    pub(super) fn holds_at(&self, now: Timestamp) -> bool {
        self.not_before <= now.plus(CLOCK_SKEW) && now <= self.not_after
    }

    /// Whether the CA that issued it was revoked. Then nobody believes it, and the present CA issues another one.
    pub(super) fn lost_its_issuer<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a DenyList>,
    ) -> bool {
        let denied = |issuer: Serial, list: &DenyList| list.denied_serial(issuer).is_some();
        self.issuer
            .is_some_and(|issuer| lists.into_iter().any(|list| denied(issuer, list)))
    }

    /// The standing after another failed attempt at renewal.
    pub(super) fn after_failure(self, now: Duration) -> CertificateStanding {
        let failures = self.failures.saturating_add(1);
        let remaining = self.expires.saturating_sub(now);
        CertificateStanding {
            due: now + after_failure(failures, remaining, jitter()),
            failures,
            ..self
        }
    }

    /// The standing of a certificate that is useless although it has just come, in place of one with the `former`
    /// standing. It counts as another failed attempt.
    pub(super) fn useless_after(
        self,
        former: Option<CertificateStanding>,
        now: Duration,
    ) -> CertificateStanding {
        let failures = former.map_or(0, |former| former.failures);
        CertificateStanding { failures, ..self }.after_failure(now)
    }

    /// The platform's reason for revoking the certificate, if it was revoked. `holder` is the certificate's subject.
    pub(super) fn revoked<'a>(
        &self,
        holder: &Identity,
        lists: impl IntoIterator<Item = &'a DenyList>,
    ) -> Option<String> {
        let denial = lists.into_iter().find_map(|list| {
            let earlier = self.renews.as_ref();
            list.denied(holder, self.serial, self.not_before)
                .or_else(|| list.denied(holder, earlier?.serial, earlier?.not_before))
        })?;
        Some(format!(
            "its certificate {} was revoked at {}: {}",
            self.serial, denial.at, denial.reason
        ))
    }
}
