//! The requests and notices of the other side. Their bytes are limited as long as this side holds them.

use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::codec::Frame;
use super::outgoing::{OUTGOING, OutgoingFrames};
use crate::asker::{self, to_json};
use crate::{Fault, FaultCode};

/// The bytes of unanswered requests and of notices at which this side reads no further. The longest frame fits.
pub(super) const HELD: usize = OUTGOING;

/// A request of more bytes than this is long.
const LONG: usize = 256 * 1024;
/// The turn to read a long request.
static LONG_REQUESTS: Semaphore = Semaphore::const_new(1);

/// A request or notice from the other side.
#[derive(Debug)]
pub enum Incoming {
    /// A request.
    Call {
        /// The request's JSON.
        body: Box<RawValue>,
        /// The right to answer.
        answer: Answer,
    },
    /// A notice.
    Notice {
        /// The notice's JSON.
        body: NoticeBody,
    },
}

/// The JSON of a notice. Its bytes count as held until it is dropped.
#[derive(Debug)]
pub struct NoticeBody {
    json: Box<RawValue>,
    _room: OwnedSemaphorePermit,
}

/// The right, and the duty, to answer one request. If it is dropped unused, the answer is a fault. Until then the
/// request's bytes count as held.
#[derive(Debug)]
pub struct Answer {
    pub(super) id: u64,
    pub(super) outgoing: Option<OutgoingFrames>,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Reads the JSON of a request or notice.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if the JSON is not of this type.
    pub fn parse<T: DeserializeOwned>(body: &RawValue) -> Result<T, Fault> {
        asker::parse(body.get())
    }

    /// Reads the JSON of a request, as [`parse`](Self::parse) does. A long request is read on another thread, so that
    /// nobody else waits for it. Long requests are read one after another, because each may need many times its length
    /// in memory meanwhile.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if the JSON is not of this type.
    pub async fn read<T>(body: Box<RawValue>) -> Result<T, Fault>
    where
        T: DeserializeOwned + Send + 'static,
    {
        if body.get().len() <= LONG {
            return Self::parse(&body);
        }
        // Nobody closes the semaphore.
        let turn = LONG_REQUESTS.acquire().await;
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            Self::parse(&body)
        });
        reading
            .await
            .unwrap_or_else(|error| Err(Fault::internal(error)))
    }
}

impl NoticeBody {
    pub(super) fn new(json: Box<RawValue>, room: OwnedSemaphorePermit) -> Self {
        Self { json, _room: room }
    }
}

impl Deref for NoticeBody {
    type Target = RawValue;

    fn deref(&self) -> &RawValue {
        &self.json
    }
}

impl Answer {
    /// Sends the answer. Nothing happens if the connection is closed.
    pub async fn send(mut self, result: Result<impl Serialize, Fault>) {
        let id = self.id;
        let frame = match result.and_then(|answer| to_json(&answer)) {
            Ok(body) => Frame::Answer { id, body },
            Err(body) => Frame::Fault { id, body },
        };
        if let Some(outgoing) = self.outgoing.take() {
            let _ = outgoing.send(frame).await;
        }
    }

    /// Stops counting the request's bytes. The answer comes late, and the caller has limited in another way what it
    /// keeps of the request.
    pub fn free_room(&mut self) {
        self.room = None;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(outgoing) = self.outgoing.take() {
            let body = Fault::new(FaultCode::Internal, "the request was given up");
            let _ = outgoing.try_send(Frame::Fault { id: self.id, body });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use serde::de::IgnoredAny;
    use serde::{Deserialize, Deserializer};

    use super::*;

    /// The thread on which it was read.
    struct ReadOn(ThreadId);

    impl<'de> Deserialize<'de> for ReadOn {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            IgnoredAny::deserialize(deserializer)?;
            Ok(Self(std::thread::current().id()))
        }
    }

    #[tokio::test]
    async fn a_long_request_is_read_beside_the_others() {
        for (length, is_long) in [(LONG / 2, false), (2 * LONG, true)] {
            let body = to_json(&"x".repeat(length)).unwrap();
            let ReadOn(thread) = Incoming::read(body).await.unwrap();
            assert_eq!(thread != std::thread::current().id(), is_long);
        }
    }
}
