//! The errors of the benchmark.

use std::path::PathBuf;

use sealbus_bench_driver::Answer;
use thiserror::Error;

/// The reason why the benchmark cannot go on, or why a cell has no figures.
#[derive(Debug, Error)]
pub(crate) enum PapersError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{0}")]
    Failed(String),
}

impl PapersError {
    pub(super) fn unexpected(answer: &Answer) -> Self {
        Self::Failed(format!("a driver answered {answer:?}"))
    }
}
