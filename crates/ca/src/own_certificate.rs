//! The CA's own certificate: its remaining time, and its renewal.

use std::fmt;
use std::time::Duration;

use sealbus_seal::denylist::DenyListError;
use sealbus_seal::{IssuingAuthority, Timestamp};

use crate::CaService;

const DAY: Duration = Duration::from_secs(86_400);

/// The time until the CA's own certificate ends. Certificates that the CA signs end no later than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// More than 60 days.
    Good,
    /// Less than 60 days. It is renewed, if the root's key is there.
    EndsSoon,
    /// Less than 14 days.
    EndsVerySoon,
    /// It has ended. Nothing can be certified.
    Ended,
}

impl Outlook {
    /// The name of the warning.
    pub const WARNING: &'static str = "ca-certificate-ends";
    /// The remaining time from which on the certificate is renewed, and operators are warned.
    pub const SOON: Duration = DAY.saturating_mul(60);
    /// The remaining time from which on the warning is an alarm.
    const VERY_SOON: Duration = DAY.saturating_mul(14);

    /// The outlook of a certificate that ends at `not_after`.
    pub fn of(not_after: Timestamp, now: Timestamp) -> Self {
        let left = not_after.since(now);
        if now > not_after {
            Self::Ended
        } else if left <= Self::VERY_SOON {
            Self::EndsVerySoon
        } else if left <= Self::SOON {
            Self::EndsSoon
        } else {
            Self::Good
        }
    }
}

/// The end of an authority's certificate, in words for operators.
pub struct Ending(pub Outlook, pub Timestamp);

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outlook, not_after) = self;
        let ends = match outlook {
            Outlook::Ended => "ended",
            _ => "ends",
        };
        write!(
            f,
            "{}: the CA's own certificate {ends} at {not_after}, and everything that it certified with it. \
             Put the root's key, root.key, into the state directory: the Master renews the certificate within a minute",
            Outlook::WARNING
        )
    }
}

impl CaService {
    /// The outlook of the CA's own certificate, and when the certificate ends.
    pub fn outlook(&self, now: Timestamp) -> Ending {
        let not_after = self.authority.certificate().not_after();
        Ending(Outlook::of(not_after, now), not_after)
    }

    /// Signs with a renewed certificate from now on. The deny list is signed again at once: a receiver of the list
    /// needs the authority's certificate to be valid.
    ///
    /// # Errors
    /// If the authority has another name, or cannot sign.
    pub fn sign_as(
        &mut self,
        renewed: IssuingAuthority,
        now: Timestamp,
    ) -> Result<(), DenyListError> {
        if renewed.identity() != self.authority.identity() {
            return Err(DenyListError::NotItsOwn {
                authority: self.authority.identity().clone(),
                signer: renewed.identity().clone(),
            });
        }
        self.authority = renewed;
        let certificate = self.authority.chain().leaf().to_vec();
        if let Err(fault) = self.note_authority(&certificate, now) {
            tracing::warn!(%fault, "the CA's own certificate");
        }
        self.deny_list
            .raise_version(self.deny_list.version().saturating_add(1));
        self.publish_whole(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outlook_worsens_at_60_days_at_14_days_and_at_the_end() {
        let end = Timestamp::from_unix_seconds(1_000_000_000);
        let second = Duration::from_secs(1);
        for (left, outlook) in [
            (DAY * 60 + second, Outlook::Good),
            (DAY * 60, Outlook::EndsSoon),
            (DAY * 14 + second, Outlook::EndsSoon),
            (DAY * 14, Outlook::EndsVerySoon),
            (Duration::ZERO, Outlook::EndsVerySoon),
        ] {
            assert_eq!(Outlook::of(end, end.minus(left)), outlook, "{left:?}");
        }
        assert_eq!(Outlook::of(end, end.plus(second)), Outlook::Ended);
    }
}
