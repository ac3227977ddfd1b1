//! Frames from the bus of one process to that of another.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_seal::Identity;
use tokio::sync::Notify;

use super::{Failure, Outcome, World, check, inform, name, next, number, soon};
use sealbus_bus::ProcessEndpoint;
use sealbus_bus::UndeliverableReason;
use sealbus_bus::{
    ArrivedFrame, FrameInlet, FrameOrigin, FrameSender, LostFrame, OutgoingFrame,
    ProcessDestination, RefusedFrame,
};
use sealbus_bus::{Rejected, TransportError};

/// Keeps the frames that arrive.
#[derive(Default)]
struct Inlet {
    arrived: Mutex<Vec<ArrivedFrame>>,
    news: Notify,
}

impl FrameInlet for Inlet {
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        self.arrived.lock().append(frames);
        self.news.notify_one();
        Vec::new()
    }

    fn process_joined(&self, _: &ProcessEndpoint) {}

    fn process_left(&self, _: &Identity) {}

    fn lost(&self, _: &Identity, _: Vec<LostFrame>, _: &UndeliverableReason) {}
}

impl Inlet {
    fn of(world: &dyn World, process: usize) -> Result<Arc<Self>, Failure> {
        let inlet = Arc::new(Self::default());
        check(world.bus(process).set_frame_inlet(inlet.clone()), || {
            "the bus gives its frames to somebody else".to_owned()
        })?;
        Ok(inlet)
    }

    async fn next(&self) -> Result<ArrivedFrame, Failure> {
        soon("a frame", async {
            loop {
                let news = self.news.notified();
                {
                    let mut arrived = self.arrived.lock();
                    if !arrived.is_empty() {
                        return arrived.remove(0);
                    }
                }
                news.await;
            }
        })
        .await
    }
}

/// The endpoint of a process's bus, as the platform announces it to the others.
fn endpoint(world: &dyn World, from: usize, to: usize) -> Result<ProcessEndpoint, Failure> {
    let identity = world.identity(to);
    world
        .bus(from)
        .processes()
        .into_iter()
        .find(|process| process.identity == identity)
        .ok_or_else(|| Failure::new("one process was not told of the other"))
}

fn way(world: &dyn World, from: usize, to: usize) -> Result<Arc<dyn ProcessDestination>, Failure> {
    let transport = world
        .bus(from)
        .transport()
        .ok_or_else(|| Failure::new("there is no transport"))?;
    Ok(transport.process_destination(&endpoint(world, from, to)?)?)
}

/// Whether the transport says that it carries frames.
pub(super) fn are_offered(world: &dyn World) -> bool {
    let (Some(transport), Ok(endpoint)) = (world.bus(0).transport(), endpoint(world, 0, 1)) else {
        return false;
    };
    !matches!(
        transport.process_destination(&endpoint),
        Err(TransportError::NotOffered { .. })
    )
}

async fn send(way: &dyn ProcessDestination, frame: &OutgoingFrame<'_>) -> Outcome {
    let attempt = || match way.try_send(frame) {
        Ok(()) => Some(Ok(())),
        Err(Rejected::Full) => None,
        Err(rejected) => Some(Err(Failure::new(format!(
            "a frame was rejected: {rejected:?}"
        )))),
    };
    match attempt() {
        Some(outcome) => outcome,
        None => soon("room for a frame", way.gate().pass(attempt)).await?,
    }
}

fn length(number: u32) -> usize {
    match number % 100 {
        33 => 200_000,
        66 => 20_000,
        99 => 1_100_000,
        other => other as usize * 7,
    }
}

fn tail(number: u32) -> &'static [u8] {
    if number.is_multiple_of(2) { b"xx" } else { b"" }
}

