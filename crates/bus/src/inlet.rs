//! What the buses of two processes say to each other: frames, carried by a [`Transport`](crate::Transport) in order
//! and once. To the transport a frame is bytes; what stands in it is the business of the [`FrameInlet`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_fipa::AclMessageRef;
use sealbus_seal::Identity;

use crate::agent::LocalAgent;
use crate::credit::WindowCredit;
use crate::error::UndeliverableReason;
use crate::gate::Gate;
use crate::mailbox::{MESSAGE_OVERHEAD, WindowListener};
use crate::message::Provenance;
use crate::refusal::RefusalReason;
use crate::resolver::ProcessEndpoint;
use crate::transport::Rejected;

/// The writer of a frame.
#[derive(Clone, Copy, Debug)]
pub enum FrameSender<'a> {
    /// The process itself: what it says of its subscriptions, of credit and the like.
    Process,
    /// An agent of this process, which proves itself as it does for messages.
    Agent(&'a Arc<LocalAgent>),
}

/// A frame on its way out: its head and, right behind it, its body and its tail.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingFrame<'a> {
    /// The writer.
    pub sender: FrameSender<'a>,
    /// Its beginning, which may differ from process to process. Some hundred bytes.
    pub head: &'a [u8],
    /// Most of it if it is long, the same for all processes it goes to: a transport keeps it without copying it.
    pub body: &'a Bytes,
    /// The end mark; a few bytes.
    pub tail: &'static [u8],
    /// Whether the caller promises to call [`Transport::flush`](crate::Transport::flush) soon, so that nobody needs to
    /// be woken now.
    pub is_deferred: bool,
}

impl OutgoingFrame<'_> {
    /// Bytes of all.
    pub fn length(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// All of it in one piece; copied unless there is nothing but the body.
    pub fn to_bytes(&self) -> Bytes {
        if self.head.is_empty() && self.tail.is_empty() {
            return self.body.clone();
        }
        [self.head, self.body, self.tail].concat().into()
    }
}

/// The way to the bus of another process. Calls do not wait.
///
/// What it accepted is [taken](FrameInlet::take) there once and in the order of acceptance, whoever wrote it, or
/// comes back through [`FrameInlet::lost`]. Its room is its own: an inlet that gives no credit holds up no agent's messages.
pub trait ProcessDestination: Send + Sync {
    /// Accepts the frame for delivery in order, or says why not.
    ///
    /// # Errors
    /// [`Rejected`]; nothing was accepted then. After [`Rejected::Closed`] the way must be asked for anew;
    /// [`Rejected::Moving`] says that it will be closed once all that was accepted has come back.
    fn try_send(&self, frame: &OutgoingFrame<'_>) -> Result<(), Rejected>;

    /// Where senders wait that were told [`Rejected::Full`]. It opens wide when the way ends.
    fn gate(&self) -> &Gate;
}

/// The writer of a frame that arrived, as far as the transport proved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameOrigin {
    /// The process itself.
    Process,
    /// An agent of that process, by its name.
    Agent(Arc<str>),
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct ArrivedFrame {
    /// The process it came from.
    pub process: Arc<Identity>,
    /// The writer.
    pub origin: FrameOrigin,
    /// The proof of its writer.
    pub provenance: Provenance,
    /// The frame.
    pub payload: Bytes,
    /// The room it takes; the sending process has it again when this is dropped.
    pub credit: FrameCredit,
}

impl ArrivedFrame {
    /// Whether an ACL message that the frame carries is of the one who wrote the frame.
    ///
    /// # Errors
    /// [`Refused`] with `forged-sender` if not: only agents write messages, each under its own name.
    pub fn check_message(&self, message: &AclMessageRef<'_>) -> Result<(), Refused> {
        match &self.origin {
            FrameOrigin::Agent(name) => check_sender(name, message),
            FrameOrigin::Process => Err(Refused {
                reason: RefusalReason::ForgedSender,
                explanation: format!("{} sent an agent's message as its own", self.process),
            }),
        }
    }
}

/// Whether the `:sender` of a message is the name that its sender proved, or at levels without proofs claims.
///
/// # Errors
/// [`Refused`] with `forged-sender`.
pub fn check_sender(proved: &str, message: &AclMessageRef<'_>) -> Result<(), Refused> {
    let explanation = match message.sender() {
        Some(claimed) if *claimed.name() == *proved => return Ok(()),
        Some(claimed) => format!("{proved} wrote under the name of {}", claimed.name()),
        None => format!("{proved} wrote without its name"),
    };
    Err(Refused {
        reason: RefusalReason::ForgedSender,
        explanation,
    })
}

/// Why something that arrived is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, for machines.
    pub reason: RefusalReason,
    /// Why, for people.
    pub explanation: String,
}

