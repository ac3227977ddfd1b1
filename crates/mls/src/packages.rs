//! The private halves of key packages. An agent offers each package to all publishers, until its certificate ends.

use std::convert::Infallible;
use std::sync::Arc;

use mls_rs::KeyPackageStorage;
use mls_rs::storage_provider::KeyPackageData;
use parking_lot::Mutex;
use sealbus_seal::Timestamp;

/// Most packages of an agent.
const MOST: usize = 16;

/// The packages of an agent, the latest last.
#[derive(Clone, Default)]
pub(crate) struct Packages(Arc<Mutex<Vec<Package>>>);

/// A package, with its hash before it.
type Package = (Vec<u8>, KeyPackageData);

impl Packages {
    /// Forgets the packages that have expired.
    pub(crate) fn forget(&self, now: Timestamp) {
        self.0
            .lock()
            .retain(|(_, package)| now.as_unix_seconds() <= package.expiration);
    }
}

impl KeyPackageStorage for Packages {
    type Error = Infallible;

    /// A package is good for several publishers: it is forgotten when it expires.
    fn delete(&mut self, _: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn insert(&mut self, id: Vec<u8>, package: KeyPackageData) -> Result<(), Infallible> {
        let mut packages = self.0.lock();
        if packages.len() >= MOST {
            packages.remove(0);
        }
        packages.push((id, package));
        Ok(())
    }

    fn get(&self, id: &[u8]) -> Result<Option<KeyPackageData>, Infallible> {
        let packages = self.0.lock();
        let found = packages.iter().find(|(known, _)| known == id);
        Ok(found.map(|(_, package)| package.clone()))
    }
}
