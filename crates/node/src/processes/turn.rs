//! The turns of connections to speak for their processes, and the places of requests. Work takes one of a few places. A
//! question that waits for events does no work, so it waits in a place of another kind: a subscription has one question
//! for each node, nearly all the time.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, watch};

use sealbus_control::turns::{BYTES_OF_MEMBER, OF_MEMBER};
use sealbus_control::{Fault, FaultCode};

/// The most requests of one process that are worked on at the same time. Further requests wait to be read.
pub(super) const AT_ONCE: usize = 64;
/// The most bytes of one process's questions that wait for events at the same time.
const WAITING: usize = 32 << 20;
/// The least bytes that such a question counts as, so that at most a thousand wait.
const QUESTION: usize = 32 << 10;
/// The most bytes of questions of all processes that wait for events of other nodes: half of the bytes that another
/// node takes from this one. The rest is for letters, for example.
const ELSEWHERE: usize = BYTES_OF_MEMBER / 2;
/// The least bytes that such a question counts as, so that at most half of the requests that another node takes are such.
const QUESTION_ELSEWHERE: usize = BYTES_OF_MEMBER / OF_MEMBER;

/// The places of one process's requests.
#[derive(Clone)]
pub(crate) struct RequestPlaces {
    /// The places for requests that are worked on.
    at_once: Arc<Semaphore>,
    /// The places for questions that wait for events, in bytes.
    waiting: Arc<Semaphore>,
}

impl Default for RequestPlaces {
    fn default() -> Self {
        Self {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

/// The places for the questions of all processes that wait for events of other nodes, in bytes.
#[derive(Clone)]
pub(crate) struct Elsewhere(Arc<Semaphore>);

impl Default for Elsewhere {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ELSEWHERE)))
    }
}

/// The turn of a connection to speak for its process, and to have requests worked on.
pub(crate) struct Turn {
    pub(super) connection: u64,
    pub(super) present: watch::Receiver<u64>,
    pub(super) lacks_denials: Arc<Notify>,
    pub(super) places: RequestPlaces,
    pub(super) elsewhere: Elsewhere,
}

impl Turn {
    /// Waits for a place for a request. The connections of a process share its places, because work for an earlier
    /// connection may still go on.
    pub(crate) async fn place(&self) -> Option<RequestPlace> {
        let taken = self.places.at_once.clone().acquire_owned().await.ok()?;
        Some(RequestPlace {
            taken: Some(taken),
            places: self.places.clone(),
            elsewhere: self.elsewhere.clone(),
        })
    }

    /// Waits until a deny list found no room on the connection, since the last call.
    pub(crate) async fn lacks_denials(&self) {
        self.lacks_denials.notified().await;
    }

    /// Waits until another connection of the process takes over, or the process has ended.
    pub(crate) async fn is_over(&self) {
        let mut present = self.present.clone();
        // An error means that the process has ended.
        let _ = present
            .wait_for(|present| *present != self.connection)
            .await;
    }
}

/// The place of a request that is worked on.
pub(crate) struct RequestPlace {
    /// `None` while the request waits for events.
    taken: Option<OwnedSemaphorePermit>,
    places: RequestPlaces,
    elsewhere: Elsewhere,
}

/// The place of a question that waits for events, and its place among the questions for another node's events.
pub(crate) type QuestionPlaces = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl RequestPlace {
    /// Leaves the place to other requests, because a question of this many bytes waits for events. `is_elsewhere`: for
    /// events of another node.
    ///
    /// # Errors
    /// [`FaultCode::Full`] if too many wait. The request then stays in its place.
    pub(crate) fn leave(
        &mut self,
        bytes: usize,
        is_elsewhere: bool,
    ) -> Result<QuestionPlaces, Fault> {
        let room = |places: &Arc<Semaphore>, bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            places.clone().try_acquire_many_owned(bytes).map_err(full)
        };
        let waiting = room(&self.places.waiting, bytes.clamp(QUESTION, WAITING))?;
        let elsewhere = match is_elsewhere {
            true => {
                let bytes = bytes.clamp(QUESTION_ELSEWHERE, ELSEWHERE);
                Some(room(&self.elsewhere.0, bytes)?)
            }
            false => None,
        };
        self.taken = None;
        Ok((waiting, elsewhere))
    }

    /// Waits for a place again after the request has left its own.
    pub(crate) async fn come_back(&mut self) {
        if self.taken.is_none() {
            // Nobody closes the semaphore.
            self.taken = self.places.at_once.clone().acquire_owned().await.ok();
        }
    }
}

fn full(_: TryAcquireError) -> Fault {
    let message = "as many questions wait for events as may at the same time";
    Fault::new(FaultCode::Full, message)
}
