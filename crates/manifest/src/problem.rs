//! Mistakes in a manifest, each with its place and the correct form.

use miette::{Diagnostic, NamedSource, SourceSpan};
use toml::de::DeValue;

/// All mistakes in a manifest. With such an error nothing was started.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file} has {} and nothing was started", plural(.problems.len()))]
#[diagnostic(code(sealbus::manifest))]
pub struct ManifestError {
    /// The file's name.
    pub file: String,
    #[source_code]
    pub(super) source_code: NamedSource<String>,
    /// The mistakes, in the order of the file.
    #[related]
    pub problems: Vec<ManifestProblem>,
}

/// One mistake in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Diagnostic)]
#[error("line {line}: {message}")]
pub struct ManifestProblem {
    /// Line, counted from 1.
    pub line: usize,
    /// The description of the mistake.
    pub message: String,
    /// The correct form.
    #[help]
    pub help: Option<String>,
    #[label("here")]
    pub(super) span: SourceSpan,
}

fn plural(count: usize) -> String {
    if count == 1 {
        "a mistake".to_owned()
    } else {
        format!("{count} mistakes")
    }
}

/// The reason why a manifest file cannot be used.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the manifest {file}: {error}")]
    #[diagnostic(
        code(sealbus::manifest::unreadable),
        help("name the file: sealbus up platform.toml")
    )]
    Unreadable {
        /// The file's name.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file has mistakes.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mistakes(#[from] ManifestError),
}

/// The word of `known` that is nearest to `word`, if it is near enough to be meant.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(one, _), (two, _)| one.total_cmp(two))
        .map(|(_, candidate)| candidate)
}

pub(super) fn suggestion(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known.iter().copied()).map(|near| format!("did you mean `{near}`?"))
}

/// The kind of a value, in words.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
