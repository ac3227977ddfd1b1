//! `ca log verify`, and everything else that reads the issuance log without trust in it.

pub(crate) mod monitor;
#[cfg(test)]
pub(super) mod tests;

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sealbus_control::admin::ask;
use sealbus_enrolment::{Enrolment, LogReader};
use sealbus_seal::{
    CLOCK_SKEW, Certificate, CertificateChain, Fingerprint, Identity, IdentityKind, PlatformName,
    Timestamp, Trust,
};
use sealbus_transparency::{
    Audit, Checkpoint, Entry, Folder, IssuanceRecord, KeyKind, LogError, LogFile, Note, NoteKey,
};
use serde::Serialize;

use super::{instant, now};
use crate::arguments::{CaLogVerify, General, LogSource};
use crate::connection::Connection;
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// The place of a log.
enum LogOrigin {
    Folder(Folder),
    Platform(Box<LogReader>),
}

/// A log that is being read.
pub(super) struct Log {
    place: LogOrigin,
    pub(super) trust: Trust,
    pub(super) key: NoteKey,
    /// The certificate of the CA whose log it is: DER.
    pub(super) authority: Vec<u8>,
    /// The name of that CA.
    pub(super) identity: Identity,
    /// The alarms that the witnesses of a running platform raise about the log.
    pub(super) alarms: Vec<String>,
}

/// A cosignature that is good.
#[derive(Serialize)]
struct Cosignature {
    witness: String,
    /// Milliseconds since 1970.
    at: u64,
}

/// A certificate that must be in a log.
struct Wanted<'a> {
    path: &'a Path,
    der: Vec<u8>,
    hash: Fingerprint,
    is_there: bool,
}

/// The result of `ca log verify`.
#[derive(Serialize)]
struct Verified {
    origin: String,
    size: u64,
    root: String,
    cosignatures: Vec<Cosignature>,
    /// The entries of the certificates that were asked for.
    certificates: Vec<u64>,
}

