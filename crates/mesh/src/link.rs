//! The link to one other process, over any number of connections: the part that senders use. The link's
//! task reads and writes.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use sealbus_bus::{
    Destination, FrameSender, Gate, LocalAgent, Outgoing, OutgoingFrame, ProcessDestination,
    ReceivedMessage, RefusalReason, Rejected, SessionNumber, UndeliverableReason, WeakBus,
};
use sealbus_seal::Identity;
use tokio::sync::mpsc;

use crate::config::MeshConfig;
use crate::greeting::Greeted;
use crate::outward::{Action, Filled, Outward, TargetHandle};
use crate::wire::Wire;

/// The number of unwritten bytes at which a sending thread writes them itself instead of waiting for the task.
const WRITE_AT_ONCE: usize = 128 << 10;

/// The jobs of the link's task besides sending.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Whether any request was made since the task last looked.
    any: AtomicBool,
    /// The deny list changed.
    pub(crate) check: AtomicBool,
    /// Agents of this process left.
    pub(crate) agents_left: AtomicBool,
    /// This process has a new certificate.
    pub(crate) refresh: AtomicBool,
    /// The peer is gone for good.
    pub(crate) forget: AtomicBool,
    /// This process ends.
    pub(crate) end: AtomicBool,
}

impl Requests {
    /// Makes a request by setting one of the fields.
    pub(crate) fn make(&self, request: impl FnOnce(&Self) -> &AtomicBool) {
        request(self).store(true, Ordering::Release);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are requests to look at. They then count as looked at.
    pub(crate) fn are_any(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.any.swap(false, Ordering::AcqRel)
    }
}

/// Messages of the peer that an agent of this process will never read.
pub(crate) struct Unread {
    /// The handle of the target that the agent was, and its number among those of the session.
    pub(crate) target: u32,
    pub(crate) number: u32,
    /// The session, by its epoch.
    pub(crate) epoch: u64,
    pub(crate) messages: Vec<ReceivedMessage>,
}

/// The link to one other process.
pub(crate) struct Link {
    pub(crate) config: Arc<MeshConfig>,
    pub(crate) peer: Identity,
    pub(crate) address: Mutex<SocketAddr>,
    pub(crate) outward: Mutex<Outward>,
    /// Lock this before `outward` if you need both.
    pub(crate) wire: Mutex<Option<Wire>>,
    pub(crate) requests: Requests,
    /// Whether something was kept for the peer since the task last checked the amount.
    has_kept: AtomicBool,
    /// Messages of the peer's agents that agents of this process will never read.
    pub(crate) unread: Mutex<Vec<Unread>>,
    pub(crate) connections: AtomicU64,
    /// The number of the last known connection.
    last_number: AtomicU64,
    pub(crate) received: AtomicU64,
    bus: WeakBus,
    task: AtomicWaker,
    is_awake: AtomicBool,
    pub(crate) incoming: mpsc::Sender<Greeted>,
}

impl Link {
    pub(crate) fn new(
        config: Arc<MeshConfig>,
        peer: Identity,
        address: SocketAddr,
        bus: WeakBus,
    ) -> (Arc<Self>, mpsc::Receiver<Greeted>) {
        let (incoming, connections) = mpsc::channel(4);
        let outward = Outward::new(
            config.security.level(),
            config.window,
            config.largest_message,
            config.agents_per_link,
        );
        let link = Arc::new(Self {
            config,
            peer,
            address: Mutex::new(address),
            outward: Mutex::new(outward),
            wire: Mutex::new(None),
            requests: Requests::default(),
            has_kept: AtomicBool::new(false),
            unread: Mutex::default(),
            connections: AtomicU64::new(0),
            last_number: AtomicU64::new(0),
            received: AtomicU64::new(0),
            bus,
            task: AtomicWaker::new(),
            is_awake: AtomicBool::new(false),
            incoming,
        });
        (link, connections)
    }

