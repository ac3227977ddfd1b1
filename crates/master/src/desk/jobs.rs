//! Jobs at the desk, and their answers after the write.

use sealbus_control::{Fault, FaultCode, UnixMillis};
use tokio::sync::oneshot;

use super::{Desk, DeskHandle};

/// A job that waits for its turn.
pub(super) type Job = Box<dyn FnOnce(&mut Desk, UnixMillis) -> Done + Send>;

/// Answers the asker of a job, with the outcome of the write.
type Answer = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// The outcomes of the write and of the work.
pub(super) type Outcomes<T> = (Result<(), Fault>, Result<T, Fault>);

/// A job that was done, and whose asker waits for the write.
pub(super) struct Done {
    pub(super) answer: Answer,
    /// Whether the answer says that something is stored. If so, a failed write is an error.
    pub(super) is_stored: bool,
}

impl DeskHandle {
    /// Does `work` at the desk. Returns when its changes are in the store.
    ///
    /// # Errors
    /// The job's own error; [`FaultCode::Storage`] if the changes could not be written; [`FaultCode::Unavailable`] if
    /// the Master is ending.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, UnixMillis) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (written, result) = self.submit(false, work).await?;
        written.and(result)
    }

    /// As [`run`](Self::run), for an order. If an order is repeated because its changes could not be written, it changes
    /// nothing more. Its answer says that the changes are stored, so it is an error as long as anything could not be
    /// written.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn order<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, UnixMillis) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (written, result) = self.submit(true, work).await?;
        written.and(result)
    }

    /// Does `work` at the desk. Returns the outcome of the write, and that of the work.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the Master is ending.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        is_order: bool,
        work: impl FnOnce(&mut Desk, UnixMillis) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Outcomes<T>, Fault> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |desk, now| {
            let result = work(desk, now);
            let is_stored = is_order && result.is_ok();
            let answer = Box::new(move |written: Result<(), Fault>| {
                let _ = sender.send((written, result));
            });
            Done { answer, is_stored }
        });
        let ending = || Fault::new(FaultCode::Unavailable, "the Master is ending");
        self.jobs.send(job).await.map_err(|_| ending())?;
        receiver.await.map_err(|_| ending())
    }
}
