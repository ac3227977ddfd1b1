//! `backup` and `restore`: the platform's state in one file.

use std::io::{self, Write};
use std::path::Path;

use sealbus_control::admin::{BackupMade, ask};
use sealbus_files::sync_folder;
use sealbus_master::{RestoreError, check_backup, describe_backup, restore};
use serde_json::json;
use tempfile::NamedTempFile;

use super::run::EndSignals;
use super::store::etcd;
use super::{instant, manifest};
use crate::arguments::{Backup, General, Restore};
use crate::connection::{Connection, directory_of};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// `sealbus backup FILE`
pub(crate) async fn backup(
    connection: &mut Connection,
    backup: &Backup,
    output: Output,
) -> Result<(), CliError> {
    let path = &backup.file;
    let failed = CliError::file("create", path);
    if path.symlink_metadata().is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let folder = match path.parent() {
        // A name alone is one in the present folder.
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    };
    let mut signals = EndSignals::catch()?;
    // Half a backup is worth nothing: only a whole one gets the name.
    let draft = tempfile::Builder::new()
        .prefix(".sealbus-backup-")
        .tempfile_in(folder);
    let mut draft = draft.map_err(&failed)?;
    let written = tokio::select! {
        written = write(connection, backup, &mut draft) => written,
        () = signals.told() => Err(CliError::Failed {
            message: format!("the backup was interrupted, and {} was not written", path.display()),
            help: None,
        }),
    };
    let BackupMade { length, made } = written?;
    let named = draft.persist_noclobber(path);
    named.map_err(|error| failed(error.error))?;
    sync_folder(folder).map_err(CliError::file("write", path))?;
    let told = json!({ "file": path, "bytes": length, "made": made, "keys": backup.with_keys });
    output.show(&told, || {
        let keys = match backup.with_keys {
            true => "it holds the private keys: keep it as you keep them",
            false => "it holds no private key: keep ca.key of the state directory in another place",
        };
        format!("{length} bytes in {}; {keys}", path.display())
    });
    Ok(())
}

async fn write(
    connection: &mut Connection,
    backup: &Backup,
    draft: &mut NamedTempFile,
) -> Result<BackupMade, CliError> {
    let path = &backup.file;
    let keys = backup.with_keys;
    let made = connection.ask(ask::Backup { keys }).await?;
    let mut from = 0;
    loop {
        let piece = connection.ask(ask::BackupPiece { from }).await?.0;
        if piece.is_empty() {
            break;
        }
        draft
            .write_all(&piece)
            .map_err(CliError::file("write", path))?;
        from += piece.len() as u64;
    }
    let synced = draft.as_file().sync_all();
    synced.map_err(CliError::file("write", path))?;
    if from != made.length {
        return Err(CliError::Failed {
            message: "another backup was made meanwhile".to_owned(),
            help: Some("make one at a time".to_owned()),
        });
    }
    // Another backup that was made meanwhile may be as long.
    check_backup(draft.path())?;
    Ok(made)
}

/// `sealbus restore FILE`
pub(crate) async fn run_restore(
    general: &General,
    arguments: &Restore,
    output: Output,
) -> Result<(), CliError> {
    // The backup is read twice.
    let (file, _copy) = input::on_disk(&arguments.file)?;
    let platform = describe_backup(&file)?.platform;
    let directory = directory_of(general, &platform)?;
    let manifest = arguments.manifest.as_deref().map(manifest::read);
    let etcd = manifest.transpose()?.as_ref().and_then(etcd);
    let restored = restore(&file, &directory, etcd.as_ref()).await?;
    let told = json!({ "platform": platform, "state": directory, "made": restored.made });
    output.show(&told, || {
        format!(
            "the state of {platform} at {} is in {}\nstart its Master there with `sealbus up`; its nodes find it at the address that it had",
            instant(restored.made),
            directory.display()
        )
    });
    Ok(())
}

impl From<RestoreError> for CliError {
    fn from(error: RestoreError) -> Self {
        let help = match &error {
            RestoreError::Backup { .. } | RestoreError::Strange { .. } => "take another backup",
            RestoreError::NotEmpty(_) => {
                "name another directory with --state, or move that state away"
            }
            RestoreError::NoKey(_) => "`sealbus backup --with-keys` puts the keys into the backup",
            _ => "nothing was restored",
        };
        Self::Failed {
            message: error.to_string(),
            help: Some(help.to_owned()),
        }
    }
}