pub(super) async fn in_order(world: &dyn World, is_breaking: bool) -> Outcome {
    const FRAMES: u32 = 1_000;
    let inlet = Inlet::of(world, 1)?;
    let alice = name(world, "alice");
    let _agent = world.attach(0, &alice, None).await;
    let agent = world
        .bus(0)
        .agent(&alice)
        .ok_or_else(|| Failure::new("the agent is not there"))?;
    let way = way(world, 0, 1)?;
    let sending = async {
        for number in 0..FRAMES {
            let sender = match number % 3 {
                0 => FrameSender::Process,
                _ => FrameSender::Agent(&agent),
            };
            let tail = tail(number);
            let body = Bytes::from(vec![b'x'; length(number)]);
            let frame = OutgoingFrame {
                sender,
                head: &number.to_le_bytes(),
                body: &body,
                tail,
                statement: None,
            };
            send(&*way, &frame).await?;
        }
        Ok(())
    };
    let taking = async {
        for number in 0..FRAMES {
            let frame = inlet.next().await?;
            let (head, body) = frame.payload.split_at(4.min(frame.payload.len()));
            check(head == number.to_le_bytes(), || {
                format!("frame {head:?} came where {number} was due")
            })?;
            check(
                body.len() == length(number) + tail(number).len()
                    && body.iter().all(|byte| *byte == b'x'),
                || format!("frame {number} came with {} bytes", body.len()),
            )?;
            let origin = match number % 3 {
                0 => FrameOrigin::Process,
                _ => FrameOrigin::Agent(alice.as_str().into()),
            };
            check(frame.origin == origin, || {
                format!("frame {number} is said to be of {:?}", frame.origin)
            })?;
            check(*frame.process == world.identity(0), || {
                format!("frame {number} is said to come from {}", frame.process)
            })?;
        }
        Ok(())
    };
    let both = async {
        let (one, two) = tokio::join!(sending, taking);
        one.and(two)
    };
    if is_breaking {
        super::while_breaking(world, both).await?;
    } else {
        both.await?;
    }
    let left = inlet.arrived.lock().len();
    check(left == 0, || format!("{left} frames came twice"))
}

pub(super) async fn push_back(world: &dyn World) -> Outcome {
    let inlet = Inlet::of(world, 1)?;
    let [alice, bob] = ["alice", "bob"].map(|local| name(world, local));
    let (from_alice, _at_alice) = world.attach(0, &alice, None).await;
    let (_from_bob, mut at_bob) = world.attach(1, &bob, None).await;
    let way = way(world, 0, 1)?;
    let body = Bytes::from(vec![7; 300_000]);
    let frame = OutgoingFrame {
        sender: FrameSender::Process,
        head: &[],
        body: &body,
        tail: &[],
        statement: None,
    };
    // An arrived frame keeps its room until it is dropped.
    let (mut sent, mut refused_in_a_row) = (0_usize, 0);
    while refused_in_a_row < 50 {
        match way.try_send(&frame) {
            Ok(()) => {
                sent += 1;
                refused_in_a_row = 0;
            }
            Err(Rejected::Full) => {
                refused_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
            Err(rejected) => {
                return Err(Failure::new(format!("a frame was rejected: {rejected:?}")));
            }
        }
        check(sent < 1_000, || {
            "1000 frames were accepted that nobody takes".to_owned()
        })?;
    }
    let sending = async {
        for number in 0..1_000 {
            soon("room", from_alice.send(inform(&bob, number)?)).await??;
        }
        Ok::<(), Failure>(())
    };
    let receiving = async {
        for expected in 0..1_000 {
            let found = number(&next(&mut at_bob).await?)?;
            check(found == expected, || {
                format!("message {found} came where {expected} was due")
            })?;
        }
        Ok(())
    };
    let (one, two) = tokio::join!(sending, receiving);
    one.and(two)?;
    let (one, two) = tokio::join!(send(&*way, &frame), async {
        for _ in 0..=sent {
            inlet.next().await?;
        }
        Ok(())
    });
    one.and(two)
}
