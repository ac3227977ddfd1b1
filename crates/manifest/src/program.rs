//! The program of an agent, and finding it.

use std::env;
use std::path::{Path, PathBuf};

use sealbus_files::is_program;

use super::problem::nearest;

/// The program of an agent.
pub(crate) struct Program {
    pub(crate) command: Vec<String>,
    /// The files that it needs.
    pub(crate) read: Vec<String>,
}

impl From<Vec<String>> for Program {
    fn from(command: Vec<String>) -> Self {
        let read = Vec::new();
        Self { command, read }
    }
}

/// The reason why a program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramProblem {
    /// There is no program of that name.
    #[error("there is no program {program} {place}")]
    Missing {
        /// The program, as the command line names it.
        program: String,
        /// The places that were searched.
        place: String,
        /// An existing program with a similar name.
        near: Option<String>,
    },
    /// The file exists but is not executable.
    #[error("{path} is not executable")]
    NotExecutable {
        /// The file.
        path: String,
    },
}

/// The path of `program`. A name with a slash is relative to `directory`; any other is searched on the PATH.
pub fn locate(program: &str, directory: &Path) -> Result<PathBuf, ProgramProblem> {
    if program.contains('/') {
        let path = directory.join(program);
        if is_program(&path) {
            return Ok(path);
        }
        if path.exists() {
            return Err(ProgramProblem::NotExecutable {
                path: path.display().to_string(),
            });
        }
        let parent = path.parent().unwrap_or(directory);
        let near = path
            .file_name()
            .and_then(|name| near(&name.to_string_lossy(), [parent.to_owned()]));
        let near = near.map(|near| parent.join(near).display().to_string());
        let place = format!("({} does not exist)", path.display());
        return Err(ProgramProblem::Missing {
            program: program.to_owned(),
            place,
            near,
        });
    }
    let directories: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    if let Some(path) = directories
        .iter()
        .map(|place| place.join(program))
        .find(|p| is_program(p))
    {
        return Ok(path);
    }
    let near = if is_program(&directory.join(program)) {
        Some(format!("./{program}"))
    } else {
        near(program, directories)
    };
    Err(ProgramProblem::Missing {
        program: program.to_owned(),
        place: "on the PATH".to_owned(),
        near,
    })
}

fn near(program: &str, directories: impl IntoIterator<Item = PathBuf>) -> Option<String> {
    let names: Vec<String> = directories
        .into_iter()
        .filter_map(|directory| directory.read_dir().ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    nearest(program, names.iter().map(String::as_str)).map(str::to_owned)
}
