//! Restoring a Master's state directory from a backup.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::AuthoritiesError;
use super::authorities::{
    CA_CHAIN, CA_KEY, ROOT_CERTIFICATE, ROOT_KEY, check_issuing, is_in_token,
};
use super::backup::{FILES, KEYS, log_file};
use super::issuance_log::{self, LOGS};
use super::state::RESTORED_ROW;
use super::state_store::{ROOT_ROW, STORE, State, StateError, note_root};
use super::unstored::UNSTORED_ROW;
use super::written::{ClockBehind, Written};
use sealbus_control::clock::now;
use sealbus_files::{folder, sync_folder, write_private};
use sealbus_seal::{IdentityError, PlatformName, random_hex};
use sealbus_store::backup::{BackupError, BackupReader, Description, Part};
use sealbus_store::etcd::EtcdSettings;
use sealbus_store::{
    Batch, EmbeddedStore, RESTORING_ROW, Revision, Store, StoreError, TERM_ROW, read_all,
    restore_term,
};

/// The store while it is written or, if the store is etcd, the name of the attempt. If this file is there, an earlier attempt was
/// interrupted.
const DRAFT: &str = "restored.draft";
/// The longest name of an attempt that is read.
const NAME_LENGTH: u64 = 64;
/// Rows written at a time.
const ROWS: usize = 1000;

/// The reason why a backup could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is no backup, or a damaged one.
    #[error("{} cannot be restored: {error}", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: BackupError,
    },
    /// The file has a part that no backup of a Master has.
    #[error("{} cannot be restored: it is damaged: {what} belongs to no backup", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// The strange name.
        what: String,
    },
    /// There is a state already.
    #[error("{} is there already: a backup is restored into an empty state directory only", .0.display())]
    NotEmpty(PathBuf),
    /// The CA's private key is neither in the backup nor in the state directory.
    #[error("the backup has no private keys, and {} is not there: put the CA's key there first, or root.key, with which the Master makes another CA", .0.display())]
    NoKey(PathBuf),
    /// The CA's key and certificate cannot be used.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The clock is behind the backup.
    #[error(transparent)]
    ClockBehind(#[from] ClockBehind),
    /// etcd holds a state of this platform already.
    #[error(
        "etcd holds a state of {0} already: a backup is restored into an etcd that holds none; `etcdctl del --prefix /sealbus/{0}/` removes it for ever"
    )]
    EtcdNotEmpty(PlatformName),
    /// An attempt was interrupted, and etcd does not have it.
    #[error(
        "{} is left of a restore that was interrupted, and etcd does not hold that one any more: its state of {platform} was completed, or is another one, and a Master may have led on it since. Nothing there was changed. To go on with that state, remove {} and start the Master; to restore anew, first remove that state for ever: `etcdctl del --prefix /sealbus/{platform}/`",
        draft.display(), draft.display()
    )]
    DraftLeft {
        /// The draft.
        draft: PathBuf,
        /// The platform.
        platform: PlatformName,
    },
    /// The platform's name is not valid.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// The state cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// `open`, `write`, `make`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

fn file_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |error| RestoreError::File {
        action,
        path: path.clone(),
        error,
    }
}

/// Reads the description of a backup.
///
/// # Errors
/// [`RestoreError::File`] or [`RestoreError::Backup`].
pub fn describe_backup(file: &Path) -> Result<Description, RestoreError> {
    Ok(open(file)?.description().clone())
}

/// Reads a backup to its end, and checks that it is whole.
///
/// # Errors
/// [`RestoreError::File`], [`RestoreError::Backup`] or [`RestoreError::Strange`].
pub fn check_backup(file: &Path) -> Result<(), RestoreError> {
    check(file).map(drop)
}