    /// Makes the task look for work. Calls in quick succession count as one.
    pub(crate) fn wake(&self) {
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.task.wake();
        }
    }

    /// Whether [`wake`](Self::wake) was called since the last time. If not, the next call wakes the task.
    pub(crate) fn poll_woken(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_awake.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        self.task.register(context.waker());
        // The call may have come before the waker was there.
        if self.is_awake.swap(false, Ordering::AcqRel) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// The number of the last known connection.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number.load(Ordering::Relaxed)
    }

    /// Notes the number of a connection.
    pub(crate) fn note_number(&self, number: u64) {
        self.last_number.fetch_max(number, Ordering::Relaxed);
    }

    /// Gives the next connection its number.
    pub(crate) fn number_next(&self) {
        self.note_number(self.last_number().saturating_add(1));
    }

    /// Notes that the task has kept something for the peer, or may have.
    pub(crate) fn note_kept(&self) {
        self.has_kept.store(true, Ordering::Relaxed);
    }

    /// Whether the peer makes this process keep too much for it. The task asks before each message, and mostly nothing
    /// was kept since it last asked.
    #[inline]
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.has_kept.load(Ordering::Relaxed) && self.look_at_kept()
    }

    #[cold]
    fn look_at_kept(&self) -> bool {
        let is_overdrawn = self.outward.lock().is_overdrawn();
        self.has_kept.store(is_overdrawn, Ordering::Relaxed);
        is_overdrawn
    }

    /// Waits for [`wake`](Self::wake). Only the link's task calls this.
    pub(crate) async fn woken(&self) {
        poll_fn(|context| self.poll_woken(context)).await;
    }

    /// Writes pending bytes, if no other thread is writing and the socket takes them.
    pub(crate) fn flush(&self) {
        if let Some(mut wire) = self.wire.try_lock()
            && let Some(wire) = wire.as_mut()
            && wire.pending() == 0
        {
            let mut outward = self.outward.lock();
            let filled = outward.fill(wire);
            let is_done =
                matches!(filled, Filled::Nothing | Filled::All) && !outward.has_departing();
            drop(outward);
            if wire.flush().is_ok() && !wire.wants_write() && is_done {
                return;
            }
        }
        // The task writes the rest when it can go, or finds the fault.
        self.wake();
    }

    /// Carries out the actions of the state machines on the bus.
    pub(crate) fn act(&self, actions: impl IntoIterator<Item = Action>) {
        let mut actions = actions.into_iter().peekable();
        if actions.peek().is_none() {
            return;
        }
        let Some(bus) = self.bus.upgrade() else {
            return;
        };
        for action in actions {
            match action {
                Action::Returned {
                    receiver,
                    serial,
                    messages,
                    denied,
                } => {
                    let settled = || self.outward.lock().settle(serial);
                    bus.returned(&receiver, messages, denied, settled);
                }
                Action::Undeliverable {
                    sender,
                    receiver,
                    payload,
                    reason,
                } => {
                    bus.undeliverable(&sender, &receiver, &payload, &reason);
                }
                Action::FramesLost {
                    serial,
                    frames,
                    reason,
                } => {
                    if !frames.is_empty() {
                        bus.frames_lost(&self.peer, frames, &reason);
                    }
                    if let Some(serial) = serial {
                        self.outward.lock().settle(serial);
                    }
                }
                Action::Refused {
                    receiver,
                    reason,
                    explanation,
                } => {
                    bus.refused(
                        &receiver,
                        Some(self.peer.to_string()),
                        None,
                        reason,
                        explanation,
                    );
                }
            }
        }
    }

    /// Notes that the peer was refused.
    pub(crate) fn refuse(&self, reason: RefusalReason, explanation: String) {
        if let Some(bus) = self.bus.upgrade() {
            bus.refused(&self.peer.to_string(), None, None, reason, explanation);
        }
    }
}

