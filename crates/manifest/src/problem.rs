//! Mistakes in a manifest, each with its place and the correct form.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use toml::de::DeValue;

/// All mistakes in a manifest. With such an error nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{file} has {}, and nothing was done", plural(.problems.len()))]
pub struct ManifestError {
    /// The file's name.
    pub file: String,
    pub(super) text: String,
    /// The mistakes, in the order of the file.
    pub problems: Vec<ManifestProblem>,
}

/// One mistake in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ManifestProblem {
    /// Line, counted from 1.
    pub line: usize,
    /// The description of the mistake.
    pub message: String,
    /// The correct form.
    pub help: Option<String>,
    pub(super) span: Range<usize>,
}

impl ManifestError {
    /// The mistakes as people read them: each with its line of the file and the correct form. The text has colours;
    /// a printer that writes elsewhere than to a terminal strips them.
    pub fn report(&self) -> String {
        let title = Group::with_title(Level::ERROR.primary_title(self.to_string()));
        let problems = self.problems.iter().map(|problem| {
            let end = self.text.len();
            let start = problem.span.start.min(end);
            let place = AnnotationKind::Primary.span(start..problem.span.end.clamp(start, end));
            let snippet = Snippet::source(&self.text)
                .path(&self.file)
                .annotation(place);
            let group = Level::ERROR
                .secondary_title(&problem.message)
                .element(snippet);
            match &problem.help {
                Some(help) => group.element(Level::HELP.message(help)),
                None => group,
            }
        });
        let report: Vec<_> = std::iter::once(title).chain(problems).collect();
        Renderer::styled().render(&report)
    }
}

fn plural(count: usize) -> String {
    if count == 1 {
        "a mistake".to_owned()
    } else {
        format!("{count} mistakes")
    }
}

/// The reason why a manifest file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the manifest {file}: {error}")]
    Unreadable {
        /// The file's name.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file has mistakes.
    #[error(transparent)]
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
