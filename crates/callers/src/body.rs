//! The bodies of requests: read whole within limits, or passed over.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Longest body of a request, in bytes, and the time that it may take.
pub const LONGEST_BODY: usize = 4 << 20;
const BODY_TIME: Duration = Duration::from_secs(30);
/// The part of a refused request's body that is read, and the time that it may take.
const REST: usize = 64 << 10;
const REST_TIME: Duration = Duration::from_secs(2);

/// Why a body was not read to its end.
pub(crate) struct Unread(pub(crate) StatusCode, pub(crate) &'static str);

/// Reads a whole body. The body takes room as its bytes arrive, independent of the announced length, and holds the room
/// as long as the permit lives.
pub(crate) async fn read(
    body: &mut Incoming,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Unread> {
    let slow = |_| Unread(StatusCode::REQUEST_TIMEOUT, "the body took too long");
    let whole = timeout(BODY_TIME, gather(body, room)).await;
    whole.map_err(slow)?
}

async fn gather(
    body: &mut Incoming,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Unread> {
    const TOO_LONG: Unread = Unread(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
    if body.size_hint().lower() > LONGEST_BODY as u64 {
        return Err(TOO_LONG);
    }
    let mut whole = BytesMut::new();
    let mut taken: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unread(StatusCode::BAD_REQUEST, "the body was cut off"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > LONGEST_BODY {
            return Err(TOO_LONG);
        }
        let length = u32::try_from(data.len()).map_err(|_| TOO_LONG)?;
        let Ok(piece) = room.clone().try_acquire_many_owned(length) else {
            let why = "too many bodies at a time: try again";
            return Err(Unread(StatusCode::TOO_MANY_REQUESTS, why));
        };
        match &mut taken {
            Some(taken) => taken.merge(piece),
            None => taken = Some(piece),
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.freeze(), taken))
}

/// Reads the rest of a refused request's body, if that is short. Returns whether the body came to its end.
pub(crate) async fn pass_over(mut body: Incoming) -> bool {
    let whole = async {
        let mut left = REST;
        while let Some(frame) = body.frame().await {
            let length = frame.map(|it| it.data_ref().map_or(0, Bytes::len));
            match length.ok().and_then(|length| left.checked_sub(length)) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    let whole = timeout(REST_TIME, whole).await;
    whole.unwrap_or(false)
}
