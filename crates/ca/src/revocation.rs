//! Revocation, and the deny list that announces it.

mod unknown;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use sealbus_control::{Fault, FaultCode};
use sealbus_seal::denylist::{self, Denial, DenyListError, Reason, SERIAL_ENTRY};
use sealbus_seal::{Certificate, CertificateChain, Identity, PlatformName, Serial, Timestamp};
use sealbus_transparency::IssuanceRecord;

use super::{
    CaService, DENY_LIST_ROW, IssuedCertificate, SHOWN_AFTER_EXPIRY, certificate_row, internal,
    not_denied, subject, why,
};

/// How long the CA remembers that a sender of waiting messages was revoked. This is longer than messages without an
/// expiry are kept.
const SENDERS_REMEMBERED: Duration = Duration::from_secs(8 * 24 * 3600);
/// Bytes of the deny list that are kept free for revocations by operators: for 3,500 of them even with the longest names.
/// All other bytes are reserved for living certificates.
const FOR_OPERATORS: usize = 1 << 20;
/// Bytes of the longest entry that denies a sender: its URI has two names of 128 bytes.
const LONGEST_ENTRY: usize = 300;
/// Bytes of the deny list for certificates that are denied, or are alive and may be denied later.
pub(crate) const ROOM: usize = denylist::ROOM - FOR_OPERATORS;
/// Rows that the deny list is kept in before it is written whole again.
pub(crate) const MOST_ROWS: usize = 256;
/// Characters kept of an operator's reason.
const LONGEST_REASON: usize = 500;

/// The outcome of [`CaService::take_back`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// Whether more is denied than before.
    pub is_new: bool,
    /// The identities whose revocation by an operator was lost, with the time of the revocation.
    pub by_operator: Vec<(Identity, Timestamp)>,
}

/// The reason that an operator gave, if there is one.
pub(crate) fn said(text: &str) -> Option<String> {
    let said: String = text.trim().chars().take(LONGEST_REASON).collect();
    Some(said).filter(|said| !said.is_empty())
}

/// The process of this platform that an operator names by its SPIFFE identity, as `sealbus ca list` shows it.
pub fn named_process(platform: &PlatformName, what: &str) -> Option<Identity> {
    let named: Identity = what.parse().ok()?;
    let is_own = matches!(&named, Identity::Process { platform: of, .. } if of == platform);
    is_own.then_some(named)
}

/// The identities that an operator may mean: a process that is named by its identity, or an agent and a node of this name.
///
/// # Errors
/// [`FaultCode::IllegalName`].
pub(crate) fn named(platform: &PlatformName, what: &str) -> Result<Vec<Identity>, Fault> {
    if let Some(process) = named_process(platform, what) {
        return Ok(vec![process]);
    }
    let local = what.split('@').next().unwrap_or(what);
    let named = [Identity::agent, Identity::node].map(|named| named(platform, local));
    let named: Result<Vec<Identity>, _> = named.into_iter().collect();
    named.map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
}

impl CaService {
    /// Checks that the deny list has room for one more certificate. A certificate that cannot be revoked is not issued:
    /// without room, a revocation could only wait for the certificate's end.
    pub(crate) fn check_room(&mut self, now: Timestamp) -> Result<(), Fault> {
        let is_full = |service: &Self| {
            let reserved = (service.revocable + 1) * SERIAL_ENTRY;
            service.deny_list.bytes() + reserved > service.room
        };
        if is_full(self) && self.pruned != now {
            self.prune(now);
            if is_full(self) {
                // Nothing is kept any longer for CAs that are away.
                self.forget(&HashSet::new(), now);
                self.deny_list.prune(now);
            }
        }
        if !is_full(self) {
            return Ok(());
        }
        let message = format!(
            "the deny list has room for {} certificates, and {} live and {} are denied",
            self.room / SERIAL_ENTRY,
            self.revocable,
            self.deny_list.len()
        );
        Err(Fault::new(FaultCode::Full, message)
            .advise("what has expired makes room: shorten `certificate-lifetime` in the manifest"))
    }

    /// Revokes the living certificates of a process, or only those of one of its agents. Returns true if there is a new
    /// deny list to [publish](Self::publish).
    ///
    /// # Errors
    /// If the deny list is full.
    pub fn revoke_process(
        &mut self,
        process: &str,
        agent: Option<&str>,
        reason: Reason,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let of_agent = |certificate: &IssuedCertificate| match (agent, &certificate.record.identity)
        {
            (None, _) => true,
            (Some(agent), Identity::Agent { name, .. }) => name.as_str() == agent,
            _ => false,
        };
        let serials: Vec<Serial> = self
            .issued
            .of_process(process)
            .filter(|found| of_agent(found))
            .map(|found| found.record.serial)
            .collect();
        self.revoke(&serials, reason, None, now)
    }