/// The way to one agent, or to the bus of the process, at the other end of a link.
pub(crate) struct MeshDestination {
    link: Arc<Link>,
    target: TargetHandle,
}

impl MeshDestination {
    /// `None`: the link has ended, or too many agents are addressed over it.
    pub(crate) fn open(link: &Arc<Link>, receiver: &str) -> Option<Self> {
        let target = {
            let mut outward = link.outward.lock();
            if outward.has_ended {
                return None;
            }
            outward.open(receiver)?
        };
        link.wake();
        Some(Self {
            link: link.clone(),
            target,
        })
    }
}

impl MeshDestination {
    /// Ensures that accepted messages are written.
    fn accepted(&self, mut outward: MutexGuard<'_, Outward>) {
        if outward.has_ready(WRITE_AT_ONCE) {
            drop(outward);
            self.link.flush();
        } else {
            let is_news = outward.announce();
            let is_at_once = is_news && outward.may_write_at_once();
            drop(outward);
            if is_at_once {
                self.link.flush();
            } else if is_news {
                self.link.wake();
            }
        }
    }

    /// Handles messages that were not accepted.
    fn rejected(&self, mut outward: MutexGuard<'_, Outward>, sender: &str, rejected: &Rejected) {
        match rejected {
            Rejected::Full => {
                let is_news = outward.announce();
                drop(outward);
                if is_news {
                    self.link.wake();
                }
            }
            Rejected::Impossible(UndeliverableReason::Refused {
                reason,
                explanation,
            }) => {
                tracing::warn!(agent = %sender, %reason, "cannot send: {explanation}");
            }
            _ => {}
        }
    }
}

impl Destination for MeshDestination {
    fn try_send(&self, sender: &Arc<LocalAgent>, outgoing: &Outgoing<'_>) -> Result<(), Rejected> {
        let mut outward = self.link.outward.lock();
        let result = outward.try_send(self.target.handle, self.target.serial, sender, outgoing);
        match &result {
            Ok(()) => self.accepted(outward),
            Err(rejected) => self.rejected(outward, sender.name(), rejected),
        }
        result
    }

    fn try_send_row<'m>(
        &self,
        sender: &Arc<LocalAgent>,
        row: &mut dyn Iterator<Item = Outgoing<'m>>,
    ) -> usize {
        let TargetHandle { handle, serial, .. } = self.target;
        let mut count = 0;
        loop {
            let mut outward = self.link.outward.lock();
            let before = count;
            for outgoing in &mut *row {
                // The caller tries this message again by itself, and then learns why not.
                if outward.try_send(handle, serial, sender, &outgoing).is_err() {
                    if count > before {
                        self.accepted(outward);
                    }
                    return count;
                }
                count += 1;
                if outward.has_ready(WRITE_AT_ONCE) {
                    break;
                }
            }
            if count == before {
                return count;
            }
            self.accepted(outward);
        }
    }

    fn session(&self) -> Option<SessionNumber> {
        Some(self.target.session)
    }

    fn gate(&self) -> &Gate {
        &self.target.gate
    }

    fn recall(&self) {
        self.link
            .outward
            .lock()
            .recall(self.target.handle, self.target.serial);
        self.link.wake();
    }
}

impl ProcessDestination for MeshDestination {
    fn try_send(&self, frame: &OutgoingFrame<'_>) -> Result<(), Rejected> {
        let mut outward = self.link.outward.lock();
        let result = outward.try_send_frame(self.target.handle, self.target.serial, frame);
        match &result {
            Ok(()) => self.accepted(outward),
            Err(rejected) => {
                let sender = match frame.sender {
                    FrameSender::Agent(agent) => agent.name(),
                    FrameSender::Process => "this process",
                };
                self.rejected(outward, sender, rejected);
            }
        }
        result
    }

    fn gate(&self) -> &Gate {
        &self.target.gate
    }
}
