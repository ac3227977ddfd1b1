//! The table of transports and promises: a file for each column. The file is written on request and compared otherwise.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{KeepingSetting, Setting, TestedPromise, Verdict};

/// Set to write columns instead of comparing them.
const WRITE: &str = "SEALBUS_WRITE_TRANSPORTS";

/// A column of the table: the outcomes for one transport. Each column is a file in `docs/transports`, with a line for
/// each promise. The table in `docs/transports.md` is made from these files.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
}

/// The table disagrees with the outcomes.
#[derive(Debug, Error)]
pub enum StaleColumn {
    /// Another verdict.
    #[error(
        "{file} says {written:?} of `{promise}` and it came out as {found:?}: if that is right, run the tests with \
         {WRITE}=1 on one thread and commit what they write"
    )]
    Differs {
        /// The column's file.
        file: PathBuf,
        /// The promise.
        promise: TestedPromise,
        /// The written bytes.
        written: String,
        /// The outcome.
        found: String,
    },
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Column {
    /// The column of a setting.
    pub fn of(setting: &dyn Setting) -> Self {
        Self {
            name: setting.name(),
        }
    }

    /// The column to which the promises about logs are added.
    pub fn of_keeping(setting: &dyn KeepingSetting) -> Self {
        Self {
            name: setting.name(),
        }
    }

    fn file(&self, folder: &Path) -> PathBuf {
        let name: String = self
            .name
            .chars()
            .filter(|it| !it.is_whitespace())
            .map(|it| if it.is_alphanumeric() { it } else { '-' })
            .collect();
        folder.join(format!("{name}.txt"))
    }

    /// Compares the outcomes with the file in `folder`, or writes the file if the environment asks for it.
    ///
    /// # Errors
    /// [`StaleColumn`].
    pub fn check(
        &self,
        folder: &Path,
        promise: TestedPromise,
        verdict: &Verdict,
    ) -> Result<(), StaleColumn> {
        let file = self.file(folder);
        let failed = |error| StaleColumn::File {
            file: file.clone(),
            error,
        };
        let found = cell(verdict);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        let written = line(&text, promise).unwrap_or_default();
        if written == found {
            return Ok(());
        }
        if std::env::var_os(WRITE).is_none() {
            return Err(StaleColumn::Differs {
                file,
                promise,
                written: written.to_owned(),
                found,
            });
        }
        let mut out = format!("{}\n", self.name);
        for other in all() {
            let cell = if other == promise {
                &found
            } else {
                line(&text, other).unwrap_or_default()
            };
            if !cell.is_empty() {
                out.push_str(&format!("{other}: {cell}\n"));
            }
        }
        fs::create_dir_all(folder).map_err(failed)?;
        fs::write(&file, out).map_err(failed)
    }
}

/// All promises, in the order of the table.
fn all() -> impl Iterator<Item = TestedPromise> {
    TestedPromise::ALL.into_iter().chain(TestedPromise::OF_LOGS)
}

fn line(text: &str, promise: TestedPromise) -> Option<&str> {
    text.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| *name == promise.as_str())
        .map(|(_, cell)| cell)
}

fn cell(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Kept => "yes".to_owned(),
        Verdict::NotGiven(why) => format!("no: {why}"),
    }
}

/// The table of all columns in `folder`, as Markdown.
///
/// # Errors
/// If a file cannot be read.
pub fn table(folder: &Path) -> io::Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|it| it == "txt"));
    files.sort();
    let columns: Vec<String> = files
        .iter()
        .map(fs::read_to_string)
        .collect::<io::Result<_>>()?;
    let mut out = String::from("| promise |");
    for column in &columns {
        out.push_str(&format!(" {} |", column.lines().next().unwrap_or_default()));
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(columns.len()));
    out.push('\n');
    for promise in all() {
        out.push_str(&format!("| `{promise}`: {} |", promise.explanation()));
        for column in &columns {
            let cell = line(column, promise).unwrap_or("not tried");
            out.push_str(&format!(" {cell} |"));
        }
        out.push('\n');
    }
    Ok(out)
}
