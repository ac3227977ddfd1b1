//! The published issuance log: files, with a checkpoint that witnesses cosign.

mod publisher;
pub(crate) mod shared;
mod witnesses;

use std::path::Path;

use sealbus_transparency::Folder;

use super::authorities::CA_NAME;

pub(crate) use publisher::Publisher;
pub use shared::SharedLogError;
pub use witnesses::OutsideWitness;

/// The folder of the logs, in the Master's state folder.
pub(crate) const LOGS: &str = "log";

/// The folder of this Master's issuance log.
pub(crate) fn folder_in(directory: &Path) -> Folder {
    Folder::new(directory.join(LOGS).join(CA_NAME))
}