    /// Revokes the living certificates of an agent, of a process with its agents, by its [identity](named_process), or one
    /// certificate by its serial number. Returns the revoked certificates. The operator's reason is shown together with the
    /// revocation.
    ///
    /// # Errors
    /// [`FaultCode::Unknown`] if there is no such certificate, or an error if the deny list is full.
    pub fn revoke_by_hand(
        &mut self,
        what: &str,
        said: &str,
        now: Timestamp,
    ) -> Result<Vec<IssuedCertificate>, Fault> {
        let living: BTreeSet<Serial> = self
            .named(what, now)
            .filter(|found| found.revoked.is_none())
            .map(|found| found.record.serial)
            .collect();
        let living: Vec<Serial> = living.into_iter().collect();
        if living.is_empty() {
            let message = format!("no living certificate belongs to {what}");
            return Err(Fault::new(FaultCode::Unknown, message)
                .advise("`sealbus ca list` shows identities and serial numbers"));
        }
        let said = self::said(said);
        self.revoke(&living, Reason::ByOperator, said.as_deref(), now)?;
        // A client's certificate sends nothing on the bus. Revoking it by its number does not concern the client's
        // agent.
        let number: Option<Serial> = what.parse().ok();
        let mut senders = living.clone();
        senders.retain(|serial| {
            let is_client = || {
                self.issued
                    .get(serial)
                    .is_some_and(|it| it.process.is_none())
            };
            !(number == Some(*serial) && is_client())
        });
        self.deny_senders(&senders, now)?;
        let revoked = living.iter().filter_map(|serial| self.issued.get(serial));
        Ok(revoked.cloned().collect())
    }

    /// The certificates of an agent or of a process, or the one with this serial number, that operators have revoked.
    pub fn revoked_by_hand(&self, what: &str, now: Timestamp) -> Vec<IssuedCertificate> {
        let by_operator = |denial: Denial| denial.reason == Reason::ByOperator;
        self.named(what, now)
            .filter(|found| found.revoked.is_some_and(by_operator))
            .cloned()
            .collect()
    }

    /// Whether all certificates of an identity up to some moment are denied, known here or not.
    pub fn is_denied(&self, identity: &Identity) -> bool {
        self.deny_list.denied_before(identity).is_some()
    }

    /// The certificates of an agent, of a process with its agents, or the one with this serial number, that have not ended.
    fn named(&self, what: &str, now: Timestamp) -> impl Iterator<Item = &IssuedCertificate> {
        let serial: Option<Serial> = what.parse().ok();
        let by_serial = serial.and_then(|serial| self.issued.get(&serial));
        let local = what.split('@').next().unwrap_or(what);
        // The identity of a process ends with its id.
        let process = named_process(self.trust.platform(), what);
        let process = process.and_then(|_| what.rsplit('/').next());
        let issued = &self.issued;
        let of_process = process
            .into_iter()
            .flat_map(move |id| issued.of_process(id));
        let all = issued.of_subject(local).chain(by_serial).chain(of_process);
        all.filter(move |found| found.end(self.remembers) >= now)
    }

    /// Denies delivery of waiting messages that the holders of these certificates sent before now. Their newer
    /// certificates stay valid.
    fn deny_senders(&mut self, serials: &[Serial], now: Timestamp) -> Result<(), Fault> {
        let denial = Denial {
            at: now,
            reason: Reason::ByOperator,
        };
        for serial in serials {
            let Some(certificate) = self.issued.get(serial) else {
                continue;
            };
            let record = &certificate.record;
            if !matches!(record.identity, Identity::Agent { .. }) {
                continue;
            }
            let is_held = self.is_denied(&record.identity);
            if !is_held && self.has_no_room_for_identities() {
                let message = format!(
                    "{} is revoked, but what it sent before and still waits is delivered: the deny list holds no more senders",
                    record.identity
                );
                return Err(Fault::new(FaultCode::Full, message)
                    .advise("kill the agent, or empty the mailboxes it wrote to"));
            }
            let before = record.not_before.plus(Duration::from_secs(1));
            self.deny_list
                .deny_identity_before(
                    record.identity.clone(),
                    before,
                    now.plus(SENDERS_REMEMBERED),
                    denial,
                )
                .map_err(|error| not_denied(&error))?;
            self.is_unpublished = true;
        }
        Ok(())
    }

