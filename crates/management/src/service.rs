//! The shell around AMS and DF. It receives their messages, writes their changes to the store, and sends the resulting
//! messages.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_bus::{Mailbox, Outbox, ReceivedMessage};
use sealbus_fipa::AclMessage;
use sealbus_fipa::management::Exception;
use tokio::sync::{mpsc, oneshot, watch};

use super::deliveries::Deliveries;
use super::{Ams, Df, Outcome, Requester, ams, df};
use sealbus_store::{Batch, Revision, Store, StoreError};

/// Most messages that are handled together, and written to the store in one commit.
const MOST_AT_ONCE: usize = 64;
/// Most waiting changes by the platform.
const MOST_CHANGES_WAITING: usize = 1024;
/// After a failure of the store, the time until due work is tried again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a commit may still take once the directory is to end.
const LAST_COMMIT: Duration = Duration::from_millis(300);

/// A directory that a [`DirectoryService`] can run.
pub trait Directory: Send + 'static {
    /// The step that takes back one of its changes.
    type Undo: Send;

    /// Handles a message.
    fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
    ) -> Outcome<Self::Undo>;

    /// Does the work that is due.
    fn tick(&mut self, now: SystemTime) -> Outcome<Self::Undo>;

    /// When work is due next.
    fn deadline(&self) -> Option<SystemTime>;

    /// Takes back an outcome that could not be committed. Returns the messages to send instead.
    fn revert(&mut self, outcome: Outcome<Self::Undo>, error: &StoreError) -> Vec<AclMessage>;
}

impl Directory for Ams {
    type Undo = ams::Undo;

    fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
    ) -> Outcome<Self::Undo> {
        Self::handle(self, message, requester, now)
    }

    fn tick(&mut self, _now: SystemTime) -> Outcome<Self::Undo> {
        Outcome::default()
    }

    fn deadline(&self) -> Option<SystemTime> {
        None
    }

    fn revert(&mut self, outcome: Outcome<Self::Undo>, error: &StoreError) -> Vec<AclMessage> {
        Self::revert(self, outcome, error)
    }
}

impl Directory for Df {
    type Undo = df::Undo;

    fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
    ) -> Outcome<Self::Undo> {
        Self::handle(self, message, requester, now)
    }

    fn tick(&mut self, now: SystemTime) -> Outcome<Self::Undo> {
        Self::tick(self, now)
    }

    fn deadline(&self) -> Option<SystemTime> {
        Self::deadline(self)
    }

    fn revert(&mut self, outcome: Outcome<Self::Undo>, error: &StoreError) -> Vec<AclMessage> {
        Self::revert(self, outcome, error)
    }
}

/// Why a change of the platform was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The directory turned the change down.
    #[error(transparent)]
    TurnedDown(#[from] Exception),
    /// The store could not keep the change, so it was taken back.
    #[error("the change was not kept: {0}")]
    NotKept(Arc<StoreError>),
    /// The directory has ended.
    #[error("the directory has ended")]
    Ended,
}

/// The source of a directory's messages.
pub trait Inbox: Send + 'static {
    /// The mailbox.
    fn mailbox(&mut self) -> &mut Mailbox;
}

impl Inbox for Mailbox {
    fn mailbox(&mut self) -> &mut Mailbox {
        self
    }
}

type Work<D> = Box<dyn FnOnce(&mut D) -> Result<Outcome<<D as Directory>::Undo>, Exception> + Send>;

struct QueuedChange<D: Directory> {
    work: Work<D>,
    answer: oneshot::Sender<Result<(), ChangeError>>,
}

/// A handle to a running directory. Clones reach the same directory.
pub struct DirectoryService<D: Directory> {
    changes: mpsc::Sender<QueuedChange<D>>,
    ending: watch::Sender<bool>,
}

impl<D: Directory> Clone for DirectoryService<D> {
    fn clone(&self) -> Self {
        Self {
            changes: self.changes.clone(),
            ending: self.ending.clone(),
        }
    }
}

impl<D: Directory> std::fmt::Debug for DirectoryService<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryService").finish_non_exhaustive()
    }
}

impl<D: Directory> DirectoryService<D> {
    /// Prepares a service. Returns the handle and the future that runs the service; the future ends when the mailbox is
    /// closed, or the service is [finished](Self::finish).
    ///
    /// With `trust_claims`, on a platform with a security level that proves no senders, the name in a message counts as
    /// proved: see [`Requester::of`].
    pub fn new(
        directory: D,
        inbox: impl Inbox,
        outbox: Arc<Outbox>,
        store: Arc<dyn Store>,
        trust_claims: bool,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (changes, waiting) = mpsc::channel(MOST_CHANGES_WAITING);
        let (ending, ends) = watch::channel(false);
        let shell = Shell {
            directory,
            store,
            trust_claims,
            deliveries: Deliveries::new(outbox),
            ends,
        };
        (Self { changes, ending }, shell.run(inbox, waiting))
    }

