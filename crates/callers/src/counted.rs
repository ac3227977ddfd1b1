//! Answers that hold places of their caller until they are written.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

/// The connection takes so many bytes at once. The rest waits here, where it is counted.
const PIECE: usize = 32 << 10;

/// An answer that holds its caller's places until it is written, or the caller has gone. It ends with the caller's right.
pub(crate) struct Counted {
    body: BoxBody<Bytes, Infallible>,
    rest: Bytes,
    end: Option<Pin<Box<Sleep>>>,
    _places: [OwnedSemaphorePermit; 2],
}

impl Counted {
    /// An answer that ends at this time of the clock, in seconds since 1970, if any is given.
    pub(crate) fn new(
        body: BoxBody<Bytes, Infallible>,
        expires: Option<u64>,
        places: [OwnedSemaphorePermit; 2],
    ) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            end: expires.map(|at| Box::pin(tokio::time::sleep_until(instant(at)))),
            _places: places,
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(PIECE.min(self.rest.len()));
        // A slice would keep the whole answer in memory until it is written.
        Frame::data(Bytes::copy_from_slice(&piece))
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
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        match Pin::new(&mut self.body).poll_frame(waiting) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) if data.len() > PIECE => {
                    self.rest = data;
                    self.piece()
                }
                Ok(data) => Frame::data(data),
                Err(trailers) => trailers,
            }))),
            Poll::Pending => {
                let end = self.end.as_mut().map(|end| end.as_mut().poll(waiting));
                match end {
                    Some(Poll::Ready(())) => Poll::Ready(None),
                    _ => Poll::Pending,
                }
            }
            ended => ended,
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
    use std::sync::Arc;

    use http_body_util::{BodyExt, Full};
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_long_answer_comes_in_pieces_and_holds_its_places_to_the_end() {
        let places = Arc::new(Semaphore::new(2));
        let long: Bytes = (0..3 * PIECE + 7).map(|number| number as u8).collect();
        let held = [(); 2].map(|()| places.clone().try_acquire_owned().unwrap());
        let mut answer = Counted::new(Full::new(long.clone()).boxed(), None, held);
        let mut read = Vec::new();
        while read.len() < long.len() {
            let left = (long.len() - read.len()) as u64;
            assert!(!answer.is_end_stream() && answer.size_hint().exact() == Some(left));
            assert_eq!(places.available_permits(), 0);
            let piece = answer.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            read.extend_from_slice(&piece);
        }
        assert!(answer.is_end_stream() && read == long);
        drop(answer);
        assert_eq!(places.available_permits(), 2);
    }
}
