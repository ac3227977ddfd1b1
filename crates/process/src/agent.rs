//! One agent of this process: its mailbox, its outbox, and the wishes for it.

mod opening;
mod sender;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sealbus_bus::{
    Conversations, Delivery, Mailbox, Outbox, ReceivedMessage, SendError, TrySendError,
};
use sealbus_channels::{Channels, UndeliveredEvents};
use sealbus_fipa::{AclMessage, Aid, Performative};
use tokio::sync::Semaphore;

use super::Process;
use super::interceptor::Interception;
use super::long_lived::LongLivedKey;
use super::rest::Rest;
use super::standing::CertificateStanding;
pub use sender::AgentSender;
use sender::POSTED;

/// A wish of the platform, or of the program itself, for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Come to rest and hand over the state ([`AgentHandle::hand_over`]), because the process is being moved.
    Freeze,
    /// End ([`AgentHandle::leave`]).
    Stop,
}

/// How an agent leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The agent ended by itself, or because it was asked to.
    Ended,
    /// The agent failed with this error.
    Failed(String),
    /// The agent has handed over its state and goes on elsewhere.
    Moved,
}

/// The fate of an agent that has handed over its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thawed {
    /// The move failed. The agent goes on here, with the messages it had.
    GoOn,
    /// The agent goes on elsewhere, or the process ends. In this process it has ended.
    Gone,
}

type Hook = Arc<dyn Fn() + Send + Sync>;

const NO_WISH: u8 = 0;
const FREEZE: u8 = 1;
const STOP: u8 = 2;

/// The process's knowledge about one of its agents.
pub(super) struct Entry {
    pub(super) aid: Aid,
    pub(super) number: u64,
    /// The agent's outbox. A failed move replaces it.
    pub(super) outbox: ArcSwap<Outbox>,
    pub(super) standing: Mutex<CertificateStanding>,
    /// The key of the long-lived identity that the agent's certificates name. It stays the same while the agent is here.
    pub(super) identity: Option<LongLivedKey>,
    wish: AtomicU8,
    /// Tasks that wait for a wish, each with the number of places in which it waits.
    waiting: Mutex<Vec<(Waker, u32)>>,
    /// Called at each new wish, for readers that do not wait in Rust.
    hook: Mutex<Option<Hook>>,
    /// The channel on which the agent reports that it is at rest, while it is asked to rest.
    pub(super) rest: Mutex<Option<Rest>>,
    interceptor: Interception,
    /// The places for messages that nobody waits for and that wait for room.
    posted: Arc<Semaphore>,
}

impl Entry {
    pub(super) fn new(
        number: u64,
        outbox: Outbox,
        standing: CertificateStanding,
        identity: Option<LongLivedKey>,
    ) -> Entry {
        Entry {
            aid: outbox.aid(),
            number,
            outbox: ArcSwap::from_pointee(outbox),
            standing: Mutex::new(standing),
            identity,
            wish: AtomicU8::new(NO_WISH),
            waiting: Mutex::default(),
            hook: Mutex::default(),
            rest: Mutex::default(),
            interceptor: Interception::default(),
            posted: Arc::new(Semaphore::new(POSTED)),
        }
    }

    /// Sets a wish. A wish to stop is never taken back, and replaces a wish to freeze.
    pub(super) fn wish(&self, wish: Wish) {
        let code = match wish {
            Wish::Freeze => FREEZE,
            Wish::Stop => STOP,
        };
        self.wish.fetch_max(code, Ordering::AcqRel);
        let waiting: Vec<Waker> = self
            .waiting
            .lock()
            .iter()
            .map(|(task, _)| task.clone())
            .collect();
        for task in waiting {
            task.wake();
        }
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook();
        }
    }

    pub(super) fn withdraw_freeze(&self) {
        let _ = self
            .wish
            .compare_exchange(FREEZE, NO_WISH, Ordering::AcqRel, Ordering::Acquire);
        *self.rest.lock() = None;
    }

    fn wished(&self) -> Option<Wish> {
        match self.wish.load(Ordering::Acquire) {
            NO_WISH => None,
            FREEZE => Some(Wish::Freeze),
            _ => Some(Wish::Stop),
        }
    }
}

/// The wish for one agent. This handle is separate, so that a task can wait for a wish and a message at the same time.
#[derive(Clone)]
pub struct Wishes(Arc<Entry>);

impl Wishes {
    /// The present wish.
    pub fn current(&self) -> Option<Wish> {
        self.0.wished()
    }

    /// Whether the agent must stop.
    pub fn is_stop_wished(&self) -> bool {
        self.current() == Some(Wish::Stop)
    }

    /// Waits until there is a wish. Safe to cancel.
    pub async fn wished(&self) -> Wish {
        self.until(|wish| wish).await
    }

