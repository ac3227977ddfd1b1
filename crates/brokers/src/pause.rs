//! Waiting for a moment that may never come.

use std::time::Instant;

/// Waits until `at`; for ever if there is no such time.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
