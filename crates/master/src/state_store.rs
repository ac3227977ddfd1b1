//! Where a platform's state is: in a file of the Master's state directory, or in etcd.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_files::{Private, write_private};
use sealbus_seal::{Fingerprint, PlatformName, random_hex};
use sealbus_store::etcd::{EtcdSettings, EtcdStore};
use sealbus_store::{Batch, EmbeddedStore, Fenced, Store, StoreError};

use super::authorities::ROOT_CERTIFICATE;

/// File name of the store in the state directory.
pub(super) const STORE: &str = "state.redb";
/// The file that says in which etcd the state is. Without it, the state is here.
pub(super) const ELSEWHERE: &str = "state.etcd";
/// The file with the name under which this directory's Master writes to etcd. Its Master holds a lock on it.
const INSTANCE: &str = "instance";
/// The row with the fingerprint of the platform's root. A Master without that root must not touch the state.
pub(super) const ROOT_ROW: &str = "root";
/// The longest name of an instance that is read.
const INSTANCE_LENGTH: u64 = 64;

/// How long a killed Master may take to release its store.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// The state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manifest names etcd, and the state is in a file.
    #[error(
        "the manifest keeps the state in etcd, and it is in {}: `sealbus backup` it without [store], move the state directory away, and `sealbus restore` it with the manifest that has [store]",
        .0.display()
    )]
    InFile(PathBuf),
    /// The state is in etcd, and the manifest does not name one.
    #[error(
        "the state is in etcd ({members}), says {}, and the manifest has no [store]: name that etcd there",
        path.display()
    )]
    InEtcd {
        /// The file that says so.
        path: PathBuf,
        /// The addresses of etcd's members.
        members: String,
    },
    /// The state in etcd belongs to another root than the one in the state directory.
    #[error(
        "etcd holds the state of a platform {platform} whose root is {there}, and {} is {here}: join this Master to that platform, with a state directory of its own (`sealbus up --join`, docs/operations.md), or give the platform another name",
        path.display()
    )]
    AnotherRoot {
        /// The platform's name.
        platform: PlatformName,
        /// The fingerprint of the state's root.
        there: String,
        /// The root's certificate in the state directory.
        path: PathBuf,
        /// Its fingerprint, or that it is missing.
        here: String,
    },
    /// A file of the state directory cannot be used.
    #[error("{} cannot be used: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The state of a platform. It belongs to this process as long as this value exists.
pub(super) struct State {
    pub(super) store: Arc<dyn Store>,
    /// The same store, if it is in etcd, and the addresses of etcd's members.
    pub(super) etcd: Option<(Arc<EtcdStore>, String)>,
    /// The lock on the file with the instance's name.
    pub(super) lock: Option<File>,
}

/// The state, in this process's own term.
pub(super) struct Led {
    pub(super) fenced: Fenced,
    /// Keeps a second Master off the state directory.
    pub(super) lock: Option<File>,
}

fn file(path: &Path) -> impl Fn(io::Error) -> StateError {
    let path = path.to_owned();
    move |error| StateError::File {
        path: path.clone(),
        error,
    }
}

impl State {
    /// Opens the state of a platform.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn open(
        directory: &Path,
        platform: &PlatformName,
        etcd: Option<&EtcdSettings>,
    ) -> Result<Self, StateError> {
        let state = Self::hold(directory, platform, etcd).await?;
        state.reach(directory, platform).await?;
        Ok(state)
    }

    /// Takes the state directory, and the state if it is there. A state in etcd must be [reached](Self::reach) before it is
    /// used.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn hold(
        directory: &Path,
        platform: &PlatformName,
        etcd: Option<&EtcdSettings>,
    ) -> Result<Self, StateError> {
        let (here, elsewhere) = (directory.join(STORE), directory.join(ELSEWHERE));
        let Some(etcd) = etcd else {
            if elsewhere.exists() {
                let members = fs::read_to_string(&elsewhere).map_err(file(&elsewhere))?;
                return Err(StateError::InEtcd {
                    path: elsewhere,
                    members: members.trim().chars().take(1000).collect(),
                });
            }
            let store = Arc::new(open_file(&here).await?);
            return Ok(Self {
                store,
                etcd: None,
                lock: None,
            });
        };
        if here.exists() {
            return Err(StateError::InFile(here));
        }
        let (instance, lock) = instance(&directory.join(INSTANCE)).await?;
        let store = Arc::new(EtcdStore::new(etcd, platform.as_str(), &instance)?);
        Ok(Self {
            store: store.clone(),
            etcd: Some((store, etcd.members.join(", "))),
            lock: Some(lock),
        })
    }

    /// Reaches the state, if it is in etcd, and notes in the state directory that it is there.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn reach(
        &self,
        directory: &Path,
        platform: &PlatformName,
    ) -> Result<(), StateError> {
        let Some((store, members)) = &self.etcd else {
            return Ok(());
        };
        store.reach().await?;
        check_kept_root(&**store, directory, platform).await?;
        let elsewhere = directory.join(ELSEWHERE);
        write_private(&elsewhere, members.as_bytes()).map_err(file(&elsewhere))
    }

    /// Begins the next term of its leaders.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another Master does in the same moment, or an error of the store.
    pub(super) async fn lead(self) -> Result<Led, StoreError> {
        Ok(Led {
            fenced: Fenced::claim(self.store).await?,
            lock: self.lock,
        })
    }
}

