//! The finding about Windows: a Master and nodes do not run there.

use std::path::Path;

use super::Finding;
use crate::arguments::IsolationArguments;

pub(super) fn state(_: &Path) -> Vec<Finding> {
    Vec::new()
}

pub(super) async fn limits(_: &IsolationArguments) -> Vec<Finding> {
    vec![Finding::warning(
        "system",
        "on Windows, programs have a platform of their own or join one; a Master and its nodes do not run here",
        "run `sealbus up` and `sealbus node` on Linux or macOS, or in WSL",
    )]
}
