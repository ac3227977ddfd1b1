//! Loading a CA from stored rows, which another CA of the platform may have left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::denylist::{DenyList, DenyListError, SignedDenyList};
use sealbus_seal::{IssuingAuthority, Timestamp, Trust};
use sealbus_store::Rows;
use sealbus_transparency::{
    Checkpoint, IssuanceRecord, LogError, LogFile, LogHead, LogWriter, Note,
};

use super::authorities::{AUTHORITY_ROW, KnownAuthority};
use super::certificates::Certificates;
use super::shares::Shares;
use super::workload::Workload;
use super::{
    CERTIFICATE_ROW, CaService, CertificationLog, DENY_LIST_ROW, IssuedCertificate, LEAF_ROW,
    TAKEN_UP_ROW, WORKLOAD_KEY_ROW, certificate_row, leaf_row, revocation,
};

/// Reads a file of the issuance log of a CA.
type ReadLog<'r> = dyn Fn(&str, LogFile) -> Result<Vec<u8>, LogError> + 'r;

/// The CA service cannot go on from its stored state.
#[derive(Debug, thiserror::Error)]
pub enum CaServiceError {
    /// A row cannot be read.
    #[error("the row {key} of the CA's state cannot be read: {error}")]
    DamagedRow {
        /// The row's key.
        key: String,
        /// The fault.
        error: String,
    },
    /// The files of the issuance log differ from the log.
    #[error("the issuance log is damaged: {0}")]
    Log(#[from] LogError),
    /// Leaves are missing from the issuance log.
    #[error(
        "the issuance log lacks its entry {index}: certificates may have been issued in secret"
    )]
    LogGap {
        /// The first missing leaf.
        index: u64,
    },
    /// The stored deny list is not this CA's, or is damaged.
    #[error("the stored deny list is invalid: {0}")]
    DenyList(#[from] DenyListError),
}

