//! Answers that hold places of their caller until they are written.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::caller::Standing;

/// The connection takes so many bytes at once. The rest waits here, where it is counted.
const PIECE: usize = 32 << 10;

/// Bytes of all answers of one caller that are not written yet. With more, it is not let in.
const ANSWERS: usize = 64 << 20;
/// Further bytes for answers to requests that were let in before. Their work is done, so they are given.
const LATE: usize = 192 << 20;

/// The room for what one caller has not read yet.
pub(crate) struct Unwritten(Arc<Semaphore>);

impl Default for Unwritten {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS + LATE)))
    }
}

impl Unwritten {
    /// Whether the caller has read so much that it may ask for more.
    pub(crate) fn has_room(&self) -> bool {
        self.0.available_permits() > LATE
    }

    /// The answer as it holds its caller's places. As a stream it ends with its caller's right, which `end` waits for. None if
    /// there is no room for it even among the late ones.
    pub(crate) fn count(
        &self,
        body: BoxBody<Bytes, Infallible>,
        end: impl Future<Output = ()> + Send + Sync + 'static,
        request: OwnedSemaphorePermit,
    ) -> Option<Counted> {
        let exact = body.size_hint().exact();
        let held = match exact {
            Some(bytes) => Some(room(&self.0, bytes, 0)?),
            None => None,
        };
        Some(Counted {
            body,
            rest: Bytes::new(),
            is_stream: exact.is_none(),
            held,
            unwritten: self.0.clone(),
            // A whole answer waits for nothing.
            end: exact.is_none().then(|| Box::pin(end) as End),
            _request: request,
        })
    }
}

/// Room for these bytes, if that much is left for others.
fn room(unwritten: &Arc<Semaphore>, bytes: u64, left: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = bytes.min(ANSWERS as u64) as u32;
    let is_left = unwritten.available_permits() >= left + bytes as usize;
    let taken = is_left.then(|| unwritten.clone().try_acquire_many_owned(bytes));
    taken?.ok()
}

type End = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// An answer that holds its caller's places until it is written, or the caller has gone. It ends with the caller's right. A
/// stream also ends if its caller reads too little for its next event.
pub(crate) struct Counted {
    body: BoxBody<Bytes, Infallible>,
    rest: Bytes,
    is_stream: bool,
    /// The room of the answer, or of the event of a stream that is being written.
    held: Option<OwnedSemaphorePermit>,
    unwritten: Arc<Semaphore>,
    end: Option<End>,
    _request: OwnedSemaphorePermit,
}

impl Counted {
    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(PIECE.min(self.rest.len()));
        // A slice would keep the whole answer in memory until it is written.
        let piece = Bytes::copy_from_slice(&piece);
        if self.is_stream && self.rest.is_empty() {
            (self.rest, self.held) = (Bytes::new(), None);
        }
        Frame::data(piece)
    }

    /// The first piece of data, if there is room for the rest.
    fn first(&mut self, data: Bytes) -> Option<Frame<Bytes>> {
        if data.len() <= PIECE {
            return Some(Frame::data(data));
        }
        if self.is_stream {
            // The work goes on without its stream.
            self.held = Some(room(&self.unwritten, data.len() as u64, LATE)?);
        }
        self.rest = data;
        Some(self.piece())
    }
}

