//! Streams of a task's events, over SSE or gRPC. After a broken connection, a caller continues by the events' numbers.
//!
//! A stream keeps nothing but its place in the log. A slow reader costs one event.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use sealbus_callers::Answer;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::log::View;
use crate::tasks::Task;

/// A comment goes out after this much silence, so that a caller that has gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream that has not begun.
pub(crate) struct Stream {
    task: Arc<Task>,
    first: Option<Box<RawValue>>,
    at: u64,
    /// The task was over at the beginning, and this is the rest for a caller that was cut off.
    is_rest: bool,
}

impl Stream {
    /// The task as it is, and its later events. A caller that has seen a part gets all later events.
    pub(crate) fn new(task: Arc<Task>, mut view: View, after: Option<u64>) -> Self {
        view.artifacts = after.is_none();
        let (first, at, is_rest) = task.read(|log| {
            let at = after.unwrap_or(log.last());
            (log.first(view), at, log.state().is_terminal())
        });
        Self {
            task,
            first: Some(first),
            at,
            is_rest,
        }
    }

    /// The answer over SSE. `wrap` puts an event into the binding's form.
    pub(crate) fn sse(self, wrap: impl Fn(&RawValue) -> String + Send + 'static) -> Answer {
        let mut answer = self.answer(Sse(wrap));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        answer
    }

    /// The answer in this form.
    pub(crate) fn answer(self, form: impl StreamForm) -> Answer {
        let (events, receiver) = mpsc::channel(1);
        let (waits, demand) = watch::channel(false);
        let end = form.end();
        tokio::spawn(async move { self.run(&events, demand, form).await });
        let body = Events {
            receiver,
            waits,
            end,
        };
        Response::new(body.boxed())
    }

    /// Sends events until the task ends or waits for its caller, or until nobody reads any more.
    async fn run(
        mut self,
        events: &mpsc::Sender<Bytes>,
        mut demand: watch::Receiver<bool>,
        form: impl StreamForm,
    ) {
        let mut changes = self.task.changes();
        // The whole task may be long, and the stream may last.
        let first = self.first.take().map(|told| form.event(self.at, &told));
        if let Some(first) = first
            && events.send(first).await.is_err()
        {
            return;
        }
        loop {
            // Events may be long, and nobody counts those that the connection has not asked for. It takes an event before it
            // waits for another.
            if events.reserve().await.is_err() || demand.wait_for(|waits| *waits).await.is_err() {
                return;
            }
            changes.mark_unchanged();
            if let Some(next) = self.task.read(|log| log.after(self.at)) {
                self.at = next.number;
                let sent = events.send(form.event(next.number, &next.told)).await;
                if sent.is_err() || (next.is_last && self.ends()) {
                    return;
                }
                continue;
            }
            if self.is_rest || self.task.state().is_terminal() {
                return;
            }
            tokio::select! {
                () = events.closed() => return,
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if let Some(word) = form.keep_alive() && events.send(word).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Whether the sent event is the last for now. A question that was answered long ago is not the last.
    fn ends(&self) -> bool {
        self.task.state().is_still() && self.task.read(|log| log.after(self.at)).is_none()
    }
}

/// The form of a stream in a binding.
pub(crate) trait StreamForm: Send + 'static {
    /// An event.
    fn event(&self, number: u64, told: &RawValue) -> Bytes;

    /// A word that means nothing, by which a caller that has gone is noticed; none if the connection notices by itself.
    fn keep_alive(&self) -> Option<Bytes> {
        None
    }

    /// The fields after the last event.
    fn end(&self) -> Option<HeaderMap> {
        None
    }
}

/// Server-sent events.
struct Sse<W>(W);

impl<W: Fn(&RawValue) -> String + Send + 'static> StreamForm for Sse<W> {
    fn event(&self, number: u64, told: &RawValue) -> Bytes {
        // JSON has no line breaks of its own.
        let data = self.0(told);
        Bytes::from(format!("id: {number}\ndata: {data}\n\n"))
    }

    fn keep_alive(&self) -> Option<Bytes> {
        Some(Bytes::from_static(b": \n\n"))
    }
}

/// The body of a stream.
struct Events {
    receiver: mpsc::Receiver<Bytes>,
    /// Whether the connection waits for an event.
    waits: watch::Sender<bool>,
    end: Option<HeaderMap>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        waiting: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.waits.send_replace(false);
        let next = self.receiver.poll_recv(waiting);
        if next.is_pending() {
            self.waits.send_replace(true);
        }
        next.map(|bytes| match bytes {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None => self.end.take().map(|end| Ok(Frame::trailers(end))),
        })
    }
}
