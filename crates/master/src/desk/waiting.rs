//! Waiting for a condition at the desk.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Desk, DeskHandle};

/// A condition that a task waits for.
pub(crate) struct Awaited {
    /// Whether the condition holds.
    pub(crate) is_over: Box<dyn Fn(&Desk) -> bool + Send>,
    /// The waiting task.
    pub(crate) tell: oneshot::Sender<()>,
}

impl DeskHandle {
    /// Waits until `over` holds at the desk, for at most `limit`.
    pub(crate) async fn wait_until(
        &self,
        limit: Duration,
        over: impl Fn(&Desk) -> bool + Send + 'static,
    ) {
        let (tell, told) = oneshot::channel();
        let awaited = Awaited {
            is_over: Box::new(over),
            tell,
        };
        let waiting = async {
            let asked = self.run(move |desk, _| {
                desk.awaited.push(awaited);
                Ok(())
            });
            if asked.await.is_ok() {
                // An error means that the Master is ending.
                let _ = told.await;
            }
        };
        let _ = tokio::time::timeout(limit, waiting).await;
    }
}
