//! The Python interpreter with the package sealbus.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::error::CliError;

/// Names of an interpreter. Virtual environments have both.
const NAMES: [&str; 2] = ["python3", "python"];
/// Prints the package's version.
const VERSION: &str =
    "import importlib.metadata, sealbus; print(importlib.metadata.version('sealbus'))";

/// An interpreter that can run agents.
#[derive(Debug)]
pub(crate) struct Python {
    /// Its path, absolute unless it is found on the PATH.
    pub(crate) program: PathBuf,
    /// Version of its package sealbus.
    pub(crate) version: String,
}

impl Python {
    /// The interpreter `chosen`. Without a choice it is the one beside this program, which `pip install` put there, or
    /// else `python3` on the PATH.
    ///
    /// # Errors
    /// It does not run, or has no package sealbus.
    pub(crate) async fn find(chosen: Option<&Path>) -> Result<Self, CliError> {
        let program = match chosen {
            Some(chosen) => absolute(chosen)?,
            None => beside_this_program().unwrap_or_else(|| NAMES[0].into()),
        };
        let failed = |said: String| CliError::Failed {
            message: format!("{} cannot run Python agents: {said}", program.display()),
            help: Some(
                "name an interpreter with the package sealbus: `--python .venv/bin/python`"
                    .to_owned(),
            ),
        };
        let tried = Command::new(&program)
            .args(["-c", VERSION])
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let version = String::from_utf8_lossy(tried.stdout.trim_ascii()).into_owned();
        if tried.status.success() && !version.is_empty() {
            return Ok(Self { program, version });
        }
        let said = String::from_utf8_lossy(&tried.stderr);
        let last = said.lines().last();
        Err(failed(
            last.unwrap_or("the package sealbus is missing").to_owned(),
        ))
    }
}

/// Agents are started in another directory, so a path must be absolute. Links are kept, because a virtual environment is
/// recognised by its link.
fn absolute(program: &Path) -> Result<PathBuf, CliError> {
    if program.parent() == Some(Path::new("")) {
        return Ok(program.to_owned());
    }
    std::path::absolute(program).map_err(CliError::file("find", program))
}

fn beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    // In a folder of a build, an interpreter would be there by chance.
    if folder.file_name() != Some(OsStr::new("bin")) {
        return None;
    }
    let candidates = NAMES.iter().map(|name| folder.join(name));
    candidates.into_iter().find(|python| python.exists())
}
