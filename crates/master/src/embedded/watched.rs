//! An embedded platform that lets watchers in: the operators' socket, in a folder of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::EmbeddedPlatform;
use crate::admin::{Admin, Parting};
use crate::backup::Backups;
use sealbus_control::local::listen;
use sealbus_control::operators::{OperatorKey, socket_in};
use sealbus_files::temporary;

/// The door for watchers. It closes when it is dropped.
pub struct Watched {
    directory: PathBuf,
    _serving: JoinSet<()>,
}

/// Watchers cannot be let in.
#[derive(Debug, thiserror::Error)]
#[error("nobody can watch, because a socket in {} cannot be made: {source}", directory.display())]
pub struct WatchedError {
    /// The folder.
    directory: PathBuf,
    /// The system's error.
    source: io::Error,
}

impl EmbeddedPlatform {
    /// Lets this user's watchers in, such as `sealbus window --state DIRECTORY`. They can only read.
    ///
    /// # Errors
    /// [`WatchedError`] if the folder for temporary files takes no socket.
    pub fn let_watch(&self) -> Result<Watched, WatchedError> {
        let within = std::env::temp_dir();
        let failed = |source| WatchedError {
            directory: within.clone(),
            source,
        };
        let directory = temporary("sealbus-watched").map_err(failed)?;
        // From here on it is removed again.
        let mut watched = Watched {
            directory: directory.clone(),
            _serving: JoinSet::new(),
        };
        let key = OperatorKey::keep(&directory).map_err(failed)?;
        let listener = listen(&socket_in(&directory)).map_err(failed)?;
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let (ended, _) = watch::channel(false);
        let name = self.system.process.platform().to_owned();
        let admin = Admin {
            desk: self.desk.clone(),
            key,
            system: self.system.clone(),
            backups: Backups::new(directory, self.store.clone(), name),
            manifest: tokio::sync::Mutex::default(),
            root: self.root,
            enrolment: nowhere,
            address: nowhere,
            term: 1,
            masters: None,
            store_trouble: watch::channel(None).1,
            is_embedded: true,
            parting: Parting::new(None),
            ended,
        };
        watched._serving.spawn(Arc::new(admin).accept(listener));
        Ok(watched)
    }
}

impl Watched {
    /// The folder that watchers name with `--state`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
