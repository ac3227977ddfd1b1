//! The key of an agent's long-lived identity, in a file of the agent's owner.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealbus_files::{create_private, read_private};
use sealbus_seal::{Fingerprint, KeyError, KeyPair};
use zeroize::Zeroizing;

/// The longest file that is read, in bytes. A key takes about 120.
const LONGEST_FILE: usize = 4096;

/// The key of a long-lived identity. It signs in this process for each certificate of the agent, and never leaves the
/// process.
#[derive(Clone)]
pub struct LongLivedKey(Arc<KeyPair>);

/// Why there is no key of a long-lived identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LongLivedKeyError {
    /// The file cannot be read or made.
    #[error("the long-lived identity in {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file does not contain such a key.
    #[error("the long-lived identity in {}: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: KeyError,
    },
}

impl LongLivedKey {
    /// Makes a key in a new file (PKCS#8 PEM), which only its owner can read.
    ///
    /// # Errors
    /// If the file exists already, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, LongLivedKeyError> {
        let key = KeyPair::generate().map_err(|error| LongLivedKeyError::Key {
            path: path.to_owned(),
            error,
        })?;
        create_private(path, key.to_pkcs8_pem().as_bytes()).map_err(at(path))?;
        Ok(Self(Arc::new(key)))
    }

    /// Reads the key from its file.
    ///
    /// # Errors
    /// If the file does not exist, is not an Ed25519 key in PKCS#8 PEM, or can be read by other users.
    pub fn read(path: &Path) -> Result<Self, LongLivedKeyError> {
        let bytes = Zeroizing::new(read_private(path, LONGEST_FILE).map_err(at(path))?);
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let key = KeyPair::from_pkcs8_pem(text).map_err(|error| LongLivedKeyError::Key {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self(Arc::new(key)))
    }

    /// The fingerprint by which others know the identity.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.public_key().fingerprint()
    }

    pub(super) fn pair(&self) -> &KeyPair {
        &self.0
    }
}

impl fmt::Debug for LongLivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LongLivedKey({})", self.fingerprint())
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> LongLivedKeyError {
    let path = path.to_owned();
    move |error| LongLivedKeyError::File {
        path: path.clone(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("seller.key");
        assert!(LongLivedKey::read(&path).is_err());
        let made = LongLivedKey::create(&path).unwrap();
        let read = LongLivedKey::read(&path).unwrap();
        assert_eq!(read.fingerprint(), made.fingerprint());
        let again = LongLivedKey::create(&path).unwrap_err();
        assert!(again.to_string().contains("seller.key"), "{again}");
        std::fs::write(&path, "no key").unwrap();
        let no_key = LongLivedKey::read(&path).unwrap_err();
        assert!(matches!(no_key, LongLivedKeyError::Key { .. }), "{no_key}");
        std::fs::write(&path, "x".repeat(LONGEST_FILE + 1)).unwrap();
        let long = LongLivedKey::read(&path).unwrap_err();
        assert!(matches!(long, LongLivedKeyError::File { .. }), "{long}");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;

        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("seller.key");
        LongLivedKey::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o622] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let open = LongLivedKey::read(&path).unwrap_err();
            assert!(open.to_string().contains("chmod 600"), "{open}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        LongLivedKey::read(&path).unwrap();
    }
}