/// Notes that the state belongs to the root in `directory`, unless it belongs to another one. If two Masters begin the same
/// platform, the store keeps the root of one.
///
/// # Errors
/// [`StateError::AnotherRoot`], or an error of the store.
pub(super) async fn keep_root(
    store: &dyn Store,
    directory: &Path,
    platform: &PlatformName,
) -> Result<(), StateError> {
    if check_kept_root(store, directory, platform).await? {
        return Ok(());
    }
    let mut batch = Batch::new();
    note_root(directory, &mut batch)?;
    match store.commit(batch).await {
        Err(StoreError::Conflict { key, .. }) if key == ROOT_ROW => {
            check_kept_root(store, directory, platform).await.map(drop)
        }
        kept => Ok(kept.map(drop)?),
    }
}

/// Adds a note to a batch that the state belongs to the root in `directory`, and demands that it belongs to none yet.
///
/// # Errors
/// If the root's certificate cannot be read.
pub(super) fn note_root(directory: &Path, batch: &mut Batch) -> Result<(), StateError> {
    let path = directory.join(ROOT_CERTIFICATE);
    let root = fs::read(&path).map_err(file(&path))?;
    batch.require(ROOT_ROW, 0);
    batch.put(ROOT_ROW, Fingerprint::of(&root).to_string());
    Ok(())
}

/// Checks that the state belongs to the root in `directory`. Returns whether it belongs to any root yet.
///
/// # Errors
/// [`StateError::AnotherRoot`], or an error of the store.
pub(super) async fn check_kept_root(
    store: &dyn Store,
    directory: &Path,
    platform: &PlatformName,
) -> Result<bool, StateError> {
    let Some(there) = store.get(ROOT_ROW).await? else {
        return Ok(false);
    };
    check_root(directory, platform, &String::from_utf8_lossy(&there.value))?;
    Ok(true)
}

fn check_root(directory: &Path, platform: &PlatformName, there: &str) -> Result<(), StateError> {
    let path = directory.join(ROOT_CERTIFICATE);
    let here = match fs::read(&path) {
        Ok(root) => Fingerprint::of(&root).to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "not there".to_owned(),
        Err(error) => return Err(file(&path)(error)),
    };
    match here == there {
        true => Ok(()),
        false => Err(StateError::AnotherRoot {
            platform: platform.clone(),
            there: there.chars().take(100).collect(),
            path,
            here,
        }),
    }
}

/// Whether the state was in etcd when a Master last ran on this state directory.
pub(super) fn was_elsewhere(directory: &Path) -> bool {
    directory.join(ELSEWHERE).exists()
}

/// Whether a Master that keeps its state in etcd runs on this state directory. It may stand by, or be about to lead.
pub fn is_held(directory: &Path) -> bool {
    let lock = File::open(directory.join(INSTANCE)).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(fs::TryLockError::WouldBlock)))
}

/// The name under which this directory's Master writes, and the lock on it. The first call chooses the name.
async fn instance(path: &Path) -> Result<(String, File), StateError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut lock = options.private().open(path).map_err(file(path))?;
    let since = Instant::now();
    while let Err(error) = lock.try_lock() {
        match error {
            fs::TryLockError::WouldBlock if since.elapsed() < LAST_BREATH => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            fs::TryLockError::WouldBlock => {
                let path = path.to_owned();
                return Err(StoreError::InUse { path }.into());
            }
            fs::TryLockError::Error(error) => return Err(file(path)(error)),
        }
    }
    let mut name = String::new();
    (&mut lock)
        .take(INSTANCE_LENGTH)
        .read_to_string(&mut name)
        .map_err(file(path))?;
    if name.is_empty() {
        name = random_hex::<16>().map_err(|error| file(path)(io::Error::other(error)))?;
        lock.rewind()
            .and_then(|()| lock.write_all(name.as_bytes()))
            .and_then(|()| lock.sync_all())
            .map_err(file(path))?;
    }
    Ok((name, lock))
}

/// Opens the store in a file. A Master that was just killed may hold it for another moment.
async fn open_file(path: &Path) -> Result<EmbeddedStore, StoreError> {
    let since = Instant::now();
    loop {
        match EmbeddedStore::open(path) {
            Err(StoreError::InUse { .. }) if since.elapsed() < LAST_BREATH => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use sealbus_store::{MemoryStore, WithCommits};

    use super::*;

    fn directory(root: &[u8]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(ROOT_CERTIFICATE), root).unwrap();
        directory
    }

    async fn keep(store: &dyn Store, directory: &tempfile::TempDir) -> Result<(), StateError> {
        let platform = PlatformName::new("factory").unwrap();
        keep_root(store, directory.path(), &platform).await
    }

    #[tokio::test]
    async fn of_two_roots_the_store_keeps_one_and_the_other_is_refused() {
        let store = MemoryStore::new();
        let (one, other) = (directory(b"one"), directory(b"other"));
        keep(&store, &one).await.unwrap();
        let refused = keep(&store, &other).await.unwrap_err();
        assert!(
            matches!(&refused, StateError::AnotherRoot { there, here, .. }
            if *there == Fingerprint::of(b"one").to_string() && here != there)
        );
        keep(&store, &one).await.unwrap();
    }

    #[tokio::test]
    async fn a_root_that_another_one_wrote_meanwhile_is_not_replaced() {
        // Another Master writes its root between the look and the commit of this one.
        let store = WithCommits::new(|store, batch| {
            let committing = async move {
                let mut first = Batch::new();
                first.put(ROOT_ROW, Fingerprint::of(b"first").to_string());
                store.commit(first).await?;
                store.commit(batch).await
            };
            committing.boxed()
        });
        let other = directory(b"other");
        let refused = keep(&store, &other).await.unwrap_err();
        assert!(
            matches!(refused, StateError::AnotherRoot { .. }),
            "{refused}"
        );
        let kept = store.get(ROOT_ROW).await.unwrap().unwrap();
        assert_eq!(
            kept.value,
            Fingerprint::of(b"first").to_string().into_bytes()
        );
    }
}
