//! Every error of a command: what happened, what to do, and the exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use annotate_snippets::{Group, Level, Renderer};
use sealbus_control::text::{printable_but, printable_json};
use sealbus_manifest::ManifestError;
use sealbus_master::MasterError;
use sealbus_window::RecordingError;
use serde_json::json;

use crate::output::is_layout;

/// The reason why a command failed. The help text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No Master listens in the state directory.
    #[error("no platform is running at {}", directory.display())]
    NoPlatform {
        /// The state directory that was tried.
        directory: PathBuf,
    },
    /// A Master runs on the state directory, and takes no commands.
    #[error("the Master at {} takes no commands: {says}", directory.display())]
    StandsBy {
        /// The state directory.
        directory: PathBuf,
        /// Why.
        says: String,
        /// Advice on what to do.
        help: String,
    },
    /// Several platforms run here, and the command line names none of them.
    #[error("several platforms run here: {}", names.join(", "))]
    SeveralPlatforms {
        /// The platforms' names.
        names: Vec<String>,
    },
    /// The named thing does not exist.
    #[error("{message}")]
    NotFound {
        /// The missing name, in a sentence.
        message: String,
        /// Advice on where to look instead.
        help: String,
    },
    /// The platform refused the request.
    #[error("{message}")]
    Refused {
        /// The platform's own words.
        message: String,
        /// The platform's advice.
        advice: Option<String>,
    },
    /// Another agent has the name.
    #[error("{message}")]
    NameTaken {
        /// The platform's own words.
        message: String,
        /// The platform's advice.
        advice: Option<String>,
    },
    /// The command line is well-formed but makes no sense.
    #[error("{message}")]
    Usage {
        /// The mistake.
        message: String,
        /// The correct form.
        help: String,
    },
    /// A file or stream could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Anything else that failed.
    #[error("{message}")]
    Failed {
        /// The event.
        message: String,
        /// The advice.
        help: Option<String>,
    },
    /// The manifest has mistakes; each has its own place and help.
    #[error(transparent)]
    Manifest(ManifestError),
}

impl From<RecordingError> for CliError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::File {
                action,
                path,
                source,
            } => Self::File {
                action,
                path,
                source,
            },
            RecordingError::Damaged { .. } => Self::Failed {
                message: error.to_string(),
                help: Some("name a file that `sealbus sniff --record` wrote".to_owned()),
            },
        }
    }
}

impl From<MasterError> for CliError {
    fn from(error: MasterError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: Some("`sealbus doctor` examines this machine".to_owned()),
        }
    }
}

impl CliError {
    /// The process's exit code, as listed in the help of `sealbus`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage { .. } => 2,
            Self::NoPlatform { .. } | Self::StandsBy { .. } | Self::SeveralPlatforms { .. } => 3,
            Self::NotFound { .. } => 4,
            Self::Refused { .. } | Self::NameTaken { .. } => 5,
            Self::File { .. } | Self::Failed { .. } | Self::Manifest(_) => 1,
        })
    }

    /// The error of commands that start a Master or a node, or ask a Master, on Windows.
    pub(crate) fn needs_unix() -> Self {
        Self::Failed {
            message: "a Master and its nodes do not run on Windows, and operators reach them on their own machine"
                .to_owned(),
            help: Some(
                "run this command on Linux or macOS, or in WSL; on Windows, `python my_agents.py` runs agents by itself, \
                 and joins a platform with SEALBUS_TICKET"
                    .to_owned(),
            ),
        }
    }

    /// Makes the error of a file or stream out of the system's error. The action is `read`, `write`, `create`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl Fn(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path: path.clone(),
            source,
        }
    }

    /// The advice for the user.
    fn help(&self) -> Option<&str> {
        match self {
            Self::NoPlatform { .. } => {
                Some("start one with `sealbus up`, or name its state directory with --state")
            }
            Self::SeveralPlatforms { .. } => Some("say which with --platform NAME"),
            Self::StandsBy { help, .. }
            | Self::NotFound { help, .. }
            | Self::Usage { help, .. } => Some(help),
            Self::Refused { advice: help, .. }
            | Self::NameTaken { advice: help, .. }
            | Self::Failed { help, .. } => help.as_deref(),
            Self::File { .. } | Self::Manifest(_) => None,
        }
    }

    /// Writes the error to standard error, as text, or as one JSON object for programs.
    pub(crate) fn print(self, as_json: bool) {
        if as_json {
            let text = json!({ "error": self.to_string(), "help": self.help() });
            anstream::eprintln!("{}", printable_json(text.to_string()));
        } else {
            anstream::eprintln!("{}", self.report());
        }
    }

    /// The error as people read it. Text of others is made safe for a terminal.
    fn report(&self) -> String {
        if let Self::Manifest(mistakes) = self {
            return mistakes.report();
        }
        let line = |level: Level<'static>, text: &str| {
            let title = level.primary_title(printable_but(text, is_layout).into_owned());
            Renderer::styled().render(&[Group::with_title(title)])
        };
        let error = line(Level::ERROR, &self.to_string());
        match self.help() {
            Some(help) => format!("{error}\n{}", line(Level::HELP, help)),
            None => error,
        }
    }
}
