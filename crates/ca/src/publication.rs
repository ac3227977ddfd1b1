//! The issuance log on its way into files.

use sealbus_control::Fault;
use sealbus_seal::{Renewed, Serial};
use sealbus_transparency::{Checkpoint, IssuanceRecord, LogError, LogHead, Note, Publication};

use crate::{CaService, IssuedCertificate, certificate_row, internal, leaf_row};

impl CaService {
    /// Enters a certificate in the issuance log and the list of certificates.
    pub(crate) fn enter(
        &mut self,
        record: IssuanceRecord,
        process: Option<&str>,
        renews: Option<Renewed>,
    ) -> Result<Serial, Fault> {
        let leaf = record
            .to_leaf()
            .map_err(|error: LogError| internal(&error))?;
        let index = self
            .log
            .append(&leaf)
            .map_err(|error: LogError| internal(&error))?;
        let log = self.authority.name().to_owned();
        self.rows.put_bytes(leaf_row(&log, index), leaf);
        let serial = record.serial;
        let certificate = IssuedCertificate {
            record,
            log,
            index,
            process: process.map(str::to_owned),
            renews,
            revoked: None,
            said: None,
        };
        self.rows.put(certificate_row(serial), &certificate);
        self.revocable += certificate.room();
        self.issued.insert(certificate);
        Ok(serial)
    }

    /// The files that publish the issuance log as it is, and its signed checkpoint. The log must be in the store before
    /// it is published.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn publication(&self) -> Result<(Publication, Note), Fault> {
        let publication = self.log.publication(self.authority.identity());
        let note = publication
            .checkpoint
            .sign(&self.authority)
            .map_err(|error| internal(&error))?;
        Ok((publication, note))
    }

    /// Notes that the files of a publication are on disk. The store no longer keeps their entries.
    pub fn published_files(&mut self, head: LogHead) {
        let log = self.authority.name();
        self.rows.put(format!("{}{log}", Self::LOG_ROW), &head);
        for index in self.log.written(head) {
            self.rows.delete(leaf_row(log, index));
        }
    }

    /// Size, root hash and signed checkpoint of the issuance log.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn checkpoint(&self) -> Result<(Checkpoint, Note), Fault> {
        let checkpoint = Checkpoint::of(self.authority.identity(), self.log.tree());
        let note = checkpoint
            .sign(&self.authority)
            .map_err(|error| internal(&error))?;
        Ok((checkpoint, note))
    }
}
