//! The manifest that a command reads.

use std::path::Path;

use sealbus_manifest::{Manifest, ReadError};

use crate::arguments::General;
use crate::error::CliError;
use crate::input;

/// The manifest that is used when none is named.
pub(super) const MANIFEST: &str = "platform.toml";
/// Most bytes of a manifest from standard input.
const MANIFEST_LENGTH: u64 = 16 << 20;
/// Name of a platform without a manifest.
const UNNAMED: &str = "local";

/// The manifest at `path`, or the one of this folder, or that of a platform without agents.
pub(super) fn manifest(general: &General, path: Option<&Path>) -> Result<Manifest, CliError> {
    let default = Path::new(MANIFEST);
    let path = path.or_else(|| default.exists().then_some(default));
    if let Some(path) = path {
        return read(path);
    }
    let name = general.platform.as_deref().unwrap_or(UNNAMED);
    let text = format!("[platform]\nname = {}\n", serde_json::Value::from(name));
    Manifest::parse("the command line", &text, Path::new(".")).map_err(CliError::Manifest)
}

/// The manifest at `path`. Paths in a manifest from standard input begin at this folder.
pub(super) fn read(path: &Path) -> Result<Manifest, CliError> {
    if !input::is_standard(path) {
        return Ok(Manifest::read(path)?);
    }
    let text = input::read_text(path, MANIFEST_LENGTH)?;
    let parsed = Manifest::parse("standard input", &text, Path::new("."));
    parsed.map_err(CliError::Manifest)
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unreadable { .. } => Self::Failed {
                message: error.to_string(),
                help: Some("name the file: sealbus up platform.toml".to_owned()),
            },
            ReadError::Mistakes(mistakes) => Self::Manifest(mistakes),
        }
    }
}