    /// Waits until the agent must stop. Safe to cancel.
    pub async fn stop_wished(&self) {
        self.until(|wish| wish.filter(|wish| *wish == Wish::Stop))
            .await;
    }

    async fn until<T>(&self, ready: impl Fn(Option<Wish>) -> Option<T>) -> T {
        let mut place = WishPlace {
            entry: &self.0,
            task: None,
        };
        poll_fn(|context| {
            if let Some(value) = ready(self.0.wished()) {
                return Poll::Ready(value);
            }
            place.take(context.waker());
            // A wish that comes in between is not missed.
            ready(self.0.wished()).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// A place among the tasks that wait for a wish. It is smaller than that of a [`tokio::sync::Notify`], of which an idle
/// agent would hold several.
struct WishPlace<'a> {
    entry: &'a Entry,
    task: Option<Waker>,
}

impl WishPlace<'_> {
    fn take(&mut self, task: &Waker) {
        if self
            .task
            .as_ref()
            .is_some_and(|known| known.will_wake(task))
        {
            return;
        }
        self.leave();
        let mut waiting = self.entry.waiting.lock();
        match waiting.iter_mut().find(|(known, _)| known.will_wake(task)) {
            Some((_, places)) => *places += 1,
            None => waiting.push((task.clone(), 1)),
        }
        self.task = Some(task.clone());
    }

    fn leave(&mut self) {
        let Some(task) = self.task.take() else {
            return;
        };
        let mut waiting = self.entry.waiting.lock();
        if let Some(index) = waiting.iter().position(|(known, _)| known.will_wake(&task)) {
            waiting[index].1 -= 1;
            if waiting[index].1 == 0 {
                waiting.swap_remove(index);
            }
        }
    }
}

impl Drop for WishPlace<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An agent of this process: the one reader of its mailbox.
///
/// Dropping it takes the agent off the platform, as [`leave`](Self::leave) does.
pub struct AgentHandle {
    process: Process,
    entry: Arc<Entry>,
    outbox: Arc<Outbox>,
    mailbox: Mailbox,
    /// The state that the agent brought from its former node.
    state: Option<Box<[u8]>>,
    /// How the agent leaves; `None` if it just ends.
    parting: Option<Box<Parting>>,
}

impl AgentHandle {
    pub(super) fn new(
        process: Process,
        entry: Arc<Entry>,
        mailbox: Mailbox,
        state: Option<Vec<u8>>,
    ) -> AgentHandle {
        let outbox = entry.outbox.load_full();
        AgentHandle {
            process,
            entry,
            outbox,
            mailbox,
            state: state.map(Vec::into_boxed_slice),
            parting: None,
        }
    }

    /// The agent's local name: `seller-1` of `seller-1@factory`.
    pub fn name(&self) -> &str {
        self.entry.aid.local_name()
    }

    /// The agent's identifier.
    pub fn aid(&self) -> &Aid {
        &self.entry.aid
    }

    /// The process that it runs in.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends a message to all its receivers. Waits while one of them has no room.
    ///
    /// `sender` may be left open. A message that cannot be delivered later comes back as a `failure` from the AMS.
    pub async fn send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), SendError> {
        self.outbox.send(message).await
    }

    /// Sends a message to all its receivers as `delivery` says: kept for absent receivers, with an expiry, or with a
    /// receipt. A persistent message is on a disk of the platform when this returns.
    pub async fn send_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        delivery: Delivery,
    ) -> Result<(), SendError> {
        self.outbox.send_with(message, delivery).await
    }

