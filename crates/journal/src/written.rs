//! The answer to an order, once it is on disk.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::JournalError;

/// Resolves once the order is on disk: with the record's number, or with the number that the change is about.
#[derive(Debug)]
pub struct Written(oneshot::Receiver<Result<u64, JournalError>>);

impl Written {
    pub(crate) fn new(written: oneshot::Receiver<Result<u64, JournalError>>) -> Self {
        Self(written)
    }

    /// Waits for the disk on a thread that may block. Never call this from an async task.
    ///
    /// # Errors
    /// The reason why the order was not written.
    pub fn wait(self) -> Result<u64, JournalError> {
        self.0.blocking_recv().unwrap_or(Err(JournalError::Closed))
    }
}

impl Future for Written {
    type Output = Result<u64, JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|written| written.unwrap_or(Err(JournalError::Closed)))
    }
}
