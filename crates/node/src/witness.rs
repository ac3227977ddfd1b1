//! The node as a witness of issuance logs (C2SP tlog-witness): it keeps the latest checkpoint of each log, and cosigns
//! only a checkpoint that continues it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealbus_control::clock::{now, timestamp};
use sealbus_control::node::Cosigning;
use sealbus_control::{Blob, Fault, FaultCode};
use sealbus_files::{folder, write_private};
use sealbus_seal::{CertificateChain, Credential, Identity, Timestamp, Trust};
use sealbus_transparency::{AddCheckpoint, Checkpoint, LogError, Note, Witness, WitnessRefusal};

/// The folder of the kept checkpoints, in the node's state folder.
const FOLDER: &str = "witness";

/// The stored checkpoints: for each CA the file `NAME.checkpoint`, and `NAME.alarm` if the CA showed another log.
pub(crate) struct Witnesses {
    folder: PathBuf,
    /// Checkpoints are judged one after another, in the order in which they came.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Witnesses {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            folder: directory.join(FOLDER),
            turn: Arc::default(),
        }
    }

    /// Judges a checkpoint. It is on disk before its cosignature is sent.
    pub(crate) async fn cosign(
        &self,
        trust: Arc<Trust>,
        credential: Arc<Credential>,
        request: String,
        authority: Blob,
    ) -> Result<Cosigning, Fault> {
        let turn = self.turn.clone().lock_owned().await;
        let folder = self.folder.clone();
        let judging = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let now = timestamp(now());
            judge(&folder, &trust, &credential, &request, &authority, now)
        });
        judging
            .await
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?
    }
}

fn judge(
    place: &Path,
    trust: &Trust,
    credential: &Credential,
    request: &str,
    authority: &Blob,
    now: Timestamp,
) -> Result<Cosigning, Fault> {
    let bad = |error: &dyn std::error::Error| Fault::new(FaultCode::BadRequest, error.to_string());
    let storage = |path: &Path, error: &dyn std::error::Error| {
        let message = format!("the witness's file {}: {error}", path.display());
        Fault::new(FaultCode::Storage, message)
    };
    let chain = CertificateChain::decode(&authority.0).map_err(|error| bad(&error))?;
    let authority = trust
        .verify_authority(chain.leaf(), now)
        .map_err(|error| bad(&error))?;
    let Identity::Authority { name, .. } = authority.identity() else {
        return Err(Fault::new(FaultCode::BadRequest, "the log is of no CA"));
    };
    let key = Checkpoint::key_of(authority.identity(), authority.public_key().clone())
        .map_err(|error| bad(&error))?;
    let request = AddCheckpoint::parse(request).map_err(|error| bad(&error))?;
    folder(place).map_err(|error| storage(place, &error))?;
    let path = place.join(format!("{name}.checkpoint"));
    let kept = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(storage(&path, &error)),
    };
    let latest = kept
        .as_deref()
        .map(|text| Checkpoint::parse(Note::parse(text)?.text()))
        .transpose()
        .map_err(|error: LogError| storage(&path, &error))?;
    let checkpoint = match Witness::new(key.clone(), latest).consider(&request) {
        Ok(checkpoint) => checkpoint,
        Err(WitnessRefusal::Seen(size)) => return Ok(Cosigning::Seen { size }),
        Err(refusal) if refusal.is_alarm() => {
            tracing::error!(authority = %name, %refusal, "THE ISSUANCE LOG IS NOT WHAT IT WAS");
            // Both checkpoints together are the evidence.
            let evidence = format!("{}\n{}", kept.unwrap_or_default(), request.note);
            let path = place.join(format!("{name}.alarm"));
            write_private(&path, evidence.as_bytes()).map_err(|error| storage(&path, &error))?;
            let why = refusal.to_string();
            return Ok(Cosigning::Alarm { why });
        }
        Err(refusal) => return Err(bad(&refusal)),
    };
    // Other signatures are not stored, so that nobody can make the file longer.
    let note = request.note.signed_by(&[&key]).to_string();
    write_private(&path, note.as_bytes()).map_err(|error| storage(&path, &error))?;
    let certificate = credential.certificate().map_err(|error| bad(&error))?;
    let witness = certificate.identity().to_string();
    let signature = checkpoint
        .cosign(&witness, credential.key(), now)
        .map_err(|error| bad(&error))?;
    let mut chain = Vec::new();
    credential.chain().encode(&mut chain);
    Ok(Cosigning::Cosigned {
        signature: signature.to_string(),
        chain: Blob(chain),
    })
}