    /// Like [`send`](Self::send), without waiting.
    pub fn try_send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), TrySendError> {
        self.outbox.try_send(message)
    }

    /// The agent's sending end.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// A sending end for other tasks and threads. It stays valid after a failed move.
    pub fn sender(&self) -> AgentSender {
        AgentSender::new(self.entry.clone())
    }

    /// The agent's receiving end, with all its ways of reading.
    pub fn mailbox(&mut self) -> &mut Mailbox {
        &mut self.mailbox
    }

    /// Opens conversations of the agent, also from other tasks.
    pub fn conversations(&self) -> Conversations {
        self.mailbox.conversations()
    }

    /// Waits for the next message. Returns `None` when the mailbox is closed and empty. Safe to cancel.
    pub async fn receive(&mut self) -> Option<ReceivedMessage> {
        self.mailbox.recv().await
    }

    /// The wish for this agent.
    pub fn wishes(&self) -> Wishes {
        Wishes(self.entry.clone())
    }

    /// After the platform has given up this process: the next unread failure notice about a message that was accepted
    /// and may not have arrived.
    pub fn try_receive_failure(&mut self) -> Option<ReceivedMessage> {
        self.process.bus().given_up()?;
        let is_failure = |received: &ReceivedMessage| {
            received.provenance().is_of_platform()
                && received.message().performative() == Performative::Failure
        };
        self.mailbox.try_receive_matching(is_failure)
    }

    /// Calls `hook` at each new wish, and at each message that arrives after an attempt to receive found none. The hook
    /// runs on the thread that brings the news and must be quick, such as a write to an eventfd.
    pub fn set_hook(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        let hook: Hook = Arc::new(hook);
        *self.entry.hook.lock() = Some(hook.clone());
        let wished = self.entry.wished().is_some();
        if wished {
            hook();
        }
        self.mailbox.set_hook(move || hook());
    }

    /// The state that the agent's `save` hook returned at its former node. `None` if it was taken already, and for an
    /// agent that did not move.
    pub fn take_state(&mut self) -> Option<Vec<u8>> {
        self.state.take().map(Vec::from)
    }

    /// Begins the answer to [`Wish::Freeze`]. From now on the agent's subscriptions, including those that its tasks
    /// read, hand out nothing and count nothing more as handled. Call this before saving the state. They go on when
    /// [`hand_over`](Self::hand_over) says so, or after [`decline_move`](Self::decline_move).
    pub fn come_to_rest(&self) {
        self.channels().rest(&self.entry.aid.name);
    }

    /// Answers [`Wish::Freeze`]: hands over the state and the unread messages, and waits for the outcome of the move.
    /// The agent must be at rest: if it moves, messages that it sends and changes that it makes from here on are lost.
    pub async fn hand_over(&mut self, state: Vec<u8>) -> Thawed {
        self.come_to_rest();
        let thawed = self.until_thawed(state).await;
        if thawed == Thawed::GoOn {
            self.channels().go_on(&self.entry.aid.name);
        }
        thawed
    }

    fn channels(&self) -> Channels {
        Channels::of(&self.process.shared.bus)
    }

    async fn until_thawed(&mut self, state: Vec<u8>) -> Thawed {
        let Some(rest) = self.entry.rest.lock().take() else {
            return Thawed::GoOn;
        };
        // The wish was withdrawn: another agent of the process could not be moved, or freezing took too long.
        let Some(drain) = rest.ready(state).await else {
            return Thawed::GoOn;
        };
        // An empty, closed mailbox stands in until there is a new one.
        let (_, empty) = sealbus_bus::mailbox(sealbus_bus::MailboxLimits::default());
        let resting = std::mem::replace(&mut self.mailbox, empty).rest();
        match drain.hand_over(resting).await {
            Some((outbox, mut mailbox)) => {
                if let Some(hook) = self.entry.hook.lock().clone() {
                    mailbox.set_hook(move || hook());
                }
                self.outbox = outbox;
                self.mailbox = mailbox;
                Thawed::GoOn
            }
            None => {
                self.parting = Some(Box::new(Parting::Moved));
                Thawed::Gone
            }
        }
    }

    /// Answers [`Wish::Freeze`]: the agent cannot be moved, for this reason. It goes on here.
    pub fn decline_move(&mut self, reason: &str) {
        if let Some(rest) = self.entry.rest.lock().take() {
            rest.decline(reason.to_owned());
        }
        self.entry.withdraw_freeze();
        self.channels().go_on(&self.entry.aid.name);
    }

    /// The events that the agent has published on channels and that have not arrived.
    pub fn undelivered(&self) -> Vec<UndeliveredEvents> {
        self.channels().undelivered(&self.entry.aid.name)
    }

    /// Waits until the events that the agent has published on channels have arrived: at a member of each group, and at
    /// every process with a subscription. Waits for `limit` at most, and names the messages that have not arrived in
    /// the log. An agent that leaves in order waits for this before it [leaves](Self::leave).
    pub fn until_delivered(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Vec<UndeliveredEvents>> + Send + use<> {
        let (shared, entry) = (self.process.shared.clone(), self.entry.clone());
        async move { shared.until_delivered(&entry, limit).await }
    }

    /// Leaves the platform in this way. Unread messages go back to their senders.
    pub fn leave(mut self, parting: Parting) {
        // An agent that moved has nothing more to report here.
        if self.parting.as_deref() != Some(&Parting::Moved) {
            self.parting = Some(Box::new(parting));
        }
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        let parting = self.parting.as_deref().unwrap_or(&Parting::Ended);
        // The agent is still attached at this point, so that its unread messages find their way back to their senders.
        let (_, empty) = sealbus_bus::mailbox(sealbus_bus::MailboxLimits::default());
        drop(std::mem::replace(&mut self.mailbox, empty));
        self.process.shared.remove(&self.entry, parting);
    }
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandle")
            .field("agent", &self.entry.aid.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wishes")
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}