    /// Ends the directory. It takes no more messages, and answers those that it has taken: within some 300 ms, and with a
    /// `failure` if the store does not answer by then.
    pub async fn finish(&self) {
        self.ending.send_replace(true);
        self.changes.closed().await;
    }

    /// Changes the directory by the platform's authority; returns when the change is in the store.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change(
        &self,
        work: impl FnOnce(&mut D) -> Result<Outcome<D::Undo>, Exception> + Send + 'static,
    ) -> Result<(), ChangeError> {
        self.submit(work).await.await
    }

    /// Submits a change, which is made after those submitted before. The returned future waits until the change is in
    /// the store. Changes that wait together are written together.
    pub async fn submit(
        &self,
        work: impl FnOnce(&mut D) -> Result<Outcome<D::Undo>, Exception> + Send + 'static,
    ) -> impl Future<Output = Result<(), ChangeError>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        let change = QueuedChange {
            work: Box::new(work),
            answer,
        };
        // If the directory has ended, the change is dropped and `answered` says so.
        let _ = self.changes.send(change).await;
        async move { answered.await.map_err(|_| ChangeError::Ended)? }
    }

    /// Reads from the directory; `None` if it has ended.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&D) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let change = self.change(move |directory| {
            // The asker may have gone.
            let _ = answer.send(read(directory));
            Ok(Outcome::default())
        });
        change.await.ok()?;
        answered.await.ok()
    }
}

struct Shell<D: Directory> {
    directory: D,
    store: Arc<dyn Store>,
    trust_claims: bool,
    deliveries: Deliveries,
    ends: watch::Receiver<bool>,
}

impl<D: Directory> Shell<D> {
    async fn run(mut self, mut inbox: impl Inbox, mut changes: mpsc::Receiver<QueuedChange<D>>) {
        let mut received = Vec::new();
        let mut waiting = Vec::new();
        let mut pause = Duration::ZERO;
        let mut changes_open = true;
        while !*self.ends.borrow() {
            let due = due_in(self.directory.deadline(), SystemTime::now());
            tokio::select! {
                Ok(()) = self.ends.changed() => continue,
                count = inbox.mailbox().recv_many(&mut received, MOST_AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                }
                count = changes.recv_many(&mut waiting, MOST_AT_ONCE), if changes_open => {
                    changes_open = count > 0;
                }
                () = sleep(due.map(|due| due.max(pause))) => {}
            }
            pause = self.round(&mut received, &mut waiting).await;
        }
    }

    /// Handles the messages that came and the work that is due, commits the changes, and sends the resulting messages.
    /// Returns the time to wait before failed work is tried again.
    async fn round(
        &mut self,
        received: &mut Vec<ReceivedMessage>,
        waiting: &mut Vec<QueuedChange<D>>,
    ) -> Duration {
        let now = SystemTime::now();
        let mut outcome = self.directory.tick(now);
        let mut answers = Vec::new();
        for QueuedChange { work, answer } in waiting.drain(..) {
            match work(&mut self.directory) {
                Ok(more) => {
                    outcome.append(more);
                    answers.push(answer);
                }
                // The asker may have gone.
                Err(exception) => drop(answer.send(Err(exception.into()))),
            }
        }
        for message in received.drain(..) {
            let provenance = message.provenance().clone();
            let message = message.into_message();
            let requester = Requester::of(&message, &provenance, self.trust_claims);
            outcome.append(self.directory.handle(&message, &requester, now));
        }
        let batch = std::mem::take(&mut outcome.batch);
        let kept = if batch.is_empty() {
            Ok(0)
        } else {
            self.commit(batch).await
        };
        let (messages, result, pause) = match kept {
            Ok(_) => (outcome.messages, None, Duration::ZERO),
            Err(error) => {
                tracing::error!(%error, "changes of a directory were taken back");
                let failures = self.directory.revert(outcome, &error);
                (failures, Some(Arc::new(error)), PAUSE_AFTER_FAILURE)
            }
        };
        for answer in answers {
            let result = result
                .clone()
                .map_or(Ok(()), |error| Err(ChangeError::NotKept(error)));
            let _ = answer.send(result);
        }
        messages
            .into_iter()
            .for_each(|message| self.deliveries.send(message));
        pause
    }

    /// Commits. If the directory is to end, it does not wait long.
    async fn commit(&mut self, batch: Batch) -> Result<Revision, StoreError> {
        let mut ends = self.ends.clone();
        let over = async {
            if ends.wait_for(|ends| *ends).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LAST_COMMIT).await;
        };
        tokio::select! {
            kept = self.store.commit(batch) => kept,
            () = over => Err(StoreError::Unanswered),
        }
    }
}

/// How long from `now` to `deadline`.
fn due_in(deadline: Option<SystemTime>, now: SystemTime) -> Option<Duration> {
    deadline.map(|deadline| deadline.duration_since(now).unwrap_or_default())
}

/// Sleeps for this time, or for ever. One sleep lasts at most an hour, because the system's clock may be set.
async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.min(Duration::from_secs(3600))).await,
        None => std::future::pending().await,
    }
}