/// Restores the state directory of a Master that does not run, and the state in `etcd` if one is given. `directory` may
/// hold the CA's key, or the root's, and the folders of nodes of this machine. Nothing is written before all of the backup was read and is sound.
///
/// The restored state has a higher term than any Master before, and its Master first collects the facts that nodes know
/// better than the backup: their processes, and revocations.
///
/// # Errors
/// [`RestoreError`].
pub async fn restore(
    file: &Path,
    directory: &Path,
    etcd: Option<&EtcdSettings>,
) -> Result<Description, RestoreError> {
    let checked = check(file)?;
    let time = now();
    let made = Written {
        at: checked.description.made,
        directory: 0,
    };
    made.check_clock(time)?;
    folder(directory).map_err(file_error("make", directory))?;
    let at = |name: &str| directory.join(name);
    let was_interrupted = at(DRAFT).exists();
    let taken = [STORE, ROOT_CERTIFICATE, LOGS].into_iter().map(at);
    let mut taken = taken.filter(|path| path.exists());
    if let Some(path) = taken.find(|path| !was_interrupted || path.ends_with(STORE)) {
        return Err(RestoreError::NotEmpty(path));
    }
    let key = match checked.key.clone() {
        Some(key) => Some(key),
        None => match fs::read(at(CA_KEY)) {
            Ok(key) => Some(key),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(file_error("open", &at(CA_KEY))(error)),
        },
    };
    match key {
        // A file from elsewhere must not say which library to load, so this does not open the token. The Master opens
        // it when it starts.
        Some(key) if checked.key.is_some() && is_in_token(&key) => {
            let name = String::from_utf8_lossy(&key).trim().to_owned();
            tracing::warn!(%name, "the CA's key is in a token: check the library and the PIN's file before the Master starts");
        }
        Some(key) => {
            check_issuing(&at(CA_KEY), &key, &at(CA_CHAIN), &checked.chain)?;
        }
        // With the root's key, the Master makes another CA when it starts.
        None if at(ROOT_KEY).exists() => {}
        None => return Err(RestoreError::NoKey(at(CA_KEY))),
    }
    let written = match etcd {
        None => write_here(file, directory, checked.term.as_deref(), time).await,
        Some(etcd) => write_to_etcd(file, directory, etcd, &checked, time).await,
    };
    written.map(|()| checked.description)
}

fn open(path: &Path) -> Result<BackupReader<BufReader<File>>, RestoreError> {
    let file = File::open(path).map_err(file_error("open", path))?;
    BackupReader::new(BufReader::new(file)).map_err(broken(path))
}

fn broken(path: &Path) -> impl Fn(BackupError) -> RestoreError {
    let path = path.to_owned();
    move |error| RestoreError::Backup {
        path: path.clone(),
        error,
    }
}

/// A backup that was read to its end.
struct Checked {
    description: Description,
    chain: Vec<u8>,
    key: Option<Vec<u8>>,
    term: Option<Vec<u8>>,
}

fn check(path: &Path) -> Result<Checked, RestoreError> {
    let mut reader = open(path)?;
    let strange = |what: &str| RestoreError::Strange {
        path: path.to_owned(),
        what: what.chars().take(80).collect(),
    };
    let mut checked = Checked {
        description: reader.description().clone(),
        chain: Vec::new(),
        key: None,
        term: None,
    };
    while let Some(part) = reader.next_part().map_err(broken(path))? {
        match part {
            Part::Row { key, value } if key == TERM_ROW => checked.term = Some(value),
            Part::Row { .. } => {}
            Part::File { path, contents } => match path.as_str() {
                CA_CHAIN => checked.chain = contents,
                CA_KEY => checked.key = Some(contents),
                name if FILES.contains(&name) || KEYS.contains(&name) => {}
                name if log_file(name).is_some() => {}
                name => return Err(strange(name)),
            },
        }
    }
    Ok(checked)
}

/// Restores into a file, which gets its name last.
async fn write_here(
    file: &Path,
    directory: &Path,
    term: Option<&[u8]>,
    time: u64,
) -> Result<(), RestoreError> {
    let at = |name: &str| directory.join(name);
    let draft = at(DRAFT);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(file_error("write", &draft)(error));
        }
        _ => {}
    }
    let store = EmbeddedStore::open(&draft)?;
    write(file, directory, &store, None, term, time).await?;
    drop(store);
    fs::rename(&draft, at(STORE)).map_err(file_error("write", &at(STORE)))?;
    sync_folder(directory).map_err(file_error("write", directory))
}

/// Restores into etcd.
async fn write_to_etcd(
    file: &Path,
    directory: &Path,
    etcd: &EtcdSettings,
    checked: &Checked,
    time: u64,
) -> Result<(), RestoreError> {
    let platform = PlatformName::new(&checked.description.platform)?;
    let state = State::open(directory, &platform, Some(etcd)).await?;
    let term = checked.term.as_deref();
    write_beside(file, directory, &*state.store, &platform, term, time).await
}

