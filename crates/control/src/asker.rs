//! The asking side of a conversation over any transport: it numbers requests, and matches the answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;

use crate::{Fault, FaultCode};

/// The most requests that wait for answers. Further requests are refused.
const MOST_PENDING: usize = 100_000;

/// The JSON of an answer, or the fault in its place.
pub(crate) type Answered = Result<Box<str>, Fault>;

/// Numbers requests, and hands out the answers. Clones are the same asker.
#[derive(Clone, Default)]
pub(crate) struct Asker(Arc<Mutex<Pending<oneshot::Sender<Answered>>>>);

/// A request that waits for its answer, until it is dropped.
pub(crate) struct Asked<'a> {
    asker: &'a Asker,
    pub(crate) number: u64,
    peer: &'a str,
    answered: oneshot::Receiver<Answered>,
}

impl Asker {
    /// Numbers a request to `peer`.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if there can be no answer, or too many requests wait for theirs.
    pub(crate) fn begin<'a>(&'a self, peer: &'a str) -> Result<Asked<'a>, Fault> {
        let (answer, answered) = oneshot::channel();
        Ok(Asked {
            asker: self,
            number: self.0.lock().begin(peer, answer)?,
            peer,
            answered,
        })
    }

    /// Notes the answer to a request. `answer` gets the name of the asked peer, and returns `None` if the answer is not
    /// from that peer.
    pub(crate) fn answered(&self, number: u64, answer: impl FnOnce(&str) -> Option<Answered>) {
        if let Some((waiting, answer)) = self.0.lock().answered(number, answer) {
            // The asker may have given up in the meantime.
            let _ = waiting.send(answer);
        }
    }

    /// Notes that no more answers come.
    pub(crate) fn end(&self) {
        for waiting in self.0.lock().end() {
            let _ = waiting.send(Err(gone()));
        }
    }
}

impl Asked<'_> {
    /// Sends the request, and waits for the answer, for at most `patience` in all.
    ///
    /// # Errors
    /// The peer's fault, or [`FaultCode::Unavailable`] if no answer came.
    pub(crate) async fn answer(
        mut self,
        sending: impl Future<Output = Result<(), Fault>>,
        patience: Duration,
    ) -> Answered {
        let answered = async {
            sending.await?;
            (&mut self.answered).await.unwrap_or_else(|_| Err(gone()))
        };
        let answer = tokio::time::timeout(patience, answered).await;
        answer.unwrap_or_else(|_| {
            let message = format!("{} did not answer within {patience:?}", self.peer);
            Err(Fault::new(FaultCode::Unavailable, message))
        })
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.asker.0.lock().forget(self.number);
    }
}

/// The requests that wait for answers, each with the asked peer and the waiting task.
struct Pending<W> {
    next: u64,
    waiting: HashMap<u64, (String, W)>,
    has_ended: bool,
}

impl<W> Default for Pending<W> {
    fn default() -> Self {
        Self {
            next: 0,
            waiting: HashMap::new(),
            has_ended: false,
        }
    }
}

impl<W> Pending<W> {
    fn begin(&mut self, peer: &str, waiting: W) -> Result<u64, Fault> {
        if self.has_ended {
            return Err(gone());
        }
        if self.waiting.len() >= MOST_PENDING {
            let message = "too many requests wait for answers";
            return Err(Fault::new(FaultCode::Unavailable, message));
        }
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (peer.to_owned(), waiting));
        Ok(number)
    }

    fn answered<T>(
        &mut self,
        number: u64,
        answer: impl FnOnce(&str) -> Option<T>,
    ) -> Option<(W, T)> {
        let answer = answer(&self.waiting.get(&number)?.0)?;
        Some((self.forget(number)?, answer))
    }

    fn forget(&mut self, number: u64) -> Option<W> {
        Some(self.waiting.remove(&number)?.1)
    }

    fn end(&mut self) -> Vec<W> {
        self.has_ended = true;
        self.waiting
            .drain()
            .map(|(_, (_, waiting))| waiting)
            .collect()
    }
}

/// The fault of a request whose answer can no longer come.
pub(crate) fn gone() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "the connection was closed before the answer came",
    )
}

/// A request, an answer or a fault as JSON.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<Box<RawValue>, Fault> {
    to_raw_value(value).map_err(Fault::internal)
}

/// Reads the JSON of a peer's answer.
pub(crate) fn read<T: DeserializeOwned>(peer: &str, answer: &str) -> Result<T, Fault> {
    serde_json::from_str(answer).map_err(|error| {
        let message = format!("the answer of {peer} could not be read: {error}");
        Fault::new(FaultCode::Internal, message).advise("both sides may be of different versions")
    })
}

/// Reads the JSON of a request or notice.
pub(crate) fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Fault> {
    serde_json::from_str(json).map_err(|error| {
        let message = format!("the request could not be read: {error}");
        Fault::new(FaultCode::BadRequest, message)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_request_has_at_most_one_answer_from_the_one_asked(
            steps in prop::collection::vec((0..10_u8, 0..20_u64, 0..3_u8), 1..100),
        ) {
            let (mut pending, mut waiting) = (Pending::default(), BTreeMap::new());
            let mut has_ended = false;
            for (step, number, peer) in steps {
                match step {
                    0..4 => {
                        let begun = pending.begin(&peer.to_string(), waiting.len());
                        prop_assert_eq!(begun.is_err(), has_ended);
                        if let Ok(number) = begun {
                            prop_assert!(waiting.insert(number, Some(peer)).is_none());
                        }
                    }
                    4..8 => {
                        let is_from = |asked: &str| (asked == peer.to_string()).then_some(());
                        let answered = pending.answered(number, is_from).is_some();
                        let expected = waiting.get(&number) == Some(&Some(peer));
                        prop_assert_eq!(answered, expected);
                        if answered {
                            waiting.insert(number, None);
                        }
                    }
                    8 => {
                        let forgotten = pending.forget(number).is_some();
                        let expected = waiting.get_mut(&number).and_then(Option::take);
                        prop_assert_eq!(forgotten, expected.is_some());
                    }
                    _ => {
                        let ended = pending.end().len();
                        let expected = waiting.values_mut().filter_map(Option::take);
                        prop_assert_eq!(ended, expected.count());
                        has_ended = true;
                    }
                }
            }
        }
    }
}