    /// Whether the denied identities take all bytes that are kept free for operators. More of them would take the place
    /// of certificates.
    fn has_no_room_for_identities(&self) -> bool {
        let list = &self.deny_list;
        let serials = (list.len() - list.identities()) * SERIAL_ENTRY;
        list.bytes() - serials + LONGEST_ENTRY > FOR_OPERATORS
    }

    pub(crate) fn revoke(
        &mut self,
        serials: &[Serial],
        reason: Reason,
        said: Option<&str>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let version = self.deny_list.version();
        let denied = self.deny_each(serials, reason, said, now);
        // A serial number that is denied already needs no new list. If the list has no room for all, the first ones are denied.
        let changed = self.deny_list.version() > version;
        self.is_unpublished |= changed;
        denied.map(|()| changed)
    }

    fn deny_each(
        &mut self,
        serials: &[Serial],
        reason: Reason,
        said: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let denial = Denial { at: now, reason };
        // Another CA may have renewed the same certificate once more.
        for serial in serials {
            let renewed = self.issued.get(serial).and_then(|found| found.renews);
            if let Some(renewed) = renewed.filter(|renewed| now < renewed.until()) {
                self.deny_list
                    .deny_serial(renewed.serial, renewed.until(), denial)
                    .map_err(|error| not_denied(&error))?;
            }
        }
        for serial in serials {
            let Some(certificate) = self.issued.get_mut(serial) else {
                continue;
            };
            let (not_after, end) = (
                certificate.record.not_after,
                certificate.end(self.remembers),
            );
            if certificate.revoked.is_some() || end.plus(SHOWN_AFTER_EXPIRY) < now {
                continue;
            }
            // The denial of a living certificate is remembered longer while another CA is away.
            let last = if not_after < now { end } else { not_after };
            self.deny_list
                .deny_serial(*serial, last, denial)
                .map_err(|error| not_denied(&error))?;
            self.revocable -= certificate.room();
            certificate.revoked = Some(denial);
            certificate.said = said.map(str::to_owned);
            self.rows.put(certificate_row(*serial), certificate);
            let subject = subject(&certificate.record.identity);
            let what = format!("revoked: {}", why(reason, said));
            self.events
                .enter(0, &subject, None, Some(*serial), what, now);
            tracing::info!(target: "sealbus::certification", %serial, agent = %subject, %reason, "revoked");
        }
        Ok(())
    }

    /// When and why a certificate was revoked, as far as it is known here.
    pub fn denial(&self, serial: Serial) -> Option<Denial> {
        let revoked = self.issued.get(&serial).and_then(|found| found.revoked);
        revoked.or_else(|| self.deny_list.denied_serial(serial))
    }

    /// Revokes a renewed certificate to which its process has no right.
    ///
    /// # Errors
    /// [`FaultCode::Full`] if the deny list is full.
    pub fn revoke_renewed(&mut self, serial: Serial, now: Timestamp) -> Result<(), Fault> {
        self.revoke(&[serial], Reason::Ended, None, now).map(drop)
    }