impl CaService {
    /// Loads a CA service from its rows. Without rows the service is new. `files` reads a file of the
    /// issuance log of a CA. Without it nobody writes the log to files either.
    ///
    /// The rows may come from another CA of the platform, whose Master led before. This CA then denies everything that the
    /// other one denied, and enters in its own log the certificates that the other one could no longer publish.
    ///
    /// # Errors
    /// [`CaServiceError`]. On damaged state nothing is certified.
    pub fn load<'r>(
        authority: IssuingAuthority,
        trust: Arc<Trust>,
        lifetime: Duration,
        rows: impl IntoIterator<Item = (&'r str, &'r [u8])>,
        files: Option<&ReadLog<'_>>,
        now: Timestamp,
    ) -> Result<Self, CaServiceError> {
        let name = authority.name().to_owned();
        let mut issued = Certificates::default();
        let mut leaves: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
        let mut taken_up: BTreeMap<&str, u64> = BTreeMap::new();
        let mut authorities: BTreeMap<String, KnownAuthority> = BTreeMap::new();
        let mut head = LogHead::default();
        let mut denials: BTreeMap<String, &[u8]> = BTreeMap::new();
        let mut events = CertificationLog::default();
        let mut workload = Workload::default();
        for (key, value) in rows {
            let damaged = |error: serde_json::Error| CaServiceError::DamagedRow {
                key: key.to_owned(),
                error: error.to_string(),
            };
            if key.starts_with(CERTIFICATE_ROW) {
                issued.insert(serde_json::from_slice(value).map_err(damaged)?);
            } else if let Some((log, index)) = parts(key, LEAF_ROW) {
                leaves.entry(log).or_default().insert(index, value);
            } else if let Some(log) = key.strip_prefix(TAKEN_UP_ROW) {
                taken_up.insert(log, serde_json::from_slice(value).map_err(damaged)?);
            } else if let Some(log) = key.strip_prefix(Self::LOG_ROW) {
                // Each CA goes on with its own log alone.
                if log == name {
                    head = serde_json::from_slice(value).map_err(damaged)?;
                }
            } else if let Some(named) = key.strip_prefix(AUTHORITY_ROW) {
                let known = serde_json::from_slice(value).map_err(damaged)?;
                authorities.insert(named.to_owned(), known);
            } else if key.starts_with(DENY_LIST_ROW) {
                denials.insert(key.to_owned(), value);
            } else if key.starts_with(WORKLOAD_KEY_ROW) {
                workload.restore(serde_json::from_slice(value).map_err(damaged)?);
            } else if key.starts_with(CertificationLog::ROW) {
                events.restore(serde_json::from_slice(value).map_err(damaged)?);
            }
        }
        let mut log = match files {
            Some(read) => LogWriter::resume(head, |file| read(&name, file))?,
            None => LogWriter::without_files(),
        };
        for (place, leaf) in leaves.remove(name.as_str()).unwrap_or_default() {
            let index = log.size();
            if place != format!("{index:016x}") {
                return Err(CaServiceError::LogGap { index });
            }
            log.append(leaf)?;
        }
        let mut held: Option<SignedDenyList> = None;
        for signed in denials.values() {
            held = Some(trust.open_kept_deny_list(signed, held.as_deref())?);
        }
        let deny_list = match held {
            Some(held) if held.authority() != authority.identity() => {
                held.into_list().succeeded_by(authority.identity().clone())
            }
            Some(held) => held.into_list(),
            None => DenyList::new(authority.identity().clone()),
        };
        let published = deny_list.sign(&authority)?;
        let mut service = Self {
            authority,
            trust,
            lifetime,
            log,
            deny_list,
            published,
            is_unpublished: true,
            kept: denials.into_keys().collect(),
            revocable: issued.values().map(IssuedCertificate::room).sum(),
            room: revocation::ROOM,
            pruned: now,
            remembers: false,
            issued,
            authorities,
            shares: Shares::default(),
            workload,
            events,
            rows: Rows::default(),
        };
        for (log, leaves) in leaves {
            let published = files.map_or(0, |read| size_of(read(log, LogFile::Checkpoint)));
            let known = taken_up.get(log).copied().unwrap_or_default();
            service.take_up(log, &leaves, published.max(known))?;
        }
        let chain = service.authority.chain().leaf().to_vec();
        if let Err(fault) = service.note_authority(&chain, now) {
            tracing::warn!(%fault, "the CA's own certificate");
        }
        service.publish_whole(now)?;
        Ok(service)
    }

    /// Enters in the log of this CA the last certificates of another one, which the other one could not publish before this
    /// CA took its place. The other one goes on with its own log if it certifies again.
    fn take_up(
        &mut self,
        log: &str,
        leaves: &BTreeMap<&str, &[u8]>,
        from: u64,
    ) -> Result<(), CaServiceError> {
        let mut end = from;
        for (place, leaf) in leaves {
            let damaged = |error: String| CaServiceError::DamagedRow {
                key: format!("{LEAF_ROW}{log}/{place}"),
                error,
            };
            let index =
                u64::from_str_radix(place, 16).map_err(|error| damaged(error.to_string()))?;
            if index < from {
                continue;
            }
            let record = IssuanceRecord::from_leaf(leaf).map_err(damaged)?;
            let here = self.log.append(leaf)?;
            let own = self.authority.name().to_owned();
            self.rows.put_bytes(leaf_row(&own, here), leaf.to_vec());
            if let Some(certificate) = self.issued.get_mut(&record.serial) {
                certificate.log = own;
                certificate.index = here;
                self.rows.put(certificate_row(record.serial), certificate);
            }
            end = index
                .checked_add(1)
                .ok_or_else(|| damaged("no entry can follow it".to_owned()))?;
        }
        if end > from {
            tracing::info!(target: "sealbus::certification", log, entries = end - from,
                "certificates that another CA could not publish are entered in the log of this one");
            self.rows.put(format!("{TAKEN_UP_ROW}{log}"), &end);
        }
        Ok(())
    }
}

/// The CA and the place in its log that a key names.
fn parts<'k>(key: &'k str, prefix: &str) -> Option<(&'k str, &'k str)> {
    key.strip_prefix(prefix)?.split_once('/')
}

/// The number of entries that a CA has published.
fn size_of(checkpoint: Result<Vec<u8>, LogError>) -> u64 {
    let size = |bytes: &[u8]| {
        let note = Note::parse(std::str::from_utf8(bytes).ok()?).ok()?;
        Some(Checkpoint::parse(note.text()).ok()?.size)
    };
    checkpoint.ok().and_then(|it| size(&it)).unwrap_or_default()
}
