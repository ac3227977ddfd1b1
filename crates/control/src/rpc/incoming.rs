//! The requests and notices of the other side, bounded in bytes as long as this side holds them.

use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::codec::Frame;
use super::outgoing::{OUTGOING, OutgoingFrames};
use crate::asker::{self, to_json};
use crate::{Fault, FaultCode};

/// Bytes of requests without answers, and of notices, that this side holds before it reads no further. The longest frame
/// fits.
pub(super) const HELD: usize = OUTGOING;

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

/// The right, and the duty, to answer one request. If it is dropped unused, the answer is a fault. The request's bytes
/// count as held until then.
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
    /// [`FaultCode::BadRequest`].
    pub fn parse<T: DeserializeOwned>(body: &RawValue) -> Result<T, Fault> {
        asker::parse(body.get())
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

    /// Counts the request's bytes no longer. The caller has bounded in another way what it keeps of the request, because
    /// the answer comes late.
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