/// Restores into a store that Masters may reach meanwhile. Until all is written, the draft in the state directory and a row in the
/// store have the same name, and no Master leads.
async fn write_beside(
    file: &Path,
    directory: &Path,
    store: &dyn Store,
    platform: &PlatformName,
    term: Option<&[u8]>,
    time: u64,
) -> Result<(), RestoreError> {
    let draft = directory.join(DRAFT);
    let begun = begin(&draft, store, platform).await?;
    write(file, directory, store, Some(begun), term, time).await?;
    fs::remove_file(&draft).map_err(file_error("write", &draft))
}

/// Begins in an empty store, or removes the rows of the interrupted attempt that the draft names. Returns the revision of the
/// row with the attempt's name.
async fn begin(
    draft: &Path,
    store: &dyn Store,
    platform: &PlatformName,
) -> Result<Revision, RestoreError> {
    let mut held = Vec::new();
    let read = File::open(draft).and_then(|file| file.take(NAME_LENGTH).read_to_end(&mut held));
    let was_interrupted = match read {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(file_error("open", draft)(error)),
    };
    let mut left = Batch::new();
    let mut restoring = None;
    read_all(store, "", |key, entry| {
        if key == RESTORING_ROW {
            restoring = Some(entry);
        } else if !key.starts_with(UNSTORED_ROW) {
            // A CA that stands by may bring an act meanwhile. Such an act is in no backup, and stays.
            left.delete(key);
        }
    })
    .await?;
    match restoring {
        Some(row) if was_interrupted && row.value == held => {
            left.require(RESTORING_ROW, row.revision);
            store.commit(left).await?;
            return Ok(row.revision);
        }
        None if left.is_empty() => {}
        _ if was_interrupted => {
            return Err(RestoreError::DraftLeft {
                draft: draft.to_owned(),
                platform: platform.clone(),
            });
        }
        _ => return Err(RestoreError::EtcdNotEmpty(platform.clone())),
    }
    let name =
        random_hex::<16>().map_err(|error| file_error("make", draft)(io::Error::other(error)))?;
    write_private(draft, name.as_bytes()).map_err(file_error("write", draft))?;
    let mut begun = Batch::new();
    // A Master or another restore may begin in the same moment.
    begun.require(TERM_ROW, 0);
    begun.require(RESTORING_ROW, 0);
    begun.put(RESTORING_ROW, name);
    Ok(store.commit(begun).await?)
}

/// Writes all rows, and the files of the state directory. The last commit also ends the attempt that was begun at this revision, if
/// others reach the store.
async fn write(
    file: &Path,
    directory: &Path,
    store: &dyn Store,
    begun: Option<Revision>,
    term: Option<&[u8]>,
    time: u64,
) -> Result<(), RestoreError> {
    let at = |name: &str| directory.join(name);
    let mut reader = open(file)?;
    let next = || {
        let mut batch = Batch::new();
        if let Some(revision) = begun {
            batch.require(RESTORING_ROW, revision);
        }
        batch
    };
    let mut batch = next();
    let mut rows = 0;
    while let Some(part) = reader.next_part().map_err(broken(file))? {
        match part {
            // These rows belong to this attempt and to the state directory.
            Part::Row { key, .. } if key == ROOT_ROW || key == RESTORING_ROW => {}
            Part::Row { key, value } => {
                batch.put(key, value);
                rows += 1;
                if rows % ROWS == 0 {
                    store.commit(std::mem::replace(&mut batch, next())).await?;
                }
            }
            Part::File { path, contents } => match log_file(&path) {
                Some((authority, name)) => {
                    let log = issuance_log::folder_in(directory, authority);
                    let written = log.write(&[(name, contents)]);
                    written.map_err(file_error("write", log.path()))?;
                }
                None => {
                    write_private(&at(&path), &contents).map_err(file_error("write", &at(&path)))?
                }
            },
        }
    }
    restore_term(term, time / 1000, &mut batch)?;
    batch.put(RESTORED_ROW, time.to_string());
    if begun.is_some() {
        note_root(directory, &mut batch)?;
        batch.delete(RESTORING_ROW);
    }
    store.commit(batch).await?;
    Ok(())
}
