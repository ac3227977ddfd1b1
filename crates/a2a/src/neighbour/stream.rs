//! The words of an agent of others, in the form of its binding.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use sealbus_web::events::ServerSentEvents;
use sealbus_web::{WebError, whole};
use serde_json::Value;

use super::answer::{self, AnswerError, LONGEST_ANSWER, Told, unreadable};
use super::error::RemoteError;
use super::fault::{grpc_outcome, rest_fault};
use crate::frames::{FrameError, first};
use crate::proto::ServiceMethod;

/// A stream that brings nothing for so long has broken.
const QUIET: Duration = Duration::from_secs(300);
/// Most events that wait to be read.
const MOST_WAITING: usize = 4_096;

/// How an answer is written.
pub(super) enum AnswerForm {
    Rest,
    /// The request of JSON-RPC that it answers.
    JsonRpc(String),
    Grpc(ServiceMethod),
}

/// An answer that is not read yet.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    pub(super) form: AnswerForm,
    pub(super) time: Duration,
}

impl Answer {
    /// The only result.
    pub(super) async fn result(self) -> Result<Value, RemoteError> {
        let status = self.response.status();
        if let AnswerForm::Grpc(operation) = self.form {
            let only = AnswerStream::messages(self.response, operation)?.only();
            let only = tokio::time::timeout(self.time, only).await;
            return only.map_err(|_| WebError::Slow(self.time))?;
        }
        let body = whole(self.response.into_body(), LONGEST_ANSWER, self.time).await?;
        match &self.form {
            _ if !status.is_success() => Err(rest_fault(status.as_u16(), &body).into()),
            AnswerForm::JsonRpc(id) => Ok(answer::response(answer::json(&body)?, id)??),
            _ => Ok(answer::json(&body)?),
        }
    }
}

/// The parts of an answer that have come and were not read yet.
enum Pieces {
    Events {
        events: ServerSentEvents,
        /// The data of each.
        waiting: VecDeque<String>,
        /// The request, in JSON-RPC.
        id: Option<String>,
    },
    Messages {
        bytes: BytesMut,
        operation: ServiceMethod,
    },
}

impl Pieces {
    fn push(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        match self {
            Self::Events {
                events, waiting, ..
            } => {
                // One piece may bring very many events, so they are counted before they are kept.
                let mut is_flood = false;
                events.push(bytes, |data| {
                    is_flood |= waiting.len() >= MOST_WAITING;
                    if !is_flood {
                        waiting.push_back(data);
                    }
                })?;
                if is_flood {
                    return Err(RemoteError::Flood);
                }
            }
            // At most one message that is not whole, and what came in one piece with its end.
            Self::Messages { bytes: waiting, .. } => waiting.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Value>, RemoteError> {
        match self {
            Self::Events { waiting, id, .. } => {
                let Some(data) = waiting.pop_front() else {
                    return Ok(None);
                };
                let told = answer::json(data.as_bytes())?;
                Ok(Some(match id {
                    Some(id) => answer::response(told, id)??,
                    None => told,
                }))
            }
            Self::Messages { bytes, operation } => {
                let bad = |error: &dyn std::fmt::Display| unreadable(&error.to_string());
                let found = first(bytes, LONGEST_ANSWER).map_err(|it: FrameError| bad(&it))?;
                let Some((message, rest)) = found else {
                    return Ok(None);
                };
                let read = operation.read_answer(message);
                let read = read.map_err(|error| bad(&error))?;
                let passed = bytes.len() - rest.len();
                bytes.advance(passed);
                Ok(Some(read.into()))
            }
        }
    }
}

/// The words of an agent of others, one after the other.
pub(super) struct AnswerStream {
    body: Option<Incoming>,
    pieces: Pieces,
    /// An answer that is no stream.
    only: Option<Told>,
}

impl AnswerStream {
    pub(super) fn of(told: Told) -> Self {
        Self {
            only: Some(told),
            ..Self::events(None, None)
        }
    }

    fn events(body: Option<Incoming>, id: Option<String>) -> Self {
        Self {
            body,
            pieces: Pieces::Events {
                events: ServerSentEvents::new(LONGEST_ANSWER),
                waiting: VecDeque::new(),
                id,
            },
            only: None,
        }
    }

    fn messages(
        response: Response<Incoming>,
        operation: ServiceMethod,
    ) -> Result<Self, RemoteError> {
        let status = response.status();
        if !status.is_success() {
            return Err(rest_fault(status.as_u16(), &[]).into());
        }
        // Without a message, the outcome stands in the head.
        if let Some(outcome) = grpc_outcome(response.headers()) {
            outcome?;
        }
        Ok(Self {
            body: Some(response.into_body()),
            pieces: Pieces::Messages {
                bytes: BytesMut::new(),
                operation,
            },
            only: None,
        })
    }

    pub(super) async fn open(answer: Answer) -> Result<Self, RemoteError> {
        if let AnswerForm::Grpc(operation) = answer.form {
            return Self::messages(answer.response, operation);
        }
        let kind = answer.response.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream || !answer.response.status().is_success() {
            return Ok(Self::of(Told::read(answer.result().await?)?));
        }
        let id = match answer.form {
            AnswerForm::JsonRpc(id) => Some(id),
            _ => None,
        };
        Ok(Self::events(Some(answer.response.into_body()), id))
    }

    /// The next that is told; none at the end. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<Option<Told>, RemoteError> {
        if let Some(told) = self.only.take() {
            return Ok(Some(told));
        }
        let told = self.next_value().await?;
        Ok(told.map(Told::read).transpose()?)
    }

    async fn next_value(&mut self) -> Result<Option<Value>, RemoteError> {
        loop {
            if let Some(told) = self.pieces.next()? {
                return Ok(Some(told));
            }
            let Some(body) = &mut self.body else {
                return Ok(None);
            };
            let frame = tokio::time::timeout(QUIET, body.frame()).await;
            let Some(frame) = frame.map_err(|_| WebError::Slow(QUIET))? else {
                self.body = None;
                if let Pieces::Messages { .. } = self.pieces {
                    let problem = "it ended without a status".to_owned();
                    return Err(WebError::Broken(problem).into());
                }
                continue;
            };
            let frame = frame.map_err(|error| WebError::Broken(error.to_string()))?;
            match frame.into_data() {
                Ok(bytes) => self.pieces.push(&bytes)?,
                Err(frame) => {
                    let fields = frame.into_trailers().ok();
                    if let Some(outcome) = fields.as_ref().and_then(grpc_outcome) {
                        self.body = None;
                        outcome?;
                    }
                }
            }
        }
    }

    /// The only value, and nothing after it.
    async fn only(mut self) -> Result<Value, RemoteError> {
        let only = self.next_value().await?;
        let only = only.ok_or_else(|| unreadable("it holds no message"))?;
        match self.next_value().await? {
            None => Ok(only),
            Some(_) => Err(AnswerError::Unreadable("it holds two messages".to_owned()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_with_very_many_events_is_refused_before_they_are_kept() {
        let mut stream = AnswerStream::events(None, None);
        let most = b"data\n\n".repeat(MOST_WAITING);
        assert!(stream.pieces.push(&most).is_ok());
        let flood = stream.pieces.push(&most.repeat(100));
        assert!(matches!(flood, Err(RemoteError::Flood)));
        let Pieces::Events { waiting, .. } = &stream.pieces else {
            unreachable!("they are events");
        };
        assert_eq!(waiting.len(), MOST_WAITING);
    }
}
