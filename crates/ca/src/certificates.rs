//! The certificates that were issued and have not expired long ago, by serial number, process and subject.

use std::collections::{HashMap, HashSet};

use sealbus_seal::{Identity, Serial, Timestamp};

use super::{IssuedCertificate, subject};
use sealbus_control::Fault;
use sealbus_control::admin::{CertificatesPage, Page};

/// Issued certificates.
#[derive(Default)]
pub(crate) struct Certificates {
    all: HashMap<Serial, IssuedCertificate>,
    by_process: HashMap<String, Vec<Serial>>,
    by_subject: HashMap<String, Vec<Serial>>,
}

impl Certificates {
    pub(crate) fn insert(&mut self, certificate: IssuedCertificate) {
        let serial = certificate.record.serial;
        if let Some(process) = &certificate.process {
            let of_process = self.by_process.entry(process.clone()).or_default();
            of_process.push(serial);
        }
        let subject = subject(&certificate.record.identity);
        self.by_subject.entry(subject).or_default().push(serial);
        self.all.insert(serial, certificate);
    }

    pub(crate) fn get(&self, serial: &Serial) -> Option<&IssuedCertificate> {
        self.all.get(serial)
    }

    pub(crate) fn get_mut(&mut self, serial: &Serial) -> Option<&mut IssuedCertificate> {
        self.all.get_mut(serial)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &IssuedCertificate> {
        self.all.values()
    }

    /// The certificates of a process and of its agents.
    pub(crate) fn of_process(&self, process: &str) -> impl Iterator<Item = &IssuedCertificate> {
        let serials = self.by_process.get(process).into_iter().flatten();
        serials.filter_map(|serial| self.all.get(serial))
    }

    /// The certificates of an agent, by its local name, or of a node.
    pub(crate) fn of_subject(&self, subject: &str) -> impl Iterator<Item = &IssuedCertificate> {
        let serials = self.by_subject.get(subject).into_iter().flatten();
        serials.filter_map(|serial| self.all.get(serial))
    }

    /// A page of the certificates, in the order they were issued.
    pub(crate) fn page(
        &self,
        all: bool,
        of: Option<&str>,
        page: &Page,
        now: Timestamp,
    ) -> Result<CertificatesPage, Fault> {
        let after = page.start(place)?;
        let is_wanted = |found: &&IssuedCertificate| {
            (all || found.revoked.is_none() && found.record.not_after >= now)
                && after.is_none_or(|after| found.place() > after)
        };
        let mut found: Vec<&IssuedCertificate> = match of {
            Some(subject) => self.of_subject(subject).filter(is_wanted).collect(),
            None => self.values().filter(is_wanted).collect(),
        };
        // The rest needs no order.
        if found.len() > page.most().saturating_add(1) {
            found.select_nth_unstable_by_key(page.most(), |found| found.place());
            found.truncate(page.most().saturating_add(1));
        }
        found.sort_unstable_by_key(|found| found.place());
        let (found, end) = page.cut(found.into_iter(), |found| {
            let (at, log, index) = found.place();
            format!("{}/{log}/{index}", at.as_unix_seconds())
        });
        let statuses = found.into_iter().map(IssuedCertificate::status).collect();
        Ok(CertificatesPage::from((statuses, end)))
    }

    /// The latest certificate of each process for each subject, if another CA may still renew it.
    pub(crate) fn latest_renewable(&self, now: Timestamp) -> HashSet<Serial> {
        let mut latest: HashMap<(&str, &Identity), &IssuedCertificate> = HashMap::new();
        let place = |found: &IssuedCertificate| (found.end(true), found.record.not_after);
        for found in self.all.values() {
            let Some(process) = &found.process else {
                continue;
            };
            if found.revoked.is_some() || found.end(true) < now {
                continue;
            }
            let held = latest.entry((process, &found.record.identity));
            let held = held.or_insert(found);
            if place(held) < place(found) {
                *held = found;
            }
        }
        latest.values().map(|found| found.record.serial).collect()
    }

    /// Takes out the certificates for which `is_over` holds.
    pub(crate) fn take(
        &mut self,
        is_over: impl Fn(&IssuedCertificate) -> bool,
    ) -> Vec<IssuedCertificate> {
        let over = self.all.extract_if(|_, found| is_over(found));
        let taken: Vec<IssuedCertificate> = over.map(|(_, taken)| taken).collect();
        let all = &self.all;
        for index in [&mut self.by_process, &mut self.by_subject] {
            index.retain(|_, serials| {
                serials.retain(|serial| all.contains_key(serial));
                !serials.is_empty()
            });
        }
        taken
    }
}

/// The place of a certificate in the order they were issued, from the text that ends a page.
fn place(text: &str) -> Option<(Timestamp, &str, u64)> {
    let (at, rest) = text.split_once('/')?;
    let (log, index) = rest.rsplit_once('/')?;
    let at = Timestamp::from_unix_seconds(at.parse().ok()?);
    Some((at, log, index.parse().ok()?))
}