    /// Signs the deny list if it changed, and puts it in force here. One call serves all certificates that were revoked
    /// together. Its cost grows with their number.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn publish(&mut self, now: Timestamp) -> Result<(), DenyListError> {
        if !self.is_unpublished {
            return Ok(());
        }
        if self.kept.len() >= MOST_ROWS {
            return self.publish_whole(now);
        }
        let known = self.published.version();
        self.sign(now)?;
        let changes = self.published.since(known);
        self.put_in_force(&changes, now);
        self.keep(changes);
        Ok(())
    }

    /// As [`publish`](Self::publish), and keeps the whole list in place of all changes to an older one.
    pub(crate) fn publish_whole(&mut self, now: Timestamp) -> Result<(), DenyListError> {
        self.sign(now)?;
        let whole = self.published.whole();
        self.put_in_force(&whole, now);
        for row in std::mem::take(&mut self.kept) {
            self.rows.delete(row);
        }
        self.keep(whole);
        Ok(())
    }

    /// Takes back a signed deny list that this CA, or one that certified before it, gave out earlier. Puts the entries that
    /// this CA lacks in force again. This CA lacks entries if its store is an older copy, or if the other CA was gone before
    /// it could store them. The next list that this CA signs has a later version, so that everyone takes it.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if it is no list of a CA of this platform; [`FaultCode::Full`] if the deny list is full.
    pub fn take_back(&mut self, signed: &[u8], now: Timestamp) -> Result<TakenBack, Fault> {
        let refused = |why: &dyn std::fmt::Display| {
            let message = format!("the deny list that was handed back is not believed: {why}");
            Fault::new(FaultCode::BadRequest, message)
        };
        let handed = self
            .trust
            .open_kept_deny_list(signed, None)
            .map_err(|error| refused(&error))?;
        let is_new = handed.outlasts(&self.deny_list);
        // Otherwise the holder had not heard of the present list yet, or its version is one that cannot be passed.
        // Nothing is lost.
        let is_later = handed.version() > self.published.version();
        if !(is_new || is_later && self.deny_list.follows(&handed, now)) {
            return Ok(TakenBack::default());
        }
        let held = self.deny_list.len();
        self.deny_list.pass(&handed, now);
        let version = self.deny_list.version();
        let taken = self.deny_list.take_over(&handed, now);
        // If the list has no room for all, the first ones are denied. If the list has room for none, nothing is published,
        // because the holder hands its list back again and again.
        self.is_unpublished |= taken.is_ok() || self.deny_list.version() > version;
        let denied_anew = taken.map_err(|error| Fault::new(FaultCode::Full, error.to_string()))?;
        for (serial, denial) in handed.serials() {
            let Some(certificate) = self.issued.get_mut(&serial) else {
                continue;
            };
            if certificate.revoked.is_none() {
                self.revocable -= certificate.room();
                certificate.revoked = Some(denial);
                self.rows.put(certificate_row(serial), certificate);
            }
        }
        let denials = self.deny_list.len() - held;
        tracing::warn!(
            target: "sealbus::revocation",
            warning = "deny-list-handed-back",
            denials,
            version = handed.version(),
            "the stored deny list was older than the one in force; what it lacked is denied again"
        );
        let by_operator = denied_anew
            .into_iter()
            .filter(|(_, denial)| denial.reason == Reason::ByOperator);
        Ok(TakenBack {
            is_new,
            by_operator: by_operator
                .map(|(identity, denial)| (identity, denial.at))
                .collect(),
        })
    }

    /// Enters again a certificate that this CA issued and that its store, an older copy, does not know. The certificate
    /// enters the issuance log, and can be revoked from now on. The caller has verified the chain. A known certificate
    /// is left alone.
    ///
    /// # Errors
    /// If the certificate cannot be read.
    pub fn take_back_certificate(
        &mut self,
        chain: &CertificateChain,
        process: &str,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let certificate = chain.certificate().map_err(|error| internal(&error))?;
        if self.issued.get(&certificate.serial()).is_some() {
            return Ok(());
        }
        let issuer = match chain.issuers().first() {
            Some(der) => Certificate::parse(der).map_err(|error| internal(&error))?,
            None => self.authority.certificate().clone(),
        };
        let record = IssuanceRecord::of(&certificate, chain.leaf(), None, issuer.identity(), now);
        let serial = self.enter(record, Some(process), certificate.renews().copied())?;
        let subject = subject(certificate.identity());
        let what = format!("its certificate was taken back, serial {serial}");
        self.events
            .enter(0, &subject, None, Some(serial), what, now);
        Ok(())
    }

    fn sign(&mut self, now: Timestamp) -> Result<(), DenyListError> {
        // A list from an older copy of the store must count as newer than the lists given out since.
        self.deny_list.raise_version(denylist::version_at(now));
        self.published = self.deny_list.sign(&self.authority)?;
        self.is_unpublished = false;
        Ok(())
    }

    fn put_in_force(&self, signed: &[u8], now: Timestamp) {
        let applied = self.trust.apply_deny_list(signed, now);
        let applied = match applied {
            Err(error) if error.needs_whole_list() => {
                self.trust.apply_deny_list(&self.published.whole(), now)
            }
            applied => applied,
        };
        // Only an older list would be refused, and no other list exists.
        if let Err(error) = applied {
            tracing::error!(%error, "the CA's own deny list was not accepted");
        }
    }

    fn keep(&mut self, signed: Vec<u8>) {
        let row = format!("{DENY_LIST_ROW}{:016x}", self.published.version());
        self.rows.put_bytes(row.clone(), signed);
        self.kept.push(row);
    }
}
