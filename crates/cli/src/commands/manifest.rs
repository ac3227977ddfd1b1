//! The manifest that a command reads.

use std::io::Read;
use std::path::Path;

use sealbus_manifest::{Manifest, ReadError};

use crate::arguments::General;
use crate::error::CliError;

/// The manifest that is used when none is named.
pub(super) const MANIFEST: &str = "platform.toml";
/// Stands for a manifest that is read from standard input.
pub(super) const STANDARD_INPUT: &str = "-";
/// Most bytes of a manifest from standard input.
const MANIFEST_LENGTH: u64 = 16 << 20;
/// Name of a platform without a manifest.
const UNNAMED: &str = "local";

/// The manifest at `path`, or the one of this folder, or that of a platform without agents.
pub(super) fn manifest(general: &General, path: Option<&Path>) -> Result<Manifest, CliError> {
    let default = Path::new(MANIFEST);
    let path = path.or_else(|| default.exists().then_some(default));
    if path == Some(Path::new(STANDARD_INPUT)) {
        let mut text = String::new();
        let read = std::io::stdin()
            .take(MANIFEST_LENGTH)
            .read_to_string(&mut text);
        read.map_err(CliError::file("read", "standard input"))?;
        let parsed = Manifest::parse("standard input", &text, Path::new("."));
        return parsed.map_err(CliError::Manifest);
    }
    if let Some(path) = path {
        return Ok(Manifest::read(path)?);
    }
    let name = general.platform.as_deref().unwrap_or(UNNAMED);
    let text = format!("[platform]\nname = {}\n", serde_json::Value::from(name));
    Manifest::parse("the command line", &text, Path::new(".")).map_err(CliError::Manifest)
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