/// Waits until a caller's right ends: at this time of the clock, in seconds since 1970, if any is given, or with its agent.
pub(crate) async fn right_ends(expires: Option<u64>, standing: Standing) {
    let expired = async {
        match expires {
            Some(at) => sleep_until(instant(at)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = expired => {}
        () = standing.revoked() => {}
    }
}

/// When a time of the clock will be, given in seconds since 1970.
fn instant(at: u64) -> Instant {
    /// Longer than any stream lasts.
    const LONGEST: Duration = Duration::from_secs(30 * 86_400);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let left = Duration::from_secs(at).saturating_sub(now.unwrap_or_default());
    Instant::now() + left.min(LONGEST)
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        waiting: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // A stream that always has an event must end, too.
        let end = self.end.as_mut().map(|end| end.as_mut().poll(waiting));
        if let Some(Poll::Ready(())) = end {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        match Pin::new(&mut self.body).poll_frame(waiting) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(match frame.into_data() {
                Ok(data) => self.first(data).map(Ok),
                Err(trailers) => Some(Ok(trailers)),
            }),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(most) = body.upper() {
            hint.set_upper(most + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// A stream of the events that a function gives.
    struct Events<F>(F);

    impl<F: FnMut() -> Poll<Option<Bytes>> + Unpin> Body for Events<F> {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _waiting: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            (self.0)().map(|event| event.map(|event| Ok(Frame::data(event))))
        }
    }

    fn request(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        places.clone().try_acquire_owned().unwrap()
    }

    #[tokio::test]
    async fn a_stream_without_news_ends_with_its_callers_right() {
        let (places, unwritten) = (Arc::new(Semaphore::new(1)), Unwritten::default());
        let (revoke, revoked) = tokio::sync::oneshot::channel::<()>();
        let end = async move { revoked.await.unwrap() };
        let silent = Events(|| Poll::Pending).boxed();
        let stream = unwritten.count(silent, end, request(&places));
        let mut stream = stream.unwrap();
        let reading = tokio::spawn(async move { stream.frame().await.is_none() });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        revoke.send(()).unwrap();
        assert!(reading.await.unwrap());
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_stream_with_news_without_end_ends_with_its_callers_right() {
        let (places, unwritten) = (Arc::new(Semaphore::new(1)), Unwritten::default());
        let (revoke, revoked) = tokio::sync::oneshot::channel::<()>();
        let end = async move { revoked.await.unwrap() };
        let event = || Poll::Ready(Some(Bytes::from_static(&[7; PIECE + 1])));
        let stream = unwritten.count(Events(event).boxed(), end, request(&places));
        let mut stream = stream.unwrap();
        for _ in 0..3 {
            assert!(stream.frame().await.is_some());
        }
        revoke.send(()).unwrap();
        assert!(stream.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_long_answer_comes_in_pieces_and_holds_its_places_to_the_end() {
        let (places, unwritten) = (Arc::new(Semaphore::new(1)), Unwritten::default());
        let long: Bytes = (0..3 * PIECE + 7).map(|number| number as u8).collect();
        let answer = Full::new(long.clone()).boxed();
        let mut answer = unwritten
            .count(answer, pending(), request(&places))
            .unwrap();
        let mut read = Vec::new();
        while read.len() < long.len() {
            let left = (long.len() - read.len()) as u64;
            assert!(!answer.is_end_stream() && answer.size_hint().exact() == Some(left));
            assert_eq!(places.available_permits(), 0);
            assert_eq!(unwritten.0.available_permits(), ANSWERS + LATE - long.len());
            let piece = answer.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            read.extend_from_slice(&piece);
        }
        assert!(answer.is_end_stream() && read == long);
        drop(answer);
        assert_eq!(places.available_permits(), 1);
        assert_eq!(unwritten.0.available_permits(), ANSWERS + LATE);
    }

    #[tokio::test]
    async fn answers_and_events_that_are_not_read_have_an_end() {
        let (places, unwritten) = (Arc::new(Semaphore::new(9)), Unwritten::default());
        let long = Bytes::from(vec![7; ANSWERS / 2 + PIECE]);
        let whole = || Full::new(long.clone()).boxed();
        let stream = || {
            let mut events = vec![long.clone(); 2];
            Events(move || Poll::Ready(events.pop())).boxed()
        };
        let mut one = unwritten
            .count(stream(), pending(), request(&places))
            .unwrap();
        let mut other = unwritten
            .count(stream(), pending(), request(&places))
            .unwrap();
        assert!(one.frame().await.is_some());
        assert!(unwritten.has_room());
        // Streams take no room that answers of finished work need.
        assert!(other.frame().await.is_none());
        let mut late = Vec::new();
        while let Some(answer) = unwritten.count(whole(), pending(), request(&places)) {
            assert!(!late.is_empty() || !unwritten.has_room());
            late.push(answer);
        }
        assert_eq!(late.len(), (ANSWERS + LATE) / long.len() - 1);
        drop(late);
        assert!(unwritten.has_room());
        // Reading makes room.
        while one.held.is_some() {
            one.frame().await.unwrap().unwrap();
        }
        assert!(
            unwritten
                .count(whole(), pending(), request(&places))
                .is_some()
        );
        assert!(one.frame().await.is_some());
    }
}
