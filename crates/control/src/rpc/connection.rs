use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BufMut;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::LONGEST_FRAME;
use super::codec::{CodecError, Decoder, Frame, encode};
use super::incoming::{Answer, HELD, Incoming, NoticeBody};
use super::outgoing::{OutgoingFrames, Room, Untold, WeakOutgoingFrames, cost};
use crate::admin::{List, Listed, Listing};
use crate::ask::Ask;
use crate::asker::{self, Answered, Asker, to_json};
use crate::{Fault, FaultCode};

/// The name of the other side in faults.
const PEER: &str = "the other side";
/// How long the other side may take no bytes while some wait for it.
const STALLED: Duration = Duration::from_secs(30);
/// The number of requests that may wait for the application before reading stops.
const INCOMING: usize = 64;
/// The bytes requested from the system in each read.
const READ: usize = 16 * 1024;

/// The asking half of a connection.
#[derive(Clone)]
pub struct RpcCaller {
    outgoing: OutgoingFrames,
    limit: Arc<AtomicUsize>,
    asker: Asker,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionClosed {
    /// The other side closed it.
    #[error("closed by the other side")]
    ByPeer,
    /// This side dropped all its handles to the connection.
    #[error("closed by this side")]
    Here,
    /// The other side takes no bytes.
    #[error("the other side has read nothing for {STALLED:?}")]
    ReadsNothing,
    /// The other side breaks this protocol or its limits.
    #[error(transparent)]
    Protocol(#[from] CodecError),
    /// The connection broke.
    #[error("connection broken: {0}")]
    Io(#[from] std::io::Error),
}

/// Speaks the protocol on `stream`, and accepts frames of at most `limit` bytes. The connection lives as long as the
/// returned future is polled. It ends when the other side closes it, or when the receiver, every [`RpcCaller`] and
/// every [`Answer`] have been dropped.
pub fn open<S>(
    stream: S,
    limit: usize,
) -> (
    RpcCaller,
    mpsc::Receiver<Incoming>,
    impl Future<Output = ConnectionClosed> + Send,
)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (frames, waiting) = mpsc::unbounded_channel();
    let room = Room::default();
    let outgoing = OutgoingFrames {
        frames,
        room: room.clone(),
    };
    let (deliver, incoming) = mpsc::channel(INCOMING);
    let held = Arc::new(Semaphore::new(HELD));
    let limit = Arc::new(AtomicUsize::new(limit));
    let asker = Asker::default();
    let answers = WeakOutgoingFrames {
        frames: outgoing.frames.downgrade(),
        room: room.clone(),
    };
    let caller = RpcCaller {
        outgoing,
        limit: limit.clone(),
        asker: asker.clone(),
    };
    let drive = async move {
        let (reader, writer) = tokio::io::split(stream);
        let closed = tokio::select! {
            closed = read(reader, limit, deliver, held, answers, &asker) => closed,
            closed = write(writer, LONGEST_FRAME, STALLED, waiting, &asker) => closed,
        };
        // Tasks that wait for room learn that there is no reader any more.
        room.close();
        asker.end();
        closed
    };
    (caller, incoming, drive)
}

/// Reads frames for ever. If the other side asks more than this one can hold, nothing is read until there is room again.
/// Answers of that side wait as well, so work on a request must not need an answer from the same side without a time limit.
async fn read(
    mut reader: impl AsyncRead + Unpin,
    limit: Arc<AtomicUsize>,
    deliver: mpsc::Sender<Incoming>,
    held: Arc<Semaphore>,
    answers: WeakOutgoingFrames,
    asker: &Asker,
) -> ConnectionClosed {
    let mut decoder = Decoder::new(limit.load(Ordering::Relaxed));
    loop {
        loop {
            decoder.set_limit(limit.load(Ordering::Relaxed));
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return error.into(),
            };
            let size = cost(&frame);
            let room = || held.clone().acquire_many_owned(size);
            let incoming = match frame {
                Frame::Call { id, body } => {
                    let room = room().await.ok();
                    let outgoing = answers.upgrade();
                    let answer = Answer { id, outgoing, room };
                    Incoming::Call { body, answer }
                }
                Frame::Notice { body } => {
                    // Nobody closes the semaphore.
                    let Ok(room) = room().await else {
                        return ConnectionClosed::Here;
                    };
                    let body = NoticeBody::new(body, room);
                    Incoming::Notice { body }
                }
                Frame::Answer { id, body } => {
                    resolve(asker, id, Ok(body.into()));
                    continue;
                }
                Frame::Fault { id, body } => {
                    resolve(asker, id, Err(body));
                    continue;
                }
            };
            // The application may have dropped its receiver, and only send requests from now on.
            let _ = deliver.send(incoming).await;
        }
        let buffer = decoder.buffer();
        buffer.reserve(READ);
        match reader.read_buf(&mut buffer.limit(READ)).await {
            Ok(0) => return ConnectionClosed::ByPeer,
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

/// Notes an answer. All answers on the connection come from the peer at its other end.
fn resolve(asker: &Asker, id: u64, answer: Answered) {
    asker.answered(id, |_| Some(answer));
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    limit: usize,
    patience: Duration,
    mut frames: mpsc::UnboundedReceiver<(Frame, OwnedSemaphorePermit)>,
    asker: &Asker,
) -> ConnectionClosed {
    let mut bytes = Vec::new();
    while let Some(first) = frames.recv().await {
        let mut next = Some(first);
        // The room is freed when the other side has taken the bytes.
        let mut rooms = Vec::new();
        while let Some((frame, room)) = next {
            rooms.push(room);
            if let Err(error) = encode(&frame, limit, &mut bytes) {
                answer_instead(frame, &error, limit, &mut bytes, asker);
            }
            next = if bytes.len() < READ {
                frames.try_recv().ok()
            } else {
                None
            };
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match tokio::time::timeout(patience, writer.write(rest)).await {
                Ok(Ok(0)) => return std::io::Error::from(std::io::ErrorKind::WriteZero).into(),
                Ok(Ok(taken)) => rest = &rest[taken..],
                Ok(Err(error)) => return error.into(),
                Err(_) => return ConnectionClosed::ReadsNothing,
            }
        }
        match tokio::time::timeout(patience, writer.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return ConnectionClosed::ReadsNothing,
        }
        bytes.clear();
    }
    let _ = tokio::time::timeout(patience, writer.shutdown()).await;
    ConnectionClosed::Here
}

/// If a frame is too long to send, its caller, here or there, must not wait for ever.
fn answer_instead(
    frame: Frame,
    error: &CodecError,
    limit: usize,
    bytes: &mut Vec<u8>,
    asker: &Asker,
) {
    let body = Fault::new(FaultCode::TooLarge, error.to_string());
    match frame {
        Frame::Call { id, .. } => resolve(asker, id, Err(body)),
        Frame::Answer { id, .. } | Frame::Fault { id, .. } => {
            if let Err(error) = encode(&Frame::Fault { id, body }, limit, bytes) {
                tracing::warn!(%error, "an answer could not be sent");
            }
        }
        Frame::Notice { .. } => tracing::warn!(%error, "a notice could not be sent"),
    }
}

impl RpcCaller {
    /// Asks, and waits for the answer for at most `patience`.
    ///
    /// # Errors
    /// The other side's fault, or [`FaultCode::Unavailable`] if no answer came.
    pub async fn ask<A: Ask>(&self, ask: A, patience: Duration) -> Result<A::Answer, Fault> {
        let body = to_json::<A::Requests>(&ask.into())?;
        let answer = self.answer(body, patience).await?;
        A::take(asker::read(PEER, &answer)?)
    }

    async fn answer(&self, body: Box<RawValue>, patience: Duration) -> Answered {
        let asked = self.asker.begin(PEER)?;
        let id = asked.number;
        let sending = self.outgoing.send(Frame::Call { id, body });
        asked.answer(sending, patience).await
    }

    /// Asks for a whole list, page by page. Waits for each page for at most `patience`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn list<L: List>(
        &self,
        list: L,
        patience: Duration,
    ) -> Result<Vec<<L::Answer as Listed>::Item>, Fault> {
        let mut listing = Listing::of(list);
        while let Some(page) = listing.next_page() {
            listing.take(self.ask(page, patience).await?);
        }
        Ok(listing.into_items())
    }

    /// Sends a notice, which has no answer. Waits while the connection is busy.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the connection is closed.
    pub async fn notify(&self, notice: &impl Serialize) -> Result<(), Fault> {
        let body = to_json(notice)?;
        self.outgoing.send(Frame::Notice { body }).await
    }

    /// Sends a notice at once, without waiting for a slow reader.
    ///
    /// # Errors
    /// [`Untold`]. Then the notice is lost, and the other side lacks this knowledge.
    pub fn try_notify(&self, notice: &impl Serialize) -> Result<(), Untold> {
        let body = to_json(notice).map_err(|_| Untold::Closed)?;
        self.outgoing.try_send(Frame::Notice { body })
    }

    /// Accepts frames of up to `limit` bytes from now on, because the other side is known.
    pub fn allow_frames(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.outgoing.frames.is_closed()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.outgoing.frames.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    impl Ask for String {
        type Requests = Self;
        type Answers = Self;
        type Answer = Self;
    }

    #[tokio::test]
    async fn requests_in_both_directions_find_their_answers() {
        let (left, right) = tokio::io::duplex(64);
        let (left, _left_incoming, left_drive) = open(left, 1000);
        let (right, mut right_incoming, right_drive) = open(right, 1000);
        tokio::spawn(left_drive);
        tokio::spawn(right_drive);
        tokio::spawn(async move {
            let mut held = None;
            while let Some(Incoming::Call { body, answer }) = right_incoming.recv().await {
                let number: String = Incoming::parse(&body).unwrap();
                // The answers are sent out of order.
                match held.take() {
                    None => held = Some((number, answer)),
                    Some((first, waiting)) => {
                        answer.send(Ok(number.repeat(2))).await;
                        waiting.send(Ok(first.repeat(2))).await;
                    }
                }
            }
            drop(right);
        });
        let (one, two) = tokio::join!(
            left.ask("1".to_owned(), PATIENCE),
            left.ask("2".to_owned(), PATIENCE)
        );
        assert_eq!(
            (one.unwrap(), two.unwrap()),
            ("11".to_owned(), "22".to_owned())
        );
    }

    #[tokio::test]
    async fn a_closed_connection_fails_what_waits_and_what_comes() {
        let (left, right) = tokio::io::duplex(64);
        let (left, _incoming, drive) = open(left, 1000);
        tokio::spawn(drive);
        let call = left.ask("1".to_owned(), PATIENCE);
        let (failed, ()) = tokio::join!(call, async { drop(right) });
        assert_eq!(failed.unwrap_err().code, FaultCode::Unavailable);
        left.closed().await;
        assert_eq!(
            left.ask("1".to_owned(), PATIENCE).await.unwrap_err().code,
            FaultCode::Unavailable
        );
    }

    #[tokio::test]
    async fn a_request_too_long_is_refused_here() {
        let (left, _right) = tokio::io::duplex(64);
        let (left, _incoming, drive) = open(left, 1000);
        tokio::spawn(drive);
        let fault = left
            .ask("x".repeat(LONGEST_FRAME), PATIENCE)
            .await
            .unwrap_err();
        assert_eq!(fault.code, FaultCode::TooLarge);
    }

    #[tokio::test]
    async fn a_side_that_reads_nothing_holds_nobody_up() {
        let (left, right) = tokio::io::duplex(64);
        let (left, _incoming, drive) = open(left, 1000);
        tokio::spawn(drive);
        let notice = "x".repeat(1024 * 1024);
        let taken = (0..100).take_while(|_| left.try_notify(&notice).is_ok());
        assert!((20..=32).contains(&taken.count()));
        assert_eq!(left.try_notify(&notice), Err(Untold::ReadsNothing));
        // A task that waits for room learns that there will be none.
        while left.notify(&notice).now_or_never().is_some() {}
        let (waiting, ()) = tokio::join!(left.notify(&notice), async { drop(right) });
        assert_eq!(waiting.unwrap_err().code, FaultCode::Unavailable);
        assert_eq!(left.try_notify(&notice), Err(Untold::Closed));
    }

    #[tokio::test]
    async fn a_side_that_takes_no_bytes_is_given_up() {
        let (left, _right) = tokio::io::duplex(8);
        let (frames, waiting) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(1)).acquire_many_owned(1).await;
        let body = to_json(&"more than eight bytes").unwrap();
        frames
            .send((Frame::Notice { body }, room.unwrap()))
            .unwrap();
        let soon = Duration::from_millis(1);
        let closed = write(left, 1000, soon, waiting, &Asker::default()).await;
        assert!(matches!(closed, ConnectionClosed::ReadsNothing));
    }

    #[tokio::test]
    async fn frames_are_longer_once_the_other_side_is_known() {
        let (left, right) = tokio::io::duplex(64);
        let (left, _incoming, drive) = open(left, 1000);
        let (right, mut incoming, right_drive) = open(right, 1000);
        tokio::spawn(drive);
        let driving = tokio::spawn(right_drive);
        left.notify(&1).await.unwrap();
        assert!(incoming.recv().await.is_some());
        right.allow_frames(10_000);
        left.notify(&"x".repeat(5000)).await.unwrap();
        assert!(incoming.recv().await.is_some());
        left.notify(&"x".repeat(20_000)).await.unwrap();
        assert!(matches!(
            driving.await.unwrap(),
            ConnectionClosed::Protocol(_)
        ));
    }

    #[tokio::test]
    async fn a_request_given_up_is_answered() {
        let (left, right) = tokio::io::duplex(64);
        let (left, _left_incoming, left_drive) = open(left, 1000);
        let (_right, mut incoming, right_drive) = open(right, 1000);
        tokio::spawn(left_drive);
        tokio::spawn(right_drive);
        tokio::spawn(async move { drop(incoming.recv().await) });
        let fault = left.ask("1".to_owned(), PATIENCE).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Internal);
    }

    #[test]
    fn a_side_that_asks_much_at_once_is_read_no_further_until_there_is_room() {
        let text = || to_json(&"x".repeat(1000)).unwrap();
        let mut bytes = Vec::new();
        for id in 0..4 {
            encode(&Frame::Call { id, body: text() }, 2000, &mut bytes).unwrap();
        }
        for _ in 0..3 {
            encode(&Frame::Notice { body: text() }, 2000, &mut bytes).unwrap();
        }
        let (deliver, mut incoming) = mpsc::channel(INCOMING);
        let (frames, _) = mpsc::unbounded_channel();
        let answers = WeakOutgoingFrames {
            frames: frames.downgrade(),
            room: Room::default(),
        };
        // No answer leaves.
        drop(frames);
        let (limit, asker) = (Arc::new(AtomicUsize::new(2000)), Asker::default());
        // There is room for two of the frames.
        let held = Arc::new(Semaphore::new(3000));
        let reading = read(bytes.as_slice(), limit, deliver, held, answers, &asker);
        tokio::pin!(reading);
        assert!(reading.as_mut().now_or_never().is_none());
        let (first, second) = (incoming.try_recv().unwrap(), incoming.try_recv().unwrap());
        assert!(incoming.try_recv().is_err());

        // A request that is answered or given up makes room, and so does one that is limited in another way.
        let Incoming::Call { answer, .. } = first else {
            panic!("a request comes first")
        };
        answer.send(Ok("answer")).now_or_never().unwrap();
        assert!(reading.as_mut().now_or_never().is_none());
        let mut third = incoming.try_recv().unwrap();
        assert!(incoming.try_recv().is_err());
        drop(second);
        assert!(reading.as_mut().now_or_never().is_none());
        let fourth = incoming.try_recv().unwrap();
        assert!(incoming.try_recv().is_err());
        let Incoming::Call { answer, .. } = &mut third else {
            panic!("a request comes third")
        };
        answer.free_room();
        assert!(reading.as_mut().now_or_never().is_none());
        let notice = incoming.try_recv().unwrap();
        assert!(matches!(notice, Incoming::Notice { .. }));
        assert!(incoming.try_recv().is_err());

        // A notice that is dropped also makes room.
        drop(notice);
        assert!(reading.as_mut().now_or_never().is_none());
        let notice = incoming.try_recv().unwrap();
        assert!(incoming.try_recv().is_err());
        drop((third, fourth));
        let closed = reading.as_mut().now_or_never();
        assert!(matches!(closed, Some(ConnectionClosed::ByPeer)));
        let Incoming::Notice { body } = incoming.try_recv().unwrap() else {
            panic!("a notice comes last")
        };
        assert_eq!(Incoming::parse::<String>(&body).unwrap().len(), 1000);
        drop(notice);
    }
}