pub(super) fn wrong(message: impl ToString) -> CliError {
    CliError::Failed {
        message: message.to_string(),
        help: Some("docs/evidence.md says what this proves".to_owned()),
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    input::read(path, u64::MAX)
}

/// The first certificate of a file, PEM or DER.
pub(super) fn certificate(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = read(path)?;
    Ok(match CertificateDer::pem_slice_iter(&bytes).next() {
        Some(Ok(der)) => der.to_vec(),
        _ => bytes,
    })
}

/// The platform of a log, and the way to it.
struct Source {
    root: Vec<u8>,
    platform: PlatformName,
    at: Option<Enrolment>,
    alarms: Vec<String>,
}

impl Source {
    async fn find(general: &General, from: &LogSource) -> Result<Self, CliError> {
        let mut alarms = Vec::new();
        let (root, address) = match &from.root {
            Some(path) => (certificate(path)?, from.address.clone()),
            None => {
                let mut connection = Connection::open(general).await?;
                let pem = connection.ask(ask::Root).await?;
                let status = connection.ask(ask::Status).await?;
                alarms = status.log_alarms;
                let root = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(wrong)?;
                (root.to_vec(), Some(status.enrolment.to_string()))
            }
        };
        let parsed = Certificate::parse(&root).map_err(wrong)?;
        let platform = parsed.identity().platform().clone();
        let at = address.map(|address| Enrolment {
            platform: platform.clone(),
            addresses: vec![address],
            root: Fingerprint::of(&root),
        });
        Ok(Self {
            root,
            platform,
            at,
            alarms,
        })
    }

    /// The log at this place, which must be that of the CA `name`, if one is given.
    async fn log(&self, mut place: LogOrigin, name: Option<&str>) -> Result<Log, CliError> {
        let roots = [self.root.clone().into()];
        let trust = Trust::new(self.platform.clone(), &roots, CLOCK_SKEW).map_err(wrong)?;
        let pem = place.read(LogFile::Authority).await?;
        let mut chain = CertificateDer::pem_slice_iter(&pem);
        let der = match chain.next() {
            Some(Ok(der)) => der,
            _ => return Err(wrong("the log names no authority")),
        };
        // The log of a CA outlives its certificate.
        let end = Certificate::parse(&der).map_err(wrong)?.not_after();
        let now = Timestamp::from_unix_seconds(now() / 1000).min(end);
        let authority = trust.verify_authority(&der, now).map_err(wrong)?;
        let identity = authority.identity();
        let is_its = |asked: &str| matches!(identity, Identity::Authority { name, .. } if name.as_str() == asked);
        if let Some(asked) = name.filter(|asked| !is_its(asked)) {
            return Err(wrong(format!(
                "the log of the CA {asked} is wanted, and this one is of {identity}"
            )));
        }
        let key = Checkpoint::key_of(authority.identity(), authority.public_key().clone());
        Ok(Log {
            place,
            trust,
            key: key.map_err(wrong)?,
            authority: der.to_vec(),
            identity: authority.identity().clone(),
            alarms: self.alarms.clone(),
        })
    }
}

impl Log {
    /// Finds the logs: that of one CA, or those of all. The one of the CA that certifies now is the first. Trusts only the
    /// root of the platform.
    pub(super) async fn open_all(
        general: &General,
        from: &LogSource,
    ) -> Result<Vec<Self>, CliError> {
        let source = Source::find(general, from).await?;
        if let Some(folder) = &from.folder {
            return Ok(vec![
                source
                    .log(LogOrigin::Folder(Folder::new(folder)), from.ca.as_deref())
                    .await?,
            ]);
        }
        let Some(at) = source.at.clone() else {
            return Err(CliError::Usage {
                message: "there is no log to read".to_owned(),
                help: "name --folder FOLDER or --address HOST:PORT".to_owned(),
            });
        };
        let names = match &from.ca {
            Some(name) => vec![name.clone()],
            None => {
                let names = LogReader::new(at.clone(), "").names().await;
                names.map_err(wrong)?
            }
        };
        let mut logs = Vec::new();
        for name in names {
            let reader = Box::new(LogReader::new(at.clone(), &name));
            let place = LogOrigin::Platform(reader);
            logs.push(source.log(place, Some(&name)).await?);
        }
        Ok(logs)
    }

    /// Finds one log: that of the named CA, or of the CA that certifies now.
    pub(super) async fn open(general: &General, from: &LogSource) -> Result<Self, CliError> {
        let logs = Self::open_all(general, from).await?;
        let first = logs.into_iter().next();
        first.ok_or_else(|| wrong("the platform has no log"))
    }

    /// The log's checkpoint, with its signature checked.
    pub(super) async fn checkpoint(&mut self) -> Result<(Note, Checkpoint), CliError> {
        let bytes = self.place.read(LogFile::Checkpoint).await?;
        let note = Note::parse(&String::from_utf8_lossy(&bytes)).map_err(wrong)?;
        let checkpoint = Checkpoint::open(&note, &self.key).map_err(wrong)?;
        Ok((note, checkpoint))
    }

    /// The nodes that cosigned a checkpoint: for each its key, its certificate chain and the time. The chain was valid
    /// then. A node states the time itself, and a wrong time spoils the node's own cosignature alone.
    pub(super) async fn witnesses(
        &mut self,
        note: &Note,
    ) -> Result<Vec<(NoteKey, CertificateChain, Timestamp)>, CliError> {
        let pem = self.place.read(LogFile::Witnesses).await?;
        let mut witnesses: Vec<(NoteKey, CertificateChain, Timestamp)> = Vec::new();
        let mut certificates = CertificateDer::pem_slice_iter(&pem).flatten().peekable();
        // A node's certificate comes before those of the authorities above it.
        while let Some(leaf) = certificates.next() {
            let mut chain = vec![leaf];
            while certificates.peek().is_some_and(|der| is_authority(der)) {
                chain.extend(certificates.next());
            }
            let chain = CertificateChain::new(chain).map_err(wrong)?;
            let node = chain.certificate().map_err(wrong)?;
            let name = node.identity().to_string();
            let is_known = witnesses.iter().any(|(known, ..)| known.name() == name);
            if is_known || node.identity().kind() != IdentityKind::Node {
                continue;
            }
            let Ok(key) = NoteKey::new(&name, KeyKind::Witness, node.public_key().clone()) else {
                continue;
            };
            let Ok(at) = note.verify(&key) else { continue };
            if self.trust.verify(&chain, at).is_ok() {
                witnesses.push((key, chain, at));
            }
        }
        Ok(witnesses)
    }

    /// The good cosignatures of a checkpoint: those of `outside`, which all must have cosigned, and those of nodes.
    async fn cosignatures(
        &mut self,
        note: &Note,
        outside: &[NoteKey],
        quorum: usize,
    ) -> Result<Vec<Cosignature>, CliError> {
        let mut all = Vec::new();
        for key in outside {
            all.push((key.clone(), note.verify(key).map_err(wrong)?));
        }
        let nodes = self.witnesses(note).await?.into_iter();
        all.extend(nodes.map(|(key, _, at)| (key, at)));
        let mut found: Vec<Cosignature> = Vec::new();
        for (key, at) in all {
            if found.iter().all(|known| known.witness != key.name()) {
                found.push(Cosignature {
                    witness: key.name().to_owned(),
                    at: at.as_unix_seconds() * 1000,
                });
            }
        }
        if found.len() < quorum {
            let found = found.len();
            return Err(wrong(format!(
                "{found} witnesses cosigned the checkpoint, and {quorum} must"
            )));
        }
        Ok(found)
    }

    /// Reads the files that the audit wants.
    pub(super) async fn drive(
        &mut self,
        audit: &mut Audit,
        mut each: impl FnMut(Entry, IssuanceRecord) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        while let Some(wanted) = audit.wants() {
            let (file, bytes) = self.place.read_or_full(wanted).await?;
            for entry in audit.give(file, &bytes).map_err(wrong)? {
                let record = IssuanceRecord::from_leaf(&entry.leaf)
                    .map_err(|why| wrong(format!("entry {}: {why}", entry.index)))?;
                // A CA also enters certificates that a lost CA could not publish.
                if record.authority.platform() != self.trust.platform() {
                    let index = entry.index;
                    return Err(wrong(format!("entry {index} is of {}", record.authority)));
                }
                each(entry, record)?;
            }
        }
        audit.finish().map(drop).map_err(wrong)
    }
}

fn is_authority(der: &CertificateDer<'_>) -> bool {
    Certificate::parse(der).is_ok_and(|certificate| certificate.is_authority())
}

impl LogOrigin {
    async fn read(&mut self, file: LogFile) -> Result<Vec<u8>, CliError> {
        match self {
            Self::Folder(folder) => folder.read(file).map_err(wrong),
            Self::Platform(reader) => reader.read(file).await.map_err(wrong),
        }
    }

    async fn read_or_full(&mut self, file: LogFile) -> Result<(LogFile, Vec<u8>), CliError> {
        let refused = match self.read(file).await {
            Ok(bytes) => return Ok((file, bytes)),
            Err(refused) => refused,
        };
        let full = file.full();
        if full == file {
            return Err(refused);
        }
        // The first error says more: the full one need not exist.
        let read = self.read(full).await;
        read.map(|bytes| (full, bytes)).map_err(|_| refused)
    }
}

/// `sealbus ca log verify`
pub(crate) async fn verify(
    general: &General,
    verify: &CaLogVerify,
    output: Output,
) -> Result<(), CliError> {
    let logs = Log::open_all(general, &verify.source).await?;
    let keys = witness_keys(&verify.witness)?;
    let mut against = Vec::new();
    for path in &verify.against {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let of_file = |error: LogError| wrong(format!("{}: {error}", path.display()));
        let note = Note::parse(&text).map_err(of_file)?;
        let seen = Checkpoint::parse(note.text()).map_err(of_file)?;
        if logs.iter().all(|log| log.key.name() != seen.origin) {
            return Err(of_file(LogError::Malformed("it is of another log")));
        }
        against.push((path, note, seen.origin));
    }
    let mut wanted = Vec::new();
    for path in &verify.certificate {
        let der = certificate(path)?;
        wanted.push(Wanted {
            path,
            hash: Fingerprint::of(&der),
            der,
            is_there: false,
        });
    }
    let mut alarms = Vec::new();
    for mut log in logs {
        let of_log = against
            .iter()
            .filter(|(.., origin)| origin == log.key.name());
        let of_log: Vec<_> = of_log.map(|(path, note, _)| (*path, note)).collect();
        let verified = verify_one(verify, &mut log, &keys, &of_log, &mut wanted, output).await?;
        output.line(&verified, || shown(&verified));
        alarms = log.alarms;
    }
    if let Some(Wanted { path, .. }) = wanted.iter().find(|it| !it.is_there) {
        return Err(wrong(format!(
            "the log lacks the certificate {}",
            path.display()
        )));
    }
    believed(&alarms)
}

/// The keys of witnesses outside the platform.
pub(super) fn witness_keys(keys: &[String]) -> Result<Vec<NoteKey>, CliError> {
    let keys = keys.iter().map(|key| key.parse::<NoteKey>());
    keys.map(|key| key.map_err(wrong)).collect()
}

/// An error if a witness of the running platform has seen another log.
fn believed(alarms: &[String]) -> Result<(), CliError> {
    match alarms.first() {
        Some(alarm) => Err(wrong(format!(
            "a witness does not believe this log: {alarm}"
        ))),
        None => Ok(()),
    }
}

/// Verifies one log, and notes which of the wanted certificates are in it.
async fn verify_one(
    verify: &CaLogVerify,
    log: &mut Log,
    keys: &[NoteKey],
    against: &[(&PathBuf, &Note)],
    wanted: &mut [Wanted<'_>],
    output: Output,
) -> Result<Verified, CliError> {
    let (note, checkpoint) = log.checkpoint().await?;
    let cosignatures = log.cosignatures(&note, keys, verify.quorum).await?;
    let mut audit = Audit::new(checkpoint.clone());
    for (path, note) in against {
        let of_file = |error| wrong(format!("{}: {error}", path.display()));
        let seen = Checkpoint::open(note, &log.key).map_err(of_file)?;
        audit.must_continue(&seen).map_err(of_file)?;
    }
    let bar = output.waiting("the log");
    let mut certificates = Vec::new();
    log.drive(&mut audit, |entry, record| {
        for wanted in wanted.iter_mut() {
            if wanted.hash == record.certificate {
                check_record(entry.index, &record, &wanted.der)?;
                wanted.is_there = true;
                certificates.push(entry.index);
            }
        }
        Ok(())
    })
    .await?;
    bar.finish_and_clear();
    Ok(Verified {
        origin: checkpoint.origin,
        size: checkpoint.size,
        root: HEXLOWER.encode(&checkpoint.root),
        cosignatures,
        certificates,
    })
}

/// An error if the entry with the hash of a certificate differs from the certificate.
fn check_record(index: u64, record: &IssuanceRecord, der: &[u8]) -> Result<(), CliError> {
    let certificate = Certificate::parse(der).map_err(wrong)?;
    match record.is_of(&certificate, der) {
        true => Ok(()),
        false => Err(wrong(format!(
            "entry {index} hides the certificate of {} under the name {}, or with another long-lived identity",
            certificate.identity(),
            record.identity
        ))),
    }
}

fn shown(verified: &Verified) -> String {
    let Verified {
        origin, size, root, ..
    } = verified;
    let mut text = format!("{origin}\n{size} certificates, root {root}: whole");
    for Cosignature { witness, at } in &verified.cosignatures {
        text.push_str(&format!("\ncosigned by {witness} at {}", instant(*at)));
    }
    if verified.cosignatures.is_empty() {
        text.push_str("\nno witness cosigned it");
    }
    for index in &verified.certificates {
        text.push_str(&format!("\nthe certificate is entry {index}"));
    }
    text
}
