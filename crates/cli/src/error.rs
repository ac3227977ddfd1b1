//! Every error of a command: what happened, what to do, and the exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use miette::Diagnostic;
use serde_json::json;

/// The reason why a command failed. The help text says what to do about it.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(crate) enum CliError {
    /// No Master listens in the state directory.
    #[error("no platform is running at {}", directory.display())]
    #[diagnostic(help("start one with `sealbus up`, or name its state directory with --state"))]
    NoPlatform {
        /// The state directory that was tried.
        directory: PathBuf,
    },
    /// Several platforms run here, and the command line names none of them.
    #[error("several platforms run here: {}", names.join(", "))]
    #[diagnostic(help("say which with --platform NAME"))]
    SeveralPlatforms {
        /// The platforms' names.
        names: Vec<String>,
    },
    /// The named thing does not exist.
    #[error("{message}")]
    #[diagnostic(help("{help}"))]
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
        #[help]
        advice: Option<String>,
    },
    /// The command line is well-formed but makes no sense.
    #[error("{message}")]
    #[diagnostic(help("{help}"))]
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
        #[help]
        help: Option<String>,
    },
    /// An error that already carries its own place, label and help, such as an error in a manifest.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Located(Box<dyn Diagnostic + Send + Sync>),
}

impl CliError {
    /// The process's exit code, as listed in the help of `sealbus`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage { .. } => 2,
            Self::NoPlatform { .. } | Self::SeveralPlatforms { .. } => 3,
            Self::NotFound { .. } => 4,
            Self::Refused { .. } => 5,
            Self::File { .. } | Self::Failed { .. } | Self::Located(_) => 1,
        })
    }

    /// Writes the error to standard error, as text, or as one JSON object for programs.
    pub(crate) fn print(self, as_json: bool) {
        if as_json {
            let help = self.help().map(|help| help.to_string());
            anstream::eprintln!("{}", json!({ "error": self.to_string(), "help": help }));
        } else {
            anstream::eprintln!("{:?}", miette::Report::new(self));
        }
    }
}
