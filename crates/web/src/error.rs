//! The errors of requests to servers.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A server did not answer, or not within the limits.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The URL names no server.
    #[error("its address names no server that can be asked over HTTP")]
    Address,
    /// The rule for addresses forbids it.
    #[error("it may not be asked: {0}")]
    OutOfReach(String),
    /// A connection without TLS would leave this machine.
    #[error("it would be asked without TLS beyond this machine: its address must begin with https")]
    Plain,
    /// No authority is trusted.
    #[error("no authority is trusted that could prove its name: name a file with certificates")]
    NoTrust,
    /// The connection failed.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// [`Client::over`](crate::Client::over) got no connection, for this reason.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Slow(Duration),
    /// The answer is too long.
    #[error("its answer has more than {0} bytes")]
    TooLong(usize),
    /// The answer is not HTTP, or was cut off.
    #[error("its answer broke off or cannot be read: {0}")]
    Broken(String),
}

impl From<io::Error> for WebError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// The cause of a client's error that was found here, or else the innermost cause in words.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> WebError {
    let mut at = error;
    loop {
        if let Some(found) = at.downcast_ref::<WebError>() {
            return found.clone();
        }
        match at.source() {
            Some(source) => at = source,
            None => return WebError::Broken(at.to_string()),
        }
    }
}
