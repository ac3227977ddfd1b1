//! Revocation of certificates that this CA does not know: another CA issued them, or the store is an older copy.

use std::time::Duration;

use sealbus_control::Fault;
use sealbus_seal::denylist::{Denial, Reason};
use sealbus_seal::{Identity, Serial, Timestamp};

use crate::{CaService, NODE_CERTIFICATE, not_denied, subject, why};

impl CaService {
    /// Denies an agent, a node or a process until the time at which another CA revoked it. Certificates that begin later are not denied.
    ///
    /// # Errors
    /// [`FaultCode::Full`](sealbus_control::FaultCode::Full) if the deny list is full.
    pub fn take_in_denial(
        &mut self,
        revoked: Identity,
        said: &str,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let why = why(Reason::ByOperator, super::said(said).as_deref());
        let what = format!("revoked at {at} while the store was away: {why}");
        self.deny_identity(revoked, what, at, now)
    }

    /// Denies an agent, a node or a process until now, with the certificates that are not known here: another CA may have renewed one, or
    /// the store is an older copy.
    ///
    /// # Errors
    /// [`FaultCode::Full`](sealbus_control::FaultCode::Full) if the deny list is full.
    pub fn revoke_unknown(
        &mut self,
        revoked: Identity,
        said: &str,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let why = why(Reason::ByOperator, super::said(said).as_deref());
        let what = format!("revoked, with what other CAs certified: {why}");
        self.deny_identity(revoked, what, now, now)
    }

    /// Denies the certificate with this serial number, if it is not known here: the store is an older copy, or has not taken in yet
    /// that another CA renewed it.
    ///
    /// # Errors
    /// [`FaultCode::Full`](sealbus_control::FaultCode::Full) if the deny list is full.
    pub fn revoke_unknown_serial(
        &mut self,
        serial: Serial,
        said: &str,
        now: Timestamp,
    ) -> Result<(), Fault> {
        if self.issued.get(&serial).is_some() {
            return Ok(());
        }
        let denial = Denial {
            at: now,
            reason: Reason::ByOperator,
        };
        self.deny_list
            .deny_serial(serial, now.plus(NODE_CERTIFICATE), denial)
            .map_err(|error| not_denied(&error))?;
        self.is_unpublished = true;
        let why = why(Reason::ByOperator, super::said(said).as_deref());
        let what = format!("revoked, although the CA does not know it: {why}");
        let subject = serial.to_string();
        self.events
            .enter(0, &subject, None, Some(serial), what, now);
        Ok(())
    }

    fn deny_identity(
        &mut self,
        identity: Identity,
        what: String,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let denial = Denial {
            at,
            reason: Reason::ByOperator,
        };
        let before = at.plus(Duration::from_secs(1));
        // A certificate of a gateway's caller may live as long as a node's.
        let last = at.plus(NODE_CERTIFICATE);
        self.deny_list
            .deny_identity_before(identity.clone(), before, last, denial)
            .map_err(|error| not_denied(&error))?;
        self.is_unpublished = true;
        self.events
            .enter(0, &subject(&identity), None, None, what, now);
        Ok(())
    }
}