/// A frame that arrived and is not taken.
#[derive(Debug)]
pub struct RefusedFrame {
    /// Which of the frames that came together it was, from 0.
    pub place: usize,
    /// The frame.
    pub frame: ArrivedFrame,
    /// Why.
    pub refused: Refused,
}

/// A frame that was accepted for another process and not taken there.
#[derive(Clone, Debug)]
pub struct LostFrame {
    /// The agent that wrote it; `None`: the process itself.
    pub sender: Option<Arc<str>>,
    /// The frame.
    pub payload: Bytes,
    /// Whether it may have been taken all the same.
    pub may_have_arrived: bool,
}

/// Takes the frames that other processes send to the bus of this one. Calls come from the tasks of transports and
/// must not wait.
pub trait FrameInlet: Any + Send + Sync {
    /// Frames have arrived, oldest first; `frames` is empty afterwards. The transport has proved their `origin`; what they say
    /// is not checked yet.
    ///
    /// Gives back those that are not taken: the transport tells the sending process, which finds them
    /// [lost](Self::lost); they are counted and logged by [`Bus::take_frames`](crate::Bus::take_frames).
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame>;

    /// There is another process on the platform, or one that was known has another address now.
    fn process_joined(&self, process: &ProcessEndpoint);

    /// A process is no more: nothing sent to it arrives, and it never comes back under this identity.
    fn process_left(&self, process: &Identity);

    /// An agent of this process was [detached](crate::Bus::detach).
    fn agent_left(&self, _name: &str) {}

    /// Frames that were accepted for `process` were not taken there, oldest first.
    fn lost(&self, process: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason);
}

/// The credit of one other process with the inlet of this one: the receiving side of a [`ProcessDestination`]'s credit.
pub struct FrameWindow {
    listener: Arc<dyn WindowListener>,
    size: u64,
    credit: Mutex<WindowCredit>,
}

impl FrameWindow {
    /// A window of `size` bytes; `listener` hears (with tag 0) of the limit as it rises.
    pub fn new(size: u64, listener: Arc<dyn WindowListener>) -> Arc<Self> {
        Arc::new(Self {
            listener,
            size,
            credit: Mutex::new(WindowCredit::new(size)),
        })
    }

    /// Bytes that may be sent at the beginning, each frame counted with [`MESSAGE_OVERHEAD`].
    pub fn first_limit(&self) -> u64 {
        self.size
    }

    /// The credit of a frame of that length, which the limit covers.
    pub fn credit(self: &Arc<Self>, payload_length: usize) -> FrameCredit {
        FrameCredit {
            window: Some(self.clone()),
            cost: (payload_length + MESSAGE_OVERHEAD) as u64,
        }
    }

    fn give_back(&self, cost: u64) {
        let limit = self.credit.lock().take(cost, self.size);
        if let Some(limit) = limit {
            self.listener.widened(0, limit);
        }
    }
}

/// The room that a frame takes of its [`FrameWindow`]: given back when this is dropped.
pub struct FrameCredit {
    window: Option<Arc<FrameWindow>>,
    cost: u64,
}

impl FrameCredit {
    /// The credit of a frame that nobody has to pay for, as of a transport that pushes back by other means.
    pub const fn free() -> Self {
        Self {
            window: None,
            cost: 0,
        }
    }
}

impl Drop for FrameCredit {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            window.give_back(self.cost);
        }
    }
}

impl fmt::Debug for FrameCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCredit")
            .field("bytes", &self.cost)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FrameWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWindow")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
