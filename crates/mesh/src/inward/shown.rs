//! The certificates that the senders of a link have shown, and their delegations.

use std::collections::VecDeque;

use sealbus_bus::{ExplainedRefusal, Moment, RefusalReason};
use sealbus_proof::{Author, BatchKeyDelegation, NotProved, Verifier};
use sealbus_seal::{
    CertificateChain, Fingerprint, Serial, Timestamp, Trust, VerifiedIdentity, VerifyError,
};

/// The most certificates of one sender that are known at a time. A signature may belong to an earlier certificate than
/// the one shown last: it was under way, or is sent again on another connection.
const CERTIFICATES: usize = 8;
/// Why messages of a sender without a certificate are refused.
pub(super) const NO_CERTIFICATE: &str = "its author has shown no such certificate";

/// A certificate that a sender has shown.
struct Shown {
    serial: Serial,
    fingerprint: Fingerprint,
    /// The owner and the chain, if they were believed.
    believed: Option<(VerifiedIdentity, CertificateChain)>,
    /// The author, which others may get once the whole chain was checked, and not only the leaf.
    author: Option<Author>,
    /// A valid delegation to a batch key.
    delegation: Option<BatchKeyDelegation>,
}

/// The facts about one sender that checking its signatures needs.
#[derive(Default)]
pub(super) struct Unproved {
    /// The number of its messages that wait.
    pub(super) waiting: usize,
    /// Whether its handle counts among those of its agent.
    pub(super) is_counted: bool,
    /// The certificates that it has shown, latest first.
    shown: VecDeque<Shown>,
}

impl Unproved {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Notes a certificate that the sender has shown. `author`: set if the whole chain was checked.
    pub(super) fn add(
        &mut self,
        verified: VerifiedIdentity,
        chain: CertificateChain,
        author: Option<Author>,
    ) {
        self.show(Shown {
            serial: verified.serial(),
            fingerprint: verified.fingerprint(),
            believed: Some((verified, chain)),
            author,
            delegation: None,
        });
    }

    /// Notes a certificate that the sender has shown and that is not believed. A batch may hold messages under it
    /// beside those of others. If it was believed before, it still counts for messages signed under it.
    pub(super) fn add_refused(&mut self, chain: &CertificateChain) {
        if let Ok(certificate) = chain.certificate() {
            self.show(Shown {
                serial: certificate.serial(),
                fingerprint: Fingerprint::of(chain.leaf()),
                believed: None,
                author: None,
                delegation: None,
            });
        }
    }

    fn show(&mut self, mut shown: Shown) {
        let is_it = |it: &Shown| it.fingerprint == shown.fingerprint;
        if let Some(before) = self.shown.iter().position(is_it)
            && let Some(before) = self.shown.remove(before)
        {
            // Each batch checks again whether the certificate was revoked.
            shown.believed = shown.believed.or(before.believed);
            shown.author = shown.author.or(before.author);
            shown.delegation = before.delegation;
        }
        self.shown.truncate(CERTIFICATES - 1);
        self.shown.push_front(shown);
    }

    /// The SHA-256 of the certificate with this serial number, if the sender has shown it, believed or not.
    pub(super) fn certificate(&self, serial: Serial) -> Option<Fingerprint> {
        let shown = self.shown.iter().find(|shown| shown.serial == serial)?;
        Some(shown.fingerprint)
    }

    /// Notes that the sender has delegated to the key of its process, with the certificate of this serial number.
    pub(super) fn delegated(
        &mut self,
        serial: Serial,
        delegation: BatchKeyDelegation,
        verifier: &mut Verifier,
    ) -> Result<(), NotProved> {
        let shown = self.shown.iter_mut().find(|shown| shown.serial == serial);
        // A delegation under a refused certificate is not checked.
        if let Some(shown) = shown
            && let Some((verified, _)) = &shown.believed
            && shown.delegation.as_ref() != Some(&delegation)
        {
            verifier.delegated(verified, &delegation, Moment::now().unix_ms())?;
            shown.delegation = Some(delegation);
        }
        Ok(())
    }

    /// The author behind a certificate, and its delegation. The certificate may have ended since, but was not revoked.
    pub(super) fn author(
        &mut self,
        serial: Serial,
        trust: Option<&Trust>,
        now: Timestamp,
    ) -> Result<(Author, BatchKeyDelegation), ExplainedRefusal> {
        let no_certificate = || not_proved(NO_CERTIFICATE);
        let shown = self.shown.iter_mut().find(|shown| shown.serial == serial);
        let shown = shown.ok_or_else(no_certificate)?;
        let (verified, chain) = shown.believed.as_ref().ok_or_else(no_certificate)?;
        let trust = trust.ok_or_else(|| not_proved("no certificate is trusted here"))?;
        if let Err(error @ VerifyError::Revoked { .. }) = trust.check(verified, now) {
            return Err(ExplainedRefusal {
                reason: RefusalReason::from(&error),
                explanation: error.to_string(),
            });
        }
        let author = match shown.author.take() {
            Some(author) => author,
            None => {
                let then = now.min(verified.not_after());
                let author = Author::verify(chain.clone(), trust, then);
                author.map_err(|error| ExplainedRefusal {
                    reason: RefusalReason::from(&error),
                    explanation: error.to_string(),
                })?
            }
        };
        let author = shown.author.insert(author);
        let delegation = shown.delegation.clone();
        let delegation = delegation
            .ok_or_else(|| not_proved("its author delegated to no key of its process"))?;
        Ok((author.clone(), delegation))
    }
}

pub(super) fn not_proved(explanation: &str) -> ExplainedRefusal {
    ExplainedRefusal {
        reason: RefusalReason::NotProved,
        explanation: explanation.to_owned(),
    }
}
